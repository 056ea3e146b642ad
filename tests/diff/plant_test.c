// SPDX-License-Identifier: MIT
/*
 * Is the differential test worth anything? A wrong flag and a wrong fault put into the engine's
 * results must both be found, and shrunk to the one instruction that has them.
 */
#include "diff.h"

#include <stdarg.h>
#include <setjmp.h>
#include <stdio.h>
#include <cmocka.h>

#define EXIT_SKIP 4

static void expect_caught(enum plant plant, bool is_amd, ZydisMnemonic mnemonic)
{
	struct diff_options opt = {
		.seed = 1,
		.count = 20000000,
		.one = -1,
		.mode = -1,
		.is_amd = is_amd,
		.family = FAMILY_arith,
		.workers = 1,
		.plant = plant,
	};
	struct progress sum;

	assert_true(diff_run(&opt, &sum));
	assert_int_equal(sum.mismatches, 1);
	assert_int_equal(sum.caught, mnemonic);
	assert_int_equal(sum.caught_length, 1);
}

static void a_wrong_flag_is_caught(void **state)
{
	(void)state;
	expect_caught(PLANT_FLAG, host_is_amd(), ZYDIS_MNEMONIC_SBB);
}

static void a_wrong_fault_is_caught(void **state)
{
	(void)state;
	expect_caught(PLANT_FAULT, host_is_amd(), ZYDIS_MNEMONIC_IDIV);
}

/* No rule by which the vendors differ explains it away. */
static void a_wrong_flag_is_caught_on_the_other_vendors_model(void **state)
{
	(void)state;
	expect_caught(PLANT_FLAG, !host_is_amd(), ZYDIS_MNEMONIC_SBB);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_wrong_flag_is_caught),
		cmocka_unit_test(a_wrong_fault_is_caught),
		cmocka_unit_test(a_wrong_flag_is_caught_on_the_other_vendors_model),
	};

	if (!native_supported()) {
		puts("SKIP: this kernel does not let programs write the FS base (FSGSBASE)");
		return EXIT_SKIP;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
