/* SPDX-License-Identifier: MIT */
/*
 * The physical PMU of one logical processor (SDM 3B 20; APM2 13.2): silicon, it knows nothing of
 * guests. Registers take effect at once. Counters are evaluated lazily from the engine's tallies:
 * no code of the PMU runs when an instruction retires.
 *
 * A run of the processor is: hwpmu_retire(), since completing an instruction may have counted;
 * hwpmu_trips() or hwpmu_horizon(); the run; hwpmu_retire(). An overflow thus comes with the last
 * instruction of a run, never inside one.
 *
 * Counters are named by their bit in GLOBAL_CTRL. Freestanding; needs port.h. Everything belongs to
 * the vCPU thread.
 */
#ifndef HWPMU_HWPMU_H
#define HWPMU_HWPMU_H

#include "base/types.h"
#include "hwpmu/branch.h"
#include "hwpmu/ibs.h"
#include "hwpmu/msr.h"
#include "hwpmu/pebs.h"
#include "hwpmu/port.h"
#include "hwpmu/retire.h"
#include "hwpmu/shadow.h"
#include "x86/lbr.h"
#include "x86/metrics.h"
#include "x86/pmu_models.h"
#include "x86/pmu_regs.h"

#define HWPMU_GENERAL  8
#define HWPMU_FIXED    4
#define HWPMU_COUNTERS (HWPMU_GENERAL + HWPMU_FIXED)

struct hwpmu_counter {
	u64 value; /* of the counter when the tally was at mark */
	u64 mark;
	u32 part; /* occurrences before mark that value does not have, < unit */
	enum retire_class class;
	u8 unit;       /* occurrences that add one: ticks of a cycle or of a slot, else 1 */
	u8 privileges; /* bits of enum retire_privilege */
	u8 scope;      /* bits: HWPMU_GUEST, HWPMU_HOST */
};

/* What a counter adds up. */
struct hwpmu_event {
	enum retire_class class;
	u8 unit;
	u8 per_cycle; /* units in a cycle in which it occurs, for CMASK */
	bool unknown; /* not in events.def */
};

/* `offcore`: the two OFFCORE_RSP registers. */
struct hwpmu_event hwpmu_event(const struct pmu_model *model, u64 select, const u64 *offcore);
struct hwpmu_event hwpmu_fixed_event(const struct pmu_model *model, u32 i);

/* An event select that was looked up, with the registers that its meaning depends on. Operating
 * systems write one event select again and again, at each context switch. */
struct hwpmu_decoded {
	bool valid;
	u64 select, offcore[2];
	struct hwpmu_event event;
};

/*
 * In which operation of the processor a counter counts. AMD has bits for it in the event select
 * (APM2 13.2.1, GuestOnly and HostOnly); Intel switches GLOBAL_CTRL when a guest is entered and
 * left.
 */
#define HWPMU_GUEST BIT(0)
#define HWPMU_HOST  BIT(1)

#define HWPMU_UNKNOWN 8

/* PERF_METRICS, of a model that has it. */
struct hwpmu_metrics {
	struct metrics sum; /* when the tallies were at mark */
	u64 mark[NMETRICS];
	bool runs;
};

struct hwpmu {
	const struct pmu_model *model;
	/* What guest code retired, and host code; either may be NULL. */
	const struct retire_tally *tally, *host;
	struct branch_ring *branches; /* the processor's; NULL: it records none */
	struct lbr_control lbr;
	const struct hwpmu_store *store; /* NULL: no PEBS, and IBS must stay disabled */
	void *owner;			 /* the store's */
	struct pebs_control pebs;
	u64 pebs_pending; /* counters that overflowed and want a record */
	u64 records;	  /* PEBS assists */
	struct hwpmu_ibs ibs;
	u64 select[HWPMU_GENERAL], fixed_ctrl, global_ctrl;
	u64 offcore[2];	   /* MSR_OFFCORE_RSP: what the events of that name count */
	u64 global_status; /* kept on every model, also where software has no such register */
	bool freeze_on_pmi;
	bool pmi;	      /* a PMI is due at the next hwpmu_retire() */
	u64 overflowed;	      /* counters, for hwpmu_take_overflows() */
	u64 selected;	      /* counters whose controls select an event and a privilege */
	u64 running;	      /* of these, counters that GLOBAL_CTRL enables and no PMI froze */
	retire_wanted wanted; /* classes that running counters and records need */
	retire_wanted owner_wanted; /* classes that the owner needs besides */
	/* Cycles of both privileges at which the owner wants a run to end, or RETIRE_NEVER. */
	u64 alarm;
	u64 stop_at;				      /* the same, of instructions */
	struct hwpmu_counter counter[HWPMU_COUNTERS]; /* general, then fixed */
	struct hwpmu_decoded decoded[HWPMU_GENERAL];
	u32 nunknown, unknown[HWPMU_UNKNOWN]; /* codes of events the model lacks, plus one */
	u32 unreported; /* of these, not yet told to the owner: hwpmu_port_unknown_event() */
	struct hwpmu_window window;
	struct hwpmu_metrics metrics;
	bool hides_metrics; /* from software that has the registers; set by their owner */
};

/* Reset: everything 0 and stopped, but GLOBAL_CTRL enables all counters; they count guest code. */
void hwpmu_init(struct hwpmu *pmu, const struct pmu_model *model, const struct retire_tally *tally);
/* For counters that change owners: resets them, disables PEBS and stops the recording of branches.
 * Branch records that were made and IBS keep their state; so do alarm, stop_at and owner_wanted. */
