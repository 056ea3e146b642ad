// SPDX-License-Identifier: MIT
/*
 * Signals: shared between the program and us.
 *
 * Faults (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP) come from guest code and from accesses to
 * memory that the program gave us, so that from the first open of /dev/kvm on they arrive here, and
 * only what is not ours goes to the program's handler, or has the effect of the program's SIG_DFL.
 * All other signals stay the program's, but a handler is entered through on_signal(). The program
 * sees none of this: sigaction() reports what it asked for.
 *
 * No handler of the program runs in the middle of a request: it may make requests itself, free what
 * the guest uses, or leave by siglongjmp(), and the kernel runs it when the system call is over. A
 * signal that comes meanwhile is postponed: it is sent once more, to this thread, with all signals
 * blocked, and KVM_RUN is made to return EINTR; when the request is over the mask is what it was,
 * and the kernel delivers the signal as ever. (Several real-time signals of one number that come
 * within one request may change places.) The faults cannot be blocked: those that were sent and are
 * not ours are kept, and sent once more when the request is over. While guest code runs, the stack
 * pointer of the thread is inside a stack of ours: that is where on_signal() runs then, if the
 * program's handler has no SA_ONSTACK.
 *
 * Here are also the functions of libc that would get around this: masks keep the faults open.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "kvm/kvm.h"
#include "preload/preload.h"
#include "preload/real_libc.h"

#define NSIGNALS 65

static const int fault_signals[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP };
/* Signals that a thread may raise for itself; it must not continue before the handler has run. */
static const int own_signals[] = { SIGABRT, SIGSYS };

/*
 * The actions that the program asked for. Readers are signal handlers: a sequence number (odd:
 * being changed) tells them to read again. Writers hold `writing` with all signals blocked.
 */
static struct wish {
	u32 seq;
	struct sigaction act;
} wishes[NSIGNALS];
static u32 writing;

static bool faults_taken;
/* They are open on this thread as far as we know. Cleared when that may have ended: see enter(). */
static __thread bool faults_unblocked __attribute__((tls_model("initial-exec")));
/* Written at load time: the program's code has UD2s, which any thread may reach in any mask. */
static bool sigill_open;
/* Faults that the program has blocked on this thread, and that we have opened: bits of the
 * kernel's. */
static __thread u64 opened __attribute__((tls_model("initial-exec")));
/* This thread is serving a request; it has postponed signals, and this was its mask:
 * the kernel's. */
static __thread bool serving __attribute__((tls_model("initial-exec")));
static __thread bool postponed __attribute__((tls_model("initial-exec")));
static __thread u64 mask_before __attribute__((tls_model("initial-exec")));
/* Faults that were sent meanwhile: a bit for each of fault_signals[]. */
static __thread u32 kept __attribute__((tls_model("initial-exec")));
static __thread siginfo_t kept_info[ARRAY_SIZE(fault_signals)]
	__attribute__((tls_model("initial-exec")));

static bool is_one_of(int sig, const int *signals, u32 n)
{
	for (u32 i = 0; i < n; i++)
		if (signals[i] == sig)
			return true;
	return false;
}

static bool is_fault(int sig)
{
	return is_one_of(sig, fault_signals, ARRAY_SIZE(fault_signals));
}

static void faults_remove(sigset_t *set)
{
	for (u32 i = 0; i < ARRAY_SIZE(fault_signals); i++)
		sigdelset(set, fault_signals[i]);
}

static u64 bits_of(const sigset_t *set)
{
	u64 bits;

	memcpy(&bits, set, sizeof(bits));
	return bits;
}

static u64 fault_bits(void)
{
	u64 bits = 0;

	for (u32 i = 0; i < ARRAY_SIZE(fault_signals); i++)
		bits |= BIT(fault_signals[i] - 1);
	return bits;
}

/* What stays open on this thread, whatever mask the program asks for. */
static u64 kept_open(void)
{
	return faults_unblocked ? fault_bits() : sigill_open ? BIT(SIGILL - 1) : 0;
}

/* The program is told that they are blocked as before. */
static void open_signals(u64 bits)
{
	sigset_t set, before;

	sigemptyset(&set);
	memcpy(&set, &bits, sizeof(bits));
	real()->pthread_sigmask(SIG_UNBLOCK, &set, &before);
	opened |= bits_of(&before) & bits;
}

static bool is_function(const struct sigaction *act)
{
	return act->sa_handler != SIG_DFL && act->sa_handler != SIG_IGN;
}

