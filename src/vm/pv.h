/* SPDX-License-Identifier: MIT */
/*
 * Paravirtual calls: VMCALL and VMMCALL as KVM answers them
 * (Documentation/virt/kvm/x86/hypercalls.rst), and the KVM features the guest's CPUID promises.
 * vCPU thread.
 */
#ifndef VM_PV_H
#define VM_PV_H

#include "base/types.h"

struct vcpu;

enum pv_result {
	PV_DONE, /* RAX holds the answer: cpu_complete() */
	/* vcpu->run describes KVM_EXIT_HYPERCALL; pv_finish() when the program is back. */
	PV_USER_EXIT,
	PV_FAULT, /* an exception is in cpu->port.event: do not complete the instruction */
	PV_RETRY, /* the instruction was patched: execute it again */
};

/* EXIT_HYPERCALL: the exit's insn_bytes tell VMCALL (0f 01 c1) from VMMCALL (0f 01 d9). */
enum pv_result pv_hypercall(struct vcpu *vcpu);
/* After KVM_EXIT_HYPERCALL: the program's answer from run->hypercall.ret goes to RAX. Then
 * cpu_complete(). */
void pv_finish(struct vcpu *vcpu);

/* CPUID 0x40000001.EAX as the program set it, 0 without the KVM signature. */
u32 pv_features(const struct vcpu *vcpu);
/* May the guest use this feature (KVM_FEATURE_*)? Always, unless
 * KVM_CAP_ENFORCE_PV_FEATURE_CPUID. */
bool pv_allowed(const struct vcpu *vcpu, u32 feature);

/* irq/pv_eoi.c: right before the guest is entered and right after it has left, in a section. */
void pv_eoi_offer(struct vcpu *vcpu);
void pv_eoi_collect(struct vcpu *vcpu);

#endif