void hwpmu_reset(struct hwpmu *pmu);

/* The counters of this model. */
u64 hwpmu_all(const struct hwpmu *pmu);

u64 hwpmu_read(const struct hwpmu *pmu, u32 counter);
void hwpmu_write(struct hwpmu *pmu, u32 counter, u64 value); /* bits above the width are dropped */
/* Ticks that a counter has counted of its next cycle or slot, for software that moves its contents
 * elsewhere and back: written after the event select and hwpmu_write(), which sets 0. One that is
 * too large for the event is 0. */
u32 hwpmu_part(const struct hwpmu *pmu, u32 counter);
void hwpmu_write_part(struct hwpmu *pmu, u32 counter, u32 part);
void hwpmu_add(struct hwpmu *pmu, u32 counter, u64 value); /* wraps without an overflow */

/* PERF_METRICS, and what it is a view of, for software that moves it elsewhere and back. */
u64 hwpmu_read_metrics(const struct hwpmu *pmu);
void hwpmu_write_metrics(struct hwpmu *pmu, u64 value);
struct metrics hwpmu_metrics(const struct hwpmu *pmu);
void hwpmu_set_metrics(struct hwpmu *pmu, const struct metrics *metrics);

void hwpmu_write_scope(struct hwpmu *pmu, u32 counter, u8 scope);
void hwpmu_write_select(struct hwpmu *pmu, u32 i, u64 value);
void hwpmu_write_offcore(struct hwpmu *pmu, u32 i, u64 value);
void hwpmu_write_fixed_ctrl(struct hwpmu *pmu, u64 value);
void hwpmu_write_global_ctrl(struct hwpmu *pmu, u64 value);
/* GLOBAL_STATUS_SET and GLOBAL_STATUS_RESET (AMD: StatusSet, StatusClr). */
void hwpmu_set_status(struct hwpmu *pmu, u64 bits);
void hwpmu_reset_status(struct hwpmu *pmu, u64 bits);
/*
 * DEBUGCTL.FREEZE_PERFMON_ON_PMI. A PMI then stops all counters: from version 4 on and on AMD by
 * setting CTR_FRZ in the status, before that by clearing GLOBAL_CTRL.
 */
void hwpmu_write_freeze(struct hwpmu *pmu, bool freeze);

/* Where the processor records branches; without it the PMU has no branch records. */
void hwpmu_attach_branches(struct hwpmu *pmu, struct branch_ring *branches);

/*
 * Branch records, of a model that has them. Entries and INFO are as the model's registers show
 * them; i below the depth. Cycles are counted while branches are recorded.
 */
void hwpmu_write_lbr(struct hwpmu *pmu, const struct lbr_control *control);
u64 hwpmu_read_lbr(const struct hwpmu *pmu, enum lbr_field field, u32 i);
void hwpmu_write_lbr_entry(struct hwpmu *pmu, enum lbr_field field, u32 i, u64 value);
void hwpmu_clear_lbr(struct hwpmu *pmu);
/* Ticks since the last record: the next one tells them, in cycles. No register shows them. */
u64 hwpmu_branch_ticks(const struct hwpmu *pmu);
void hwpmu_set_branch_ticks(struct hwpmu *pmu, u64 ticks);

/* PEBS, of a model that has it. The store serves IBS as well. */
void hwpmu_attach_store(struct hwpmu *pmu, const struct hwpmu_store *store, void *owner);
void hwpmu_write_pebs(struct hwpmu *pmu, const struct pebs_control *control);
bool hwpmu_pebs_wants_access(const struct hwpmu *pmu); /* records tell of the data access */
/* Does one of the counters count MEM_INST_RETIRED.ALL_STORES? */
bool hwpmu_pebs_samples_stores(const struct hwpmu *pmu, u64 counters);

/*
 * Finds the overflows up to now and sets their status bits, writes PEBS records and IBS samples,
 * and tells of unknown events: no other function calls the owner (port.h). True: a PMI is to be
 * delivered.
 */
bool hwpmu_retire(struct hwpmu *pmu);
/*
 * The counters that overflowed since the last call, whatever their status bits are by now, but for
 * those that PEBS made records of; GLOBAL_STATUS_DS if their store reached its threshold.
 */
u64 hwpmu_take_overflows(struct hwpmu *pmu);

/*
 * How many instructions may retire at this privilege, so that the first overflow comes with the
 * last of them at the earliest: while the privilege does not change, that many are certain. Only
 * for counters of these classes, and not for IBS, alarm and stop_at; ~0: none can overflow. 0: one
 * has, call hwpmu_retire().
 */
u64 hwpmu_horizon(const struct hwpmu *pmu, enum retire_privilege privilege, retire_wanted classes);

/* Where a processor that can stop at tallies has to: those with which the counters that run now
 * overflow. It then needs no hwpmu_horizon(). */
void hwpmu_trips(const struct hwpmu *pmu, struct retire_trips *trips);

static inline bool hwpmu_ibs_runs(const struct hwpmu *pmu)
{
	return ibs_fetch_runs(&pmu->ibs) || ibs_op_runs(&pmu->ibs);
}

/* After hwpmu_retire(): something waits for hwpmu_take_overflows() or hwpmu_take_ibs(). */
static inline bool hwpmu_interrupts(const struct hwpmu *pmu)
{
	return pmu->overflowed || pmu->ibs.interrupt;
}

/* The classes that are counted now. Changes only in the functions that write. */
static inline retire_wanted hwpmu_wanted(const struct hwpmu *pmu)
{
	return pmu->wanted | pmu->owner_wanted;
}

#endif