static struct sigaction wish_get(int sig)
{
	struct wish *wish = &wishes[sig];
	struct sigaction act;
	u32 seq;

	do {
		seq = __atomic_load_n(&wish->seq, __ATOMIC_ACQUIRE);
		memcpy(&act, &wish->act, sizeof(act));
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while ((seq & 1) || seq != __atomic_load_n(&wish->seq, __ATOMIC_RELAXED));
	return act;
}

static void wish_set(int sig, const struct sigaction *act)
{
	struct wish *wish = &wishes[sig];

	__atomic_store_n(&wish->seq, wish->seq + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	memcpy(&wish->act, act, sizeof(*act));
	__atomic_store_n(&wish->seq, wish->seq + 1, __ATOMIC_RELEASE);
}

static void write_begin(sigset_t *old)
{
	sigset_t all;

	sigfillset(&all);
	real()->pthread_sigmask(SIG_SETMASK, &all, old);
	while (__atomic_exchange_n(&writing, 1, __ATOMIC_ACQUIRE))
		__builtin_ia32_pause();
}

static void write_end(const sigset_t *old)
{
	__atomic_store_n(&writing, 0, __ATOMIC_RELEASE);
	real()->pthread_sigmask(SIG_SETMASK, old, NULL);
}

/* A child must not start in the middle of another thread's change. */

static sigset_t fork_mask;

void signals_fork_begin(void)
{
	sigset_t old;

	write_begin(&old);
	fork_mask = old;
}

void signals_fork_end(void)
{
	sigset_t old = fork_mask;

	write_end(&old);
}

/* SA_RESETHAND: the handler is entered with the default action already in place. In a handler;
 * nothing is locked. */
static void reset_if_asked(int sig, struct sigaction *act)
{
	struct sigaction def = { .sa_handler = SIG_DFL };
	sigset_t old;

	if (!(act->sa_flags & SA_RESETHAND))
		return;
	write_begin(&old);
	wish_set(sig, &def);
	write_end(&old);
}

/*
 * The handlers of the program, both kinds: one that wants only the number ignores the rest. The
 * handler has a mask of the kernel's making, and its return or siglongjmp() sets an older one: the
 * next request, in the handler or after it, must open the faults again.
 */
static void enter(const struct sigaction *act, int sig, siginfo_t *info, void *ucontext)
{
	u64 outer = opened;

	kvm_interrupt();
	faults_unblocked = false;
	if (sigill_open)
		open_signals(BIT(SIGILL - 1));
	act->sa_sigaction(sig, info, ucontext);
	faults_unblocked = false;
	opened = outer;
}

static struct sigaction kernel_action(int sig, const struct sigaction *wish);

/* The kernel has put SIG_DFL in the place of a handler with SA_RESETHAND, and it is to
 * come again. */
static void install_again(int sig)
{
	struct sigaction act;
	sigset_t old;

	write_begin(&old);
	act = kernel_action(sig, &wishes[sig].act);
	real()->sigaction(sig, &act, NULL);
	write_end(&old);
}

static bool queue_again(int sig, const struct sigaction *act, siginfo_t *info)
{
	if (act->sa_flags & SA_RESETHAND)
		install_again(sig);
	return !syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), sig, info);
}

/* Of the context's mask only what the kernel knows of is there. False: there is no room for one
 * more pending signal. */
static bool postpone(int sig, const struct sigaction *act, siginfo_t *info, ucontext_t *context)
{
	int saved_errno = errno;
	sigset_t all, old;
	bool done;

	sigfillset(&all);
	faults_remove(&all);
	real()->pthread_sigmask(SIG_SETMASK, &all, &old);
	memcpy(&mask_before, &context->uc_sigmask, sizeof(mask_before));
	done = queue_again(sig, act, info);
	if (done) {
		memcpy(&context->uc_sigmask, &all, sizeof(mask_before));
		postponed = true;
		kvm_interrupt();
	} else {
		real()->pthread_sigmask(SIG_SETMASK, &old, NULL);
	}
	errno = saved_errno;
	return done;
}

bool signals_hold(void)
{
	bool outer = serving;

	if (!outer)
		kvm_interrupt_forget();
	serving = true;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	return outer;
}

static void keep(int sig, const siginfo_t *info)
{
	for (u32 i = 0; i < ARRAY_SIZE(fault_signals); i++) {
		if (fault_signals[i] != sig || (kept & BIT(i))) /* two that wait are one */
			continue;
		kept_info[i] = *info;
		kept |= BIT(i);
	}
	kvm_interrupt();
}

