// SPDX-License-Identifier: MIT
/*
 * The border with libc: what other threads do in the middle of a call. The program starts itself
 * under `vpmu kvm`, as border_test does; its own bind() and pthread_sigqueue() stand before libc's
 * for the library, too, so that the moment is always the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/types.h"
#include "unit/under_vpmu.h"

/* The library's control socket is bound by this function, which can take its time. */

static struct {
	bool armed;
	int arrived[2], go_on[2];
} slow;

__attribute__((visibility("default"))) int bind(int fd, const struct sockaddr *address,
						socklen_t len)
{
	char c = 0;

	if (slow.armed && write(slow.arrived[1], &c, 1) == 1)
		while (read(slow.go_on[0], &c, 1) != 1)
			;
	return syscall(SYS_bind, fd, address, len);
}

static void *create_vm(void *kvm)
{
	return (void *)(long)ioctl(*(int *)kvm, KVM_CREATE_VM, 0);
}

/* Starts a thread that makes this process's first VM; it has come as far as bind(). */
static bool start_slowly(pthread_t *thread, void *(*start)(void *), int *kvm)
{
	char c;

	if (pipe(slow.arrived) || pipe(slow.go_on))
		return false;
	slow.armed = true;
	return !pthread_create(thread, NULL, start, kvm) && read(slow.arrived[0], &c, 1) == 1;
}

static bool let_go_on(void)
{
	char c = 0;

	slow.armed = false;
	return write(slow.go_on[1], &c, 1) == 1;
}

/* In a child, which has made no VM. */
static void assert_in_child(int (*function)(void))
{
	pid_t child = fork();
	int status = -1;

	if (!child)
		_exit(!!function());
	waitpid(child, &status, 0);
	assert_int_equal(status, 0);
}

static int fork_during_the_first_vm(void)
{
	int kvm = open_kvm(), status = -1;
	pthread_t thread;
	pid_t child;

	if (!start_slowly(&thread, create_vm, &kvm))
		return 1;
	child = fork();
	if (!child) {
		slow.armed = false;
		alarm(10);
		_exit(ioctl(kvm, KVM_CREATE_VM, 0) < 0);
	}
	waitpid(child, &status, 0);
	if (!let_go_on() || pthread_join(thread, NULL))
		return 1;
	return status;
}

static void a_child_makes_a_vm_while_its_parent_makes_its_first(void **state)
{
	(void)state;
	assert_in_child(fork_during_the_first_vm);
}

static volatile sig_atomic_t arrived;

static void note_arrived(int sig)
{
	(void)sig;
	arrived++;
}

static void *create_vm_cancellable(void *kvm)
{
	sigset_t usr1;

	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	pthread_sigmask(SIG_UNBLOCK, &usr1, NULL);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	create_vm(kvm);
	for (;;) /* cancelled at the latest here */
		pause();
	return NULL;
}

static bool is_pending(int sig)
{
	sigset_t pending;

	sigpending(&pending);
	return sigismember(&pending, sig);
}

/* One for the process, which only the thread inside the request can take. */
static int signal_and_cancel(void)
{
	struct sigaction act = { .sa_handler = note_arrived, .sa_flags = SA_RESTART };
	int kvm = open_kvm();
	pthread_t thread;
	sigset_t all;
	void *result;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	sigaction(SIGUSR1, &act, NULL);
	if (!start_slowly(&thread, create_vm_cancellable, &kvm) || kill(getpid(), SIGUSR1))
		return 1;
	for (u32 i = 0; i < 10000 && is_pending(SIGUSR1); i++)
		usleep(1000);
	if (pthread_cancel(thread) || !let_go_on() || pthread_join(thread, &result))
		return 1;
	return !(result == PTHREAD_CANCELED && arrived == 1);
}

static void a_signal_arrives_although_its_thread_is_cancelled(void **state)
{
	(void)state;
	assert_in_child(signal_and_cancel);
}

/* A thread that ends, and takes its memory along, as soon as it is cancelled. */

#define DOOMED_STACK (256u << 10)

static struct {
	pthread_t thread;
	u8 *stack;
	void *result;
} doomed;

static void bury(void)
{
	if (!doomed.stack)
		return;
	pthread_join(doomed.thread, &doomed.result);
	munmap(doomed.stack, DOOMED_STACK);
	doomed.stack = NULL;
}

/* A cancelled thread's handle is of no use: whoever calls this finds its memory gone. */
__attribute__((visibility("default"))) int pthread_sigqueue(pthread_t thread, int sig,
							    const union sigval value)
{
	int (*real)(pthread_t, int, union sigval) = dlsym(RTLD_NEXT, "pthread_sigqueue");

	bury();
	return real(thread, sig, value);
}

