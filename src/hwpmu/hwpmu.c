// SPDX-License-Identifier: MIT
/*
 * The counters of a logical processor: which of them run, what they read, when they overflow. A
 * running counter is its value at a mark plus what its tallies grew since; settling moves the mark
 * to now, and an overflow on the way is noticed. Whatever changes how a counter counts settles it
 * first. hwpmu_trips() also has runs end where the owner wants it, at a number of cycles (`alarm`)
 * or of instructions (`stop_at`), which no register shows. vCPU thread.
 */
#include "hwpmu/hwpmu.h"

#include "base/must.h"
#include "hwpmu/port.h"
#include "hwpmu/priv.h"

#define NEVER RETIRE_NEVER

static u32 next_bit(u64 *bits)
{
	u32 bit = __builtin_ctzll(*bits);

	*bits &= *bits - 1;
	return bit;
}

static bool is_fixed(u32 counter)
{
	return counter >= PMU_FIXED_BASE;
}

static inline u32 slot(u32 counter)
{
	return is_fixed(counter) ? counter - PMU_FIXED_BASE + HWPMU_GENERAL : counter;
}

static inline u64 wrap(const struct hwpmu *pmu, u32 counter)
{
	return BIT(is_fixed(counter) ? pmu->model->fixed_width : pmu->model->general_width);
}

u64 hwpmu_all(const struct hwpmu *pmu)
{
	return (BIT(pmu->model->general) - 1) | (BIT(pmu->model->fixed) - 1) << PMU_FIXED_BASE;
}

/* Occurrences of the counter's class up to now, in one scope. */
static inline u64 occurrences_in(const struct retire_tally *tally, const struct hwpmu_counter *c)
{
	u64 os = retire_count(tally, c->class, RETIRE_OS),
	    usr = retire_count(tally, c->class, RETIRE_USR);

	return (c->privileges & BIT(RETIRE_OS) ? os : 0) +
	       (c->privileges & BIT(RETIRE_USR) ? usr : 0);
}

static inline u64 occurrences(const struct hwpmu *pmu, const struct hwpmu_counter *c)
{
	u64 n = 0;

	if (c->scope & HWPMU_GUEST)
		n += occurrences_in(pmu->tally, c);
	if ((c->scope & HWPMU_HOST) && pmu->host)
		n += occurrences_in(pmu->host, c);
	return n;
}

u64 hwpmu_occurrences(const struct hwpmu *pmu, const struct hwpmu_counter *c)
{
	return occurrences(pmu, c);
}

/* Occurrences since the tally was at mark, and those before it that `value` does not have. */
static inline u64 since_mark(const struct hwpmu *pmu, const struct hwpmu_counter *c)
{
	return occurrences(pmu, c) - c->mark + c->part;
}

static inline u64 in_units(const struct hwpmu_counter *c, u64 n)
{
	return c->unit == 1 ? n : n / c->unit;
}

/* The value before it is reduced to the counter's width: a carry is an overflow. */
static inline u64 unwrapped(const struct hwpmu *pmu, u32 counter)
{
	const struct hwpmu_counter *c = &pmu->counter[slot(counter)];

	return pmu->running & BIT(counter) ? c->value + in_units(c, since_mark(pmu, c)) : c->value;
}

static bool wants_pmi(const struct hwpmu *pmu, u32 counter)
{
	if (is_fixed(counter))
		return fixed_ctrl_field(pmu->fixed_ctrl, counter - PMU_FIXED_BASE) & FIXED_CTRL_PMI;
	return pmu->select[counter] & EVENTSEL_INT;
}

static inline void settle(struct hwpmu *pmu, u32 counter)
{
	struct hwpmu_counter *c = &pmu->counter[slot(counter)];
	u64 grown, units, value;

	if (!(pmu->running & BIT(counter)))
		return;
	grown = since_mark(pmu, c);
	units = in_units(c, grown);
	value = c->value + units;
	if (value >= wrap(pmu, counter) && (hwpmu_pebs_counters(pmu) & BIT(counter))) {
		pmu->pebs_pending |= BIT(counter);
	} else if (value >= wrap(pmu, counter)) {
		pmu->global_status |= BIT(counter);
		pmu->overflowed |= BIT(counter);
		pmu->pmi |= wants_pmi(pmu, counter);
	}
	c->value = value & (wrap(pmu, counter) - 1);
	c->mark = occurrences(pmu, c);
	c->part = grown - units * c->unit;
}

