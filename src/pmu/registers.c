// SPDX-License-Identifier: MIT
/*
 * What reading and writing each kind of register does to struct pmu. Which registers there are,
 * whose they are and which bits they have is in the rows of x86/pmu_msrs.h.
 */
#include "pmu/priv.h"

/* --- counters --- */

static u64 read_counter(const struct pmu *pmu, u32 i)
{
	return pmu_counter_read(pmu, i);
}

/* A program that restores a guest writes values and parts in any order. */
static void write_value(struct pmu *pmu, u32 counter, u64 value, bool host)
{
	pmu_counter_write(pmu, counter, value);
	if (!host)
		pmu_set_part(pmu, counter, 0);
}

static bool write_counter(struct pmu *pmu, u32 i, u64 value, bool host)
{
	write_value(pmu, i, value, host);
	return true;
}

/* SDM 3B 20.2, "Full-Width Writes": 32 bits with sign. The program restores what it has read. */
static bool write_counter_low(struct pmu *pmu, u32 i, u64 value, bool host)
{
	write_value(pmu, i, host ? value : (u64)(s64)(s32)value, host);
	return true;
}

static u64 read_fixed_counter(const struct pmu *pmu, u32 i)
{
	return pmu_counter_read(pmu, PMU_FIXED_BASE + i);
}

/* KVM: high bits are dropped; the manual has them fault. */
static bool write_fixed_counter(struct pmu *pmu, u32 i, u64 value, bool host)
{
	write_value(pmu, PMU_FIXED_BASE + i, value, host);
	return true;
}

/* --- controls --- */

static u64 read_select(const struct pmu *pmu, u32 i)
{
	return pmu->select[i];
}

static bool write_select(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)host;
	if (value != pmu->select[i])
		pmu->dirty |= BIT(i);
	pmu->select[i] = value;
	return true;
}

static u64 read_fixed_ctrl(const struct pmu *pmu, u32 i)
{
	(void)i;
	return pmu->fixed_ctrl;
}

static bool write_fixed_ctrl(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)host;
	for (i = 0; i < pmu->fixed; i++)
		if (fixed_ctrl_field(value ^ pmu->fixed_ctrl, i) ||
		    ((value ^ pmu->fixed_ctrl) & FIXED_CTRL_ADAPTIVE(i)))
			pmu->dirty |= BIT(PMU_FIXED_BASE + i);
	pmu->fixed_ctrl = value;
	return true;
}

/* SDM 3B, "Off-core Response Performance Monitoring"; KVM has none. */
static u64 read_offcore(const struct pmu *pmu, u32 i)
{
	return pmu->offcore[i];
}

/* Counters with such an event count something else from now on. */
static bool write_offcore(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)host;
	if (value != pmu->offcore[i])
		pmu->dirty |= pmu->all & MASK(PMU_FIXED_BASE - 1, 0);
	pmu->offcore[i] = value;
	return true;
}

/* --- the global registers --- */

static u64 read_global_ctrl(const struct pmu *pmu, u32 i)
{
	(void)i;
	return pmu->global_ctrl;
}

/* The hardware has such a register; events of the host begin and end one by one. */
static bool write_global_ctrl(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)i, (void)host;
	if (!pmu->backend->owns_hardware)
		pmu->dirty |= value ^ pmu->global_ctrl;
	pmu->dirty |= PMU_DIRTY_GLOBAL;
	pmu->global_ctrl = value;
	return true;
}

void pmu_put_status(struct pmu *pmu, u64 value)
{
	pmu->global_status = value;
	pmu->dirty |= PMU_DIRTY_STATUS;
}

static u64 read_status(const struct pmu *pmu, u32 i)
{
	(void)i;
	return pmu->global_status;
}

static bool write_status(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)i, (void)host;
	pmu_put_status(pmu, value);
	return true;
}

/* KVM: status is restored by writing it; these two do nothing on the program's behalf. */
static bool write_status_clear(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)i;
	if (!host)
		pmu_put_status(pmu, pmu->global_status & ~value);
	return true;
}

static bool write_status_set(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)i;
	if (!host)
		pmu_put_status(pmu, pmu->global_status | value);
	return true;
}

const struct pmu_reg_ops pmu_reg_ops[NPMU_REG_KINDS] = {
	[PMU_REG_CAPABILITIES] = { pmu_read_capabilities, pmu_write_capabilities },
	[PMU_REG_COUNTER] = { read_counter, write_counter },
	[PMU_REG_COUNTER_LOW] = { read_counter, write_counter_low },
	[PMU_REG_COUNTER_FULL] = { read_counter, write_counter },
	[PMU_REG_FIXED_COUNTER] = { read_fixed_counter, write_fixed_counter },
	[PMU_REG_METRICS] = { pmu_metrics_read, pmu_metrics_write },
	[PMU_REG_SELECT] = { read_select, write_select },
	[PMU_REG_OFFCORE] = { read_offcore, write_offcore },
	[PMU_REG_FIXED_CTRL] = { read_fixed_ctrl, write_fixed_ctrl },
	[PMU_REG_GLOBAL_CTRL] = { read_global_ctrl, write_global_ctrl },
	[PMU_REG_STATUS] = { read_status, write_status },
	[PMU_REG_STATUS_CLEAR] = { NULL, write_status_clear },
	[PMU_REG_STATUS_SET] = { NULL, write_status_set },
	[PMU_REG_INUSE] = { pmu_read_inuse, NULL },
	[PMU_REG_DS_AREA] = { pmu_pebs_read_ds_area, pmu_pebs_write_ds_area },
	[PMU_REG_PEBS_ENABLE] = { pmu_pebs_read_enable, pmu_pebs_write_enable },
	[PMU_REG_PEBS_DATA_CFG] = { pmu_pebs_read_data_cfg, pmu_pebs_write_data_cfg },
	[PMU_REG_PEBS_LD_LAT] = { pmu_pebs_read_ld_lat, pmu_pebs_write_ld_lat },
	[PMU_REG_LBR_TOP] = { pmu_lbr_read_top, pmu_lbr_write_top },
	[PMU_REG_LBR_FROM] = { pmu_lbr_read_from, pmu_lbr_write_from },
	[PMU_REG_LBR_TO] = { pmu_lbr_read_to, pmu_lbr_write_to },
	[PMU_REG_LBR_INFO] = { pmu_lbr_read_info, pmu_lbr_write_info },
	[PMU_REG_LBR_SELECT] = { pmu_lbr_read_select, pmu_lbr_write_select },
	[PMU_REG_LBR_DEPTH] = { pmu_lbr_read_depth, pmu_lbr_write_depth },
	[PMU_REG_LBR_EXTN] = { pmu_lbr_read_extn, pmu_lbr_write_extn },
	[PMU_REG_IBS] = { pmu_ibs_read, pmu_ibs_write },
};
