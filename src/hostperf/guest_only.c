// SPDX-License-Identifier: MIT
/*
 * What no event of the host asks for, and is therefore the guest's in both modes: the stack of
 * branch records, IBS, the controls of PEBS and of off-core responses. Each function passes one
 * access of struct pmu_backend on to the physical PMU; `data` is a struct hwpmu. vCPU thread.
 */
#include "hostperf/priv.h"

void hostperf_record(void *data, const struct lbr_control *control)
{
	struct hwpmu *hw = data;

	if (hw->branches)
		hwpmu_write_lbr(hw, control);
}

u64 hostperf_read_record(const void *data, enum lbr_field field, u32 i)
{
	const struct hwpmu *hw = data;

	return hw->branches ? hwpmu_read_lbr(hw, field, i) : 0;
}

void hostperf_write_record(void *data, enum lbr_field field, u32 i, u64 value)
{
	struct hwpmu *hw = data;

	if (hw->branches)
		hwpmu_write_lbr_entry(hw, field, i, value);
}

void hostperf_clear_records(void *data)
{
	struct hwpmu *hw = data;

	if (hw->branches)
		hwpmu_clear_lbr(hw);
}

u64 hostperf_read_ibs(const void *data, enum ibs_register reg)
{
	return hwpmu_read_ibs(data, reg);
}

void hostperf_write_ibs(void *data, enum ibs_register reg, u64 value)
{
	hwpmu_write_ibs(data, reg, value);
}

void hostperf_pebs(void *data, const struct pebs_control *control)
{
	hwpmu_write_pebs(data, control);
}

void hostperf_load_offcore(struct hwpmu *hw, const struct pmu *pmu)
{
	for (u32 i = 0; i < ARRAY_SIZE(hw->offcore); i++)
		hwpmu_write_offcore(hw, i, pmu->offcore[i]);
}