/* --- what counts --- */

static void note_unknown(struct hwpmu *pmu, u64 select)
{
	u32 code = eventsel_code(select, pmu->model->is_amd);

	for (u32 i = 0; i < HWPMU_UNKNOWN; i++)
		if (pmu->unknown[i] == code + 1)
			return;
	pmu->unknown[pmu->nunknown++ % HWPMU_UNKNOWN] = code + 1;
	pmu->unreported++;
}

/* Deferred to hwpmu_retire(): registers may be written where the owner cannot log. */
static void report_unknown(struct hwpmu *pmu)
{
	u32 n = pmu->unreported < HWPMU_UNKNOWN ? pmu->unreported : HWPMU_UNKNOWN;

	for (; n; n--) {
		u32 code = pmu->unknown[(pmu->nunknown - n) % HWPMU_UNKNOWN] - 1;

		hwpmu_port_unknown_event(pmu, code & MASK(11, 0), code >> 12);
	}
	pmu->unreported = 0;
}

static bool is_decoded(const struct hwpmu *pmu, const struct hwpmu_decoded *d, u64 select)
{
	return d->valid && d->select == select && d->offcore[0] == pmu->offcore[0] &&
	       d->offcore[1] == pmu->offcore[1];
}

static struct hwpmu_event event_of(struct hwpmu *pmu, u32 i)
{
	u64 select = pmu->select[i] & ~(EVENTSEL_EN | EVENTSEL_INT | EVENTSEL_OS | EVENTSEL_USR);
	struct hwpmu_decoded *d = &pmu->decoded[i];

	if (is_decoded(pmu, d, select))
		return d->event;
	*d = (struct hwpmu_decoded){ .valid = true,
				     .select = select,
				     .offcore = { pmu->offcore[0], pmu->offcore[1] },
				     .event = hwpmu_event(pmu->model, select, pmu->offcore) };
	return d->event;
}

static void note_selected(struct hwpmu *pmu, u32 counter)
{
	const struct hwpmu_counter *c = &pmu->counter[slot(counter)];

	pmu->selected &= ~BIT(counter);
	if (c->privileges && c->class != RETIRE_NOTHING)
		pmu->selected |= BIT(counter);
}

/* A part is less than a unit. A counter without an event keeps what it has until there is one. */
static void limit_part(struct hwpmu_counter *c)
{
	if (c->class != RETIRE_NOTHING && c->part >= c->unit)
		c->part = 0;
}

static void set_event(struct hwpmu_counter *c, enum retire_class class, u8 unit)
{
	c->class = class;
	if (class != RETIRE_NOTHING)
		c->unit = unit;
	limit_part(c);
}

static void decode_general(struct hwpmu *pmu, u32 i)
{
	u64 select = pmu->select[i] & EVENTSEL_EN ? pmu->select[i] : 0;
	struct hwpmu_event event = event_of(pmu, i);
	struct hwpmu_counter *c = &pmu->counter[i];

	/* Every load is slower than this threshold. */
	if (event.class == RETIRE_SLOW_LOADS && pmu->pebs.latency <= PEBS_LATENCY_LEAST)
		event.class = RETIRE_LOADS;
	set_event(c, event.class, event.unit);
	c->privileges = 0;
	pmu->window.counters &= ~BIT(i);
	if (hwpmu_is_marker(pmu, select))
		pmu->window.counters |= BIT(i);
	else if (select && event.unknown)
		note_unknown(pmu, select);
	if (select & EVENTSEL_OS)
		c->privileges |= BIT(RETIRE_OS);
	if (select & EVENTSEL_USR)
		c->privileges |= BIT(RETIRE_USR);
	note_selected(pmu, i);
}

