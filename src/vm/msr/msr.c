// SPDX-License-Identifier: MIT
/*
 * Reading and writing MSRs by their rows (msr.def), and the lists that the rows make. vCPU's
 * lock for accesses; any thread for lists.
 */
#include "vm/msr/msr.h"

#include "base/log.h"
#include "vm/msr/priv.h"
#include "vm/pv.h"
#include "vm/vm.h"

#define ANY 4

static const struct {
	u8 n;
	enum feature any[ANY];
} gates[NGATES] = {
	[GATE_SPEC_CTRL] = { 4, { FEAT_SPEC_CTRL, FEAT_AMD_STIBP, FEAT_AMD_IBRS, FEAT_AMD_SSBD } },
	[GATE_PRED_CMD] = { 2, { FEAT_SPEC_CTRL, FEAT_AMD_IBPB } },
	[GATE_FLUSH_CMD] = { 1, { FEAT_FLUSH_L1D } },
	[GATE_ARCH_CAPABILITIES] = { 1, { FEAT_ARCH_CAPABILITIES } },
	[GATE_XSAVES] = { 1, { FEAT_XSAVES } },
	[GATE_TSC_AUX] = { 2, { FEAT_RDTSCP, FEAT_RDPID } },
	[GATE_VIRT_SSBD] = { 1, { FEAT_VIRT_SSBD } },
	[GATE_OSVW] = { 1, { FEAT_OSVW } },
};

const struct msr_row *msr_find(u32 index)
{
	u32 low = 0, high = msr_nrows;

	while (low < high) {
		u32 mid = (low + high) / 2;
		const struct msr_row *row = &msr_rows[mid];

		if (index < row->first)
			high = mid;
		else if (index > row->last)
			low = mid + 1;
		else
			return row;
	}
	return NULL;
}

static bool on_vendor(const struct msr_row *row, bool amd)
{
	return !(row->flags & (amd ? INTEL : AMD));
}

static bool in_list(const struct msr_row *row, bool amd)
{
	return row->flags & (amd ? LIST_AMD : LIST_INTEL);
}

/* The row, if this VM has such an MSR at all. */
static const struct msr_row *present(const struct vcpu *vcpu, u32 index)
{
	const struct msr_row *row = msr_find(index);

	if (!row || !on_vendor(row, vcpu->vm->model->is_amd))
		return NULL;
	if (row->pv && !pv_allowed(vcpu, row->pv - 1))
		return NULL;
	return row;
}

static bool gate_open(const struct vcpu *vcpu, const struct msr_row *row, bool host)
{
	u32 n = gates[row->gate].n;

	if ((row->flags & LAPIC) && !vcpu->has_lapic)
		return false;
	for (u32 i = 0; i < n; i++)
		if (cpu_has(vcpu->cpu, gates[row->gate].any[i]))
			return true;
	return !n || host;
}

u64 *msr_home(struct vcpu *vcpu, const struct msr_row *row, u32 index)
{
	u8 *base = NULL;

	switch (row->home) {
	case HOME_NONE:
		return NULL;
	case HOME_OWN:
		base = (u8 *)&vcpu->msrs;
		break;
	case HOME_CPU:
		base = (u8 *)vcpu->cpu;
		break;
	case HOME_CLOCK:
		base = (u8 *)&vcpu->clock;
		break;
	}
	return (u64 *)(base + row->offset) + (index - row->first);
}

static const enum msr_result of_pmu[] = {
	[PMU_OK] = MSR_OK,
	[PMU_FAULT] = MSR_FAULT,
	[PMU_UNKNOWN] = MSR_UNKNOWN,
};

static enum msr_result read_row(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	const struct msr_row *row = present(vcpu, index);

	if (!row || (row->flags & WRITE_ONLY))
		return MSR_UNKNOWN;
	if (!gate_open(vcpu, row, host))
		return MSR_FAULT;
	if (row->read)
		return row->read(vcpu, index, host, value) ? MSR_OK : MSR_FAULT;
	*value = row->home ? *msr_home(vcpu, row, index) : row->value;
	return MSR_OK;
}

/* Feature MSRs are part of the CPU model: after the first run the program may only confirm them. */
static bool frozen(struct vcpu *vcpu, const struct msr_row *row, u32 index, u64 value)
{
	return (row->flags & FROZEN) && vcpu->ever_ran && *msr_home(vcpu, row, index) != value;
}

static enum msr_result write_row(struct vcpu *vcpu, u32 index, bool host, u64 value)
{
	const struct msr_row *row = present(vcpu, index);

	if (!row || (row->flags & READ_ONLY))
		return MSR_UNKNOWN;
	if (!gate_open(vcpu, row, host) || (!host && (row->flags & HOST_WRITES)))
		return MSR_FAULT;
	if (host && frozen(vcpu, row, index, value))
		return MSR_FAULT;
	if ((value & row->reserved) || (row->check && !row->check(vcpu, index, host, &value)))
		return MSR_FAULT;
	if (row->write)
		return row->write(vcpu, index, host, value) ? MSR_OK : MSR_FAULT;
	if (!(row->flags & DROP_WRITES))
		*msr_home(vcpu, row, index) = value;
	return MSR_OK;
}

/* KVM: the program may read any listed MSR, and write 0 to it, even if this vCPU does not have
 * it. */
static bool excused(const struct vcpu *vcpu, u32 index, bool host, u64 value)
{
	const struct msr_row *row = msr_find(index);

	return host && !value && row && in_list(row, vcpu->vm->model->is_amd);
}

