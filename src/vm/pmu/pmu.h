/* SPDX-License-Identifier: MIT */
/*
 * The PMU of a vCPU: the virtual one that the guest sees. Here it meets the physical one of the
 * processor under it (cpu->pmu) and the local APIC.
 */
#ifndef VM_PMU_PMU_H
#define VM_PMU_PMU_H

#include "cpu/intercept.h"
#include "hostperf/hostperf.h"
#include "hwpmu/hwpmu.h"
#include "pmu/pmu.h"

struct vcpu;
struct vm;

/* Who owns the physical counters while a guest runs: see docs/ownership.md. */
enum vm_pmu_mode { VM_PMU_MEDIATED, VM_PMU_EVENT };
/* What is counted as the guest's: what it executes, or what its vCPU's thread does for
 * it as well. */
enum vm_accounting { VM_ACCOUNT_GUEST, VM_ACCOUNT_VCPU };

/* Do misses and mispredictions take modelled time? docs/model.md, "Full timing". */
enum vm_timing { VM_TIMING_STATIC, VM_TIMING_FULL };

/* An event of a client of the control socket: vm/pmu/host.h. */
#define VCPU_HOST_EVENTS 32

struct vcpu_host_event {
	u32 session; /* 0: free */
	u32 id;	     /* of the session's events */
	bool view;   /* it counts on view_hw */
	struct host_event event;
};

/* The host on this vCPU's thread. The vCPU's lock. */
struct vcpu_host {
	struct retire_tally tally; /* what the thread did outside of the guest: estimated */
	struct hostperf perf;
	struct hostperf_guest guest; /* of event mode */
	struct hwpmu view_hw;	     /* the second set of counters: --host-view */
	struct hostperf view;
	struct vcpu_host_event event[VCPU_HOST_EVENTS];
	u32 nevents, nphysical; /* events; those that are not on view_hw */
	/* Host TSC when the guest was left; 0: not noted, or the thread went away since. */
	u64 left_tsc;
	u64 away_ns; /* the thread's CPU time when it went away or left the guest; 0: not noted */
	u64 kept_ns; /* time outside of the guest that is not accounted yet */
	u64 time_ns; /* time outside of the guest, as far as it was measured */
	u64 rotated_ns; /* when flexible events last took turns */
	u64 charged[2]; /* instructions of that time charged to the guest, by privilege */
};

/* The vCPU's lock. */
struct vcpu_pmu {
	struct pmu guest;
	struct vcpu_host host;
	enum vm_pmu_mode mode;
	u64 starved;	 /* counters of the guest, now; written by the vCPU thread, read by all */
	u64 starvations; /* how often a counter began to starve */
	bool pmi_held;	 /* a PMI is pending: LVTPC was masked */
	/* A copy: the VM's own may be replaced and freed while this vCPU is in no section. */
	struct pmu_filter filter;
	u64 filter_serial; /* of the one that it is a copy of */
	struct intercepts intercepts;
	u32 pass_serial, msr_serial; /* what the intercepts were made from */
};

/* Immutable: a new one replaces it under vm->lock, and the old one is freed after
 * vm_synchronize(). */
struct vm_pmu_filter {
	u64 serial; /* from 1 */
	struct pmu_filter filter;
};

void vcpu_pmu_init(struct vcpu *vcpu);

/*
 * PERF_CAPABILITIES as the program means it. Where its CPUID list had to be completed it is a QEMU
 * whose guest may migrate: that has no name for the formats of branch records and PEBS, and so
 * leaves them out (docs/cpuid.md).
 */
u64 vcpu_pmu_capabilities(const struct vcpu *vcpu, u64 value);

/* The vCPU's thread, inside a section. Before an entry: counters count what their registers say;
 * PMIs of what the hypervisor completed go to the local APIC. */
void vcpu_pmu_enter(struct vcpu *vcpu);
/* After it: PMIs of what the guest did. True: vcpu_pmu_enter() or the local APIC is needed next. */
bool vcpu_pmu_leave(struct vcpu *vcpu);

/* KVM_SET_PMU_EVENT_FILTER: check before the events are copied, then set. 0 or -errno. */
int vm_check_pmu_filter(const struct pmu_filter_args *args);
int vm_set_pmu_filter(struct vm *vm, const struct pmu_filter_args *args);

#endif
