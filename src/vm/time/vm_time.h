/* SPDX-License-Identifier: MIT */
/*
 * The counter that all time of a VM is made of: TSCs, kvmclock, the date, and what timers wait for
 * (docs/clock.md). It is the host's TSC or, with --clock virtual, *virtual time*: the modelled
 * cycles (docs/model.md) that the vCPUs' instructions took, and the time skipped while all were
 * halted, at the nominal frequency of the model. Virtual time knows nothing of the host. It passes
 * while guest code runs, and jumps to the next timer when all vCPUs halt; it never goes back.
 *
 * vCPUs with virtual time run in turns (vm/time/schedule.h). The thread of the one whose turn it is
 * has the exact time; all others see the time at which it last left guest code.
 */
#ifndef VM_TIME_VM_TIME_H
#define VM_TIME_VM_TIME_H

#include "base/types.h"

struct vcpu;
struct vm;

#define TIME_NEVER (~0ull)

struct vm_time {
	bool is_virtual;
	u32 khz;   /* of virtual time */
	u64 shown; /* virtual time as other threads see it; atomic */
	u64 date;  /* CLOCK_REALTIME at virtual time 0, ns */
};

/* From VPMU_CLOCK; before the VM has vCPUs. */
void vm_time_environment(struct vm *vm);
/* Also makes accounting that of the guest: the host's time is in no count of cycles. */
void vm_time_make_virtual(struct vm *vm, u64 date);

u64 vm_time(const struct vm *vm); /* any thread */
u64 vcpu_time(const struct vcpu *vcpu);
u32 vm_time_khz(const struct vm *vm);
bool vm_time_stable(const struct vm *vm);	  /* one rate, in step on all vCPUs */
u64 vm_time_ns(const struct vm *vm, u64 time);	  /* ns since some time before the first VM */
u64 vm_time_date(const struct vm *vm, u64 *time); /* CLOCK_REALTIME, and the time at that moment */
u64 vm_timer_ns(const struct vm *vm);		  /* what timers run on. Any thread */
u64 vcpu_timer_ns(const struct vcpu *vcpu);

/* Virtual time only, on the thread of the vCPU whose turn it is, or under the schedule's lock: */

/* When the next timer of the vCPU or of the VM expires, or TIME_NEVER. After vcpu_time_poll() that
 * is later than now. */
u64 vcpu_time_due(struct vcpu *vcpu);
/* Has the timers that are due send their interrupts: true if one did. */
bool vcpu_time_poll(struct vcpu *vcpu);
/* The processor is to stop with the instruction that reaches this time. */
void vcpu_time_arm(struct vcpu *vcpu, u64 due);
void vcpu_time_show(struct vcpu *vcpu); /* to other threads */

/* Virtual time only, with the lock of the schedule: */

u64 vm_time_shown(const struct vm *vm);
void vm_time_skip(struct vm *vm, u64 to);
/* When a timer wakes the vCPU, which is halted, or TIME_NEVER. */
u64 vcpu_time_wake(struct vcpu *vcpu);
/* Time goes on with this vCPU's cycles. */
void vcpu_time_resume(struct vcpu *vcpu);

#endif
