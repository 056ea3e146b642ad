// SPDX-License-Identifier: MIT
/*
 * A run ends on its budget also where no instruction retires: in the middle of a long REP, and in
 * exceptions whose handlers raise the next one. What retires is exact all the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "engine/engine.h"
#include "guest/machine.h"

#define CODE(name) name##_start, (size_t)(name##_end - name##_start)
#define BUDGET	   2000
#define MOST_RUNS  100000

#define COUNT "0x40000"

GUEST_CODE(loads, "nop; mov $" COUNT ", %ecx; mov $0x100000, %esi; rep lodsb; out %al, $0xf4\n");
GUEST_CODE(stores, "nop; mov $" COUNT ", %ecx; mov $0x100000, %edi; rep stosq; out %al, $0xf4\n");
GUEST_CODE(scans, "nop; mov $" COUNT ", %ecx; mov $0x100000, %edi; repe scasb; out %al, $0xf4\n");
GUEST_CODE(copies, "nop; mov $" COUNT ", %ecx; mov $0x100000, %esi; mov $0x108001, %edi;"
		   "rep movsb; out %al, $0xf4\n");

/* Executes the first instruction, which also sets the machine up for engine_run(). */
static void load(struct machine *m, const void *code, size_t size)
{
	machine_load(m, code, size);
	assert_int_equal(machine_run(m, 1), EXIT_BUDGET);
}

static enum exit_reason run_loosely(struct machine *m)
{
	m->cpu->port.may_end_early = true;
	return engine_run(m->cpu, BUDGET);
}

static void check_repetition(struct machine *m, const void *code, size_t size, u64 instructions)
{
	enum exit_reason reason = EXIT_BUDGET;
	u32 runs = 0;

	load(m, code, size);
	for (; runs < MOST_RUNS && reason == EXIT_BUDGET; runs++)
		reason = run_loosely(m);
	assert_int_equal(reason, EXIT_IO);
	assert_int_equal(m->cpu->regs[RCX], 0);
	assert_int_equal(machine_retired(m), instructions);
	assert_true(runs > 1);
}

static void a_repetition_spends_the_budget(void **state)
{
	check_repetition(*state, CODE(loads), 4);
	check_repetition(*state, CODE(stores), 4);
	check_repetition(*state, CODE(scans), 4);
	check_repetition(*state, CODE(copies), 5);
}

/* Who asks for a count, and not for a time, gets the instruction whole. */
static void an_exact_budget_is_one_of_instructions(void **state)
{
	struct machine *m = *state;

	load(m, CODE(loads));
	for (u64 i = 2; i <= 4; i++) {
		assert_int_equal(engine_run(m->cpu, 1), EXIT_BUDGET);
		assert_int_equal(machine_retired(m), i);
	}
	assert_int_equal(m->cpu->regs[RCX], 0);
}

/* The handler of #UD begins with UD2, on a stack of its own. */
GUEST_CODE(exceptions, "nop\n"
		       "1: ud2\n");

static void exceptions_with(struct machine *m, bool loose)
{
	load(m, CODE(exceptions));
	image_gate(m->ram, 6, IMAGE_CODE + 1, 0);
	image_ist(m->ram, 6, IMAGE_INT_STACK);
	for (u32 i = 0; i < 3; i++) {
		m->cpu->port.may_end_early = loose;
		assert_int_equal(engine_run(m->cpu, BUDGET), EXIT_BUDGET);
		assert_int_equal(machine_retired(m), 1);
	}
}

static void exceptions_that_retire_nothing_spend_the_budget(void **state)
{
	exceptions_with(*state, true);
	exceptions_with(*state, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_repetition_spends_the_budget),
		cmocka_unit_test(an_exact_budget_is_one_of_instructions),
		cmocka_unit_test(exceptions_that_retire_nothing_spend_the_budget),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
