// SPDX-License-Identifier: MIT
/*
 * Whose turn it is, and what of others' turns counts as stolen time: see vm/time/schedule.h. vCPU
 * threads; vm->schedule.lock is held while events and timers of all vCPUs are looked at.
 *
 * vCPUs that do not hold a turn wait for one in KVM_RUN, or are outside of it. Either way nothing
 * changes their state but events that are sent to them, so that the holder can look at it.
 */
#include "vm/time/schedule.h"

#include <asm/kvm_para.h>
#include <stdlib.h>

#include "base/log.h"
#include "vm/events.h"
#include "vm/vm.h"

#define PATIENCE_NS 10000000000ull

void schedule_init(struct vm *vm)
{
	const char *quantum = getenv("VPMU_QUANTUM");

	vm->schedule = (struct vm_schedule){
		.quantum = quantum ? strtoull(quantum, NULL, 10) : 0,
		.last = ~0u,
	};
	if (!vm->schedule.quantum)
		vm->schedule.quantum = SCHEDULE_QUANTUM;
	pthread_mutex_init(&vm->schedule.lock, NULL);
}

void schedule_destroy(struct vm *vm)
{
	pthread_mutex_destroy(&vm->schedule.lock);
}

bool schedule_holds(const struct vcpu *vcpu)
{
	return __atomic_load_n(&vcpu->vm->schedule.holder, __ATOMIC_ACQUIRE) == vcpu;
}

void schedule_enter(struct vcpu *vcpu)
{
	struct vm_schedule *schedule = &vcpu->vm->schedule;

	if (!vcpu->vm->time.is_virtual)
		return;
	pthread_mutex_lock(&schedule->lock);
	vcpu->passed_over = false;
	if (schedule->holder == vcpu)
		schedule->missed_ns = 0;
	pthread_mutex_unlock(&schedule->lock);
}

/* --- with the lock held --- */

static bool is_ready(struct vcpu *vcpu)
{
	if (vcpu->passed_over)
		return false;
	if (READ_ONCE(vcpu->mp_state) == KVM_MP_STATE_RUNNABLE || events_wake(vcpu))
		return true;
	return events_unaccepted(vcpu) || vcpu_time_wake(vcpu) <= vcpu_time(vcpu);
}

/* The last holder's own turn comes last. */
static struct vcpu *next_ready(struct vm *vm)
{
	u32 n = vm_nvcpus(vm);

	for (u32 i = 1; i <= n; i++) {
		struct vcpu *vcpu = vm->vcpus[(vm->schedule.last + i) % n];

		if (is_ready(vcpu))
			return vcpu;
	}
	return NULL;
}

static u64 first_timer(struct vm *vm)
{
	u64 first = TIME_NEVER;

	for (u32 i = 0; i < vm_nvcpus(vm); i++) {
		u64 wake = vm->vcpus[i]->passed_over ? TIME_NEVER : vcpu_time_wake(vm->vcpus[i]);

		first = wake < first ? wake : first;
	}
	return first;
}

static struct vcpu *next_after_skip(struct vm *vm)
{
	struct vcpu *next = next_ready(vm);
	u64 first = next ? TIME_NEVER : first_timer(vm);

	if (first == TIME_NEVER)
		return next;
	vm_time_skip(vm, first);
	if (vm->schedule.holder)
		vcpu_time_resume(vm->schedule.holder);
	return next_ready(vm);
}

/* A thread that has just seen another holder must look again if there is none. */
static void wake_all(struct vm *vm)
{
	for (u32 i = 0; i < vm_nvcpus(vm); i++)
		vcpu_wake(vm->vcpus[i]);
}

/* Time in which it had something to execute, but others had their turns, is stolen from it. */
static void begin_waiting(struct vcpu *vcpu)
{
	bool runnable = READ_ONCE(vcpu->mp_state) == KVM_MP_STATE_RUNNABLE;

	vcpu->clock.waits_since = runnable ? vm_time_shown(vcpu->vm) : TIME_NEVER;
}

