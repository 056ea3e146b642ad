// SPDX-License-Identifier: MIT
/*
 * Placing events on counters. A plan is computed from scratch each time, rank by rank, as a
 * matching of events and counters: an event that is placed may move to another counter that suits
 * it, but is never displaced by a lower rank. Then the hardware is made to follow the plan, and
 * counters whose event stays are not touched. Here the hardware is also handed to a guest and taken
 * back. vCPU thread.
 */
#include "hostperf/priv.h"

struct plan {
	struct host_event *at[HWPMU_COUNTERS]; /* general, then fixed */
};

static u32 slot(u32 counter)
{
	return counter < PMU_FIXED_BASE ? counter : counter - PMU_FIXED_BASE + HWPMU_GENERAL;
}

/* --- which counters an event can have --- */

/* What a fixed counter does not have, besides an event: of Intel's selects. */
#define MODIFIERS \
	(EVENTSEL_EDGE | EVENTSEL_INV | EVENTSEL_CMASK | EVENTSEL_IN_TX | EVENTSEL_IN_TXCP)

/* What the fixed counters count, as an event select. The last two exist there only: codes of event
 * 0 are Linux's way to name them. */
static const struct {
	u64 code;
	bool general_too;
} fixed_events[HWPMU_FIXED] = {
	{ 0x00c0, true },
	{ 0x003c, true },
	{ 0x0300, false },
	{ 0x0400, false },
};

/* Events that only the first four counters have (Linux: intel_icl_event_constraints). */
static const struct {
	enum model_set models;
	u8 first, last;
} low_four[] = {
	{ MODEL_ICELAKE | MODEL_SAPPHIRERAPIDS, 0x03, 0x0a },
	{ MODEL_ICELAKE | MODEL_SAPPHIRERAPIDS, 0x1f, 0x28 },
	{ MODEL_ICELAKE | MODEL_SAPPHIRERAPIDS, 0xd0, 0xe6 },
};

u64 hostperf_fixed_event(u32 i)
{
	return fixed_events[i].code;
}

static u64 general_counters(const struct pmu_model *model, u64 select)
{
	u8 event = select & EVENTSEL_EVENT;

	for (u32 i = 0; i < ARRAY_SIZE(low_four); i++)
		if ((low_four[i].models & model->set) && event >= low_four[i].first &&
		    event <= low_four[i].last)
			return MASK(3, 0);
	return BIT(model->general) - 1;
}

static u64 possible(const struct pmu_model *model, u64 select)
{
	u64 general = general_counters(model, select);

	if (model->is_amd)
		return general;
	for (u32 i = 0; i < HWPMU_FIXED; i++) {
		u64 fixed = i < model->fixed ? BIT(PMU_FIXED_BASE + i) : 0;

		if ((select & (EVENTSEL_EVENT | EVENTSEL_UMASK | MODIFIERS)) ==
		    fixed_events[i].code)
			return fixed | (fixed_events[i].general_too ? general : 0);
	}
	return general;
}

/* --- the plan --- */

/* A free counter. Fixed ones first: few events can use them. */
static bool place_free(struct plan *plan, struct host_event *event, u64 counters)
{
	const u64 halves[] = { counters & ~MASK(31, 0), counters & MASK(31, 0) };

	for (u32 i = 0; i < ARRAY_SIZE(halves); i++)
		for (u64 left = halves[i]; left;) {
			u32 at = slot(next_bit(&left));

			if (plan->at[at])
				continue;
			plan->at[at] = event;
			return true;
		}
	return false;
}

/* Or one whose event finds another, and so on: an augmenting path of the matching. */
static bool place(const struct hostperf *host, struct plan *plan, struct host_event *event,
		  u64 *tried)
{
	u64 counters = possible(host->hw->model, event->select);

	if (place_free(plan, event, counters & ~*tried & event->preferred) ||
	    place_free(plan, event, counters & ~*tried))
		return true;
	for (u64 left = counters & ~*tried; left;) {
		u32 counter = next_bit(&left);
		struct host_event **at = &plan->at[slot(counter)];

		if (*tried & BIT(counter))
			continue;
		*tried |= BIT(counter);
		if (!place(host, plan, *at, tried))
			continue;
		*at = event;
		return true;
	}
	return false;
}

static bool wants_placing(const struct host_event *event)
{
	return event->state == HOST_WAITING || event->state == HOST_COUNTING;
}

/* Do these events belong together: of one group, or the leader itself? */
static bool in_unit(const struct host_event *leader, const struct host_event *event)
{
	return event == leader || (leader->group && event->group == leader->group);
}

static bool place_unit(struct hostperf *host, struct plan *plan, const struct host_event *leader)
{
	struct plan before = *plan;

	for (u32 i = 0; i < host->nevents; i++) {
		u64 tried = 0;

		if (!in_unit(leader, host->event[i]) || place(host, plan, host->event[i], &tried))
			continue;
		*plan = before;
		return false;
	}
	return true;
}

