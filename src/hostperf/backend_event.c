// SPDX-License-Identifier: MIT
/*
 * The event backend: each counter of the guest that counts is an event of the host, which competes
 * with the host's own for a physical counter and may get another one than its number says. As in
 * KVM it is pinned, belongs to the vCPU's task and excludes the host; fixed counters ask for the
 * equivalent event. The guest never learns whether it got a counter; hostperf_starved() tells the
 * hypervisor. PEBS, branch records, IBS and off-core responses go to the physical PMU at once, but
 * PEBS is off for a counter that an event of another number has. vCPU thread.
 */
#include "hostperf/priv.h"

static u32 slot(u32 counter)
{
	return counter < PMU_FIXED_BASE ? counter : counter - PMU_FIXED_BASE + PMU_GENERAL;
}

static u32 counter_at(u32 i)
{
	return i < PMU_GENERAL ? i : PMU_FIXED_BASE + i - PMU_GENERAL;
}

/* What a guest counter asks for, as an event select. */
static u64 select_of(const struct pmu *pmu, u32 counter, u64 control)
{
	u32 i = counter - PMU_FIXED_BASE;

	if (counter < PMU_FIXED_BASE)
		return control & ~(EVENTSEL_EN | EVENTSEL_INT | EVENTSEL_PC);
	return hostperf_fixed_event(i) | (control & FIXED_CTRL_OS ? EVENTSEL_OS : 0) |
	       (control & FIXED_CTRL_USR ? EVENTSEL_USR : 0) |
	       (pmu->fixed_ctrl & FIXED_CTRL_ADAPTIVE(i) ? EVENTSEL_ADAPTIVE : 0);
}

static void restart(struct hostperf_guest *guest, struct pmu *pmu, u32 counter, bool written)
{
	struct host_event *event = &guest->event[slot(counter)];
	u64 control = pmu_counting_control(pmu, counter);

	hostperf_remove(guest->host, event);
	*event = (struct host_event){
		.select = select_of(pmu, counter, control),
		.flags = HOST_PINNED | HOST_TASK | HOST_EXCLUDE_HOST,
		.preferred = BIT(counter),
		.value = written ? pmu_value(pmu, counter) : event->value,
		.part = written ? pmu_part(pmu, counter) : event->part,
	};
	if (control)
		hostperf_add(guest->host, event);
}

static void note_latency(struct hostperf_guest *guest, const struct pmu *pmu)
{
	guest->latency = 0;
	for (u32 i = 0; i < pmu->general; i++)
		if ((pmu->select[i] & (EVENTSEL_EVENT | EVENTSEL_UMASK)) == PEBS_LOAD_LATENCY)
			guest->latency |= BIT(i);
}

static void load(void *data, struct pmu *pmu, u64 controls, u64 values)
{
	struct hostperf_guest *guest = data;

	hostperf_load_offcore(guest->host->hw, pmu);
	for (u64 left = controls | (values & ~GLOBAL_METRICS); left;) {
		u32 counter = next_bit(&left);

		restart(guest, pmu, counter, values & BIT(counter));
	}
	if (controls | values)
		hostperf_schedule(guest->host);
	if (!(pmu->global_status & GLOBAL_STATUS_DS) &&
	    (guest->host->hw->global_status & GLOBAL_STATUS_DS))
		hwpmu_reset_status(guest->host->hw, GLOBAL_STATUS_DS);
	if (values & GLOBAL_METRICS)
		hwpmu_set_metrics(guest->host->hw, &pmu->metrics);
	guest->metrics = pmu_metrics_enabled(pmu);
	note_latency(guest, pmu);
	hostperf_settle_guest(guest);
}

static void save(void *data, struct pmu *pmu)
{
	struct hostperf_guest *guest = data;

	for (u64 left = pmu->all & ~pmu->stale; left;) {
		u32 counter = next_bit(&left);

		pmu_set_value(pmu, counter,
			      hostperf_read(guest->host, &guest->event[slot(counter)]));
		pmu_set_part(pmu, counter,
			     hostperf_part(guest->host, &guest->event[slot(counter)]));
	}
	if (pmu->has_metrics && !(pmu->stale & GLOBAL_METRICS))
		pmu->metrics = hwpmu_metrics(guest->host->hw);
}

static void forget_metrics(struct hostperf_guest *guest)
{
	struct hwpmu *hw = guest->host->hw;

	guest->metrics = false;
	if (hw->model->metrics)
		hwpmu_set_metrics(hw, &(struct metrics){ 0 });
}

