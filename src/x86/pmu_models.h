/* SPDX-License-Identifier: MIT */
/*
 * The PMUs of the CPU models: a row each in pmu_models.def. Freestanding.
 */
#ifndef X86_PMU_MODELS_H
#define X86_PMU_MODELS_H

#include "x86/models.h"

struct pmu_model {
	enum model_set set; /* the one bit of this model */
	bool is_amd;
	u8 version;
	u8 general, general_width; /* counters, and their bits */
	u8 fixed, fixed_width;
	u8 arch_events;
	u8 slots;
};

const struct pmu_model *pmu_model_of(enum model_set model); /* exactly one bit of it */

#endif
