/* SPDX-License-Identifier: MIT */
/*
 * Lists of MSRs in the program's memory: KVM_GET_MSRS and KVM_SET_MSRS, on the system and on a
 * vCPU.
 */
#ifndef KVM_MSR_LIST_H
#define KVM_MSR_LIST_H

#include "kvm/priv.h"

/* Does `one` for each entry until it fails: the number done, -EFAULT, -E2BIG or -ENOMEM. */
long kvm_msr_list(struct kvm_call *call,
		  int (*one)(struct vcpu *vcpu, const struct model *model, u32 index, u64 *data),
		  bool write_back);

#endif
