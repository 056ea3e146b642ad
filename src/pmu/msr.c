// SPDX-License-Identifier: MIT
/*
 * Access to the registers, as the rows of the vendor say, and by RDPMC.
 */
#include "pmu/priv.h"

/*
 * KVM: registers of old processors that read as 0 and drop what is written where the PMU does not
 * provide them, whatever the vendor: operating systems touch them without looking at CPUID.
 */
static const struct {
	u32 first, last;
} never_fault[] = {
	{ 0xc1, 0xc2 },
	{ 0x186, 0x187 },
	{ 0xc0010000, 0xc0010007 },
};

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
	enum pmu_lbr lbr = pmu_row_lbr(row->flags);

	if (model->version < row->version || (lbr && lbr != model->lbr))
		return 0;
	if ((row->flags & ROW_BASELINE) && !(model->perf_capabilities & PERF_CAP_BASELINE))
		return 0;
	return count(row, model->general, model->fixed, model->lbr_depth);
}

u32 pmu_row_present(const struct pmu_row *row, const struct pmu *pmu)
{
	enum pmu_lbr lbr = pmu_row_lbr(row->flags);

	if (pmu->version < row->version)
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
	if (lbr && lbr != pmu->lbr)
		return 0;
	return count(row, pmu->general, pmu->fixed, pmu->model->lbr_depth);
}

static struct pmu_reg find(const struct pmu_vendor *vendor, u32 index)
{
	for (u32 i = 0; i < vendor->nrows; i++) {
		const struct pmu_row *row = &vendor->rows[i];
		u32 offset = index - row->first;

		if (offset % row->step == 0 && offset / row->step < row->most)
			return (struct pmu_reg){ row, offset / row->step };
	}
	return (struct pmu_reg){ 0 };
}

/*
 * What becomes of an access to a register that this guest does not have. KVM: the program may read
 * any listed one, and write 0 to it.
 */
static enum pmu_result absent(const struct pmu *pmu, struct pmu_reg reg, u32 index, bool host,
			      u64 value)
{
	for (u32 i = 0; i < ARRAY_SIZE(never_fault); i++)
		if (index >= never_fault[i].first && index <= never_fault[i].last)
			return PMU_OK;
	if (host && !value && reg.row && (reg.row->flags & ROW_LISTED) &&
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

enum pmu_result pmu_rdmsr(struct pmu *pmu, u32 index, bool host, u64 *value)
{
	struct pmu_reg reg = find(pmu->vendor, index);

	*value = 0;
	if (!present(pmu, reg))
		return absent(pmu, reg, index, host, 0);
	if ((reg.row->flags & ROW_PDCM) && !pmu->guest.pdcm && !host)
		return PMU_FAULT;
	pmu_fetch(pmu);
	if (reg.row->read)
		*value = reg.row->read(pmu, reg.i);
	return PMU_OK;
}

enum pmu_result pmu_wrmsr(struct pmu *pmu, u32 index, bool host, u64 value)
{
	struct pmu_reg reg = find(pmu->vendor, index);

	if (!present(pmu, reg))
		return absent(pmu, reg, index, host, value);
	pmu_fetch(pmu);
	return reg.row->write(pmu, reg.i, value, host) ? PMU_OK : PMU_FAULT;
}

enum pmu_result pmu_rdpmc(struct pmu *pmu, u32 ecx, bool allowed, u64 *value)
{
	u32 counter;

	*value = 0;
	if (!pmu->version || !allowed || !pmu->vendor->rdpmc_counter(pmu, ecx, &counter))
		return PMU_FAULT;
	pmu_fetch(pmu);
	*value = pmu_counter_read(pmu, counter);
	return PMU_OK;
}

const char *pmu_msr_name(const struct pmu_model *model, u32 index, u32 *i)
{
	struct pmu_reg reg = find(pmu_vendor_of(model), index);

	*i = reg.i;
	return reg.row ? reg.row->name : NULL;
}
