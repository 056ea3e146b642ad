// SPDX-License-Identifier: MIT
/*
 * IBS as the guest has it: the registers are the backend's, and a write reaches them at once, not
 * with pmu_sync(). The event filter applies: a guest that may not count cycles, ops or instructions
 * cannot sample by them, or fetches; the enable bit then reads as 0.
 */
#include "pmu/priv.h"

static bool allowed(const struct pmu *pmu, u32 event)
{
	return pmu_filter_allows(pmu->filter, event, true);
}

static u64 permitted(const struct pmu *pmu, u32 reg, u64 value)
{
	const u32 cycles = 0x76, ops = 0xc1, instructions = 0xc0;

	if (reg == IBS_OP_CTL && !allowed(pmu, value & IBS_OP_COUNTS_OPS ? ops : cycles))
		return value & ~IBS_OP_EN;
	if (reg == IBS_FETCH_CTL && !allowed(pmu, instructions))
		return value & ~IBS_FETCH_EN;
	return value;
}

u64 pmu_ibs_read(const struct pmu *pmu, u32 i)
{
	return pmu->backend->read_ibs(pmu->backend_data, i);
}

/* As all of AMD's: what is reserved is ignored. */
bool pmu_ibs_write(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)host;
	pmu->backend->write_ibs(pmu->backend_data, i, permitted(pmu, i, value));
	return true;
}

void pmu_ibs_filter(struct pmu *pmu)
{
	static const u32 controls[] = { IBS_FETCH_CTL, IBS_OP_CTL };

	for (u32 i = 0; pmu->guest.ibs && pmu->backend->write_ibs && i < ARRAY_SIZE(controls);
	     i++) {
		u64 value = pmu_ibs_read(pmu, controls[i]);

		if (permitted(pmu, controls[i], value) != value)
			pmu_ibs_write(pmu, controls[i], value, true);
	}
}

void pmu_ibs_reset(struct pmu *pmu)
{
	for (u32 i = 0; pmu->backend->write_ibs && i < NIBS; i++)
		pmu->backend->write_ibs(pmu->backend_data, i, 0);
}