static void *pause_for_ever(void *arg)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	while (pause() < 0)
		;
	return arg;
}

static void a_thread_may_be_gone_once_it_is_cancelled(void **state)
{
	pthread_attr_t attr;

	(void)state;
	close(open_kvm());
	doomed.stack = mmap(NULL, DOOMED_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	assert_ptr_not_equal(doomed.stack, MAP_FAILED);
	pthread_attr_init(&attr);
	pthread_attr_setstack(&attr, doomed.stack, DOOMED_STACK);
	assert_int_equal(pthread_create(&doomed.thread, &attr, pause_for_ever, NULL), 0);
	pthread_attr_destroy(&attr);
	assert_int_equal(pthread_cancel(doomed.thread), 0);
	bury();
	assert_ptr_equal(doomed.result, PTHREAD_CANCELED);
}

/* A signal arrives on one thread when the kernel has its handler, and the other thread, which gave
 * it the handler, has not returned from the system call. */

static struct shared {
	pid_t receiver;
	u32 handled, woken;
} *shared;

static void note_handled(int sig)
{
	(void)sig;
	__atomic_store_n(&shared->handled, 1, __ATOMIC_RELEASE);
}

static void *receive(void *arg)
{
	sigset_t none;

	sigemptyset(&none);
	__atomic_store_n(&shared->receiver, gettid(), __ATOMIC_RELEASE);
	sigsuspend(&none);
	__atomic_store_n(&shared->woken, 1, __ATOMIC_RELEASE);
	return arg;
}

static int handle_under_trace(void)
{
	struct sigaction act = { .sa_handler = note_handled };
	pthread_t thread;
	sigset_t urg;

	sigemptyset(&urg);
	sigaddset(&urg, SIGURG);
	pthread_sigmask(SIG_BLOCK, &urg, NULL);
	pthread_create(&thread, NULL, receive, NULL);
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
		return 1;
	raise(SIGSTOP);
	sigaction(SIGURG, &act, NULL);
	return pthread_join(thread, NULL);
}

/* Lets the child run until it returns from a system call that sets an action of SIGURG. */
static bool run_to_sigaction(pid_t child)
{
	struct __ptrace_syscall_info info;
	bool setting = false;
	int status;

	while (!ptrace(PTRACE_SYSCALL, child, NULL, NULL)) {
		if (waitpid(child, &status, 0) < 0 || !WIFSTOPPED(status) ||
		    ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof(info), &info) < 0)
			return false;
		if (setting && info.op == PTRACE_SYSCALL_INFO_EXIT)
			return true;
		setting = info.op == PTRACE_SYSCALL_INFO_ENTRY &&
			  info.entry.nr == SYS_rt_sigaction && info.entry.args[0] == SIGURG &&
			  info.entry.args[1];
	}
	return false;
}

static bool becomes_true(const u32 *word)
{
	for (u32 i = 0; i < 10000 && !__atomic_load_n(word, __ATOMIC_ACQUIRE); i++)
		usleep(1000);
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

static void a_signal_that_comes_with_its_handler_is_handled(void **state)
{
	int status;
	pid_t child;

	(void)state;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		      0);
	child = fork();
	if (!child)
		_exit(handle_under_trace());
	waitpid(child, &status, 0);
	assert_true(WIFSTOPPED(status));
	ptrace(PTRACE_SETOPTIONS, child, NULL, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD);
	assert_true(becomes_true((u32 *)&shared->receiver));
	assert_true(run_to_sigaction(child));
	assert_int_equal(syscall(SYS_tgkill, child, shared->receiver, SIGURG), 0);
	assert_true(becomes_true(&shared->woken));
	assert_true(shared->handled);
	ptrace(PTRACE_DETACH, child, NULL, NULL);
	waitpid(child, &status, 0);
	assert_int_equal(status, 0);
	munmap(shared, sizeof(*shared));
}

static int inside(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_child_makes_a_vm_while_its_parent_makes_its_first),
		cmocka_unit_test(a_signal_arrives_although_its_thread_is_cancelled),
		cmocka_unit_test(a_thread_may_be_gone_once_it_is_cancelled),
		cmocka_unit_test(a_signal_that_comes_with_its_handler_is_handled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

#define SKIPPED 4

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "inside"))
		return inside();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	puts("SKIP: a sanitizer's runtime cannot be loaded behind a preloaded library");
	return SKIPPED;
#endif
	return !!run_under_vpmu(NULL, NULL);
}
