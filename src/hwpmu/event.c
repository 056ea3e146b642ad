// SPDX-License-Identifier: MIT
/*
 * What an event select counts: a class of retire.def, in units of so many occurrences, or nothing.
 * Pure functions on the rows of x86/events.def.
 *
 * CMASK, INV and EDGE (SDM 3B 20.2.1.1) speak of occurrences per cycle. Prices do not say which
 * instructions retire in the same cycle. For these conditions an occurrence is taken for the only
 * one in its cycle, with none in the next one. From that follows:
 *
 *   CMASK 1            the occurrences               larger         nothing
 *   CMASK 1, INV       cycles without an occurrence  larger, INV    all cycles
 *   EDGE               the same for what comes and goes; what is there in each cycle never rises
 *
 * Slots occur several times in each cycle; those of one kind are taken for all slots of as few
 * cycles as possible. But cycles in which all slots lack instructions are known. Cycles without an
 * occurrence are known for instructions and used slots only; for rarer classes all cycles stand for
 * them.
 */
#include "hwpmu/priv.h"

#include "x86/event_units.h"
#include "x86/events.h"

static const struct row {
	enum model_set models;
	u32 code; /* as eventsel_code() */
	enum retire_class class;
	enum event_unit unit;
} rows[] = {
#define EVENT(models, event, umask, name, class, unit, kind, where) \
	{ models, (event) | (umask) << 12, RETIRE_##class, unit },
#include "x86/events.def"
#undef EVENT
};

static const struct hwpmu_event nothing = { .class = RETIRE_NOTHING, .unit = 1 };

static const struct row *find(const struct pmu_model *model, u32 code)
{
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++)
		if ((rows[i].models & model->set) && rows[i].code == code)
			return &rows[i];
	return NULL;
}

static bool in_each_cycle(enum retire_class class)
{
	return class == RETIRE_CYCLES || class == RETIRE_REF_CYCLES;
}

static bool is_slots(enum retire_class class)
{
	return (class >= RETIRE_USED_SLOTS && class <= RETIRE_BACKEND_SLOTS) ||
	       (class >= RETIRE_BAD_SLOTS && class <= RETIRE_MEMORY_SLOTS);
}

static bool is_time(enum retire_class class)
{
	return class >= RETIRE_CYCLES && class <= RETIRE_STORE_STALLS && class != RETIRE_FUSED &&
	       class != RETIRE_CLEARS;
}

static struct hwpmu_event of_class(const struct pmu_model *model, enum retire_class class,
				   enum event_unit unit)
{
	bool slots = unit == SLOTS || (is_slots(class) && unit != TIME);
	bool time = is_time(class);

	return (struct hwpmu_event){
		.class = class,
		.unit = slots  ? TICKS_PER_CYCLE / model->slots
			: time ? TICKS_PER_CYCLE
			       : 1,
		.per_cycle = slots ? model->slots : 1,
	};
}

/* Cycles in which the event occurs less than CMASK times. */
static struct hwpmu_event below(struct hwpmu_event event, u32 cmask)
{
	enum retire_class class = RETIRE_CYCLES;

	if (cmask <= event.per_cycle) {
		if (in_each_cycle(event.class))
			return nothing;
		if (event.class == RETIRE_INSTRUCTIONS || event.class == RETIRE_USED_SLOTS ||
		    event.class == RETIRE_ISSUED_SLOTS)
			class = RETIRE_STALLS;
	}
	return (struct hwpmu_event){ .class = class, .unit = TICKS_PER_CYCLE, .per_cycle = 1 };
}

/* Cycles in which the event occurs at least CMASK times. */
static struct hwpmu_event at_least(struct hwpmu_event event, u32 cmask)
{
	if (event.class == RETIRE_FRONT_SLOTS && cmask == event.per_cycle)
		event.class = RETIRE_FETCH_LATENCY;
	if (event.unit != 1)
		event.unit = TICKS_PER_CYCLE;
	event.per_cycle = 1;
	return event;
}

static struct hwpmu_event compare(struct hwpmu_event event, u64 select)
{
	u32 cmask = eventsel_cmask(select);

	if (cmask && (select & EVENTSEL_INV))
		event = below(event, cmask);
	else if (cmask > event.per_cycle)
		event = nothing;
	else if (cmask)
		event = at_least(event, cmask);
	if (!(select & EVENTSEL_EDGE))
		return event;
	if (event.class == RETIRE_RECOVERY) /* each begins with a clear */
		return (struct hwpmu_event){ .class = RETIRE_CLEARS, .unit = 1, .per_cycle = 1 };
	return in_each_cycle(event.class) ? nothing : event;
}

/* With any other condition the vendor does not say what it counts. */
static struct hwpmu_event compare_named(struct hwpmu_event event, u32 cmask, u64 select)
{
	bool same = eventsel_cmask(select) == cmask;

	return same && !(select & (EVENTSEL_INV | EVENTSEL_EDGE)) ? event : nothing;
}

static enum retire_class class_of(const struct row *row, const u64 *offcore)
{
	if (row->unit != OFFCORE_0 && row->unit != OFFCORE_1)
		return row->class;
	return hwpmu_offcore_class(offcore[row->unit - OFFCORE_0]);
}

struct hwpmu_event hwpmu_event(const struct pmu_model *model, u64 select, const u64 *offcore)
{
	const struct row *row = find(model, eventsel_code(select, model->is_amd));
	enum retire_class class;

	if (!row)
		return (struct hwpmu_event){ .class = RETIRE_NOTHING, .unit = 1, .unknown = true };
	/* There are no transactions to count in. */
	if (!model->is_amd && (select & EVENTSEL_IN_TX))
		return nothing;
	class = class_of(row, offcore);
	if (class == RETIRE_NOTHING)
		return nothing;
	if (row->unit >= NAMED_CMASK)
		return compare_named(of_class(model, class, ONE), row->unit - NAMED_CMASK, select);
	return compare(of_class(model, class, row->unit), select);
}

struct hwpmu_event hwpmu_fixed_event(const struct pmu_model *model, u32 i)
{
	/* SDM 3B table 20-2. */
	static const struct {
		enum retire_class class;
		enum event_unit unit;
	} fixed[HWPMU_FIXED] = {
		{ RETIRE_INSTRUCTIONS, ONE },
		{ RETIRE_CYCLES, ONE },
		{ RETIRE_REF_CYCLES, ONE },
		{ RETIRE_CYCLES, SLOTS },
	};

	return of_class(model, fixed[i].class, fixed[i].unit);
}