static bool filtered(const struct vcpu *vcpu, u32 index, bool write)
{
	const struct msr_filter *filter = __atomic_load_n(&vcpu->vm->msr_filter, __ATOMIC_ACQUIRE);

	return !msr_filter_allows(filter, index, write);
}

static enum msr_result read_pmu(struct vcpu *vcpu, struct pmu_reg reg, bool host, u64 *value)
{
	return of_pmu[pmu_read_reg(&vcpu->pmu.guest, reg, host, value)];
}

static enum msr_result write_pmu(struct vcpu *vcpu, struct pmu_reg reg, bool host, u64 value)
{
	if (host && reg.row->kind == PMU_REG_CAPABILITIES)
		value = vcpu_pmu_capabilities(vcpu, value);
	return of_pmu[pmu_write_reg(&vcpu->pmu.guest, reg, host, value)];
}

/* The MSR was decoded by the processor: a register of the PMU, or a row of msr.def. */
static enum msr_result read_decoded(struct vcpu *vcpu, u32 index, struct pmu_reg reg, bool host,
				    u64 *value)
{
	enum msr_result r;

	*value = 0;
	if (!host && filtered(vcpu, index, false))
		return MSR_FILTERED;
	r = reg.row ? read_pmu(vcpu, reg, host, value) : read_row(vcpu, index, host, value);
	if (r != MSR_OK)
		*value = 0;
	if (r == MSR_UNKNOWN)
		log_info("vCPU %u: read of MSR %#x, which is not known", vcpu->id, index);
	return r == MSR_UNKNOWN && excused(vcpu, index, host, 0) ? MSR_OK : r;
}

static enum msr_result write_decoded(struct vcpu *vcpu, u32 index, struct pmu_reg reg, bool host,
				     u64 value)
{
	enum msr_result r;

	if (!host && filtered(vcpu, index, true))
		return MSR_FILTERED;
	r = reg.row ? write_pmu(vcpu, reg, host, value) : write_row(vcpu, index, host, value);
	if (r == MSR_UNKNOWN)
		log_info("vCPU %u: write of %#llx to MSR %#x, which is not known", vcpu->id,
			 (unsigned long long)value, index);
	return r == MSR_UNKNOWN && excused(vcpu, index, host, value) ? MSR_OK : r;
}

enum msr_result msr_read(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	return read_decoded(vcpu, index, pmu_reg_find(index), host, value);
}

enum msr_result msr_write(struct vcpu *vcpu, u32 index, bool host, u64 value)
{
	return write_decoded(vcpu, index, pmu_reg_find(index), host, value);
}

/* `other` stands for many MSRs: the index is RCX's. */
enum msr_result msr_guest_read(struct vcpu *vcpu, u64 *value)
{
	const struct intercept *msr = vcpu->cpu->port.exit.msr;

	return read_decoded(vcpu, vcpu->cpu->regs[RCX], msr->pmu, false, value);
}

enum msr_result msr_guest_write(struct vcpu *vcpu, u64 value)
{
	const struct intercept *msr = vcpu->cpu->port.exit.msr;

	return write_decoded(vcpu, vcpu->cpu->regs[RCX], msr->pmu, false, value);
}

u32 msr_exit_reason(enum msr_result result)
{
	switch (result) {
	case MSR_UNKNOWN:
		return KVM_MSR_EXIT_REASON_UNKNOWN;
	case MSR_FILTERED:
		return KVM_MSR_EXIT_REASON_FILTER;
	default:
		return KVM_MSR_EXIT_REASON_INVAL;
	}
}

static void append(u32 *out, u32 max, u32 *n, u32 index)
{
	if (*n < max)
		out[*n] = index;
	++*n;
}

u32 msr_list(const struct model *model, u32 *out, u32 max)
{
	u32 n = pmu_msr_list(pmu_model_of(model->set), out, max);

	for (u32 i = 0; i < msr_nrows; i++)
		for (u32 index = msr_rows[i].first; index <= msr_rows[i].last; index++)
			if (in_list(&msr_rows[i], model->is_amd))
				append(out, max, &n, index);
	return n;
}

static bool is_feature(const struct msr_row *row, bool amd)
{
	return (row->flags & FEATURE) && on_vendor(row, amd);
}

u32 msr_feature_list(const struct model *model, u32 *out, u32 max)
{
	u32 n = 0;

	for (u32 i = 0; i < pmu_nrows; i++)
		if (pmu_rows[i].flags & ROW_FEATURE)
			append(out, max, &n, pmu_rows[i].first);
	for (u32 i = 0; i < msr_nrows; i++)
		if (is_feature(&msr_rows[i], model->is_amd))
			append(out, max, &n, msr_rows[i].first);
	return n;
}

static bool pmu_lists(const struct model *model, u32 index)
{
	u32 list[PMU_MSRS], n = pmu_msr_list(pmu_model_of(model->set), list, PMU_MSRS);

	for (u32 i = 0; i < n; i++)
		if (list[i] == index)
			return true;
	return false;
}

enum msr_result msr_feature_read(const struct model *model, u32 index, u64 *value)
{
	const struct msr_row *row = msr_find(index);
	struct pmu_reg reg = pmu_reg_find(index);

	*value = 0;
	if (reg.row && (reg.row->flags & ROW_FEATURE)) {
		*value = pmu_supported_capabilities(pmu_model_of(model->set));
		return MSR_OK;
	}
	if (row && is_feature(row, model->is_amd)) {
		*value = msr_value(row, model->is_amd);
		return MSR_OK;
	}
	if ((row && in_list(row, model->is_amd)) || pmu_lists(model, index))
		return MSR_OK;
	return MSR_UNKNOWN;
}
