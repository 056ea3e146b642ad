// SPDX-License-Identifier: MIT
/*
 * Branch records: there is one stack, and it is the guest's in both modes, since no event of the
 * host asks for it. PEBS and off-core responses likewise. The world is a struct hwpmu. vCPU thread.
 */
#include "hostperf/priv.h"

void hostperf_record(void *world, const struct lbr_control *control)
{
	struct hwpmu *hw = world;

	if (hw->branches)
		hwpmu_write_lbr(hw, control);
}

u64 hostperf_read_record(const void *world, enum lbr_field field, u32 i)
{
	const struct hwpmu *hw = world;

	return hw->branches ? hwpmu_read_lbr(hw, field, i) : 0;
}

void hostperf_write_record(void *world, enum lbr_field field, u32 i, u64 value)
{
	struct hwpmu *hw = world;

	if (hw->branches)
		hwpmu_write_lbr_entry(hw, field, i, value);
}

void hostperf_clear_records(void *world)
{
	struct hwpmu *hw = world;

	if (hw->branches)
		hwpmu_clear_lbr(hw);
}

u64 hostperf_read_ibs(const void *world, enum ibs_register reg)
{
	return hwpmu_read_ibs(world, reg);
}

void hostperf_write_ibs(void *world, enum ibs_register reg, u64 value)
{
	hwpmu_write_ibs(world, reg, value);
}

void hostperf_pebs(void *world, const struct pebs_control *control)
{
	hwpmu_write_pebs(world, control);
}

void hostperf_load_offcore(struct hwpmu *hw, const struct pmu *pmu)
{
	for (u32 i = 0; i < ARRAY_SIZE(hw->offcore); i++)
		hwpmu_write_offcore(hw, i, pmu->offcore[i]);
}