static void send_kept(void)
{
	for (u32 i = 0; i < ARRAY_SIZE(fault_signals); i++)
		if (kept & BIT(i))
			syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), fault_signals[i],
				&kept_info[i]);
	kept = 0;
}

/* The handlers of what has been postponed run in here, when the mask is set, and may not return. */
void signals_release(bool outer)
{
	sigset_t all, mask;

	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	serving = outer;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (outer || !(postponed || kept))
		return;
	sigfillset(&all);
	real()->pthread_sigmask(SIG_SETMASK, &all, &mask);
	if (postponed)
		memcpy(&mask, &mask_before, sizeof(mask_before));
	postponed = false;
	send_kept();
	real()->pthread_sigmask(SIG_SETMASK, &mask, NULL);
}

/*
 * Did the thread do this to itself? By a system call that a seccomp filter traps; or by tgkill(),
 * as raise() and abort() do, which then has just returned: the registers are those of the call.
 */
static bool is_own(int sig, const siginfo_t *info, const ucontext_t *context)
{
	const greg_t *regs = context->uc_mcontext.gregs;

	if (!is_one_of(sig, own_signals, ARRAY_SIZE(own_signals)))
		return false;
	return info->si_code > 0 ||
	       (info->si_code == SI_TKILL && regs[REG_RAX] == 0 && regs[REG_RDI] == getpid() &&
		regs[REG_RSI] == gettid() && regs[REG_RDX] == sig);
}

static void on_signal(int sig, siginfo_t *info, void *ucontext)
{
	struct sigaction act = wish_get(sig);

	if (serving && !is_own(sig, info, ucontext) && postpone(sig, &act, info, ucontext))
		return;
	reset_if_asked(sig, &act);
	if (is_function(&act))
		enter(&act, sig, info, ucontext);
}

/*
 * The effect of SIG_DFL: our handler goes, and the same signal comes once more when this one
 * returns and unblocks it. (To return only would repeat a fault, but not a trap or a kill().)
 */
static void die_of(int sig, siginfo_t *info)
{
	struct sigaction def = { .sa_handler = SIG_DFL };

	real()->sigaction(sig, &def, NULL);
	syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), sig, info);
}

/* A fault cannot be ignored: SIG_IGN holds for signals sent by a process (signal(7)). */
static bool is_ignored(const struct sigaction *act, const siginfo_t *info)
{
	return act->sa_handler == SIG_IGN && info->si_code <= 0;
}

/* Entered with all signals blocked; the program's handler runs with the mask it asked for. */
static void pass_on(int sig, siginfo_t *info, void *ucontext)
{
	struct sigaction act = wish_get(sig);
	sigset_t mask = ((ucontext_t *)ucontext)->uc_sigmask;

	if (is_ignored(&act, info))
		return;
	if (!is_function(&act)) {
		die_of(sig, info);
		return;
	}
	if (serving && info->si_code <= 0) {
		keep(sig, info);
		return;
	}
	reset_if_asked(sig, &act);
	sigorset(&mask, &mask, &act.sa_mask);
	if (!(act.sa_flags & SA_NODEFER))
		sigaddset(&mask, sig);
	real()->pthread_sigmask(SIG_SETMASK, &mask, NULL);
	enter(&act, sig, info, ucontext);
}

static void on_fault(int sig, siginfo_t *info, void *ucontext)
{
	int saved = errno;

	if (threads_is_kick(sig, info))
		kvm_interrupt();
	else if (program_cpuid_signal(sig, ucontext) || kvm_signal(sig, info, ucontext))
		errno = saved;
	else
		pass_on(sig, info, ucontext);
}

/* What the kernel is told, given what the program wants. */
static struct sigaction kernel_action(int sig, const struct sigaction *wish)
{
	struct sigaction act = *wish;

	if (faults_taken && is_fault(sig)) {
		act.sa_sigaction = on_fault;
		act.sa_flags =
			SA_SIGINFO | (is_function(wish) ? wish->sa_flags & (SA_ONSTACK | SA_RESTART)
							: SA_RESTART);
		sigfillset(&act.sa_mask);
	} else if (is_function(wish)) {
		act.sa_sigaction = on_signal;
		act.sa_flags |= SA_SIGINFO;
	}
	return act;
}

