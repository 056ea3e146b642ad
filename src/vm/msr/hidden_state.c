// SPDX-License-Identifier: MIT
/*
 * State that affects what a guest counts and records, but that no architectural register shows:
 * MSRs of our own, listed for programs that save and restore, unknown to guests. vCPU's lock.
 */
#include "vm/msr/priv.h"

#include "vm/vm.h"

#define STATE_VERSION 2ull /* of these MSRs and of what they mean */
#define STATE_TIMING  48   /* enum vm_timing */

static u64 identity(const struct vcpu *vcpu)
{
	const struct model *model = vcpu->vm->model;

	return (u64)vcpu->vm->set.timing << STATE_TIMING | STATE_VERSION << 32 |
	       model_signature(model->family, model->model, model->stepping);
}

static u64 read_parts(struct pmu *pmu, u32 first, u32 n)
{
	u64 parts = 0;

	for (u32 i = 0; i < n; i++)
		parts |= (u64)(u8)pmu_read_part(pmu, first + i) << 8 * i;
	return parts;
}

static void write_parts(struct pmu *pmu, u32 first, u32 n, u64 parts)
{
	for (u32 i = 0; i < n; i++)
		pmu_write_part(pmu, first + i, (u8)(parts >> 8 * i));
}

static u64 read_hidden(struct vcpu *vcpu, u32 i)
{
	switch (i) {
	case HIDDEN_MODEL:
		return identity(vcpu);
	case HIDDEN_BRANCH_TICKS:
		return hwpmu_branch_ticks(&vcpu->cpu->pmu);
	case HIDDEN_PMI_HELD:
		return vcpu->pmu.pmi_held;
	case HIDDEN_IBS:
		return hwpmu_ibs_hidden(&vcpu->cpu->pmu);
	case HIDDEN_IBS_PART:
		return hwpmu_ibs_part(&vcpu->cpu->pmu);
	case HIDDEN_PARTS:
		return read_parts(&vcpu->pmu.guest, 0, vcpu->pmu.guest.general);
	case HIDDEN_FIXED_PARTS:
		return read_parts(&vcpu->pmu.guest, PMU_FIXED_BASE, vcpu->pmu.guest.fixed);
	case HIDDEN_METRICS ... HIDDEN_METRICS_LAST:
		return pmu_read_metric(&vcpu->pmu.guest, i - HIDDEN_METRICS);
	default:
		return vcpu->has_lapic ? lapic_extended_entry(&vcpu->lapic, i - HIDDEN_EILVT) : 0;
	}
}

static bool write_hidden(struct vcpu *vcpu, u32 i, u64 value)
{
	switch (i) {
	case HIDDEN_MODEL:
		return value == identity(vcpu);
	case HIDDEN_BRANCH_TICKS:
		hwpmu_set_branch_ticks(&vcpu->cpu->pmu, value);
		break;
	case HIDDEN_PMI_HELD:
		vcpu->pmu.pmi_held = value;
		break;
	case HIDDEN_IBS:
		hwpmu_set_ibs_hidden(&vcpu->cpu->pmu, value);
		break;
	case HIDDEN_IBS_PART:
		hwpmu_set_ibs_part(&vcpu->cpu->pmu, value);
		break;
	case HIDDEN_PARTS:
		write_parts(&vcpu->pmu.guest, 0, vcpu->pmu.guest.general, value);
		break;
	case HIDDEN_FIXED_PARTS:
		write_parts(&vcpu->pmu.guest, PMU_FIXED_BASE, vcpu->pmu.guest.fixed, value);
		break;
	case HIDDEN_METRICS ... HIDDEN_METRICS_LAST:
		pmu_write_metric(&vcpu->pmu.guest, i - HIDDEN_METRICS, value);
		break;
	default:
		if (vcpu->has_lapic)
			lapic_set_extended_entry(&vcpu->lapic, i - HIDDEN_EILVT, value);
	}
	return true;
}

bool msr_read_hidden(struct vcpu *vcpu, u32 index, bool host, u64 *value)
{
	if (host)
		*value = read_hidden(vcpu, index - MSR_HIDDEN);
	return host;
}

bool msr_write_hidden(struct vcpu *vcpu, u32 index, bool host, u64 value)
{
	return host && write_hidden(vcpu, index - MSR_HIDDEN, value);
}
