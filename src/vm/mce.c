// SPDX-License-Identifier: MIT
/*
 * Machine checks that the program injects (SDM 3B 15; KVM_X86_SETUP_MCE, KVM_X86_SET_MCE): banks in
 * vcpu->msrs, then a CMCI, a #MC or a shutdown. vCPU's lock.
 */
#include <errno.h>

#include "cpu/event.h"
#include "vm/events.h"
#include "vm/vm.h"

#define STATUS_AR   BIT(55)
#define STATUS_S    BIT(56)
#define STATUS_PCC  BIT(57)
#define STATUS_UC   BIT(61)
#define STATUS_OVER BIT(62)
#define STATUS_VAL  BIT(63)
#define MCG_MCIP    BIT(2)
#define CTL2_CMCI   BIT(30)

enum bank_reg { CTL, STATUS, ADDR, MISC, BANK_REGS };

u64 msr_mce_supported(bool amd)
{
	return MCG_CTL_P | MCG_SER_P | (amd ? 0 : MCG_CMCI_P) | MSR_MCE_BANKS;
}

/* All error reporting starts enabled, corrected error interrupts disabled. */
int msr_setup_mce(struct vcpu *vcpu, u64 mcg_cap)
{
	struct vcpu_msrs *msrs = &vcpu->msrs;
	u64 supported = msr_mce_supported(vcpu->vm->model->is_amd);
	u32 banks = mcg_cap & 0xff;

	if (!banks || banks > MSR_MCE_BANKS || (mcg_cap & ~(supported | 0xff | 0xff0000)))
		return -EINVAL;
	msrs->mcg_cap = mcg_cap;
	if (mcg_cap & MCG_CTL_P)
		msrs->mcg_ctl = ~0ull;
	for (u32 i = 0; i < banks; i++) {
		msrs->mce_bank[BANK_REGS * i + CTL] = ~0ull;
		msrs->mce_ctl2[i] = 0;
	}
	lapic_configure(&vcpu->lapic, mcg_cap & MCG_CMCI_P, vcpu->lapic.directed_eoi);
	return 0;
}

static void record(struct vcpu *vcpu, u64 *bank, const struct kvm_x86_mce *mce)
{
	u64 overflow = bank[STATUS] & STATUS_VAL ? STATUS_OVER : 0;

	bank[STATUS] = mce->status | overflow;
	bank[ADDR] = mce->addr;
	bank[MISC] = mce->misc;
	if (mce->status & STATUS_UC)
		vcpu->msrs.mcg_status = mce->mcg_status;
}

/* Uncorrected, but nothing needs to be done about it: the guest learns of it by CMCI (SDM
 * 3B 15.6.3). */
static bool no_action_required(const struct kvm_x86_mce *mce)
{
	return !mce->mcg_status && !(mce->status & (STATUS_PCC | STATUS_S | STATUS_AR)) &&
	       (mce->status & STATUS_UC);
}

static void report_by_cmci(struct vcpu *vcpu, u64 *bank, const struct kvm_x86_mce *mce)
{
	bank[STATUS] = 0; /* KVM: no overflow is noted */
	record(vcpu, bank, mce);
	if ((vcpu->msrs.mcg_cap & MCG_CMCI_P) && (vcpu->msrs.mce_ctl2[mce->bank] & CTL2_CMCI) &&
	    vcpu->has_lapic && lapic_local(&vcpu->lapic, LAPIC_LVT_CMCI))
		vcpu_kick(vcpu, REQUEST_EVENT);
}

/* A machine check in the handler of another shuts the processor down. */
static void raise_mc(struct vcpu *vcpu, u64 *bank, const struct kvm_x86_mce *mce)
{
	struct vcpu_msrs *msrs = &vcpu->msrs;

	if (((msrs->mcg_cap & MCG_CTL_P) && msrs->mcg_ctl != ~0ull) || bank[CTL] != ~0ull)
		return;
	if ((msrs->mcg_status & MCG_MCIP) || !(vcpu->cpu->cr4 & CR4_MCE)) {
		vcpu->events.triple_fault = true;
	} else {
		record(vcpu, bank, mce);
		events_set_aside(vcpu);
		cpu_raise(vcpu->cpu, VEC_MC);
	}
	vcpu_kick(vcpu, REQUEST_EVENT);
}

int msr_inject_mce(struct vcpu *vcpu, const struct kvm_x86_mce *mce)
{
	u64 *bank = &vcpu->msrs.mce_bank[BANK_REGS * (mce->bank % MSR_MCE_BANKS)];

	if (mce->bank >= (vcpu->msrs.mcg_cap & 0xff) || !(mce->status & STATUS_VAL))
		return -EINVAL;
	if (no_action_required(mce))
		report_by_cmci(vcpu, bank, mce);
	else if (mce->status & STATUS_UC)
		raise_mc(vcpu, bank, mce);
	else if ((bank[STATUS] & STATUS_VAL) && (bank[STATUS] & STATUS_UC))
		bank[STATUS] |= STATUS_OVER; /* the uncorrected one is kept (SDM 3B 15.3.2.2.1) */
	else
		record(vcpu, bank, mce);
	return 0;
}