static void unload(void *data)
{
	struct hostperf_guest *guest = data;

	forget_metrics(guest);
	for (u32 i = 0; i < PMU_COUNTERS; i++) {
		hostperf_remove(guest->host, &guest->event[i]);
		guest->event[i] = (struct host_event){ 0 };
	}
	guest->pebs = (struct pebs_control){ 0 };
	hwpmu_write_pebs(guest->host->hw, &guest->pebs);
	hostperf_schedule(guest->host);
}

static u64 overflowed(void *data)
{
	struct hostperf_guest *guest = data;
	u64 counters = 0;

	hostperf_collect(guest->host);
	for (u32 i = 0; i < PMU_COUNTERS; i++)
		if (guest->event[i].overflows) {
			guest->event[i].overflows = 0;
			counters |= BIT(counter_at(i));
		}
	if (guest->host->store_is_full)
		counters |= GLOBAL_STATUS_DS;
	guest->host->store_is_full = false;
	return counters;
}

/* --- PEBS --- */

/* Physical counters that count something else than the guest's of the same number. KVM: a record
 * names the physical counter, so that there is none for an event on another one. */
static u64 taken(const struct hostperf_guest *guest)
{
	const struct hostperf *host = guest->host;
	u64 counters = 0;

	for (u32 i = 0; i < host->nevents; i++) {
		const struct host_event *event = host->event[i];

		if (event->state == HOST_COUNTING && event != &guest->event[slot(event->counter)])
			counters |= BIT(event->counter);
	}
	return counters;
}

/* Metrics count the slots of the guest alone: while fixed counter 3 has its event. */
static void settle_metrics(struct hostperf_guest *guest)
{
	const u32 slots = PMU_FIXED_BASE + 3;
	const struct host_event *event = &guest->event[slot(slots)];
	struct hwpmu *hw = guest->host->hw;
	u64 control = hw->global_ctrl & ~GLOBAL_METRICS;

	if (guest->host->yielded || !hw->model->metrics)
		return;
	if (guest->metrics && event->state == HOST_COUNTING && event->counter == slots)
		control |= GLOBAL_METRICS;
	if (hw->global_ctrl != control)
		hwpmu_write_global_ctrl(hw, control);
}

static void settle_pebs(struct hostperf_guest *guest)
{
	struct pebs_control control = guest->pebs;

	/* Bit 32+i of a counter i that samples by latency is no fixed counter's. The hardware looks
	 * at selects for that, but has only those that count. */
	if (control.has_latency_bits)
		control.enable &= ~((control.enable & guest->latency) << PMU_FIXED_BASE);
	control.enable &= ~taken(guest);
	if (guest->host->hw->pebs.enable != control.enable)
		hwpmu_write_pebs(guest->host->hw, &control);
}

void hostperf_settle_guest(struct hostperf_guest *guest)
{
	settle_metrics(guest);
	settle_pebs(guest);
}

static void pebs(void *data, const struct pebs_control *control)
{
	struct hostperf_guest *guest = data;

	guest->pebs = *control;
	hwpmu_write_pebs(guest->host->hw, control);
	settle_pebs(guest);
}

static struct hwpmu *hw_of(const void *data)
{
	const struct hostperf_guest *guest = data;

	return guest->host->hw;
}

static void record(void *data, const struct lbr_control *control)
{
	hostperf_record(hw_of(data), control);
}

static u64 read_record(const void *data, enum lbr_field field, u32 i)
{
	return hostperf_read_record(hw_of(data), field, i);
}

static void write_record(void *data, enum lbr_field field, u32 i, u64 value)
{
	hostperf_write_record(hw_of(data), field, i, value);
}

static void clear_records(void *data)
{
	hostperf_clear_records(hw_of(data));
}

/* IBS has counters of its own, which no event of the host wants. */
static u64 read_ibs(const void *data, enum ibs_register reg)
{
	return hostperf_read_ibs(hw_of(data), reg);
}

static void write_ibs(void *data, enum ibs_register reg, u64 value)
{
	hostperf_write_ibs(hw_of(data), reg, value);
}

u64 hostperf_starved(const struct hostperf_guest *guest)
{
	u64 counters = 0;

	for (u32 i = 0; i < PMU_COUNTERS; i++)
		if (guest->event[i].state == HOST_ERROR)
			counters |= BIT(counter_at(i));
	return counters;
}

const struct pmu_backend hostperf_event = {
	.name = "event",
	.owns_hardware = false,
	.load = load,
	.save = save,
	.unload = unload,
	.overflowed = overflowed,
	.record = record,
	.read_record = read_record,
	.write_record = write_record,
	.clear_records = clear_records,
	.pebs = pebs,
	.read_ibs = read_ibs,
	.write_ibs = write_ibs,
};
