// SPDX-License-Identifier: MIT
/*
 * Cancellation of threads. A thread inside KVM_RUN has cancellation disabled, and would run its
 * guest for ever: pthread_cancel() makes it return, and then it is cancelled if its cancellation is
 * asynchronous, as it would be in the kernel.
 *
 * A cancelled thread may be gone at once, and its pthread_t is then of no use: what is sent goes to
 * the kernel's number. The table has those of the threads that have made requests; a handle is only
 * compared. A number that has become another thread's costs that one an EINTR.
 *
 * Any thread, also in signal handlers; nothing is locked.
 */
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>

#include "preload/preload.h"
#include "preload/real_libc.h"

#define MAX_THREADS 4096u /* others are cancelled when KVM_RUN returns by itself */
#define KICK_SIGNAL SIGTRAP

static struct thread {
	pthread_t handle;
	pid_t tid; /* 0: free */
} threads[MAX_THREADS];
static u32 nthreads; /* entries that have ever been used */

#define CLAIMED (-1) /* tid: the handle is being written */

static pthread_key_t key;
static bool key_made;
static __thread struct thread *own __attribute__((tls_model("initial-exec")));

static void leave(void *thread)
{
	own = NULL;
	__atomic_store_n(&((struct thread *)thread)->tid, 0, __ATOMIC_RELEASE);
}

static void make_key(void)
{
	key_made = pthread_key_create(&key, leave) == 0;
}

static void count_up_to(u32 n)
{
	u32 now = __atomic_load_n(&nthreads, __ATOMIC_RELAXED);

	while (now < n && !__atomic_compare_exchange_n(&nthreads, &now, n, false, __ATOMIC_SEQ_CST,
						       __ATOMIC_RELAXED))
		;
}

static struct thread *claim(void)
{
	for (u32 i = 0; i < MAX_THREADS; i++) {
		pid_t none = 0;

		if (!__atomic_compare_exchange_n(&threads[i].tid, &none, CLAIMED, false,
						 __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			continue;
		count_up_to(i + 1);
		return &threads[i];
	}
	return NULL;
}

/*
 * Before cancellation is disabled: then pthread_cancel() either finds the thread here, or has sent
 * libc's signal already, which arrives at the latest with the system call at the end.
 */
void threads_enter(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct thread *thread;

	if (own || preload_is_vforked())
		return;
	pthread_once(&once, make_key);
	thread = key_made ? claim() : NULL;
	if (!thread)
		return;
	own = thread;
	thread->handle = pthread_self();
	if (pthread_setspecific(key, thread)) {
		leave(thread);
		return;
	}
	__atomic_store_n(&thread->tid, gettid(), __ATOMIC_SEQ_CST);
	gettid();
}

/* Only the thread that forked is there, with another number. */
void threads_forked(void)
{
	for (u32 i = 0; i < nthreads; i++)
		threads[i].tid = &threads[i] == own ? gettid() : 0;
}

static pid_t tid_of(pthread_t handle)
{
	u32 n = __atomic_load_n(&nthreads, __ATOMIC_SEQ_CST);

	for (u32 i = 0; i < n; i++) {
		pid_t tid = __atomic_load_n(&threads[i].tid, __ATOMIC_ACQUIRE);

		if (tid > 0 &&
		    pthread_equal(__atomic_load_n(&threads[i].handle, __ATOMIC_RELAXED), handle))
			return tid;
	}
	return 0;
}

/* Only the address matters. */
static char kick_mark;

bool threads_is_kick(int sig, const siginfo_t *info)
{
	return sig == KICK_SIGNAL && info->si_code == SI_QUEUE && info->si_ptr == &kick_mark;
}

static void kick(pid_t tid)
{
	siginfo_t info;

	memset(&info, 0, sizeof(info));
	info.si_signo = KICK_SIGNAL;
	info.si_code = SI_QUEUE;
	info.si_pid = getpid();
	info.si_uid = getuid();
	info.si_ptr = &kick_mark;
	syscall(SYS_rt_tgsigqueueinfo, getpid(), tid, KICK_SIGNAL, &info);
}

LIBC int pthread_cancel(pthread_t thread)
{
	bool self = pthread_equal(thread, pthread_self());
	int r = real()->pthread_cancel(thread), saved_errno = errno;
	pid_t tid = r || self ? 0 : tid_of(thread);

	if (tid)
		kick(tid);
	errno = saved_errno;
	return r;
}
