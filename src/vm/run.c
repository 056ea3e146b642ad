// SPDX-License-Identifier: MIT
/*
 * KVM_RUN: the loop. One turn is: serve requests, inject, run the processor, handle its exit. A
 * vCPU that is halted sleeps instead. The first KVM_RUN makes the vCPU's engine. The vCPU's thread,
 * with its lock held.
 *
 * How it ends early: a signal of the program sets vcpu->signalled before anything else (kvm/kvm.h,
 * kvm_interrupt()), then cpu->attention and the futex word; the loop looks at it after clearing
 * attention, and in vm/sleep.c after reading the word, so that no signal falls between check and
 * wait.
 */
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/control.h"
#include "cpu/mmu/mmu.h"
#include "cpu/mmu/shared_code.h"
#include "engine/engine.h"
#include "vm/control/ask_vcpu.h"
#include "vm/events.h"
#include "vm/exit.h"
#include "vm/irq/apic.h"
#include "vm/pmu/host.h"
#include "vm/pv.h"
#include "vm/sleep.h"
#include "vm/time/trace.h"
#include "vm/vm.h"

/* Without a timer to watch, instructions between reads of run->immediate_exit; no program should
 * need them. */
#define BUDGET_MAX     (1ull << 24)
#define BUDGET_POLLING (1ull << 18) /* while signals are polled for */
#define BUDGET_TIMED   (1ull << 19) /* while the timer counts, since the pace may change */
#define BUDGET_MIN     2000ull
#define PACE_MIN       (1024 / 100) /* if less: the thread or the guest has slept */
#define PACE_MAX       (1024 / 2)

static __thread struct vcpu *current __attribute__((tls_model("initial-exec")));
/* A signal came before there was one. */
static __thread bool interrupted_early __attribute__((tls_model("initial-exec")));

/* Of this thread, once it was asked for: there is no system call on the way into every KVM_RUN. */
static __thread pid_t own_tid __attribute__((tls_model("initial-exec")));

struct vcpu *vcpu_current(void)
{
	return current;
}

void vcpu_interrupt_current(void)
{
	struct vcpu *vcpu = current;

	if (!vcpu) {
		interrupted_early = true;
		return;
	}
	__atomic_store_n(&vcpu->signalled, true, __ATOMIC_SEQ_CST);
	vcpu_kick(vcpu, 0);
}

void vcpu_interrupt_forget(void)
{
	interrupted_early = false;
}

/* From here on signals are this vCPU's. */
static void set_current(struct vcpu *vcpu)
{
	current = vcpu;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (!vcpu || !interrupted_early)
		return;
	interrupted_early = false;
	__atomic_store_n(&vcpu->signalled, true, __ATOMIC_SEQ_CST);
}

/*
 * KVM_SET_SIGNAL_MASK: a signal that the thread blocks but this mask does not ends KVM_RUN and
 * stays pending, for the program to take with sigwait(). It is never unblocked, since it may have
 * no handler; so it is polled for.
 */
static bool masked_signal_waits(const struct vcpu *vcpu)
{
	sigset_t pending;

	if (!vcpu->sigmask_active || sigpending(&pending))
		return false;
	for (int sig = 1; sig < NSIG; sig++)
		if (sigismember(&pending, sig) == 1 && !sigismember(&vcpu->sigmask, sig))
			return true;
	return false;
}

bool vcpu_interrupted(const struct vcpu *vcpu)
{
	return __atomic_load_n(&vcpu->signalled, __ATOMIC_SEQ_CST) ||
	       READ_ONCE(vcpu->run->immediate_exit) || masked_signal_waits(vcpu);
}

/* --- one turn --- */

/* Requests of other threads. 1 to enter, 0 for an exit to the program, or, as the state may change,
 * a new turn. */