static bool leads(const struct hostperf *host, u32 n)
{
	for (u32 i = 0; i < n; i++)
		if (in_unit(host->event[n], host->event[i]))
			return false;
	return true;
}

static void fail_unit(struct hostperf *host, const struct host_event *leader)
{
	for (u32 i = 0; i < host->nevents; i++)
		if (in_unit(leader, host->event[i]))
			host->event[i]->state = HOST_ERROR;
}

static u32 rank(const struct host_event *event)
{
	return (event->flags & HOST_PINNED ? 0 : 2) + (event->flags & HOST_TASK ? 1 : 0);
}

#define RANKS 4

static void make_plan(struct hostperf *host, struct plan *plan)
{
	for (u32 r = 0; r < RANKS; r++)
		for (u32 i = 0; i < host->nevents; i++) {
			/* Flexible events start at another one each rotation. */
			u32 n = r < 2 ? i : (i + host->rotation) % host->nevents;
			struct host_event *event = host->event[n];

			if (rank(event) != r || !wants_placing(event) || !leads(host, n))
				continue;
			if (!place_unit(host, plan, event) && (event->flags & HOST_PINNED))
				fail_unit(host, event);
		}
}

/* --- the hardware --- */

void hostperf_set_control(struct hwpmu *hw, u32 counter, u64 select)
{
	if (counter < PMU_FIXED_BASE) {
		hwpmu_write_select(hw, counter, select);
	} else {
		u32 shift = (counter - PMU_FIXED_BASE) * FIXED_CTRL_BITS;
		u64 field = (select & EVENTSEL_OS ? FIXED_CTRL_OS : 0) |
			    (select & EVENTSEL_USR ? FIXED_CTRL_USR : 0);
		u64 adaptive = FIXED_CTRL_ADAPTIVE(counter - PMU_FIXED_BASE);
		u64 others = hw->fixed_ctrl & ~(MASK(FIXED_CTRL_BITS - 1, 0) << shift | adaptive);

		hwpmu_write_fixed_ctrl(hw, others | field << shift |
						   (select & EVENTSEL_ADAPTIVE ? adaptive : 0));
	}
}

static u8 scope(const struct host_event *event)
{
	return (event->flags & HOST_EXCLUDE_GUEST ? 0 : HWPMU_GUEST) |
	       (event->flags & HOST_EXCLUDE_HOST ? 0 : HWPMU_HOST);
}

static void start(struct hostperf *host, struct host_event *event, u32 counter)
{
	hwpmu_write_scope(host->hw, counter, scope(event));
	hostperf_set_control(host->hw, counter, event->select | EVENTSEL_EN);
	hwpmu_write(host->hw, counter, event->value);
	hwpmu_write_part(host->hw, counter, event->part);
	event->state = HOST_COUNTING;
	event->counter = counter;
}

static void stop(struct hostperf *host, struct host_event *event)
{
	event->value = hwpmu_read(host->hw, event->counter);
	event->part = hwpmu_part(host->hw, event->counter);
	hostperf_set_control(host->hw, event->counter, 0);
	event->state = HOST_WAITING;
}

static u32 counter_at(u32 i)
{
	return i < HWPMU_GENERAL ? i : PMU_FIXED_BASE + i - HWPMU_GENERAL;
}

/* An event that counted until now may have failed: it is found by its counter in the old plan. */
static void follow(struct hostperf *host, const struct plan *plan, const struct plan *old)
{
	for (u32 i = 0; i < HWPMU_COUNTERS; i++)
		if (old->at[i] && old->at[i] != plan->at[i]) {
			enum host_event_state state = old->at[i]->state;

			stop(host, old->at[i]);
			if (state == HOST_ERROR)
				old->at[i]->state = HOST_ERROR;
		}
	for (u32 i = 0; i < HWPMU_COUNTERS; i++)
		if (plan->at[i] && old->at[i] != plan->at[i])
			start(host, plan->at[i], counter_at(i));
}

static struct plan plan_in_force(const struct hostperf *host)
{
	struct plan plan = { 0 };

	for (u32 i = 0; i < host->nevents; i++)
		if (host->event[i]->state == HOST_COUNTING)
			plan.at[slot(host->event[i]->counter)] = host->event[i];
	return plan;
}

void hostperf_schedule(struct hostperf *host)
{
	struct plan old = plan_in_force(host), plan = { 0 };

	if (host->yielded)
		return;
	hostperf_collect(host);
	make_plan(host, &plan);
	follow(host, &plan, &old);
}

/* --- the hardware for a guest --- */

void hostperf_yield(struct hostperf *host)
{
	struct plan old = plan_in_force(host), nothing = { 0 };

	if (host->yielded)
		return;
	hostperf_collect(host);
	follow(host, &nothing, &old);
	hwpmu_reset(host->hw);
	host->yielded = true;
}

void hostperf_resume(struct hostperf *host)
{
	if (!host->yielded)
		return;
	host->yielded = false;
	hostperf_schedule(host);
}
