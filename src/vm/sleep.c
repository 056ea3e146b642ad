// SPDX-License-Identifier: MIT
/*
 * A vCPU that executes nothing: see vm/sleep.h. It waits on the futex word vcpu->wake, which a kick
 * changes; each loop reads the word first and looks for a reason to end second, so that no kick
 * falls between the check and the wait. Devices are waited for in vm/time/device_wait.c, a few
 * milliseconds at a time. Requests of the control socket are answered meanwhile.
 *
 * A vCPU that is halted looks for an interrupt before it sleeps (base/poll_window.h), and for what
 * irqfds have to say: it is mostly a device that it waits for.
 */
#include "vm/sleep.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cpu/mmu/shared_code.h"
#include "vm/control/ask_vcpu.h"
#include "vm/events.h"
#include "vm/irq/apic.h"
#include "vm/irq/irqchip.h"
#include "vm/pmu/host.h"
#include "vm/time/schedule.h"

#define SLEEP_MAX_NS  1000000000ull
#define SLEEP_POLL_NS 2000000ull /* while signals are polled for */

static u64 sleep_limit(struct vcpu *vcpu)
{
	u64 expiry, most = vcpu->sigmask_active ? SLEEP_POLL_NS : SLEEP_MAX_NS;
	struct lapic_now now;

	if (!vcpu->has_lapic || vcpu->vm->time.is_virtual) /* virtual time is not waited for */
		return most;
	now = apic_now(vcpu);
	expiry = lapic_timer_expiry(&vcpu->lapic, now);
	if (expiry <= now.ns)
		return 0;
	return expiry - now.ns < most ? expiry - now.ns : most;
}

/* Waits until vcpu->wake is no longer `seen`, a signal comes, or the timer is due. */
static void wait_on_wake(struct vcpu *vcpu, u32 seen)
{
	u64 limit = sleep_limit(vcpu), begun = clock_ns();
	u32 samples = vcpu->samples;
	struct timespec ts = { .tv_sec = limit / 1000000000, .tv_nsec = limit % 1000000000 };

	__atomic_store_n(&vcpu->sleeping, true, __ATOMIC_SEQ_CST);
	WRITE_ONCE(vcpu->where, WHERE_IDLE);
	if (limit && syscall(SYS_futex, &vcpu->wake, FUTEX_WAIT_PRIVATE, seen, &ts) < 0 &&
	    errno == EINTR && vcpu->samples == samples)
		__atomic_store_n(&vcpu->signalled, true, __ATOMIC_SEQ_CST);
	WRITE_ONCE(vcpu->where, WHERE_HYPERVISOR);
	__atomic_store_n(&vcpu->sleeping, false, __ATOMIC_SEQ_CST);
	vcpu->stats.halt_wait_ns += clock_ns() - begun;
}

static bool woken(const struct vcpu *vcpu, u32 seen)
{
	return __atomic_load_n(&vcpu->wake, __ATOMIC_SEQ_CST) != seen;
}

/* The window's time; true: vcpu->wake is no longer `seen`. */
static bool look_for_wake(struct vcpu *vcpu, u32 seen, struct poll_look *look)
{
	bool in_place = irq_look_begin(vcpu->vm), found;

	WRITE_ONCE(vcpu->where, WHERE_IDLE);
	do {
		if (in_place)
			irq_look(vcpu->vm);
		found = woken(vcpu, seen);
	} while (!found && poll_again(&vcpu->poll, look));
	if (in_place)
		irq_look_end(vcpu->vm);
	WRITE_ONCE(vcpu->where, WHERE_HYPERVISOR);
	return found;
}

static bool find_wake(struct vcpu *vcpu, u32 seen, struct poll_look *look)
{
	bool found = look_for_wake(vcpu, seen, look);
	u64 ns = clock_ns() - look->begun;

	vcpu->stats.halt_attempted_poll++;
	vcpu->stats.halt_successful_poll += found;
	*(found ? &vcpu->stats.halt_poll_success_ns : &vcpu->stats.halt_poll_fail_ns) += ns;
	return found;
}

