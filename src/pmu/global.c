// SPDX-License-Identifier: MIT
/*
 * The registers that both vendors have: event selects, global control and status. What may be
 * written is the vendor's to say.
 */
#include "pmu/priv.h"

u64 pmu_read_counter(const struct pmu *pmu, u32 i)
{
	return pmu_counter_read(pmu, i);
}

u64 pmu_read_select(const struct pmu *pmu, u32 i)
{
	return pmu->select[i];
}

void pmu_put_select(struct pmu *pmu, u32 i, u64 value)
{
	if (value != pmu->select[i])
		pmu->dirty |= BIT(i);
	pmu->select[i] = value;
}

u64 pmu_read_status(const struct pmu *pmu, u32 i)
{
	(void)i;
	return pmu->global_status;
}

void pmu_put_status(struct pmu *pmu, u64 value)
{
	pmu->global_status = value;
	pmu->dirty |= PMU_DIRTY_STATUS;
}

u64 pmu_read_global_ctrl(const struct pmu *pmu, u32 i)
{
	(void)i;
	return pmu->global_ctrl;
}

/* The hardware has such a register; events of the host begin and end one by one. */
void pmu_put_global_ctrl(struct pmu *pmu, u64 value)
{
	if (!pmu->backend->owns_hardware)
		pmu->dirty |= value ^ pmu->global_ctrl;
	pmu->dirty |= PMU_DIRTY_GLOBAL;
	pmu->global_ctrl = value;
}
