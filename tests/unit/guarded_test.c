// SPDX-License-Identifier: MIT
/*
 * Guarded accesses to lines (base/guarded.h): what they read, and that a fault makes them return
 * false.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cmocka.h>

#include "base/guarded.h"

#define LINE 64

static void fix_up(int number, siginfo_t *info, void *context)
{
	ucontext_t *c = context;
	u64 rip = (u64)c->uc_mcontext.gregs[REG_RIP];

	(void)info;
	if (guarded_fixup(&rip))
		c->uc_mcontext.gregs[REG_RIP] = (greg_t)rip;
	else
		signal(number, SIG_DFL);
}

static void a_line_is_read(void **state)
{
	u8 from[LINE], to[LINE + 1] = { 0 };

	(void)state;
	for (u32 i = 0; i < LINE; i++)
		from[i] = (u8)(3 * i + 1);
	assert_true(guarded_read_line(to, from));
	assert_memory_equal(to, from, LINE);
	assert_int_equal(to[LINE], 0);
	assert_true(guarded_same_line(to, from));
	to[LINE - 1]++;
	assert_false(guarded_same_line(to, from));
}

static void a_line_that_faults_is_none(void **state)
{
	const struct sigaction action = { .sa_sigaction = fix_up, .sa_flags = SA_SIGINFO };
	struct sigaction before;
	u8 to[LINE];
	void *none = mmap(NULL, PAGE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	(void)state;
	assert_ptr_not_equal(none, MAP_FAILED);
	assert_int_equal(sigaction(SIGSEGV, &action, &before), 0);
	assert_false(guarded_read_line(to, none));
	assert_false(guarded_same_line(to, none));
	sigaction(SIGSEGV, &before, NULL);
	munmap(none, PAGE_SIZE);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_line_is_read),
		cmocka_unit_test(a_line_that_faults_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
