// SPDX-License-Identifier: MIT
/*
 * Access to the registers, as their rows say (x86/pmu_msrs.h), and by RDPMC: which of them a model
 * and a guest have, and what an access to an absent one does. An access to a present one first has
 * the backend bring struct pmu up to date (pmu_fetch()). registers.c says what a read and a write
 * do.
 */
#include "pmu/priv.h"

static u32 least(u32 a, u32 b)
{
	return a < b ? a : b;
}

static u32 count(const struct pmu_row *row, u32 general, u32 fixed, u32 records)
{
	switch (row->per) {
	case PER_GENERAL:
		return least(row->most, general);
	case PER_FIXED:
		return least(row->most, fixed);
	case PER_RECORD:
		return least(row->most, records);
	default:
		return row->most;
	}
}

u32 pmu_row_offered(const struct pmu_row *row, const struct pmu_model *model)
{
	if (row->is_amd != model->is_amd)
		return row->flags & ROW_FEATURE ? row->most : 0;
	if (model->version < row->since || (row->lbr && row->lbr != model->lbr))
		return 0;
	if ((row->flags & ROW_BASELINE) && !(model->perf_capabilities & PERF_CAP_BASELINE))
		return 0;
	if ((row->flags & ROW_METRICS) && !model->metrics)
		return 0;
	return count(row, model->general, model->fixed, model->lbr_depth);
}

u32 pmu_row_present(const struct pmu_row *row, const struct pmu *pmu)
{
	if (row->is_amd != pmu->model->is_amd || pmu->version < row->since)
		return 0;
	if ((row->flags & ROW_FULL_WIDTH) &&
	    !(pmu->guest.pdcm && (pmu->perf_capabilities & PERF_CAP_FULL_WIDTH)))
		return 0;
	if ((row->flags & ROW_CORE_EXT) && !pmu->guest.core_ext)
		return 0;
	if ((row->flags & ROW_IBS) && !(pmu->guest.ibs && pmu->backend->write_ibs))
		return 0;
	if (((row->flags & ROW_PEBS) && !pmu->has_pebs) ||
	    ((row->flags & ROW_BASELINE) && !pmu_pebs_adaptive(pmu)) ||
	    ((row->flags & ROW_DS) && !pmu->guest.ds))
		return 0;
	if ((row->flags & ROW_METRICS) && !pmu->has_metrics)
		return 0;
	if (row->lbr && row->lbr != pmu->lbr)
		return 0;
	return count(row, pmu->general, pmu->fixed, pmu->model->lbr_depth);
}

/*
 * What becomes of an access to a register that this guest does not have. KVM: some of old
 * processors read as 0 and drop what is written, whatever the vendor; and the program may read any
 * listed one, and write 0 to it.
 */
static enum pmu_result absent(const struct pmu *pmu, struct pmu_reg reg, bool host, u64 value)
{
	if (!reg.row)
		return PMU_UNKNOWN;
	if (reg.i < reg.row->quiet)
		return PMU_OK;
	if (host && !value && (reg.row->flags & ROW_LISTED) &&
	    reg.i < pmu_row_offered(reg.row, pmu->model))
		return PMU_OK;
	return PMU_UNKNOWN;
}

static bool present(const struct pmu *pmu, struct pmu_reg reg)
{
	if (!reg.row || reg.i >= pmu_row_present(reg.row, pmu))
		return false;
	return reg.row->per != PER_FIXED || (pmu->fixed_set >> reg.i & 1);
}

enum pmu_result pmu_read_reg(struct pmu *pmu, struct pmu_reg reg, bool host, u64 *value)
{
	pmu_read_register *read;

	*value = 0;
	if (!present(pmu, reg))
		return absent(pmu, reg, host, 0);
	if ((reg.row->flags & ROW_PDCM) && !pmu->guest.pdcm && !host)
		return PMU_FAULT;
	pmu_fetch(pmu);
	read = pmu_reg_ops[reg.row->kind].read;
	if (read)
		*value = read(pmu, reg.i);
	return PMU_OK;
}

static struct pmu_features features(const struct pmu *pmu)
{
	return (struct pmu_features){ .counters = pmu->all,
				      .general_mask = pmu->general_mask,
				      .adaptive = pmu_pebs_adaptive(pmu),
				      .tsx = pmu->guest.tsx,
				      .lbr_freezes = pmu_lbr_status_bits(pmu),
				      .metrics = pmu->has_metrics };
}

enum pmu_result pmu_write_reg(struct pmu *pmu, struct pmu_reg reg, bool host, u64 value)
{
	struct pmu_features has = features(pmu);

	if (!present(pmu, reg))
		return absent(pmu, reg, host, value);
	pmu_fetch(pmu);
	switch (pmu_check_write(reg, &has, host, &value)) {
	case PMU_WRITE_FAULTS:
		return PMU_FAULT;
	case PMU_WRITE_DROPPED:
		return PMU_OK;
	default:
		return pmu_reg_ops[reg.row->kind].write(pmu, reg.i, value, host) ? PMU_OK
										 : PMU_FAULT;
	}
}

enum pmu_result pmu_rdmsr(struct pmu *pmu, u32 index, bool host, u64 *value)
{
	return pmu_read_reg(pmu, pmu_reg_find(index), host, value);
}

enum pmu_result pmu_wrmsr(struct pmu *pmu, u32 index, bool host, u64 value)
{
	return pmu_write_reg(pmu, pmu_reg_find(index), host, value);
}

enum pmu_result pmu_rdpmc(struct pmu *pmu, u32 ecx, bool allowed, u64 *value)
{
	u32 counter;

	*value = 0;
	if (!pmu->version || !allowed || !pmu->vendor->rdpmc_counter(pmu, ecx, &counter))
		return PMU_FAULT;
	pmu_fetch(pmu);
	*value = counter == PMU_METRICS_BIT ? pmu_metrics_read(pmu, 0)
					    : pmu_counter_read(pmu, counter);
	return PMU_OK;
}