void signals_take_faults(void)
{
	struct sigaction now, taken;
	sigset_t old;

	if (__atomic_load_n(&faults_taken, __ATOMIC_ACQUIRE))
		return;
	write_begin(&old);
	for (u32 i = 0; i < ARRAY_SIZE(fault_signals) && !faults_taken; i++) {
		real()->sigaction(fault_signals[i], NULL, &now);
		if (now.sa_sigaction != on_signal) /* inherited over exec, or set by a system call
						      that bypassed this library */
			wish_set(fault_signals[i], &now);
	}
	__atomic_store_n(&faults_taken, true, __ATOMIC_RELEASE);
	for (u32 i = 0; i < ARRAY_SIZE(fault_signals); i++) {
		taken = kernel_action(fault_signals[i], &wishes[fault_signals[i]].act);
		real()->sigaction(fault_signals[i], &taken, NULL);
	}
	write_end(&old);
}

void signals_unblock_faults(void)
{
	if (faults_unblocked)
		return;
	open_signals(fault_bits());
	faults_unblocked = true;
}

void signals_mask_restored(void)
{
	faults_unblocked = false;
}

void signals_open_sigill(void)
{
	signals_take_faults();
	sigill_open = true;
	open_signals(BIT(SIGILL - 1));
}

/* The functions of libc. */

/* A signal may arrive on another thread as soon as the kernel knows of a handler: on_signal() must
 * find it. What is no function comes after the kernel, for the same reason. */
static int change(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction wish, kernel, before;
	sigset_t mask;
	int r;

	write_begin(&mask);
	wish = wishes[sig].act;
	if (act)
		kernel = kernel_action(sig, act);
	if (act && is_function(act))
		wish_set(sig, act);
	r = real()->sigaction(sig, act ? &kernel : NULL, &before);
	if (act)
		wish_set(sig, r ? &wish : act);
	write_end(&mask);
	if (!r && (before.sa_sigaction == on_signal || before.sa_sigaction == on_fault))
		before = wish;
	if (!r && old)
		*old = before;
	return r;
}

LIBC int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	if (sig <= 0 || sig >= NSIGNALS || preload_is_vforked())
		return real()->sigaction(sig, act, old);
	return change(sig, act, old);
}

static sighandler_t simple(int sig, sighandler_t handler, int flags)
{
	struct sigaction act = { .sa_handler = handler, .sa_flags = flags }, old;

	if (handler == SIG_ERR) {
		errno = EINVAL;
		return SIG_ERR;
	}
	if (!(flags & SA_NODEFER))
		sigaddset(&act.sa_mask, sig);
	return sigaction(sig, &act, &old) ? SIG_ERR : old.sa_handler;
}

LIBC sighandler_t signal(int sig, sighandler_t handler)
{
	return simple(sig, handler, SA_RESTART);
}

LIBC sighandler_t ssignal(int sig, sighandler_t handler)
{
	return simple(sig, handler, SA_RESTART);
}

sighandler_t bsd_signal(int sig, sighandler_t handler);

LIBC sighandler_t bsd_signal(int sig, sighandler_t handler)
{
	return simple(sig, handler, SA_RESTART);
}

LIBC sighandler_t sysv_signal(int sig, sighandler_t handler)
{
	return simple(sig, handler, SA_RESETHAND | SA_NODEFER);
}

LIBC sighandler_t __sysv_signal(int sig, sighandler_t handler)
{
	return simple(sig, handler, SA_RESETHAND | SA_NODEFER);
}

/* Of what the program asked for: the part that the kernel has not been told. */
static u64 opened_after(int how, u64 asked)
{
	switch (how) {
	case SIG_BLOCK:
		return opened | (asked & kept_open());
	case SIG_UNBLOCK:
		return opened & ~asked;
	default: /* SIG_SETMASK */
		return asked & kept_open();
	}
}

/* What stays open is taken out of the kernel's mask, and shown in the program's. */
static int mask_change(int how, const sigset_t *set, sigset_t *old)
{
	u64 bits = set ? bits_of(set) : 0, reported = opened;
	sigset_t told, before;
	int r;

	if (set) {
		u64 without = how == SIG_UNBLOCK ? bits : bits & ~kept_open();

		told = *set;
		memcpy(&told, &without, sizeof(without));
	}
	r = real()->pthread_sigmask(how, set ? &told : NULL, &before);
	if (r)
		return r;
	if (set)
		opened = opened_after(how, bits);
	reported |= bits_of(&before);
	if (old) {
		*old = before;
		memcpy(old, &reported, sizeof(reported));
	}
	return 0;
}

LIBC int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	return mask_change(how, set, old);
}

LIBC int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	return preload_result(-mask_change(how, set, old));
}
