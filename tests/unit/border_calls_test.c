// SPDX-License-Identifier: MIT
/*
 * The border with libc: descriptors that libc closes by itself, and signal masks. The program
 * starts itself under `vpmu kvm`, as border_test does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <cpuid.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/kvm.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/types.h"
#include "unit/under_vpmu.h"
#include "vm/cpuid/cpuid.h"
#include "x86/models.h"

/* The next file with this number is libc's. */
static void assert_free(int fd)
{
	int zero = open("/dev/zero", O_RDONLY);
	char c = 1;

	assert_int_equal(zero, fd);
	assert_int_equal(read(zero, &c, 1), 1);
	assert_int_equal(c, 0);
	close(zero);
}

static void the_number_of_a_closed_stream_is_free(void **state)
{
	FILE *opened = fopen("/dev/kvm", "r"), *of_fd;
	int fd;

	(void)state;
	assert_non_null(opened);
	fd = fileno(opened);
	assert_int_equal(api(fd), 12);
	assert_int_equal(fclose(opened), 0);
	assert_free(fd);
	fd = open_kvm();
	of_fd = fdopen(fd, "r");
	assert_non_null(of_fd);
	assert_int_equal(fclose(of_fd), 0);
	assert_free(fd);
}

static void a_reopened_stream_is_the_other_file(void **state)
{
	FILE *f = fopen("/dev/kvm", "r");
	int fd;
	char c;

	(void)state;
	assert_non_null(f);
	fd = fileno(f);
	assert_ptr_equal(freopen("/dev/zero", "r", f), f);
	assert_int_equal(fileno(f), fd);
	assert_int_equal(read(fd, &c, 1), 1);
	assert_ptr_equal(freopen("/dev/kvm", "r+e", f), f);
	assert_int_equal(fileno(f), fd);
	assert_int_equal(api(fd), 12);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	assert_ptr_equal(freopen(NULL, "r", f), f);
	assert_int_equal(api(fileno(f)), 12);
	assert_int_equal(fclose(f), 0);
	assert_free(fd);
}

static void a_stream_that_cannot_be_reopened_is_closed(void **state)
{
	static const char *const paths[] = { "/nowhere/at/all",
					     "/sys/module/kvm/parameters/nothing" };

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(paths); i++) {
		FILE *f = fopen("/dev/kvm", "r");
		int fd = fileno(f);

		assert_null(freopen(paths[i], "r", f));
		assert_int_equal(errno, ENOENT);
		assert_free(fd);
	}
}

static void parameters_can_be_read_from_a_reopened_stream(void **state)
{
	FILE *f = fopen("/dev/null", "r");
	char text[8] = "";

	(void)state;
	assert_non_null(f);
	assert_ptr_equal(freopen("/sys/module/kvm/parameters/enable_pmu", "r", f), f);
	assert_non_null(fgets(text, sizeof(text), f));
	assert_string_equal(text, "Y\n");
	fclose(f);
}

static void a_range_that_is_not_closed_stays_ours(void **state)
{
	int kvm = open_kvm();

	(void)state;
	assert_int_equal(close_range(kvm, kvm, 1 << 7), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(api(kvm), 12);
	assert_int_equal(close_range(kvm, kvm - 1, 0), -1);
	assert_int_equal(errno, EINVAL);
	assert_int_equal(api(kvm), 12);
	close(kvm);
}

static void *close_own_copy(void *fd)
{
	return (void *)(long)close_range(*(int *)fd, *(int *)fd, CLOSE_RANGE_UNSHARE);
}

/* Other threads keep theirs. */
static void a_range_of_a_private_table_stays_ours(void **state)
{
	int kvm = open_kvm();
	pthread_t thread;
	void *result;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, close_own_copy, &kvm), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_null(result);
	assert_int_equal(api(kvm), 12);
	close(kvm);
}

static void *volatile nowhere = (void *)16;

static void *read_to_nowhere(void *stats)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	return (void *)(long)(read(*(int *)stats, nowhere, 8) == -1 && errno == EFAULT);
}