static void decode_fixed(struct hwpmu *pmu, u32 i)
{
	struct hwpmu_event event = hwpmu_fixed_event(pmu->model, i);
	u64 field = fixed_ctrl_field(pmu->fixed_ctrl, i);
	struct hwpmu_counter *c = &pmu->counter[HWPMU_GENERAL + i];

	set_event(c, event.class, event.unit);
	c->privileges = 0;
	if (field & FIXED_CTRL_OS)
		c->privileges |= BIT(RETIRE_OS);
	if (field & FIXED_CTRL_USR)
		c->privileges |= BIT(RETIRE_USR);
	note_selected(pmu, PMU_FIXED_BASE + i);
}

void hwpmu_update_wanted(struct hwpmu *pmu)
{
	bool records = pmu->branches && branch_wanted(pmu->branches);

	pmu->wanted = (records ? RETIRE_BIT(RETIRE_CYCLES) : 0) | hwpmu_ibs_wanted(pmu) |
		      hwpmu_metrics_wanted(pmu);
	if (pmu->window.is_open)
		pmu->wanted |= pmu->window.classes;
	for (u64 left = pmu->running; left;) {
		const struct hwpmu_counter *c = &pmu->counter[slot(next_bit(&left))];

		if (c->scope & HWPMU_GUEST)
			pmu->wanted |= RETIRE_BIT(c->class);
	}
}

static void settle_all(struct hwpmu *pmu)
{
	for (u64 left = pmu->running; left;)
		settle(pmu, next_bit(&left));
}

/* Makes all counters count what the registers say from now on. Only those that start, or were
 * settled because their event changed, get a new mark. */
static void restart(struct hwpmu *pmu, u64 settled)
{
	bool frozen = pmu->global_status & GLOBAL_STATUS_CTR_FRZ;
	u64 running = frozen ? 0 : pmu->selected & pmu->global_ctrl;

	for (u64 left = pmu->running & ~running & ~settled; left;)
		settle(pmu, next_bit(&left));
	for (u64 left = running & (settled | ~pmu->running); left;) {
		struct hwpmu_counter *c = &pmu->counter[slot(next_bit(&left))];

		c->mark = occurrences(pmu, c);
	}
	pmu->running = running;
	hwpmu_restart_metrics(pmu);
	hwpmu_update_window(pmu);
	hwpmu_update_wanted(pmu);
}

/* --- registers --- */

void hwpmu_init(struct hwpmu *pmu, const struct pmu_model *model, const struct retire_tally *tally)
{
	must(model->general <= HWPMU_GENERAL && model->fixed <= HWPMU_FIXED);
	must(model->general_width < 64 && model->fixed_width < 64);
	*pmu = (struct hwpmu){ .model = model, .tally = tally };
	pmu->alarm = pmu->stop_at = RETIRE_NEVER;
	hwpmu_reset(pmu);
}

void hwpmu_reset(struct hwpmu *pmu)
{
	for (u32 i = 0; i < HWPMU_GENERAL; i++)
		pmu->select[i] = 0;
	for (u32 i = 0; i < HWPMU_COUNTERS; i++)
		pmu->counter[i] = (struct hwpmu_counter){ .scope = HWPMU_GUEST,
							  .class = RETIRE_NOTHING,
							  .unit = 1 };
	pmu->fixed_ctrl = pmu->global_status = pmu->overflowed = 0;
	pmu->offcore[0] = pmu->offcore[1] = 0;
	pmu->freeze_on_pmi = pmu->pmi = false;
	pmu->global_ctrl = hwpmu_all(pmu);
	pmu->pebs = (struct pebs_control){ 0 };
	pmu->pebs_pending = 0;
	pmu->lbr.enabled = false; /* entries keep their values */
	hwpmu_update_lbr(pmu);
	pmu->selected = pmu->running = pmu->window.counters = 0;
	pmu->metrics = (struct hwpmu_metrics){ 0 };
	hwpmu_update_window(pmu);
	hwpmu_update_wanted(pmu);
}

