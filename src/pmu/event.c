// SPDX-License-Identifier: MIT
/*
 * What the registers say about a counter: its event, whether it counts, whether it interrupts.
 * Pure functions on struct pmu.
 */
#include "pmu/priv.h"

u64 pmu_event_control(const struct pmu *pmu, u32 counter)
{
	if (pmu_is_fixed(counter))
		return fixed_ctrl_field(pmu->fixed_ctrl, counter - PMU_FIXED_BASE);
	return pmu->select[counter];
}

static bool enabled(const struct pmu *pmu, u32 counter)
{
	u64 control = pmu_event_control(pmu, counter);

	if (pmu_is_fixed(counter))
		return control & (FIXED_CTRL_OS | FIXED_CTRL_USR);
	return control & EVENTSEL_EN;
}

static bool allowed(const struct pmu *pmu, u32 counter)
{
	if (pmu_is_fixed(counter))
		return pmu_filter_allows_fixed(pmu->filter, counter - PMU_FIXED_BASE);
	return pmu_filter_allows(pmu->filter, pmu->select[counter], pmu->model->is_amd);
}

bool pmu_event_enabled(const struct pmu *pmu, u32 counter)
{
	/* Version 1 has no GLOBAL_CTRL. */
	if (pmu->version > 1 && !(pmu->global_ctrl & BIT(counter)))
		return false;
	return (pmu->all & BIT(counter)) && enabled(pmu, counter) && allowed(pmu, counter);
}

bool pmu_event_wants_pmi(const struct pmu *pmu, u32 counter)
{
	u64 control = pmu_event_control(pmu, counter);

	return control & (pmu_is_fixed(counter) ? FIXED_CTRL_PMI : EVENTSEL_INT);
}
