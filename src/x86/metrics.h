/* SPDX-License-Identifier: MIT */
/*
 * MSR_PERF_METRICS (SDM 3B 20.3.9.3): issue slots by what became of them, as fractions of FFH. The
 * register is a view of exact counts, in ticks (pmu_models.h). Level 1 comes first and is all of
 * the slots; of each of its fields one of level 2 is a part, on models that have these.
 *
 * Software writes the register with fixed counter 3, which has the slots, first: what it writes is
 * a fraction of these. The register reads as it was written until slots are counted.
 *
 * Freestanding, no state; any thread.
 */
#ifndef X86_METRICS_H
#define X86_METRICS_H

#include "x86/pmu_models.h"

enum metric {
	METRIC_RETIRING,
	METRIC_BAD_SPECULATION,
	METRIC_FRONTEND,
	METRIC_BACKEND,
	NMETRICS_L1,
	METRIC_HEAVY = NMETRICS_L1, /* of retiring, and so on */
	METRIC_MISPREDICTS,
	METRIC_FETCH_LATENCY,
	METRIC_MEMORY,
	NMETRICS
};

struct metrics {
	u64 written; /* the register, if no slots were counted since it was written */
	bool counted;
	u64 ticks[NMETRICS];
};

/* The register; `fields` of the model. */
u64 metrics_value(const struct metrics *metrics, u32 fields);
/* Software writes it; `slots`: ticks of fixed counter 3. */
void metrics_write(struct metrics *metrics, u64 value, u64 slots);
/* So many ticks more of each. */
void metrics_add(struct metrics *metrics, const u64 ticks[NMETRICS]);

#endif
