// SPDX-License-Identifier: MIT
/*
 * The VM's time, of the host or virtual, and the timers that wait for it: see vm/time/vm_time.h,
 * also for threads.
 *
 * 1. Virtual time is cpu->port.time_base plus the tally of cycles of both privileges, of the vCPU
 *    whose turn it is. Its base is set when the turn begins, from the time at which the last one
 *    ended.
 * 2. A timer expires at the first value of virtual time that its own condition (lapic_timer_poll(),
 *    pit_poll()) calls late enough. That value depends on nothing but the timer's registers, so
 *    that it does not matter how often, and when, the run loop asks for it.
 * 3. The processor stops with the instruction that reaches it, as for the overflow of a counter of
 *    cycles (hwpmu.alarm).
 */
#include "vm/time/vm_time.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "vm/events.h"
#include "vm/irq/apic.h"
#include "vm/irq/irqchip.h"
#include "vm/vm.h"

#define NS_PER_MS 1000000ull
/* Timers beyond this never expire (58 years at 2.5 GHz): sums of times do not overflow. */
#define TIME_MAX  BIT(62)

typedef unsigned __int128 u128;

void vm_time_make_virtual(struct vm *vm, u64 date)
{
	vm->time = (struct vm_time){
		.is_virtual = true,
		.khz = vm->model->nominal_mhz * 1000,
		.date = date,
	};
	vm->set.accounting = VM_ACCOUNT_GUEST; /* the host's time is in no count of cycles */
	vm_clock_restart(vm);
}

/* VPMU_DATE, in seconds since 1970, or the host's. */
static u64 first_date(void)
{
	const char *date = getenv("VPMU_DATE");
	u64 tsc;

	return date ? strtoull(date, NULL, 10) * 1000000000 : clock_real_ns(&tsc);
}

void vm_time_environment(struct vm *vm)
{
	const char *clock = getenv("VPMU_CLOCK");

	if (!clock || !strcmp(clock, "host"))
		return;
	if (strcmp(clock, "virtual"))
		log_warn("VPMU_CLOCK=%s: there is no such choice", clock);
	else
		vm_time_make_virtual(vm, first_date());
}

u64 vm_time_shown(const struct vm *vm)
{
	return __atomic_load_n(&vm->time.shown, __ATOMIC_RELAXED);
}

u64 vcpu_time(const struct vcpu *vcpu)
{
	if (vcpu->vm->time.is_virtual && !schedule_holds(vcpu))
		return vm_time_shown(vcpu->vm);
	return cpu_time(vcpu->cpu);
}

u64 vm_time(const struct vm *vm)
{
	const struct vcpu *vcpu = vcpu_current();

	if (!vm->time.is_virtual)
		return clock_host_tsc();
	if (vcpu && vcpu->vm == vm)
		return vcpu_time(vcpu);
	return vm_time_shown(vm);
}

u32 vm_time_khz(const struct vm *vm)
{
	return vm->time.is_virtual ? vm->time.khz : clock_host_khz();
}

bool vm_time_stable(const struct vm *vm)
{
	return vm->time.is_virtual || clock_tsc_stable();
}

u64 vm_time_ns(const struct vm *vm, u64 time)
{
	return vm->time.is_virtual ? (u128)time * NS_PER_MS / vm->time.khz : clock_base_ns(time);
}

u64 vm_time_date(const struct vm *vm, u64 *time)
{
	if (!vm->time.is_virtual)
		return clock_real_ns(time);
	*time = vm_time(vm);
	return vm->time.date + vm_time_ns(vm, *time);
}

u64 vm_timer_ns(const struct vm *vm)
{
	return vm->time.is_virtual ? vm_time_ns(vm, vm_time(vm)) : clock_ns();
}

u64 vcpu_timer_ns(const struct vcpu *vcpu)
{
	return vcpu->vm->time.is_virtual ? vm_time_ns(vcpu->vm, vcpu_time(vcpu)) : clock_ns();
}

