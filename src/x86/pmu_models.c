// SPDX-License-Identifier: MIT
/*
 * Looking up the rows of pmu_models.def.
 */
#include "x86/pmu_models.h"

#include "base/must.h"
#include "x86/pmu_regs.h"

#define PEBS(format) (PERF_CAP_PEBS_TRAP | PERF_CAP_PEBS_REGS | (format) << PERF_CAP_PEBS_SHIFT)

static const struct pmu_model models[] = {
#define PMU_MODEL(...) { __VA_ARGS__ },
#include "x86/pmu_models.def"
#undef PMU_MODEL
};

const struct pmu_model *pmu_model_of(enum model_set model)
{
	for (u32 i = 0; i < ARRAY_SIZE(models); i++)
		if (models[i].set == model)
			return &models[i];
	must(!"a row for each model");
	return NULL;
}
