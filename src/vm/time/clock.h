/* SPDX-License-Identifier: MIT */
/*
 * Time: the VM's clock (kvmclock), each vCPU's TSC, and the pages in guest memory that tell the
 * guest about both and about stolen time. Semantics are KVM's:
 * Documentation/virt/kvm/x86/{timekeeping,msr}.rst.
 *
 * The guest's TSC is (time * cpu->port.tsc_scale >> 48) + cpu->port.tsc_offset, where the time is
 * the host's TSC or virtual (vm/time/vm_time.h). kvmclock is a pure function of the time plus an
 * offset; all clock pages of a VM start from one anchor, so that no vCPU sees another's future.
 *
 * struct vm_clock has its own lock, since vCPUs compare their TSCs; it is the innermost lock, held
 * for moments only, also inside a section. struct vcpu_clock belongs to the holder of the vCPU's
 * lock, but for waits_since and stolen, which the schedule writes under its own lock while the vCPU
 * holds no turn (vm/time/schedule.c).
 */
#ifndef VM_TIME_CLOCK_H
#define VM_TIME_CLOCK_H

#include <linux/kvm.h>
#include <pthread.h>

#include "cpu/cpu.h"

struct vcpu;
struct vm;

struct vm_clock {
	pthread_mutex_t lock;
	s64 offset;	 /* kvmclock = vm_time_ns() + offset */
	u64 anchor;	 /* the time that clock pages start from */
	u32 default_khz; /* of vCPUs to be created */
	u64 wall_clock;	 /* MSR_KVM_WALL_CLOCK(_NEW) as last written */
	bool old_boot;	 /* the boot vCPU set its clock page through the old MSR: no stable flag */

	/* The last TSC written by the program or by vCPU creation, to recognize attempts to
	 * synchronize. */
	u64 write_ns, write_value, write_offset;
	u32 write_khz;
	bool user_set;	       /* the program wrote a TSC itself */
	u64 generation;	       /* of synchronized TSCs */
	u64 generation_offset; /* that they share */
	u32 matched;	       /* vCPUs in this generation besides its first */
};

struct vcpu_clock {
	u32 khz;	      /* of the guest's TSC */
	u64 adjust;	      /* IA32_TSC_ADJUST */
	u64 generation;	      /* of vm_clock that this TSC belongs to */
	u64 system_time;      /* MSR_KVM_SYSTEM_TIME(_NEW) */
	bool guest_stopped;   /* KVM_KVMCLOCK_CTRL: tell the guest once */
	u64 wall_clock;	      /* where to write the wall clock at the next update, or 0 */
	u64 steal_msr;	      /* MSR_KVM_STEAL_TIME */
	bool shows_preempted; /* in its page, since vcpu_steal_preempted() */
	u64 steal_seen;	      /* run delay already accounted, ns */
	u64 steal_asked;      /* host TSC when it was last asked for */
	u64 steal_switches;   /* times that the thread had stopped running by then, and one */
	u64 waits_since;      /* virtual time: when it lost its turn, or TIME_NEVER */
	u64 stolen;	      /* virtual time that the guest has not been told of */
};

/* A frequency as pvclock wants it: ns = (cycles << shift) * mul >> 32; a negative shift goes
 * right. */
struct clock_scale {
	u32 mul;
	s8 shift;
};

struct clock_scale clock_scale_of(u64 hz); /* not 0 */
u64 clock_scale_apply(struct clock_scale scale, u64 cycles);

u64 clock_ns(void); /* CLOCK_MONOTONIC */
u64 clock_host_tsc(void);
/* The earlier it is said that the TSC will be measured, the less it takes. */
void clock_begin(void);
u32 clock_host_khz(void);	  /* measured once */
bool clock_tsc_stable(void);	  /* the host's TSC runs at one rate and in step on all CPUs */
u64 clock_base_ns(u64 host_tsc);  /* ns since some time before the first VM */
u64 clock_real_ns(u64 *host_tsc); /* CLOCK_REALTIME, and the TSC at that moment */

void vm_clock_init(struct vm *vm);
void vm_clock_restart(struct vm *vm); /* its time is another one; before it has vCPUs */
void vm_clock_destroy(struct vm *vm);
/* KVM_GET_CLOCK, KVM_SET_CLOCK: 0 or -EINVAL. */
void vm_clock_get(struct vm *vm, struct kvm_clock_data *data);
int vm_clock_set(struct vm *vm, const struct kvm_clock_data *data);
/* KVM_SET_TSC_KHZ on the VM: for vCPUs created later. 0 or -EINVAL. */
int vm_clock_set_khz(struct vm *vm, u32 khz);
/* Is the clock a stable function of the guest's TSC, the same on all vCPUs? With clock.lock. */
bool vm_clock_master(const struct vm *vm);

/* After creation of the vCPU and its struct cpu: default frequency. */
void vcpu_clock_init(struct vcpu *vcpu);
/* Before it becomes one of the VM's: TSC synchronized to the others. */
void vcpu_clock_join(struct vcpu *vcpu);
int vcpu_clock_set_khz(struct vcpu *vcpu, u32 khz); /* 0 or -EINVAL; 0 is that of the VM's time */
u64 vcpu_tsc(const struct vcpu *vcpu);		    /* what RDTSC would give now */
u64 vcpu_tsc_at(const struct vcpu *vcpu, u64 time);
/* What the TSC really runs at: vcpu_clock.khz, or that of the VM's time if it is close enough. */
u64 vcpu_tsc_hz(const struct vcpu *vcpu);

/* MSR_IA32_TSC and MSR_IA32_TSC_ADJUST, by the guest or by the program. */
void vcpu_tsc_write(struct vcpu *vcpu, u64 value, bool host);
void vcpu_tsc_adjust_write(struct vcpu *vcpu, u64 value, bool host);
/* KVM_VCPU_TSC_OFFSET (KVM_SET_DEVICE_ATTR). */
u64 vcpu_tsc_offset(const struct vcpu *vcpu);
void vcpu_tsc_offset_write(struct vcpu *vcpu, u64 offset);

/* KVM_KVMCLOCK_CTRL: 0, or -EINVAL if no clock page is set. */
int vcpu_clock_guest_stopped(struct vcpu *vcpu);

/* MSR_KVM_SYSTEM_TIME, WALL_CLOCK, STEAL_TIME: mark; the pages are written by the updates below. */
void vcpu_clock_write_system_time(struct vcpu *vcpu, u64 value, bool old_msr, bool host);
void vcpu_clock_write_wall_clock(struct vcpu *vcpu, u64 value);
bool vcpu_clock_write_steal_time(struct vcpu *vcpu, u64 value); /* false: #GP */

/* REQUEST_CLOCK_UPDATE and REQUEST_STEAL_UPDATE: write the pages. vCPU thread, in a section. */
void vcpu_clock_update(struct vcpu *vcpu);
void vcpu_steal_update(struct vcpu *vcpu); /* also to be called once per KVM_RUN; cheap if unused */
/* When KVM_RUN returns: the steal page says that the vCPU does not run. In a section. */
void vcpu_steal_preempted(struct vcpu *vcpu);

#endif