/* --- timers on virtual time --- */

static u64 within_reach(u128 time)
{
	return time < TIME_MAX ? (u64)time : TIME_NEVER;
}

/* The first time at which vm_time_ns() is at least ns. */
static u64 first_at_ns(const struct vm *vm, u64 ns)
{
	return within_reach(((u128)ns * vm->time.khz + NS_PER_MS - 1) / NS_PER_MS);
}

/* The first time, from now on, at which the guest's TSC is at least `tsc`. */
static u64 first_at_tsc(const struct vcpu *vcpu, u64 tsc)
{
	u64 now = vcpu_time(vcpu), scale = vcpu->cpu->port.tsc_scale;
	u128 scaled = ((u128)now * scale >> TSC_SCALE_SHIFT) + (tsc - vcpu_tsc(vcpu));

	if (tsc <= vcpu_tsc(vcpu))
		return now;
	if (scaled >> (128 - TSC_SCALE_SHIFT))
		return TIME_NEVER;
	return within_reach(((scaled << TSC_SCALE_SHIFT) + scale - 1) / scale);
}

static u64 lapic_due(const struct vcpu *vcpu)
{
	u64 deadline, ns;

	if (!vcpu->has_lapic)
		return TIME_NEVER;
	deadline = lapic_timer_deadline(&vcpu->lapic);
	if (deadline)
		return first_at_tsc(vcpu, deadline);
	ns = lapic_timer_expiry(&vcpu->lapic, apic_now(vcpu));
	return ns == LAPIC_NO_EXPIRY ? TIME_NEVER : first_at_ns(vcpu->vm, ns);
}

static u64 pit_due(struct vm *vm)
{
	u64 ns = irqchip_pit_expiry(vm);

	return ns == PIT_NO_EXPIRY ? TIME_NEVER : first_at_ns(vm, ns);
}

u64 vcpu_time_due(struct vcpu *vcpu)
{
	u64 lapic = lapic_due(vcpu), pit = pit_due(vcpu->vm);

	return lapic < pit ? lapic : pit;
}

bool vcpu_time_poll(struct vcpu *vcpu)
{
	bool fired = vcpu->has_lapic && lapic_timer_poll(&vcpu->lapic, apic_now(vcpu));
	u64 ns = irqchip_pit_expiry(vcpu->vm);

	if (ns == PIT_NO_EXPIRY || ns > vcpu_timer_ns(vcpu))
		return fired;
	irqchip_pit_expired(vcpu->vm);
	return true;
}

void vcpu_time_arm(struct vcpu *vcpu, u64 due)
{
	vcpu->cpu->pmu.alarm = due == TIME_NEVER ? RETIRE_NEVER : due - vcpu->cpu->port.time_base;
}

/* Time is not skipped for a local APIC's timer that does not wake the vCPU, which would make it
 * race. A PIT whose interrupt is masked everywhere is not told from one that wakes. */
u64 vcpu_time_wake(struct vcpu *vcpu)
{
	if (vcpu->mp_state != KVM_MP_STATE_HALTED || !events_irq_allowed(vcpu))
		return TIME_NEVER;
	return lapic_timer_masked(&vcpu->lapic) ? pit_due(vcpu->vm) : vcpu_time_due(vcpu);
}

void vm_time_skip(struct vm *vm, u64 to)
{
	if (to > vm_time_shown(vm))
		__atomic_store_n(&vm->time.shown, to, __ATOMIC_RELAXED);
}

void vcpu_time_resume(struct vcpu *vcpu)
{
	vcpu->cpu->port.time_base += vm_time_shown(vcpu->vm) - cpu_time(vcpu->cpu);
}

void vcpu_time_show(struct vcpu *vcpu)
{
	if (vcpu->vm->time.is_virtual && schedule_holds(vcpu))
		__atomic_store_n(&vcpu->vm->time.shown, vcpu_time(vcpu), __ATOMIC_RELAXED);
}
