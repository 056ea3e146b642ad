// SPDX-License-Identifier: MIT
/*
 * What the registers say about a counter: its event, whether it counts, whether it interrupts.
 * Pure functions on struct pmu.
 */
#include "pmu/priv.h"

static u64 control_of(const struct pmu *pmu, u32 counter)
{
	if (pmu_is_fixed(counter))
		return fixed_ctrl_field(pmu->fixed_ctrl, counter - PMU_FIXED_BASE);
	return pmu->select[counter];
}

static bool enabled(u64 control, u32 counter)
{
	return control & (pmu_is_fixed(counter) ? FIXED_CTRL_OS | FIXED_CTRL_USR : EVENTSEL_EN);
}

static bool allowed(const struct pmu *pmu, u32 counter)
{
	if (pmu_is_fixed(counter))
		return pmu_filter_allows_fixed(pmu->filter, counter - PMU_FIXED_BASE);
	return pmu_filter_allows(pmu->filter, pmu->select[counter], pmu->model->is_amd);
}

u64 pmu_hardware_control(const struct pmu *pmu, u32 counter)
{
	u64 control = control_of(pmu, counter);

	if (allowed(pmu, counter))
		return control;
	return pmu_is_fixed(counter) ? 0 : control & ~EVENTSEL_EN;
}

u64 pmu_counting_control(const struct pmu *pmu, u32 counter)
{
	u64 control = pmu_hardware_control(pmu, counter);

	/* Version 1 has no GLOBAL_CTRL. */
	if (pmu->version > 1 && !(pmu->global_ctrl & BIT(counter)))
		return 0;
	return enabled(control, counter) ? control : 0;
}

bool pmu_event_wants_pmi(const struct pmu *pmu, u32 counter)
{
	u64 control = control_of(pmu, counter);

	return control & (pmu_is_fixed(counter) ? FIXED_CTRL_PMI : EVENTSEL_INT);
}