u64 hwpmu_read(const struct hwpmu *pmu, u32 counter)
{
	must(hwpmu_all(pmu) & BIT(counter));
	return unwrapped(pmu, counter) & (wrap(pmu, counter) - 1);
}

void hwpmu_write(struct hwpmu *pmu, u32 counter, u64 value)
{
	struct hwpmu_counter *c = &pmu->counter[slot(counter)];

	must(hwpmu_all(pmu) & BIT(counter));
	settle(pmu, counter);
	c->value = value & (wrap(pmu, counter) - 1);
	c->part = 0;
}

u32 hwpmu_part(const struct hwpmu *pmu, u32 counter)
{
	const struct hwpmu_counter *c = &pmu->counter[slot(counter)];
	return pmu->running & BIT(counter) ? since_mark(pmu, c) % c->unit : c->part;
}

void hwpmu_write_part(struct hwpmu *pmu, u32 counter, u32 part)
{
	struct hwpmu_counter *c = &pmu->counter[slot(counter)];

	settle(pmu, counter);
	c->part = part;
	limit_part(c);
}

void hwpmu_add(struct hwpmu *pmu, u32 counter, u64 value)
{
	struct hwpmu_counter *c = &pmu->counter[slot(counter)];

	must(hwpmu_all(pmu) & BIT(counter));
	settle(pmu, counter);
	c->value = (c->value + value) & (wrap(pmu, counter) - 1);
}

void hwpmu_write_scope(struct hwpmu *pmu, u32 counter, u8 scope)
{
	must(hwpmu_all(pmu) & BIT(counter));
	settle(pmu, counter);
	hwpmu_pause_metrics(pmu);
	pmu->counter[slot(counter)].scope = scope;
	restart(pmu, BIT(counter));
}

void hwpmu_write_select(struct hwpmu *pmu, u32 i, u64 value)
{
	must(i < pmu->model->general);
	settle(pmu, i);
	pmu->select[i] = value;
	decode_general(pmu, i);
	restart(pmu, BIT(i));
}

/* Counters with such an event count something else from now on. */
void hwpmu_write_offcore(struct hwpmu *pmu, u32 i, u64 value)
{
	if (pmu->offcore[i] == value)
		return;
	pmu->offcore[i] = value;
	for (u32 counter = 0; counter < pmu->model->general; counter++)
		hwpmu_write_select(pmu, counter, pmu->select[counter]);
}

void hwpmu_write_fixed_ctrl(struct hwpmu *pmu, u64 value)
{
	settle_all(pmu);
	hwpmu_pause_metrics(pmu);
	pmu->fixed_ctrl = value;
	for (u32 i = 0; i < pmu->model->fixed; i++)
		decode_fixed(pmu, i);
	restart(pmu, hwpmu_all(pmu));
}

void hwpmu_write_global_ctrl(struct hwpmu *pmu, u64 value)
{
	pmu->global_ctrl = value & (hwpmu_all(pmu) | (pmu->model->metrics ? GLOBAL_METRICS : 0));
	restart(pmu, 0);
}

void hwpmu_set_status(struct hwpmu *pmu, u64 bits)
{
	settle_all(pmu);
	pmu->global_status |= bits;
	restart(pmu, 0);
	hwpmu_update_lbr(pmu);
}

void hwpmu_reset_status(struct hwpmu *pmu, u64 bits)
{
	settle_all(pmu);
	pmu->global_status &= ~bits;
	restart(pmu, 0);
	hwpmu_update_lbr(pmu);
}

void hwpmu_write_freeze(struct hwpmu *pmu, bool freeze)
{
	pmu->freeze_on_pmi = freeze;
}

/* --- overflow --- */

/* SDM 3B, "Freezing LBR and Performance Counters on PMI". */
static void freeze(struct hwpmu *pmu)
{
	if (pmu->model->is_amd || pmu->model->version >= 4)
		pmu->global_status |= GLOBAL_STATUS_CTR_FRZ;
	else
		pmu->global_ctrl = 0;
	restart(pmu, 0);
}

