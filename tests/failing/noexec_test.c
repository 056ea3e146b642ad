// SPDX-License-Identifier: MIT
/*
 * Kernels and security modules that forbid executable files in memory: vm.memfd_noexec, SELinux. A
 * guest runs wherever memory for code can be had in any way, and where it cannot KVM_RUN fails with
 * the reason on standard error. The causes are injected (fail.h): few machines have them.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "failing/fail.h"
#include "guest/kvm_guest.h"

GUEST_CODE(answer, "mov $42, %al; out %al, $0xf4\n");

/* What KVM_RUN returned: an exit reason, or -errno; and what was said meanwhile on
 * standard error. */
static int run_on(enum fail_kernel kernel, char said[4096])
{
	int keep = dup(2), capture = open("/tmp", O_TMPFILE | O_RDWR, 0600), r;
	struct kvm_guest g;
	ssize_t n;

	assert_true(keep >= 0 && capture >= 0);
	dup2(capture, 2);
	fail_kernel(kernel);
	kvm_guest_create(&g, answer_start, answer_end - answer_start, 1);
	r = kvm_guest_run(&g, 0);
	if (r == KVM_EXIT_IO)
		assert_int_equal(*(u8 *)kvm_io_data(g.run[0]), 42);
	kvm_guest_destroy(&g);
	fail_kernel(KERNEL_PLAIN);
	dup2(keep, 2);
	n = pread(capture, said, 4095, 0);
	said[n > 0 ? n : 0] = '\0';
	close(keep);
	close(capture);
	return r;
}

static void a_guest_runs_on(enum fail_kernel kernel)
{
	char said[4096];

	assert_int_equal(run_on(kernel, said), KVM_EXIT_IO);
	assert_string_equal(said, "");
}

static void a_guest_runs_on_a_plain_kernel(void **state)
{
	(void)state;
	a_guest_runs_on(KERNEL_PLAIN);
}

static void a_guest_runs_on_a_kernel_without_noexec_seals(void **state)
{
	(void)state;
	a_guest_runs_on(KERNEL_OLD);
}

static void a_guest_runs_where_memfd_noexec_is_enforced(void **state)
{
	(void)state;
	a_guest_runs_on(KERNEL_ENFORCES);
}

static void a_guest_runs_where_no_memfd_may_be_executed(void **state)
{
	(void)state;
	a_guest_runs_on(KERNEL_NO_MEMFD);
}

/* Nor does the signal of a file that is too large end the program. */
static void a_guest_runs_where_files_must_be_small(void **state)
{
	struct rlimit usual, small;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
	small = (struct rlimit){ .rlim_cur = 1 << 20, .rlim_max = usual.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
	a_guest_runs_on(KERNEL_PLAIN);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
}

static void a_guest_that_gets_no_memory_for_code_fails_with_the_reason(void **state)
{
	char said[4096];

	(void)state;
	assert_int_equal(run_on(KERNEL_NO_CODE, said), -EACCES);
	assert_non_null(strstr(said, "no memory may be executed"));
	assert_non_null(strstr(said, "vm.memfd_noexec"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_guest_runs_on_a_plain_kernel),
		cmocka_unit_test(a_guest_runs_on_a_kernel_without_noexec_seals),
		cmocka_unit_test(a_guest_runs_where_memfd_noexec_is_enforced),
		cmocka_unit_test(a_guest_runs_where_no_memfd_may_be_executed),
		cmocka_unit_test(a_guest_runs_where_files_must_be_small),
		cmocka_unit_test(a_guest_that_gets_no_memory_for_code_fails_with_the_reason),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
