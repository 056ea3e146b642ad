// SPDX-License-Identifier: MIT
/*
 * The classes of hwpmu/retire.def are exact: a loop whose loads, stores, calls and branches are
 * known, and faults in mid-block, run in one piece and in slices. Classes that are not wanted do
 * not grow, or soon no longer does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu/mode.h"
#include "guest/machine.h"

#define ROUNDS	 100
#define WANT_ALL (COUNT_BRANCHES | COUNT_MEMORY | COUNT_CYCLES)

/*
 * Each round: 2 loads and the one of RET, 2 stores and the one of CALL, of which one instruction
 * does both; a call, a return, 2 conditional branches, one taken in every other round and one in
 * all but the last. Then an indirect jump.
 */
GUEST_CODE(classes, "mov $100, %ecx\n"
		    "1: mov (%rsp), %rax\n"
		    "mov %rax, -64(%rsp)\n"
		    "addq $1, -72(%rsp)\n"
		    "call 2f\n"
		    "test $1, %cl\n"
		    "jz 3f\n"
		    "nop\n"
		    "3: dec %ecx\n"
		    "jnz 1b\n"
		    "lea 4f(%rip), %rax\n"
		    "jmp *%rax\n"
		    "2: ret\n"
		    "4: out %al, $0xf4\n");

/* A load that faults in the middle of a block of loads: the handler maps nothing and skips it. */
GUEST_CODE(faults, "mov $10, %ecx\n"
		   "1: mov (%rsp), %rax\n"
		   "mov (%rsp), %rax\n"
		   "xor %edx, %edx\n"
		   "xor %eax, %eax\n"
		   "div %edx\n"
		   "mov (%rsp), %rax\n"
		   "dec %ecx\n"
		   "jnz 1b\n"
		   "out %al, $0xf4\n"
		   ".org faults_start + 0x100\n"
		   "addq $2, (%rsp)\n"
		   "iretq\n");

/* F3 makes of these what they are: without it, or where the processor does not know it, they would
 * be BSF and BSR, which leave their destination alone. */
GUEST_CODE(prefixed, "mov $0x100, %eax\n"
		     "xor %edx, %edx\n"
		     "xor %ecx, %ecx\n"
		     "tzcnt %ecx, %edx\n"
		     "lzcnt %eax, %ebx\n"
		     "out %al, $0xf4\n");

GUEST_CODE(endless, "1: call 2f\n"
		    "mov %rax, -64(%rsp)\n"
		    "jmp 1b\n"
		    "2: ret\n");

static void run(struct machine *m, const u8 *start, const u8 *end, retire_wanted wanted, u64 slice)
{
	machine_load(m, start, (size_t)(end - start));
	image_gate(m->ram, VEC_DE, IMAGE_CODE + 0x100, 0);
	m->cpu->port.wanted = wanted;
	while (machine_run(m, slice) == EXIT_BUDGET)
		;
	m->cpu->port.wanted = 0;
}

#define RUN(m, code, wanted, slice) run(m, code##_start, code##_end, wanted, slice)

static void check_loop(struct machine *m, u64 slice)
{
	const struct retire_tally *t = &m->cpu->port.tally;

	RUN(m, classes, WANT_ALL, slice);
	assert_int_equal(t->loads[RETIRE_OS], 3 * ROUNDS);
	assert_int_equal(t->stores[RETIRE_OS], 3 * ROUNDS);
	assert_int_equal(t->load_stores[RETIRE_OS], ROUNDS);
	assert_int_equal(t->accesses[RETIRE_OS], 5 * ROUNDS);
	assert_int_equal(t->calls[RETIRE_OS], ROUNDS);
	assert_int_equal(t->returns[RETIRE_OS], ROUNDS);
	assert_int_equal(t->conditional[RETIRE_OS], 2 * ROUNDS);
	assert_int_equal(t->cond_taken[RETIRE_OS], ROUNDS / 2 + ROUNDS - 1);
	assert_int_equal(t->indirect[RETIRE_OS], 1);
	assert_int_equal(t->taken[RETIRE_OS], t->cond_taken[RETIRE_OS] + 2 * ROUNDS + 1);
	assert_int_equal(t->near_taken[RETIRE_OS], t->taken[RETIRE_OS]);
	assert_int_equal(t->not_taken[RETIRE_OS], 2 * ROUNDS - t->cond_taken[RETIRE_OS]);
	assert_int_equal(t->far[RETIRE_OS], 0);
	assert_int_equal(t->loads[RETIRE_USR], 0);
}