/* As wait_on_wake(), of a vCPU that is halted. */
static void wait_halted(struct vcpu *vcpu, u32 seen)
{
	struct poll_look look = poll_begin(&vcpu->poll, sleep_limit(vcpu));

	if (!vcpu->poll.ns || !find_wake(vcpu, seen, &look))
		wait_on_wake(vcpu, seen);
	poll_learn(&vcpu->poll, &look, READ_ONCE(vcpu->vm->set.halt_poll_ns));
}

/* What the control socket asks of the vCPU, which it has been kicked for. */
static void serve_control(struct vcpu *vcpu)
{
	vcpu_answer(vcpu);
	vcpu_sample_finish(vcpu);
}

void sleep_until_woken(struct vcpu *vcpu)
{
	int saved_errno = errno;

	vcpu_host_thread_away(vcpu);
	shared_sleep(vcpu->cpu);
	for (;;) {
		u32 seen = __atomic_load_n(&vcpu->wake, __ATOMIC_SEQ_CST);

		serve_control(vcpu);
		if (vcpu->has_lapic)
			lapic_timer_poll(&vcpu->lapic, apic_now(vcpu));
		if (events_unaccepted(vcpu) || events_wake(vcpu) || vcpu_interrupted(vcpu))
			break;
		if (vcpu->mp_state == KVM_MP_STATE_HALTED)
			wait_halted(vcpu, seen);
		else
			wait_on_wake(vcpu, seen);
	}
	shared_wake(vcpu->cpu);
	errno = saved_errno;
}

static void accept_events(struct vcpu *vcpu)
{
	vcpu_section_begin(vcpu);
	events_accept(vcpu);
	vcpu_section_end(vcpu);
	if (vcpu->mp_state == KVM_MP_STATE_HALTED || vcpu->mp_state == KVM_MP_STATE_AP_RESET_HOLD) {
		if (events_wake(vcpu)) {
			vcpu->pv_unhalted = false;
			vcpu->mp_state = KVM_MP_STATE_RUNNABLE;
			vcpu->stats.halt_wakeup++;
		}
	}
}

void sleep_halted(struct vcpu *vcpu)
{
	bool is_virtual = vcpu->vm->time.is_virtual;

	if (is_virtual) {
		serve_control(vcpu);
		vcpu_time_poll(vcpu);
	} else {
		sleep_until_woken(vcpu);
	}
	accept_events(vcpu);
	if (is_virtual && vcpu->mp_state != KVM_MP_STATE_RUNNABLE)
		schedule_rest(vcpu);
}

static bool wait_for_turn(struct vcpu *vcpu)
{
	int saved_errno = errno;
	bool taken;

	vcpu_host_thread_away(vcpu);
	shared_sleep(vcpu->cpu);
	for (;;) {
		u32 seen = __atomic_load_n(&vcpu->wake, __ATOMIC_SEQ_CST);

		serve_control(vcpu);
		taken = schedule_take(vcpu);
		if (taken || vcpu_interrupted(vcpu))
			break;
		wait_on_wake(vcpu, seen);
	}
	shared_wake(vcpu->cpu);
	vcpu->cpu->port.memory_unchanged = false; /* other vCPUs have had theirs */
	errno = saved_errno;
	return taken;
}

bool sleep_until_turn(struct vcpu *vcpu)
{
	return !vcpu->vm->time.is_virtual || schedule_holds(vcpu) || wait_for_turn(vcpu);
}

static bool depends_on_outside(const struct vcpu *vcpu)
{
	return outside_is_kicked(vcpu->vm) || vcpu->vm->outside.must_wait;
}

bool sleep_until_outside(struct vcpu *vcpu)
{
	if (!depends_on_outside(vcpu))
		return true;
	vcpu_host_thread_away(vcpu);
	shared_sleep(vcpu->cpu);
	while (outside_waits(vcpu->vm) && !vcpu_interrupted(vcpu)) {
		serve_control(vcpu);
		outside_wait(vcpu->vm);
	}
	shared_wake(vcpu->cpu);
	return !vcpu_interrupted(vcpu);
}