bool hwpmu_retire(struct hwpmu *pmu)
{
	bool pmi;

	settle_all(pmu);
	if (pmu->pebs_pending)
		hwpmu_pebs_assist(pmu);
	if (hwpmu_ibs_runs(pmu))
		hwpmu_ibs_retire(pmu);
	if (pmu->unreported)
		report_unknown(pmu);
	pmi = pmu->pmi;
	pmu->pmi = false;
	if (pmi && pmu->freeze_on_pmi)
		freeze(pmu);
	return pmi;
}

u64 hwpmu_take_overflows(struct hwpmu *pmu)
{
	u64 counters = pmu->overflowed;

	pmu->overflowed = 0;
	return counters;
}

/* Occurrences until the counter overflows, or NEVER if none at this privilege counts. */
static inline u64 distance(const struct hwpmu *pmu, u32 counter, enum retire_privilege privilege)
{
	const struct hwpmu_counter *c = &pmu->counter[slot(counter)];
	u64 value = unwrapped(pmu, counter);

	if (!(c->privileges & BIT(privilege)) || !(c->scope & HWPMU_GUEST))
		return NEVER;
	if (value >= wrap(pmu, counter))
		return 0;
	value = wrap(pmu, counter) - value;
	return (value - 1) * c->unit + 1;
}

u64 hwpmu_horizon(const struct hwpmu *pmu, enum retire_privilege privilege, retire_wanted classes)
{
	static const u16 most[NRETIRE] = {
#define RETIRE(field, NAME, most) most,
#include "hwpmu/retire.def"
#undef RETIRE
	};
	u64 horizon = NEVER;

	for (u64 left = pmu->running; left;) {
		u32 counter = next_bit(&left);
		enum retire_class class = pmu->counter[slot(counter)].class;
		u64 n = distance(pmu, counter, privilege);

		if (!(classes & RETIRE_BIT(class)) || !most[class] || n == NEVER)
			continue;
		n = (n + most[class] - 1) / most[class];
		if (n < horizon)
			horizon = n;
	}
	return horizon;
}

/* The guest's tally at which the counter overflows, if it counts guest code. */
static inline u64 overflows_at(const struct hwpmu *pmu, u32 counter)
{
	const struct hwpmu_counter *c = &pmu->counter[slot(counter)];
	u64 all = c->mark - c->part + (wrap(pmu, counter) - c->value) * c->unit;
	u64 host = (c->scope & HWPMU_HOST) && pmu->host ? occurrences_in(pmu->host, c) : 0;

	return all > host ? all - host : 0;
}

static inline void arm(const struct hwpmu *pmu, u32 counter, struct retire_trips *trips)
{
	const struct hwpmu_counter *c = &pmu->counter[slot(counter)];

	if (c->scope & HWPMU_GUEST) /* domains are bits of enum retire_privilege, less one */
		hwpmu_arm_class(trips, c->class, c->privileges - 1, overflows_at(pmu, counter));
}

static u64 alarm_ticks(u64 cycles)
{
	return cycles > RETIRE_NEVER / TICKS_PER_CYCLE ? RETIRE_NEVER : cycles * TICKS_PER_CYCLE;
}

void hwpmu_trips(const struct hwpmu *pmu, struct retire_trips *trips)
{
	trips->armed = 0;
	for (u64 left = pmu->running; left;)
		arm(pmu, next_bit(&left), trips);
	if (hwpmu_ibs_runs(pmu))
		hwpmu_ibs_arm(pmu, trips);
	if (pmu->alarm != RETIRE_NEVER)
		hwpmu_arm_class(trips, RETIRE_CYCLES, RETIRE_IN_BOTH, alarm_ticks(pmu->alarm));
	if (pmu->stop_at != RETIRE_NEVER)
		hwpmu_arm_class(trips, RETIRE_INSTRUCTIONS, RETIRE_IN_BOTH, pmu->stop_at);
}