static int serve_requests(struct vcpu *vcpu)
{
	u32 requests;

	__atomic_store_n(&vcpu->cpu->attention, 0, __ATOMIC_SEQ_CST);
	requests = __atomic_exchange_n(&vcpu->requests, 0, __ATOMIC_SEQ_CST);
	if (requests & ~(u32)REQUEST_EVENT) /* events speak for themselves when they are taken */
		vcpu->cpu->port.memory_unchanged = false;
	vcpu_answer(vcpu);
	vcpu_sample_finish(vcpu);
	if (requests & REQUEST_TLB_FLUSH)
		tlb_flush(vcpu->cpu);
	if (requests & REQUEST_CLOCK_UPDATE)
		vcpu_clock_update(vcpu);
	if (requests & REQUEST_STEAL_UPDATE)
		vcpu_steal_update(vcpu);
	if (requests & REQUEST_IOAPIC_EOI)
		return exit_ioapic_eoi(vcpu);
	if (vcpu->events.triple_fault) {
		vcpu->events.triple_fault = false;
		return exit_shutdown(vcpu);
	}
	return 1;
}

/* What the processor has done, in instructions: those that retired, and what took as long as more
 * of them. */
static u64 work(const struct vcpu *vcpu)
{
	return cpu_retired(vcpu->cpu) + vcpu->cpu->port.effort;
}

/*
 * Instructions to expect in 1024 ns: a quarter of what there have been since the last look at the
 * clock, and within bounds, since what comes may be slower than what was.
 */
static u64 pace(struct vcpu *vcpu, u64 now_ns)
{
	u64 ns = now_ns - vcpu->clock_read_ns, n = work(vcpu) - vcpu->clock_read_work;
	u64 quarter = ns ? n * (1024 / 4) / ns : 0;

	vcpu->clock_read_ns = now_ns;
	vcpu->clock_read_work += n;
	return quarter < PACE_MIN ? PACE_MIN : quarter > PACE_MAX ? PACE_MAX : quarter;
}

/* On virtual time timers need no guess: the processor stops with the instruction that reaches the
 * next one, or the end of the vCPU's turn. */
static void arm_timers(struct vcpu *vcpu)
{
	u64 due, end = schedule_end(vcpu);

	if (vcpu_time_poll(vcpu))
		events_inject(vcpu);
	due = vcpu_time_due(vcpu);
	vcpu_time_arm(vcpu, due < end ? due : end);
}

/*
 * How many instructions to run before looking at the clock. While the LAPIC's timer counts, a guess
 * of how many fit: rather too few than too many, and the next guess is closer.
 */
static u64 budget(struct vcpu *vcpu)
{
	u64 expiry, n, per_1024_ns, most = vcpu->sigmask_active ? BUDGET_POLLING : BUDGET_MAX;
	struct lapic_now now;

	if (vcpu->vm->time.is_virtual)
		arm_timers(vcpu);
	if (vcpu->vm->time.is_virtual || !vcpu->has_lapic)
		return most;
	now = apic_now(vcpu);
	if (lapic_timer_poll(&vcpu->lapic, now))
		events_inject(vcpu);
	expiry = lapic_timer_expiry(&vcpu->lapic, now);
	per_1024_ns = pace(vcpu, now.ns);
	if (expiry == LAPIC_NO_EXPIRY)
		return most;
	n = expiry > now.ns ? (expiry - now.ns) / 1024 * per_1024_ns : 0;
	most = most < BUDGET_TIMED ? most : BUDGET_TIMED;
	return n < BUDGET_MIN ? BUDGET_MIN : n > most ? most : n;
}

/* Is the guest to be entered? Then its event is in place, and the run ends when work() is *end. */
static bool before_entry(struct vcpu *vcpu, u64 *end)
{
	u64 instructions;

	if (vcpu->mp_state != KVM_MP_STATE_RUNNABLE)
		return false;
	events_inject(vcpu);
	instructions = budget(vcpu);
	vcpu->cpu->cr8 = apic_get_cr8(vcpu);
	if (vcpu_interrupted(vcpu))
		return false;
	vcpu->ever_ran = true;
	pv_eoi_offer(vcpu);
	WRITE_ONCE(vcpu->where, WHERE_GUEST);
	*end = work(vcpu) + instructions;
	return true;
}

