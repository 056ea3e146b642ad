// SPDX-License-Identifier: MIT
/*
 * The tallies are exact: the workloads of tally_code.S, each with known counts, run in one piece
 * and in slices of several budgets. The counts must be equal to the last unit every time, and each
 * slice exactly as long as asked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

#include "guest/tally.h"

#define ONE_PIECE (~0ull >> 1)

/* Runs in slices; false, with a line about it, when a slice was not as long as asked. */
static bool run_slices(struct machine *m, const struct tally_workload *w, u64 slice)
{
	for (;;) {
		u64 before = machine_retired(m);
		enum exit_reason reason = machine_run(m, slice);
		u64 retired = machine_retired(m) - before;

		if (reason == EXIT_IO)
			return retired <= slice;
		if (reason != EXIT_BUDGET || retired != slice) {
			print_error("%s: exit %d at %#llx after %llu of %llu instructions\n",
				    w->name, reason, (unsigned long long)m->cpu->rip,
				    (unsigned long long)retired, (unsigned long long)slice);
			return false;
		}
	}
}

static bool same(const struct tally_workload *w, const char *what, u64 got, u64 expected)
{
	if (got == expected)
		return true;
	print_error("%s: %s: %llu, expected %llu\n", w->name, what, (unsigned long long)got,
		    (unsigned long long)expected);
	return false;
}

static bool counts_match(const struct machine *m, const struct tally_workload *w)
{
	const struct retire_tally *tally = &m->cpu->port.tally;
	bool ok = same(w, "instructions, kernel", tally->instructions[RETIRE_OS], w->os);

	ok &= same(w, "branches, kernel", tally->branches[RETIRE_OS], w->os_branches);
	ok &= same(w, "instructions, user", tally->instructions[RETIRE_USR], w->usr);
	ok &= same(w, "branches, user", tally->branches[RETIRE_USR], w->usr_branches);
	return same(w, "RBX", m->cpu->regs[RBX], w->rbx) && ok;
}

/* All workloads in slices of one size. */
static void check_slices(struct machine *m, u64 slice)
{
	u32 failures = 0;

	for (const struct tally_workload *w = tally_workloads; w < tally_workloads_end; w++) {
		tally_load(m, w);
		if (!run_slices(m, w, slice) || !counts_match(m, w))
			failures++;
	}
	assert_int_equal(failures, 0);
}

static void tallies_are_exact(void **state)
{
	assert_true(tally_workloads_end - tally_workloads >= 10);
	check_slices(*state, ONE_PIECE);
}

static void a_budget_of_one_retires_one_instruction(void **state)
{
	check_slices(*state, 1);
}

static void budgets_that_end_in_mid_block_are_exact(void **state)
{
	check_slices(*state, 3);
	check_slices(*state, 7);
	check_slices(*state, 101);
}

static void a_second_run_counts_the_same(void **state)
{
	check_slices(*state, ONE_PIECE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tallies_are_exact),
		cmocka_unit_test(a_budget_of_one_retires_one_instruction),
		cmocka_unit_test(budgets_that_end_in_mid_block_are_exact),
		cmocka_unit_test(a_second_run_counts_the_same),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