static void end_waiting(struct vcpu *vcpu)
{
	u64 now = vm_time_shown(vcpu->vm);

	if (vcpu->clock.waits_since >= now)
		return;
	vcpu->clock.stolen += now - vcpu->clock.waits_since;
	vcpu->clock.waits_since = TIME_NEVER;
	if (vcpu->clock.steal_msr & KVM_MSR_ENABLED)
		__atomic_fetch_or(&vcpu->requests, REQUEST_STEAL_UPDATE, __ATOMIC_SEQ_CST);
}

static void give(struct vm *vm, struct vcpu *to)
{
	struct vm_schedule *schedule = &vm->schedule;
	struct vcpu *from = schedule->holder;

	schedule->yielded = false;
	schedule->missed_ns = 0;
	if (from && from != to)
		begin_waiting(from);
	if (to) {
		if (to != from)
			end_waiting(to);
		schedule->last = to->index;
		schedule->begun = vm_time_shown(vm);
		vcpu_time_resume(to);
	}
	__atomic_store_n(&schedule->holder, to, __ATOMIC_RELEASE);
	if (!to)
		wake_all(vm);
	else if (to != from)
		vcpu_wake(to);
}

static bool is_missed(struct vm *vm)
{
	struct vm_schedule *schedule = &vm->schedule;
	u64 now;

	if (READ_ONCE(schedule->holder->where) != WHERE_VMM || outside_endless(vm))
		return false;
	now = clock_ns();
	if (!schedule->missed_ns)
		schedule->missed_ns = now;
	return now - schedule->missed_ns >= PATIENCE_NS;
}

static void pass_over(struct vm *vm)
{
	struct vcpu *missed = vm->schedule.holder;

	log_warn("vCPU %u is not run for 10 s: the others on its virtual time go on", missed->id);
	missed->passed_over = true;
	give(vm, next_after_skip(vm));
}

static bool take(struct vcpu *vcpu)
{
	struct vm *vm = vcpu->vm;
	struct vcpu *next;

	if (vm->schedule.holder == vcpu)
		return true;
	if (vm->schedule.holder) {
		if (is_missed(vm))
			pass_over(vm);
	} else {
		next = next_after_skip(vm);
		if (next)
			give(vm, next);
	}
	return vm->schedule.holder == vcpu;
}

/* --- */

bool schedule_take(struct vcpu *vcpu)
{
	bool taken;

	pthread_mutex_lock(&vcpu->vm->schedule.lock);
	taken = take(vcpu);
	pthread_mutex_unlock(&vcpu->vm->schedule.lock);
	return taken;
}

u64 schedule_end(const struct vcpu *vcpu)
{
	const struct vm_schedule *schedule = &vcpu->vm->schedule;

	return vm_nvcpus(vcpu->vm) > 1 ? schedule->begun + schedule->quantum : TIME_NEVER;
}

bool schedule_is_over(const struct vcpu *vcpu)
{
	return vcpu->vm->time.is_virtual && vm_nvcpus(vcpu->vm) > 1 &&
	       (vcpu->vm->schedule.yielded || vcpu_time(vcpu) >= schedule_end(vcpu));
}

void schedule_pass(struct vcpu *vcpu)
{
	struct vm *vm = vcpu->vm;

	pthread_mutex_lock(&vm->schedule.lock);
	vcpu_time_show(vcpu);
	give(vm, next_ready(vm));
	pthread_mutex_unlock(&vm->schedule.lock);
}

void schedule_leave(struct vcpu *vcpu)
{
	struct vm *vm = vcpu->vm;

	if (!vm->time.is_virtual || vm_nvcpus(vm) == 1)
		return;
	pthread_mutex_lock(&vm->schedule.lock);
	vcpu_time_show(vcpu);
	vcpu->passed_over = true;
	give(vm, next_after_skip(vm));
	pthread_mutex_unlock(&vm->schedule.lock);
}

void schedule_rest(struct vcpu *vcpu)
{
	struct vm *vm = vcpu->vm;

	pthread_mutex_lock(&vm->schedule.lock);
	vcpu_time_show(vcpu);
	give(vm, next_after_skip(vm));
	pthread_mutex_unlock(&vm->schedule.lock);
}

void schedule_yield(struct vcpu *vcpu)
{
	if (schedule_holds(vcpu))
		vcpu->vm->schedule.yielded = true;
}