/* After each piece of a run: an overflow that asks for no interrupt does not end it. */
static bool run_goes_on(struct vcpu *vcpu, enum exit_reason reason, u64 end)
{
	bool news;

	vcpu_host_after_guest(vcpu);
	news = vcpu_pmu_leave(vcpu);
	if (reason != EXIT_PMI || news || work(vcpu) + ENGINE_BLOCK_INSNS > end)
		return false;
	vcpu->cpu->port.memory_unchanged = true;
	return true;
}

/*
 * An instruction that the hypervisor has finished may overflow a counter, too. That is seen to
 * before the section ends: the program may save the state then, and a PEBS record is written to
 * guest memory.
 */
static void settle_completed(struct vcpu *vcpu)
{
	if (!vcpu->completed)
		return;
	vcpu->completed = false;
	vcpu_pmu_leave(vcpu);
}

static int handle_exit(struct vcpu *vcpu, enum exit_reason reason)
{
	int r = exit_handle(vcpu, reason);

	settle_completed(vcpu);
	if (unlikely(vcpu->vm->trace))
		trace_check(vcpu);
	return r > 0 ? exit_to_debugger(vcpu) : r;
}

static void after_exit(struct vcpu *vcpu, enum exit_reason reason)
{
	WRITE_ONCE(vcpu->last_exit, reason);
	WRITE_ONCE(vcpu->where, WHERE_HYPERVISOR);
	vcpu_time_show(vcpu);
	pv_eoi_collect(vcpu);
	if (unlikely(vcpu->vm->trace))
		trace_exit(vcpu);
}

/* 1 for another turn, or the result of KVM_RUN. */
static int turn(struct vcpu *vcpu)
{
	enum exit_reason reason;
	u64 end;
	int r;

	vcpu_section_begin(vcpu);
	if (unlikely(vcpu->vm->trace))
		trace_enter(vcpu);
	r = serve_requests(vcpu);
	vcpu_pmu_enter(vcpu);
	events_accept(vcpu);
	if (r > 0 && before_entry(vcpu, &end)) {
		do {
			vcpu->cpu->port.may_end_early = true; /* the end is a matter of time */
			vcpu_host_before_guest(vcpu);
			reason = engine_run(vcpu->cpu, end - work(vcpu));
		} while (run_goes_on(vcpu, reason, end));
		after_exit(vcpu, reason);
		r = handle_exit(vcpu, reason);
	}
	vcpu_section_end(vcpu);
	return r;
}

/* --- the loop --- */

static enum exit_reason run_one(struct vcpu *vcpu)
{
	enum exit_reason reason;

	__atomic_store_n(&vcpu->cpu->attention, 0, __ATOMIC_SEQ_CST);
	vcpu_pmu_enter(vcpu);
	vcpu_time_arm(vcpu, TIME_NEVER);
	vcpu_host_before_guest(vcpu);
	reason = engine_run(vcpu->cpu, 1);
	vcpu_host_after_guest(vcpu);
	vcpu_pmu_leave(vcpu);
	return reason;
}

/*
 * Executes the instruction whose access the program has answered, and nothing else: an answer is
 * not part of the state that the program may save now, and its device must not be asked twice. A
 * kick that arrives between clearing attention and the instruction makes it begin again.
 */
static int finish_instruction(struct vcpu *vcpu)
{
	enum exit_reason reason;
	int r;

	vcpu->cpu->port.want_irq_window = vcpu->cpu->port.want_nmi_window = false;
	do
		reason = run_one(vcpu);
	while (reason == EXIT_ATTENTION && cpu_holds_answer(vcpu->cpu));
	r = handle_exit(vcpu, reason);
	vcpu_kick(vcpu, 0); /* attention may have been set by another thread */
	return r;
}

