// SPDX-License-Identifier: MIT
/*
 * The registers of the physical PMU by address: rows of both vendors (SDM 4 table 2-2; APM2
 * appendix A). KVM: where it is laxer than the manual, for registers that it emulates, this silicon
 * is too, so that a guest cannot tell who serves it.
 */
#include "hwpmu/msr.h"

#include "hwpmu/hwpmu.h"

enum kind { COUNTER, COUNTER_SIGNED, SELECT, FIXED_CTRL, GLOBAL_CTRL, STATUS, CLEAR, SET };

struct row {
	u32 first;
	u8 shift, n; /* two to the power of `shift` apart; at most: the model may have fewer */
	u8 base;     /* the counter that `first` belongs to */
	enum kind kind;
};

static const struct row intel[] = {
	{ 0xc1, 0, HWPMU_GENERAL, 0, COUNTER_SIGNED },
	{ 0x186, 0, HWPMU_GENERAL, 0, SELECT },
	{ 0x309, 0, HWPMU_FIXED, PMU_FIXED_BASE, COUNTER },
	{ 0x38d, 0, 1, 0, FIXED_CTRL },
	{ 0x38e, 0, 1, 0, STATUS },
	{ 0x38f, 0, 1, 0, GLOBAL_CTRL },
	{ 0x390, 0, 1, 0, CLEAR },
	{ 0x4c1, 0, HWPMU_GENERAL, 0, COUNTER },
};

static const struct row amd[] = {
	{ 0xc0000300, 0, 1, 0, STATUS }, { 0xc0000301, 0, 1, 0, GLOBAL_CTRL },
	{ 0xc0000302, 0, 1, 0, CLEAR },	 { 0xc0000303, 0, 1, 0, SET },
	{ 0xc0010000, 0, 4, 0, SELECT }, { 0xc0010004, 0, 4, 0, COUNTER },
	{ 0xc0010200, 1, 6, 0, SELECT }, { 0xc0010201, 1, 6, 0, COUNTER },
};

/* Branch records: registers of the stack itself. Its controls are always the hypervisor's. */
static const struct record_row {
	u32 first;
	u8 step, n;
	enum pmu_lbr stack;
	enum lbr_field field;
} record_rows[] = {
	{ 0x1c9, 1, 1, LBR_LEGACY, LBR_TOP },	{ 0x680, 1, 32, LBR_LEGACY, LBR_FROM },
	{ 0x6c0, 1, 32, LBR_LEGACY, LBR_TO },	{ 0xdc0, 1, 32, LBR_LEGACY, LBR_INFO },
	{ 0x1200, 1, 32, LBR_ARCH, LBR_INFO },	{ 0x1500, 1, 32, LBR_ARCH, LBR_FROM },
	{ 0x1600, 1, 32, LBR_ARCH, LBR_TO },	{ 0xc0010300, 2, 16, LBR_AMD, LBR_FROM },
	{ 0xc0010301, 2, 16, LBR_AMD, LBR_TO },
};

static const struct record_row *find_record(const struct hwpmu *pmu, u32 index, u32 *i)
{
	for (u32 r = 0; pmu->branches && r < ARRAY_SIZE(record_rows); r++) {
		const struct record_row *row = &record_rows[r];
		u32 offset = index - row->first;

		*i = offset / row->step;
		if (row->stack == pmu->model->lbr && !(offset % row->step) && *i < row->n)
			return row;
	}
	return NULL;
}

static enum hwpmu_access read_record(const struct hwpmu *pmu, u32 index, u64 *value)
{
	u32 i;
	const struct record_row *row = find_record(pmu, index, &i);

	if (!row)
		return HWPMU_FAULT;
	if (i < pmu->lbr.depth)
		*value = hwpmu_read_lbr(pmu, row->field, i);
	return HWPMU_DONE;
}

static enum hwpmu_access write_record(struct hwpmu *pmu, u32 index, u64 value)
{
	u32 i;
	const struct record_row *row = find_record(pmu, index, &i);

	if (!row)
		return HWPMU_FAULT;
	if (i < pmu->lbr.depth)
		hwpmu_write_lbr_entry(pmu, row->field, i, value);
	return HWPMU_DONE;
}

static const struct row *find(const struct hwpmu *pmu, u32 index, u32 *counter)
{
	const struct row *rows = pmu->model->is_amd ? amd : intel;
	u32 n = pmu->model->is_amd ? ARRAY_SIZE(amd) : ARRAY_SIZE(intel);

	for (u32 i = 0; i < n; i++) {
		u32 offset = index - rows[i].first, nth = offset >> rows[i].shift;

		if (nth >= rows[i].n || offset != nth << rows[i].shift)
			continue;
		*counter = rows[i].base + nth;
		return rows[i].kind > SELECT || (hwpmu_all(pmu) & BIT(*counter)) ? &rows[i] : NULL;
	}
	return NULL;
}