static void statistics_are_read_with_all_signals_blocked(void **state)
{
	int kvm = open_kvm(), vm = ioctl(kvm, KVM_CREATE_VM, 0);
	int stats = ioctl(vm, KVM_GET_STATS_FD, NULL);
	pthread_t thread;
	void *ok;

	(void)state;
	assert_true(stats >= 0);
	assert_int_equal(pthread_create(&thread, NULL, read_to_nowhere, &stats), 0);
	assert_int_equal(pthread_join(thread, &ok), 0);
	assert_true(ok);
	close(stats);
	close(vm);
	close(kvm);
}

static const struct model *asked_for; /* NULL: the host's */

/* Does CPUID, executed here, show the model? */
static bool sees_model(void)
{
	u32 eax, ebx, ecx, edx;

	if (!asked_for)
		return true;
	__cpuid(0, eax, ebx, ecx, edx);
	(void)eax, (void)ecx, (void)edx;
	return ebx == (asked_for->is_amd ? (u32)signature_AMD_ebx : (u32)signature_INTEL_ebx);
}

static bool is_blocked(int sig)
{
	sigset_t mask;

	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	return sigismember(&mask, sig);
}

static void *look_with_all_blocked(void *arg)
{
	sigset_t all, old;
	bool ok;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, arg);
	ok = sees_model();
	pthread_sigmask(SIG_UNBLOCK, &all, NULL);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	ok = ok && sees_model();
	sigprocmask(SIG_SETMASK, arg, &old);
	ok = ok && sigismember(&old, SIGILL) && sigismember(&old, SIGUSR1) && !is_blocked(SIGILL);
	return (void *)(long)ok;
}

static void cpuid_shows_the_model_with_all_signals_blocked(void **state)
{
	pthread_t thread;
	sigset_t mask;
	void *ok;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, look_with_all_blocked, &mask), 0);
	assert_int_equal(pthread_join(thread, &ok), 0);
	assert_true(ok);
	assert_false(sigismember(&mask, SIGILL));
}

static volatile sig_atomic_t seen; /* by the handler: the model, and that SIGILL is blocked */

static void look(int sig)
{
	(void)sig;
	seen = sees_model() + 2 * is_blocked(SIGILL);
}

/* By its own mask, and by that of a call that it interrupts. */
static void cpuid_shows_the_model_in_a_handler_that_blocks_all(void **state)
{
	struct sigaction act = { .sa_handler = look };
	sigset_t all_but, usr1;

	(void)state;
	sigfillset(&act.sa_mask);
	assert_int_equal(sigaction(SIGUSR1, &act, NULL), 0);
	seen = 0;
	raise(SIGUSR1);
	assert_int_equal(seen, 3);
	assert_false(is_blocked(SIGILL));
	sigemptyset(&act.sa_mask);
	assert_int_equal(sigaction(SIGUSR1, &act, NULL), 0);
	sigfillset(&all_but);
	sigdelset(&all_but, SIGUSR1);
	sigemptyset(&usr1);
	sigaddset(&usr1, SIGUSR1);
	sigprocmask(SIG_BLOCK, &usr1, NULL);
	raise(SIGUSR1);
	seen = 0;
	sigsuspend(&all_but);
	assert_int_equal(seen, 3);
	assert_false(is_blocked(SIGILL));
	sigprocmask(SIG_UNBLOCK, &usr1, NULL);
	signal(SIGUSR1, SIG_DFL);
}

/* The mask that a program was started with is its own, too. */
static void cpuid_shows_the_model_to_a_program_started_with_all_blocked(void **state)
{
	int status = -1;
	pid_t child = fork();

	(void)state;
	if (!child) {
		sigset_t all;

		sigfillset(&all);
		syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, 8);
		execl("/proc/self/exe", "border_calls_test", "blocked",
		      asked_for ? asked_for->name : NULL, NULL);
		_exit(127);
	}
	waitpid(child, &status, 0);
	assert_int_equal(status, 0);
}

static int blocked(const char *model)
{
	asked_for = model ? model_find(model) : NULL;
	return !(sees_model() && is_blocked(SIGILL) && is_blocked(SIGUSR1));
}