/* KVM: the program's answer is taken before a signal ends KVM_RUN. */
static int leave_interrupted(struct vcpu *vcpu)
{
	int r = 1;

	vcpu_section_begin(vcpu);
	if (cpu_holds_answer(vcpu->cpu))
		r = finish_instruction(vcpu);
	vcpu_section_end(vcpu);
	if (r <= 0)
		return r;
	vcpu->stats.signal_exits++;
	vcpu->run->exit_reason = KVM_EXIT_INTR;
	return -EINTR;
}

/* Until the guest may go on: 1, or the result of KVM_RUN if a signal came first. */
static int wait_for_entry(struct vcpu *vcpu)
{
	for (;;) {
		if (!sleep_until_turn(vcpu) || !sleep_until_outside(vcpu))
			return leave_interrupted(vcpu);
		if (!schedule_is_over(vcpu))
			return 1;
		schedule_pass(vcpu);
		vcpu->cpu->port.memory_unchanged = false; /* others may have had turns */
	}
}

/* What ends KVM_RUN although the guest could go on: its result, or 1 for another turn. */
static int between_turns(struct vcpu *vcpu, bool was_running)
{
	vcpu->cpu->port.memory_unchanged = was_running;
	if (events_irq_wanted(vcpu) && events_ready_for_irq(vcpu)) {
		vcpu->stats.request_irq_exits++;
		vcpu->run->exit_reason = KVM_EXIT_IRQ_WINDOW_OPEN;
		return 0;
	}
	if (vcpu_interrupted(vcpu))
		return leave_interrupted(vcpu);
	return wait_for_entry(vcpu);
}

static void sleep_until_started(struct vcpu *vcpu)
{
	while (vcpu->mp_state == KVM_MP_STATE_UNINITIALIZED && sleep_until_turn(vcpu) &&
	       !vcpu_interrupted(vcpu))
		sleep_halted(vcpu);
}

/* An AP that was never started: KVM waits for its INIT here and makes the program call again. */
static int wait_for_init(struct vcpu *vcpu)
{
	if (READ_ONCE(vcpu->run->immediate_exit))
		return -EINTR;
	if (vcpu->vm->time.is_virtual) {
		sleep_until_started(vcpu);
	} else {
		sleep_until_woken(vcpu);
		events_accept(vcpu);
	}
	if (!vcpu_interrupted(vcpu))
		return -EAGAIN;
	vcpu->run->exit_reason = KVM_EXIT_INTR;
	vcpu->stats.signal_exits++;
	return -EINTR;
}

/*
 * What the program answered to the last exit. With immediate_exit the instruction is finished too
 * and nothing else: that is how programs bring a vCPU to an instruction boundary. So it is before
 * an event that the program has set meanwhile.
 */
static int finish_last_exit(struct vcpu *vcpu)
{
	struct cpu_event *event = &vcpu->cpu->port.event, waiting = *event;
	bool again;
	int r = exit_complete(vcpu, &again);

	settle_completed(vcpu);
	if (r > 0 && again &&
	    (waiting.kind != EVENT_NONE || READ_ONCE(vcpu->run->immediate_exit))) {
		event->kind = EVENT_NONE;
		r = finish_instruction(vcpu);
		if (event->kind == EVENT_NONE)
			*event = waiting;
	}
	return r > 0 ? exit_to_debugger(vcpu) : r;
}

static int prepare(struct vcpu *vcpu)
{
	u64 cr8 = READ_ONCE(vcpu->run->cr8);
	int r = vcpu_sync_in(vcpu);

	if (r)
		return r;
	if (!vcpu->has_lapic) {
		if (cr8 & ~0xfull)
			return -EINVAL;
		apic_set_cr8(vcpu, cr8);
	}
	r = finish_last_exit(vcpu);
	if (r > 0 && READ_ONCE(vcpu->run->immediate_exit))
		return -EINTR;
	return r;
}

