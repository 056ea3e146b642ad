/* SPDX-License-Identifier: MIT */
/*
 * MSRs: one row each in msr.def, with who may read and write what; msr.c obeys the rows.
 * Semantics are KVM's, also where it is laxer than hardware. Includes the user-space filter.
 */
#ifndef VM_MSR_MSR_H
#define VM_MSR_MSR_H

#include <linux/kvm.h>

#include "base/types.h"

struct model;
struct vcpu;
struct vm;

#define MSR_MCE_BANKS	  32
#define MSR_VARIABLE_MTRR 8

/* KVM_X86_GET_MCE_CAP_SUPPORTED: MCG_CTL_P, MCG_SER_P, and MCG_CMCI_P for Intel guests. */
#define MCG_CTL_P  BIT(8)
#define MCG_CMCI_P BIT(10)
#define MCG_SER_P  BIT(24)

/* State of MSRs that lives nowhere else (not in struct cpu, lapic or clock). Owner: the vCPU's
 * lock. */
struct vcpu_msrs {
	u64 misc_enable, platform_info, misc_features_enables;
	u64 arch_capabilities, ucode_rev;
	u64 spec_ctrl, virt_spec_ctrl, feat_ctl, power_ctl, smi_count;
	u64 hwcr, de_cfg, vm_cr, osvw_length, osvw_status;
	u64 pv_eoi, poll_control, async_pf, async_pf_int;
	u64 mcg_cap, mcg_status, mcg_ctl, mcg_ext_ctl;
	u64 mce_bank[MSR_MCE_BANKS * 4], mce_ctl2[MSR_MCE_BANKS];
	u64 mtrr_variable[MSR_VARIABLE_MTRR * 2], mtrr_64k, mtrr_16k[2], mtrr_4k[8], mtrr_default;
};

/*
 * What KVM_X86_SET_MSR_FILTER set; the bitmaps are owned here. Immutable: a new one replaces it
 * under vm->lock, and the old one is destroyed after vm_synchronize().
 */
struct msr_filter {
	bool deny_default;
	u32 nranges;
	struct kvm_msr_filter_range range[KVM_MSR_FILTER_MAX_RANGES];
};

enum msr_result {
	MSR_OK,
	MSR_FAULT,    /* #GP(0) for the guest; a short count for KVM_GET_MSRS, KVM_SET_MSRS */
	MSR_UNKNOWN,  /* as MSR_FAULT; the program may have asked for KVM_MSR_EXIT_REASON_UNKNOWN */
	MSR_FILTERED, /* as MSR_FAULT; the program may have asked for KVM_MSR_EXIT_REASON_FILTER */
};

/*
 * host: on behalf of the program (GET_MSRS/SET_MSRS), which may do more than the guest. Without it,
 * the filter applies. Caller holds the vCPU's lock. *value is 0 unless MSR_OK.
 */
enum msr_result msr_read(struct vcpu *vcpu, u32 index, bool host, u64 *value);
enum msr_result msr_write(struct vcpu *vcpu, u32 index, bool host, u64 value);
/* The access of EXIT_RDMSR and EXIT_WRMSR: the processor has decoded the MSR (port.exit.msr). */
enum msr_result msr_guest_read(struct vcpu *vcpu, u64 *value);
enum msr_result msr_guest_write(struct vcpu *vcpu, u64 value);
/* KVM_MSR_EXIT_REASON_* of a failed access. */
u32 msr_exit_reason(enum msr_result result);

/*
 * KVM_X86_SET_MSR_FILTER: copies the bitmaps (the caller has copied *user itself). 0, -EINVAL,
 * -EFAULT or -ENOMEM. *out is NULL if nothing is filtered. A NULL filter allows everything.
 */
int msr_filter_create(const struct kvm_msr_filter *user, struct msr_filter **out);
void msr_filter_destroy(struct msr_filter *filter);
bool msr_filter_allows(const struct msr_filter *filter, u32 index, bool write);

/* KVM_GET_MSR_INDEX_LIST and KVM_GET_MSR_FEATURE_INDEX_LIST. Number available; at most max are
 * written. */
u32 msr_list(const struct model *model, u32 *out, u32 max);
u32 msr_feature_list(const struct model *model, u32 *out, u32 max);
/* KVM_GET_MSRS on the system fd. */
enum msr_result msr_feature_read(const struct model *model, u32 index, u64 *value);

/* Values after creation of the vCPU (init_event false) or INIT. */
void msr_reset(struct vcpu *vcpu, bool init_event);
/* For a program that cpuid_fill_newer() helped: what it would write if it were newer. */
void msr_fill_newer(struct vcpu *vcpu);

/* vm/mce.c. KVM_X86_SETUP_MCE: 0 or -EINVAL. KVM_X86_GET_MCE_CAP_SUPPORTED. */
int msr_setup_mce(struct vcpu *vcpu, u64 mcg_cap);
u64 msr_mce_supported(bool amd);
/* KVM_X86_SET_MCE: 0 or -EINVAL. */
int msr_inject_mce(struct vcpu *vcpu, const struct kvm_x86_mce *mce);

#endif
