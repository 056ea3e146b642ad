// SPDX-License-Identifier: MIT
/*
 * Samples. There is one mailbox, in static memory, since that is all a handler can rely on: the
 * vCPU may be gone when a signal arrives late. The asker posts a request, the handler on the right
 * thread fills it in; the asker withdraws it if the thread does not get to run. A signal that
 * arrives later finds no request, or the next one, which is as good.
 *
 * A handler cannot read guest memory. It kicks its vCPU, which walks the stack and looks up the
 * per-CPU word a few instructions later: they are still there, unless the guest has changed to
 * other rights or memory.
 *
 * The signal is one that threads in KVM_RUN never block, and that always arrives at our handler
 * (preload/signals.c). It is not the one of kicks: of two signals of a number only one is kept.
 */
#include "vm/control/sample.h"

#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "vm/control/peek.h"
#include "vm/control/stack_walk.h"
#include "vm/vm.h"

#define SAMPLE_SIGNAL SIGFPE
#define WAIT_NS	      20000000ull
#define PATIENCE_NS   3000000000ull

enum mail { MAIL_NONE, MAIL_WANTED, MAIL_BUSY, MAIL_MEMORY, MAIL_TAKEN };

static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;
static struct mailbox {
	u32 state; /* enum mail; a futex */
	const struct vcpu *vcpu;
	pid_t tid;
	struct sample_wish wish;
	struct vcpu_sample sample;
} mailbox;

static bool change_state(u32 from, u32 to)
{
	return __atomic_compare_exchange_n(&mailbox.state, &from, to, false, __ATOMIC_SEQ_CST,
					   __ATOMIC_SEQ_CST);
}

/* --- the vCPU's thread --- */

/* vcpu: whose KVM_RUN the thread is in, or NULL. */
static void look(const struct vcpu *vcpu, struct vcpu_sample *sample, const void *ucontext)
{
	sample->where = WHERE_VMM;
	sample->nframes = 0;
	sample->has_percpu = false;
	if (!vcpu || vcpu != mailbox.vcpu)
		return;
	sample->where = READ_ONCE(vcpu->where);
	sample->exit = READ_ONCE(vcpu->last_exit);
	sample->cr3 = vcpu->cpu->cr3;
	if (sample->where == WHERE_GUEST && !engine_where(vcpu->cpu, ucontext, &sample->guest))
		sample->where = WHERE_ENGINE;
}

static void deliver(void)
{
	__atomic_store_n(&mailbox.state, MAIL_TAKEN, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &mailbox.state, FUTEX_WAKE_PRIVATE, 1);
}

static bool is_ours(int sig, const siginfo_t *info)
{
	return sig == SAMPLE_SIGNAL && info->si_code == SI_QUEUE && info->si_ptr == &mailbox;
}

bool vcpu_sample_signal(int sig, const siginfo_t *info, const void *ucontext)
{
	struct vcpu *vcpu = vcpu_current();

	if (!is_ours(sig, info))
		return false;
	if (vcpu)
		vcpu->samples++;
	if (READ_ONCE(mailbox.tid) != gettid() || !change_state(MAIL_WANTED, MAIL_BUSY))
		return true;
	look(vcpu, &mailbox.sample, ucontext);
	if ((mailbox.wish.stack || mailbox.wish.percpu) && mailbox.sample.where == WHERE_GUEST) {
		__atomic_store_n(&mailbox.state, MAIL_MEMORY, __ATOMIC_SEQ_CST);
		vcpu_kick(vcpu, 0);
	} else {
		deliver();
	}
	return true;
}

/* Before SWAPGS in the kernel's entry, and in user code, the kernel's base is the other one; it is
 * an address of the upper half. What a hostile guest has there instead is for the asker to judge.
 */
static u64 kernel_gs(const struct cpu *cpu)
{
	u64 base = cpu->seg[GS].base;

	return cpu->cpl == 0 && (base & BIT(63)) ? base : cpu->kernel_gs_base;
}

static void read_percpu(struct vcpu *vcpu, const struct sample_wish *wish,
			struct vcpu_sample *sample)
{
	const struct cpu *cpu = vcpu->cpu;

	sample->percpu_base = kernel_gs(cpu);
	sample->has_percpu =
		cpu_long_mode(cpu) && peek_linear(cpu->port.mem, wish->cr3, peek_levels(cpu->cr4),
						  sample->percpu_base + wish->offset,
						  &sample->percpu, sizeof(sample->percpu));
}

/* Frames are those of the interrupted code's privilege. The kernel's word is the same after an
 * interrupt or a return; it changes with the task, and then nearly always CR3 does. */
static void read_memory(struct vcpu *vcpu, struct vcpu_sample *sample)
{
	if (mailbox.wish.stack && vcpu->cpu->cpl == sample->guest.cpl)
		sample->nframes = vcpu_frames(vcpu, &sample->guest, sample->frame, SAMPLE_FRAMES);
	if (mailbox.wish.percpu)
		read_percpu(vcpu, &mailbox.wish, sample);
}

void vcpu_sample_finish(struct vcpu *vcpu)
{
	struct vcpu_sample *sample = &mailbox.sample;

	if (likely(__atomic_load_n(&mailbox.state, __ATOMIC_ACQUIRE) != MAIL_MEMORY) ||
	    mailbox.vcpu != vcpu || !change_state(MAIL_MEMORY, MAIL_BUSY))
		return;
	if (vcpu_in_section(vcpu) && vcpu->cpu->cr3 == sample->cr3)
		read_memory(vcpu, sample);
	deliver();
}

/* --- the asker --- */

static bool interrupt(pid_t tid)
{
	siginfo_t info;

	memset(&info, 0, sizeof(info));
	info.si_code = SI_QUEUE;
	info.si_pid = getpid();
	info.si_uid = getuid();
	info.si_ptr = &mailbox;
	return !syscall(SYS_rt_tgsigqueueinfo, getpid(), tid, SAMPLE_SIGNAL, &info);
}

static u32 wait_for_change(u32 seen)
{
	struct timespec ts = { .tv_nsec = WAIT_NS };

	syscall(SYS_futex, &mailbox.state, FUTEX_WAIT_PRIVATE, seen, &ts);
	return __atomic_load_n(&mailbox.state, __ATOMIC_SEQ_CST);
}

static bool taken(void)
{
	u64 begun = clock_ns();
	u32 state = MAIL_WANTED;

	while (state != MAIL_TAKEN) {
		state = wait_for_change(state);
		if (clock_ns() - begun > PATIENCE_NS &&
		    (change_state(MAIL_WANTED, MAIL_NONE) || change_state(MAIL_MEMORY, MAIL_NONE)))
			return false;
	}
	return true;
}

void vcpu_sample_forked(void)
{
	pthread_mutex_init(&asking, NULL);
	mailbox.state = MAIL_NONE;
}

bool vcpu_sample(struct vcpu *vcpu, const struct sample_wish *wish, struct vcpu_sample *out)
{
	bool ok;

	pthread_mutex_lock(&asking);
	mailbox.vcpu = vcpu;
	mailbox.wish = *wish;
	WRITE_ONCE(mailbox.tid, READ_ONCE(vcpu->tid));
	__atomic_store_n(&mailbox.state, MAIL_WANTED, __ATOMIC_SEQ_CST);
	ok = interrupt(mailbox.tid) && taken();
	if (ok)
		*out = mailbox.sample;
	pthread_mutex_unlock(&asking);
	return ok;
}