/* Before the first turn: 1, or the result of KVM_RUN. */
static int start(struct vcpu *vcpu)
{
	int r;

	vcpu->run->flags = 0;
	if (vcpu->mp_state == KVM_MP_STATE_UNINITIALIZED)
		return wait_for_init(vcpu);
	if (vcpu->clock.steal_msr && !vcpu->vm->time.is_virtual)
		__atomic_fetch_or(&vcpu->requests, REQUEST_STEAL_UPDATE, __ATOMIC_SEQ_CST);
	vcpu_section_begin(vcpu);
	r = prepare(vcpu);
	vcpu_section_end(vcpu);
	if (r <= 0)
		return r;
	vcpu->run->exit_reason = KVM_EXIT_UNKNOWN;
	vcpu->cpu->port.memory_unchanged = false; /* the program may have written guest memory */
	if (schedule_holds(vcpu))
		vcpu->vm->outside.must_wait = false; /* its OUT says so again */
	return wait_for_entry(vcpu);
}

static void finish(struct vcpu *vcpu)
{
	vcpu_section_begin(vcpu);
	vcpu_steal_preempted(vcpu);
	vcpu_sync_out(vcpu);
	vcpu_section_end(vcpu);
}

/*
 * Blocks what the program wants blocked during KVM_RUN, except the signals that guest code itself
 * causes: blocked, they would kill the process. (Otherwise the border has seen to it that threads
 * do not block them.)
 */
static void mask_signals(const struct vcpu *vcpu, sigset_t *saved)
{
	static const int ours[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP };
	sigset_t set = vcpu->sigmask;

	for (u32 i = 0; i < ARRAY_SIZE(ours); i++)
		sigdelset(&set, ours[i]);
	pthread_sigmask(SIG_BLOCK, &set, saved);
}

void vcpu_thread_forked(void)
{
	own_tid = 0;
}

/* Not by pthread_t, which a new thread may have of one that has ended. */
static void note_thread(struct vcpu *vcpu)
{
	if (unlikely(!own_tid))
		own_tid = syscall(SYS_gettid);
	WRITE_ONCE(vcpu->tid, own_tid);
}

/* From here on signals of this thread end the KVM_RUN, and kicks of other threads reach it. */
static void attach(struct vcpu *vcpu, sigset_t *saved)
{
	__atomic_store_n(&vcpu->signalled, false, __ATOMIC_SEQ_CST);
	note_thread(vcpu);
	WRITE_ONCE(vcpu->where, WHERE_HYPERVISOR);
	schedule_enter(vcpu);
	set_current(vcpu);
	if (vcpu->sigmask_active)
		mask_signals(vcpu, saved);
	shared_wake(vcpu->cpu);
}

static void detach(struct vcpu *vcpu, const sigset_t *saved)
{
	vcpu_time_show(vcpu);
	vcpu_host_thread_away(vcpu);
	shared_sleep(vcpu->cpu);
	if (vcpu->sigmask_active)
		pthread_sigmask(SIG_SETMASK, saved, NULL);
	vcpu_sample_finish(vcpu);
	set_current(NULL);
	WRITE_ONCE(vcpu->where, WHERE_VMM);
}

static int make_engine(struct vcpu *vcpu)
{
	int r = engine_create(vcpu->cpu);

	if (!r && vcpu->vm->profile)
		engine_set_profile(vcpu->cpu, vcpu->vm->profile);
	return r;
}

int vcpu_run(struct vcpu *vcpu)
{
	sigset_t saved;
	int r;

	if (!vcpu->cpu->engine) {
		r = make_engine(vcpu);
		if (r)
			return r;
	}
	attach(vcpu, &saved);
	r = start(vcpu);
	while (r > 0) {
		bool running = vcpu->mp_state == KVM_MP_STATE_RUNNABLE;

		if (running)
			r = turn(vcpu);
		else
			sleep_halted(vcpu);
		if (r > 0)
			r = between_turns(vcpu, running);
	}
	finish(vcpu);
	detach(vcpu, &saved);
	return r;
}