static void classes_are_exact(void **state)
{
	check_loop(*state, ~0ull >> 1);
}

static void classes_are_exact_in_slices(void **state)
{
	check_loop(*state, 1);
	check_loop(*state, 3);
	check_loop(*state, 101);
}

static void what_faults_is_not_counted(void **state)
{
	struct machine *m = *state;
	const struct retire_tally *t = &m->cpu->port.tally;
	u64 cycles;

	RUN(m, faults, WANT_ALL, ~0ull >> 1);
	assert_int_equal(t->loads[RETIRE_OS], 10 * (3 + 2)); /* ADD and IRETQ of the handler */
	assert_int_equal(t->stores[RETIRE_OS], 10);
	assert_int_equal(t->far[RETIRE_OS], 10);
	cycles = t->cycles[RETIRE_OS];
	RUN(m, faults, WANT_ALL, 2);
	assert_int_equal(t->loads[RETIRE_OS], 10 * (3 + 2));
	assert_int_equal(t->cycles[RETIRE_OS], cycles);
}

static void what_nobody_wants_does_not_grow(void **state)
{
	struct machine *m = *state;

	RUN(m, classes, COUNT_MEMORY, ~0ull >> 1);
	assert_int_equal(m->cpu->port.tally.loads[RETIRE_OS], 3 * ROUNDS);
	assert_int_equal(m->cpu->port.tally.calls[RETIRE_OS], 0);
	assert_int_equal(m->cpu->port.tally.cycles[RETIRE_OS], 0);
}

/* Code is not looked for again each time an operating system stops its counters for a moment. */
static void what_is_no_longer_wanted_soon_does_not_grow(void **state)
{
	struct machine *m = *state;
	const struct retire_tally *t = &m->cpu->port.tally;
	struct retire_tally then;

	machine_load(m, endless_start, endless_end - endless_start);
	m->cpu->port.wanted = WANT_ALL;
	assert_int_equal(machine_run(m, 4000), EXIT_BUDGET);
	assert_int_equal(t->calls[RETIRE_OS], 1000);
	m->cpu->port.wanted = COUNT_MEMORY;
	assert_int_equal(machine_run(m, 4000000), EXIT_BUDGET);
	then = *t;
	assert_int_equal(machine_run(m, 4000), EXIT_BUDGET);
	m->cpu->port.wanted = 0;
	assert_int_equal(t->calls[RETIRE_OS], then.calls[RETIRE_OS]);
	assert_int_equal(t->cycles[RETIRE_OS], then.cycles[RETIRE_OS]);
	assert_int_equal(t->stores[RETIRE_OS], then.stores[RETIRE_OS] + 2000);
	assert_int_equal(t->stores[RETIRE_OS], 2 * (4000 + 4000000 + 4000) / 4);
}

/* More sets of classes than there are numbers for. */
static void what_is_counted_changes_nothing_else(void **state)
{
	struct machine *m = *state;

	for (u32 i = 0; i < 40; i++) {
		retire_wanted wanted =
			RETIRE_BIT(RETIRE_LOADS) | i * RETIRE_BIT(RETIRE_CONDITIONAL);

		RUN(m, prefixed, wanted, ~0ull >> 1);
		assert_int_equal(m->cpu->regs[RDX], 32);
		assert_int_equal(m->cpu->regs[RBX], 23);
		RUN(m, classes, wanted, ~0ull >> 1);
		assert_int_equal(m->cpu->port.tally.loads[RETIRE_OS], 3 * ROUNDS);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(classes_are_exact),
		cmocka_unit_test(classes_are_exact_in_slices),
		cmocka_unit_test(what_faults_is_not_counted),
		cmocka_unit_test(what_nobody_wants_does_not_grow),
		cmocka_unit_test(what_is_no_longer_wanted_soon_does_not_grow),
		/* Uses up the numbers of sets. */
		cmocka_unit_test(what_is_counted_changes_nothing_else),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