static int refuse_memfd_create(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { .len = ARRAY_SIZE(code), .filter = code };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	       prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

enum { FOREIGN = 10, THE_HOSTS };

/* CPUID, executed here, shows the host: is the model another? */
static int untouched(const char *name)
{
	return name && cpuid_is_foreign(model_find(name)) ? FOREIGN : THE_HOSTS;
}

/* Nothing can take the place of its code, then. */
static void a_program_whose_code_cannot_be_replaced_runs_as_it_is(void **state)
{
	int status = -1, says[2];
	char text[512] = "";
	pid_t child;

	(void)state;
	assert_int_equal(pipe(says), 0);
	child = fork();
	if (!child) {
		dup2(says[1], STDERR_FILENO);
		if (!refuse_memfd_create())
			execl("/proc/self/exe", "border_calls_test", "untouched",
			      asked_for ? asked_for->name : NULL, NULL);
		_exit(127);
	}
	close(says[1]);
	waitpid(child, &status, 0);
	assert_true(WIFEXITED(status));
	assert_true(WEXITSTATUS(status) == FOREIGN || WEXITSTATUS(status) == THE_HOSTS);
	assert_true(read(says[0], text, sizeof(text) - 1) >= 0);
	close(says[0]);
	assert_int_equal(!!strstr(text, "code cannot be replaced"), WEXITSTATUS(status) == FOREIGN);
}

static void *block_around_request(void *kvm)
{
	bool ok, again;
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	api(*(int *)kvm);
	ok = is_blocked(SIGSEGV) && is_blocked(SIGUSR1);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	again = is_blocked(SIGSEGV);
	pthread_sigmask(SIG_UNBLOCK, &all, NULL);
	return (void *)(long)(ok && again && !is_blocked(SIGSEGV));
}

static void a_thread_that_uses_kvm_sees_the_mask_it_has_set(void **state)
{
	int kvm = open_kvm();
	pthread_t thread;
	void *ok;

	(void)state;
	assert_int_equal(pthread_create(&thread, NULL, block_around_request, &kvm), 0);
	assert_int_equal(pthread_join(thread, &ok), 0);
	assert_true(ok);
	close(kvm);
}

static int inside(const char *model)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_number_of_a_closed_stream_is_free),
		cmocka_unit_test(a_reopened_stream_is_the_other_file),
		cmocka_unit_test(a_stream_that_cannot_be_reopened_is_closed),
		cmocka_unit_test(parameters_can_be_read_from_a_reopened_stream),
		cmocka_unit_test(a_range_that_is_not_closed_stays_ours),
		cmocka_unit_test(a_range_of_a_private_table_stays_ours),
		cmocka_unit_test(statistics_are_read_with_all_signals_blocked),
		cmocka_unit_test(a_thread_that_uses_kvm_sees_the_mask_it_has_set),
		cmocka_unit_test(a_program_whose_code_cannot_be_replaced_runs_as_it_is),
		cmocka_unit_test(cpuid_shows_the_model_to_a_program_started_with_all_blocked),
		cmocka_unit_test(cpuid_shows_the_model_with_all_signals_blocked),
		cmocka_unit_test(cpuid_shows_the_model_in_a_handler_that_blocks_all),
	};

	asked_for = model ? model_find(model) : NULL;
	if (model && !asked_for)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}

#define SKIPPED 4

int main(int argc, char **argv)
{
	int failed = 0;

	if (argc > 1 && !strcmp(argv[1], "inside"))
		return inside(argv[2]);
	if (argc > 1 && !strcmp(argv[1], "blocked"))
		return blocked(argv[2]);
	if (argc > 1 && !strcmp(argv[1], "untouched"))
		return untouched(argv[2]);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	puts("SKIP: a sanitizer's runtime cannot be loaded behind a preloaded library");
	return SKIPPED;
#endif
	failed |= run_under_vpmu(NULL, NULL);
	for (u32 i = 0; model_at(i); i++)
		failed |= run_under_vpmu(model_at(i)->name, NULL);
	return !!failed;
}