enum hwpmu_access hwpmu_rdmsr(const struct hwpmu *pmu, u32 index, u64 *value)
{
	u32 counter;
	const struct row *row = find(pmu, index, &counter);

	*value = 0;
	if (!row)
		return read_record(pmu, index, value);
	switch (row->kind) {
	case COUNTER:
	case COUNTER_SIGNED:
		*value = hwpmu_read(pmu, counter);
		break;
	case SELECT:
		*value = pmu->select[counter];
		break;
	case FIXED_CTRL:
		*value = pmu->fixed_ctrl;
		break;
	case GLOBAL_CTRL:
		*value = pmu->global_ctrl;
		break;
	case STATUS:
		*value = pmu->global_status;
		break;
	case CLEAR:
	case SET:
		break;
	}
	return HWPMU_DONE;
}

static enum hwpmu_access write_counter(struct hwpmu *pmu, u32 index, u32 counter, u64 value)
{
	/* Full-width writes check; KVM: those to fixed counters and AMD's drop. */
	if (!pmu->model->is_amd && index >= 0x4c1 && (value >> pmu->model->general_width))
		return HWPMU_FAULT;
	hwpmu_write(pmu, counter, value);
	return HWPMU_DONE;
}

static enum hwpmu_access write_select(struct hwpmu *pmu, u32 i, u64 value)
{
	u64 adaptive = pmu->pebs.adaptive ? EVENTSEL_ADAPTIVE : 0;

	if (pmu->model->is_amd)
		value &= ~(MASK(63, 36) | EVENTSEL_ANY | EVENTSEL_PC);
	else if (value & ((MASK(63, 32) & ~adaptive) | EVENTSEL_ANY))
		return HWPMU_FAULT;
	hwpmu_write_select(pmu, i, value);
	return HWPMU_DONE;
}

static enum hwpmu_access write_fixed_ctrl(struct hwpmu *pmu, u64 value)
{
	const u64 field = FIXED_CTRL_OS | FIXED_CTRL_USR | FIXED_CTRL_PMI;
	u64 legal = 0;

	for (u32 i = 0; i < pmu->model->fixed; i++)
		legal |= field << FIXED_CTRL_BITS * i |
			 (pmu->pebs.adaptive ? FIXED_CTRL_ADAPTIVE(i) : 0);
	if (value & ~legal)
		return HWPMU_FAULT;
	hwpmu_write_fixed_ctrl(pmu, value);
	return HWPMU_DONE;
}

static enum hwpmu_access write_global_ctrl(struct hwpmu *pmu, u64 value)
{
	if (!pmu->model->is_amd && (value & ~hwpmu_all(pmu)))
		return HWPMU_FAULT;
	hwpmu_write_global_ctrl(pmu, value);
	return HWPMU_DONE;
}

static enum hwpmu_access clear_status(struct hwpmu *pmu, u64 value)
{
	u64 legal = hwpmu_all(pmu) | GLOBAL_STATUS_DS | GLOBAL_STATUS_CHANGED |
		    (pmu->lbr.freezes ? GLOBAL_STATUS_LBR_FRZ : 0);

	if (!pmu->model->is_amd && (value & ~legal))
		return HWPMU_FAULT;
	hwpmu_reset_status(pmu, value);
	return HWPMU_DONE;
}

enum hwpmu_access hwpmu_wrmsr(struct hwpmu *pmu, u32 index, u64 value)
{
	u32 counter;
	const struct row *row = find(pmu, index, &counter);

	if (!row)
		return write_record(pmu, index, value);
	switch (row->kind) {
	case COUNTER_SIGNED:
		value = (u64)(s64)(s32)value;
		__attribute__((fallthrough));
	case COUNTER:
		return write_counter(pmu, index, counter, value);
	case SELECT:
		return write_select(pmu, counter, value);
	case FIXED_CTRL:
		return write_fixed_ctrl(pmu, value);
	case GLOBAL_CTRL:
		return write_global_ctrl(pmu, value);
	case STATUS:
		return pmu->model->is_amd ? HWPMU_DONE : HWPMU_FAULT;
	case CLEAR:
		return clear_status(pmu, value);
	case SET:
		hwpmu_set_status(pmu, value & hwpmu_all(pmu));
		return HWPMU_DONE;
	}
	return HWPMU_FAULT;
}

/* Intel: the type in 31:16 (4000H: fixed), the number in 15:0. */
enum hwpmu_access hwpmu_rdpmc(const struct hwpmu *pmu, u32 ecx, u64 *value)
{
	u32 type = ecx >> 16, i = ecx & 0xffff;
	bool fixed = !pmu->model->is_amd && type == 0x4000;

	*value = 0;
	if ((type && !fixed) || i >= (fixed ? pmu->model->fixed : pmu->model->general))
		return HWPMU_FAULT;
	*value = hwpmu_read(pmu, fixed ? PMU_FIXED_BASE + i : i);
	return HWPMU_DONE;
}

retire_wanted hwpmu_classes(const struct hwpmu *pmu)
{
	return hwpmu_wanted(pmu);
}
