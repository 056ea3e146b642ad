// SPDX-License-Identifier: MIT
/*
 * The table of intercepts: what one look-up finds, and that a guest which accesses any number of
 * MSRs neither loses an entry of the PMU nor makes a search long.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cpu/intercept.h"

#define GLOBAL_CTRL 0x38f
#define K7_PMC	    0xc0010004u
#define NO_PMU	    0x20000000u /* and what follows it */

static struct intercepts set;

static void assert_pmu_is_known(bool is_amd)
{
	for (u32 r = 0; r < pmu_nrows; r++)
		for (u32 i = 0; pmu_rows[r].is_amd == is_amd && i < pmu_rows[r].most; i++) {
			u32 index = pmu_row_index(&pmu_rows[r], i);
			const struct intercept *msr = intercept_find(&set, index);

			assert_int_equal(msr->index, index);
			assert_ptr_equal(msr->pmu.row, &pmu_rows[r]);
			assert_int_equal(msr->pmu.i, i);
		}
}

static void an_entry_says_which_register_of_the_pmu_it_is(void **state)
{
	(void)state;
	for (u32 is_amd = 0; is_amd < 2; is_amd++) {
		intercept_init(&set, is_amd);
		assert_pmu_is_known(is_amd);
		assert_null(intercept_find(&set, NO_PMU)->pmu.row);
	}
}

static void a_guest_cannot_crowd_the_pmu_out(void **state)
{
	(void)state;
	for (u32 is_amd = 0; is_amd < 2; is_amd++) {
		intercept_init(&set, is_amd);
		for (u32 i = 0; i < 4 * INTERCEPT_MSRS; i++)
			intercept_find(&set, NO_PMU + i)->exits[INTERCEPT_READ]++;
		assert_int_equal(set.nused, INTERCEPT_MOST);
		assert_true(set.other.exits[INTERCEPT_READ] > 3 * INTERCEPT_MSRS);
		assert_pmu_is_known(is_amd);
		/* KVM: of the other vendor, and yet quiet. */
		assert_non_null(intercept_find(&set, is_amd ? 0xc1 : K7_PMC)->pmu.row);
	}
}

static void what_passes_is_set_and_taken_back(void **state)
{
	(void)state;
	intercept_init(&set, false);
	assert_false(intercept_find(&set, GLOBAL_CTRL)->pass[INTERCEPT_WRITE]);
	intercept_pass(&set, GLOBAL_CTRL, INTERCEPT_WRITE);
	assert_true(intercept_find(&set, GLOBAL_CTRL)->pass[INTERCEPT_WRITE]);
	assert_false(intercept_find(&set, GLOBAL_CTRL)->pass[INTERCEPT_READ]);
	set.pass_rdpmc = true;
	intercept_all(&set);
	assert_false(intercept_find(&set, GLOBAL_CTRL)->pass[INTERCEPT_WRITE]);
	assert_false(set.pass_rdpmc);
}

static void only_msrs_that_were_accessed_are_counted(void **state)
{
	(void)state;
	intercept_init(&set, false);
	assert_null(intercept_counted(&set, GLOBAL_CTRL));
	assert_null(intercept_counted(&set, NO_PMU));
	intercept_find(&set, GLOBAL_CTRL)->passed[INTERCEPT_WRITE]++;
	intercept_find(&set, NO_PMU)->exits[INTERCEPT_READ] += 2;
	assert_int_equal(intercept_counted(&set, GLOBAL_CTRL)->passed[INTERCEPT_WRITE], 1);
	assert_int_equal(intercept_counted(&set, NO_PMU)->exits[INTERCEPT_READ], 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_entry_says_which_register_of_the_pmu_it_is),
		cmocka_unit_test(a_guest_cannot_crowd_the_pmu_out),
		cmocka_unit_test(what_passes_is_set_and_taken_back),
		cmocka_unit_test(only_msrs_that_were_accessed_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
