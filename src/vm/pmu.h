/* SPDX-License-Identifier: MIT */
/*
 * The PMU of a vCPU: the virtual one that the guest sees, and the physical one that the processor
 * under it has. Here they meet the engine's tallies and the local APIC.
 */
#ifndef VM_PMU_H
#define VM_PMU_H

#include "cpu/intercept.h"
#include "hwpmu/hwpmu.h"
#include "pmu/pmu.h"

struct vcpu;
struct vm;

/* The vCPU's lock. */
struct vcpu_pmu {
	struct pmu guest;
	struct hwpmu hw;
	u64 filter_serial; /* of guest.filter, since another one may come to lie where it was */
	struct intercepts intercepts;
	u32 shape, msr_serial; /* what the intercepts were made from */
};

/* Immutable: a new one replaces it under vm->lock, and the old one is freed after vm_synchronize().
 */
struct vm_pmu_filter {
	u64 serial; /* from 1 */
	struct pmu_filter filter;
};

void vcpu_pmu_init(struct vcpu *vcpu);

/* The vCPU's thread, inside a section. Before an entry: counters count what their registers say;
 * PMIs of what the hypervisor completed go to the local APIC. */
void vcpu_pmu_enter(struct vcpu *vcpu);
/* Has the processor stop where a counter overflows. */
void vcpu_pmu_arm(struct vcpu *vcpu);
/* After it: PMIs of what the guest did. True: vcpu_pmu_enter() or the local APIC is needed next. */
bool vcpu_pmu_leave(struct vcpu *vcpu);

/* KVM_SET_PMU_EVENT_FILTER: check before the events are copied, then set. 0 or -errno. */
int vm_check_pmu_filter(const struct pmu_filter_args *args);
int vm_set_pmu_filter(struct vm *vm, const struct pmu_filter_args *args);

#endif
