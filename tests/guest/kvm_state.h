/* SPDX-License-Identifier: MIT */
/*
 * The complete state of a VM with one vCPU and an irqchip, saved and restored as a program does
 * that migrates it: by the KVM API alone, with every MSR that KVM_GET_MSR_INDEX_LIST names.
 */
#ifndef GUEST_KVM_STATE_H
#define GUEST_KVM_STATE_H

#include "guest/kvm_guest.h"

#define KVM_STATE_MSRS	512
#define KVM_STATE_CHIPS 3 /* two PICs and the I/O APIC */

/* struct kvm_msrs with room. */
struct kvm_state_msrs {
	u32 nmsrs, pad;
	struct kvm_msr_entry entry[KVM_STATE_MSRS];
};

struct kvm_state {
	struct kvm_regs regs;
	struct kvm_sregs2 sregs;
	struct kvm_xcrs xcrs;
	struct kvm_vcpu_events events;
	struct kvm_debugregs debug;
	struct kvm_lapic_state lapic;
	struct kvm_mp_state mp;
	struct kvm_irqchip chip[KVM_STATE_CHIPS];
	struct kvm_clock_data clock;
	int tsc_khz;
	struct kvm_state_msrs msrs;
	u8 xsave[16384] __attribute__((aligned(64)));
};

void kvm_state_save(struct kvm_guest *g, struct kvm_state *state);
void kvm_state_restore(struct kvm_guest *g, const struct kvm_state *state);

/* Goes on in a new VM with a new vCPU: state and memory are copied, the old VM is destroyed. */
void kvm_state_move(struct kvm_guest *g, void (*prepare)(int vm));

#endif
