// SPDX-License-Identifier: MIT
/*
 * The registers of the physical PMU as RDMSR, WRMSR and RDPMC reach them. Their rows are those of
 * the virtual PMU (x86/pmu_msrs.h), so that a guest cannot tell which of the two serves it.
 * Registers of PEBS, IBS and off-core responses and the controls of branch records are not here:
 * the hypervisor always intercepts them. vCPU thread, with guest vector state live.
 */
#include "hwpmu/msr.h"

#include "hwpmu/hwpmu.h"

static bool is_record(struct pmu_reg reg)
{
	return reg.row->kind >= PMU_REG_LBR_TOP && reg.row->kind <= PMU_REG_LBR_INFO;
}

static enum lbr_field field_of(struct pmu_reg reg)
{
	static const enum lbr_field fields[] = { LBR_TOP, LBR_FROM, LBR_TO, LBR_INFO };

	return fields[reg.row->kind - PMU_REG_LBR_TOP];
}

static bool shows_metrics(const struct hwpmu *pmu)
{
	return pmu->model->metrics && !pmu->hides_metrics;
}

static bool has(const struct hwpmu *pmu, struct pmu_reg reg)
{
	if (!reg.row || reg.row->is_amd != pmu->model->is_amd)
		return false;
	if (reg.row->kind == PMU_REG_METRICS)
		return shows_metrics(pmu);
	if (is_record(reg))
		return pmu->branches && reg.row->lbr == pmu->model->lbr;
	return reg.row->per == PER_CPU || (hwpmu_all(pmu) & BIT(pmu_reg_counter(reg)));
}

enum hwpmu_access hwpmu_read_reg(const struct hwpmu *pmu, struct pmu_reg reg, u64 *value)
{
	*value = 0;
	if (!has(pmu, reg))
		return HWPMU_FAULT;
	switch (reg.row->kind) {
	case PMU_REG_COUNTER:
	case PMU_REG_COUNTER_LOW:
	case PMU_REG_COUNTER_FULL:
	case PMU_REG_FIXED_COUNTER:
		*value = hwpmu_read(pmu, pmu_reg_counter(reg));
		return HWPMU_DONE;
	case PMU_REG_METRICS:
		*value = hwpmu_read_metrics(pmu);
		return HWPMU_DONE;
	case PMU_REG_SELECT:
		*value = pmu->select[reg.i];
		return HWPMU_DONE;
	case PMU_REG_FIXED_CTRL:
		*value = pmu->fixed_ctrl;
		return HWPMU_DONE;
	case PMU_REG_GLOBAL_CTRL:
		*value = pmu->global_ctrl;
		return HWPMU_DONE;
	case PMU_REG_STATUS:
		*value = pmu->global_status;
		return HWPMU_DONE;
	case PMU_REG_STATUS_CLEAR:
	case PMU_REG_STATUS_SET:
		return HWPMU_DONE;
	case PMU_REG_LBR_TOP:
	case PMU_REG_LBR_FROM:
	case PMU_REG_LBR_TO:
	case PMU_REG_LBR_INFO:
		if (reg.i < pmu->lbr.depth)
			*value = hwpmu_read_lbr(pmu, field_of(reg), reg.i);
		return HWPMU_DONE;
	default:
		return HWPMU_FAULT;
	}
}

static enum hwpmu_access write_checked(struct hwpmu *pmu, struct pmu_reg reg, u64 value)
{
	switch (reg.row->kind) {
	case PMU_REG_COUNTER_LOW:
		value = (u64)(s64)(s32)value;
		__attribute__((fallthrough));
	case PMU_REG_COUNTER:
	case PMU_REG_COUNTER_FULL:
	case PMU_REG_FIXED_COUNTER:
		hwpmu_write(pmu, pmu_reg_counter(reg), value);
		return HWPMU_DONE;
	case PMU_REG_METRICS:
		hwpmu_write_metrics(pmu, value);
		return HWPMU_DONE;
	case PMU_REG_SELECT:
		hwpmu_write_select(pmu, reg.i, value);
		return HWPMU_DONE;
	case PMU_REG_FIXED_CTRL:
		hwpmu_write_fixed_ctrl(pmu, value);
		return HWPMU_DONE;
	case PMU_REG_GLOBAL_CTRL:
		hwpmu_write_global_ctrl(pmu, value);
		return HWPMU_DONE;
	case PMU_REG_STATUS_CLEAR:
		hwpmu_reset_status(pmu, value);
		return HWPMU_DONE;
	case PMU_REG_STATUS_SET:
		hwpmu_set_status(pmu, value);
		return HWPMU_DONE;
	case PMU_REG_LBR_TOP:
	case PMU_REG_LBR_FROM:
	case PMU_REG_LBR_TO:
	case PMU_REG_LBR_INFO:
		if (reg.i < pmu->lbr.depth)
			hwpmu_write_lbr_entry(pmu, field_of(reg), reg.i, value);
		return HWPMU_DONE;
	default:
		return HWPMU_FAULT;
	}
}

enum hwpmu_access hwpmu_write_reg(struct hwpmu *pmu, struct pmu_reg reg, u64 value)
{
	struct pmu_features features = { .counters = hwpmu_all(pmu),
					 .general_mask = BIT(pmu->model->general_width) - 1,
					 .adaptive = pmu->pebs.adaptive,
					 .lbr_freezes = pmu->lbr.freezes,
					 .metrics = shows_metrics(pmu) };

	if (!has(pmu, reg))
		return HWPMU_FAULT;
	switch (pmu_check_write(reg, &features, false, &value)) {
	case PMU_WRITE_FAULTS:
		return HWPMU_FAULT;
	case PMU_WRITE_DROPPED:
		return HWPMU_DONE;
	default:
		return write_checked(pmu, reg, value);
	}
}

enum hwpmu_access hwpmu_rdmsr(const struct hwpmu *pmu, u32 index, u64 *value)
{
	return hwpmu_read_reg(pmu, pmu_reg_find(index), value);
}

enum hwpmu_access hwpmu_wrmsr(struct hwpmu *pmu, u32 index, u64 value)
{
	return hwpmu_write_reg(pmu, pmu_reg_find(index), value);
}

/* Intel: the type in 31:16 (4000H: fixed, 2000H: metrics), the number in 15:0. */
enum hwpmu_access hwpmu_rdpmc(const struct hwpmu *pmu, u32 ecx, u64 *value)
{
	u32 type = ecx >> 16, i = ecx & 0xffff;
	bool fixed = !pmu->model->is_amd && type == 0x4000;

	*value = 0;
	if (ecx == RDPMC_METRICS && shows_metrics(pmu)) {
		*value = hwpmu_read_metrics(pmu);
		return HWPMU_DONE;
	}
	if ((type && !fixed) || i >= (fixed ? pmu->model->fixed : pmu->model->general))
		return HWPMU_FAULT;
	*value = hwpmu_read(pmu, fixed ? PMU_FIXED_BASE + i : i);
	return HWPMU_DONE;
}
