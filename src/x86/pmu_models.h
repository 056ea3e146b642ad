/* SPDX-License-Identifier: MIT */
/*
 * The PMUs of the CPU models: a row each in pmu_models.def. Freestanding.
 */
#ifndef X86_PMU_MODELS_H
#define X86_PMU_MODELS_H

#include "x86/models.h"

/* Tallies of time are in ticks, since instructions take parts of a cycle. A slot is a whole number
 * of ticks where a cycle has 4, 5, 6 or 8. */
#define TICKS_PER_CYCLE 120

/* What keeps the last branches (SDM 3B 17; APM2 13.1). */
enum pmu_lbr {
	LBR_NONE,
	LBR_LEGACY, /* MSR_LASTBRANCH_n_FROM, TO, INFO and TOS */
	LBR_ARCH,   /* IA32_LBR_CTL */
	LBR_AMD,    /* LbrExtV2 */
};

struct pmu_model {
	enum model_set set; /* the one bit of this model */
	bool is_amd;
	u8 version;
	u8 general, general_width; /* counters, and their bits */
	u8 fixed, fixed_width;
	u8 arch_events;
	u8 slots;
	enum pmu_lbr lbr;
	u8 lbr_depth;
	u16 perf_capabilities; /* what PERF_CAPABILITIES says of them, of PEBS and of metrics */
	u8 metrics;	       /* fields of PERF_METRICS; 0: there is none */
};

static inline u32 pmu_slot_ticks(const struct pmu_model *model)
{
	return TICKS_PER_CYCLE / model->slots;
}

const struct pmu_model *pmu_model_of(enum model_set model); /* exactly one bit of it */

#endif
