// SPDX-License-Identifier: MIT
/*
 * A run ends on its budget also where no instruction retires: in the middle of a long REP, and in
 * exceptions whose handlers raise the next one. What retires is exact all the same. A budget that
 * is one of time ends early where instructions take long.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/mmu/exclusive.h"
#include "cpu/private.h"
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

/* Loops of instructions that retire and take long. */
#define ROW(name, text) GUEST_CODE(name, "nop; mov $0x100000, %edi\n" text "; jmp 1b\n")

ROW(plain, "1: inc %rax");
ROW(saves, "1: fxsave (%rdi)");
ROW(saves_more, "mov $7, %eax; cltd; 1: xsave (%rdi)");
ROW(gathers, "vpxor %xmm2, %xmm2, %xmm2; 1: vpcmpeqd %ymm1, %ymm1, %ymm1;"
	     "vpgatherdq %ymm1, (%rdi,%xmm2), %ymm3");
ROW(fills, "1: mov $0x100000, %edi; mov $512, %ecx; rep stosq");
ROW(adds_apart, "1: incq 0xffc(%rdi)");
ROW(locks_apart, "1: lock incq 0xffc(%rdi)");
ROW(writes_beside_code, "lea 1f+0x800(%rip), %rdi; 1: mov %eax, (%rdi)");
ROW(changes_code, "1: incl 2f+1(%rip); jmp 2f; 2: mov $0, %eax");

#define R(name) { name##_start, name##_end }
static const struct row {
	const u8 *start, *end;
} rows[] = { R(saves),	     R(saves_more),	    R(gathers),	    R(fills), R(adds_apart),
	     R(locks_apart), R(writes_beside_code), R(changes_code) };

/* The data's second page is not the neighbour of the first. Leaves the nop behind. */
static void load_apart(struct machine *m, const u8 *start, const u8 *end)
{
	machine_load(m, start, end - start);
	*image_pte(m->ram, IMAGE_DATA + PAGE_SIZE) += 2 * PAGE_SIZE;
	assert_int_equal(machine_run(m, 1), EXIT_BUDGET);
}

/* Instructions that a run of so many has retired. */
static u64 retired_by(struct machine *m, u64 budget, bool loose)
{
	u64 before = machine_retired(m);

	m->cpu->port.may_end_early = loose;
	assert_int_equal(engine_run(m->cpu, budget), EXIT_BUDGET);
	return machine_retired(m) - before;
}

static void what_takes_long_spends_a_budget_of_time(void **state)
{
	struct machine *m = *state;

	load_apart(m, plain_start, plain_end);
	assert_in_range(retired_by(m, BUDGET, true), BUDGET - ENGINE_BLOCK_INSNS, BUDGET);
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		load_apart(m, rows[i].start, rows[i].end);
		for (u32 run = 0; run < 3; run++)
			assert_in_range(retired_by(m, BUDGET, true), 1, BUDGET / 8);
	}
}

/* Neither one of virtual time, in which they take what the model says. */
static void what_takes_long_spends_no_other_budget(void **state)
{
	struct machine *m = *state;

	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		load_apart(m, rows[i].start, rows[i].end);
		assert_int_equal(retired_by(m, BUDGET, false), BUDGET);
		m->cpu->port.virtual_time = true;
		assert_in_range(retired_by(m, BUDGET, true), BUDGET / 4, BUDGET);
		m->cpu->port.virtual_time = false;
	}
	load_apart(m, saves_start, saves_end);
	assert_int_equal(retired_by(m, ENGINE_EFFORT / 16, false), ENGINE_EFFORT / 16);
}

/* All processors are stopped for it, for as long as that takes. */
static void a_locked_access_across_pages_ends_a_run_of_time(void **state)
{
	struct machine *m = *state;

	load_apart(m, locks_apart_start, locks_apart_end);
	for (u32 run = 0; run < 10; run++)
		assert_in_range(retired_by(m, BUDGET, true), 1, 2);
}

#define LONG_ENOUGH_MS 10000

/* Another processor of the machine, which runs exclusively once while the first one runs. */
struct other {
	struct cpu *cpu, *first;
	struct exclusive machine;
	bool ended;
};

static bool first_runs(struct other *other)
{
	return __atomic_load_n(&other->machine.cpus[0].running, __ATOMIC_SEQ_CST);
}

static void *stop_the_first(void *arg)
{
	struct other *other = arg;

	for (u32 ms = 0; ms < LONG_ENOUGH_MS && !first_runs(other); ms++)
		usleep(1000);
	assert_true(exclusive_begin(other->cpu));
	exclusive_end(other->cpu);
	for (u32 ms = 0; ms < LONG_ENOUGH_MS && !READ_ONCE(other->ended); ms++)
		usleep(1000);
	cpu_call_attention(other->first, ATTENTION_OWNER);
	return NULL;
}

static void a_processor_that_was_stopped_ends_a_run_of_time(void **state)
{
	struct machine *m = *state;
	struct other other = { .cpu = cpu_create(), .first = m->cpu };
	enum exit_reason reason;
	pthread_t thread;

	assert_non_null(other.cpu);
	load(m, CODE(plain));
	exclusive_join(m->cpu, &other.machine, 0);
	exclusive_join(other.cpu, &other.machine, 1);
	assert_int_equal(pthread_create(&thread, NULL, stop_the_first, &other), 0);
	m->cpu->port.may_end_early = true;
	reason = engine_run(m->cpu, ~0ull >> 2);
	WRITE_ONCE(other.ended, true);
	assert_int_equal(pthread_join(thread, NULL), 0);
	cpu_priv(m->cpu)->exclusive = NULL;
	m->cpu->attention = 0;
	cpu_destroy(other.cpu);
	assert_int_equal(reason, EXIT_BUDGET);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_repetition_spends_the_budget),
		cmocka_unit_test(an_exact_budget_is_one_of_instructions),
		cmocka_unit_test(exceptions_that_retire_nothing_spend_the_budget),
		cmocka_unit_test(what_takes_long_spends_a_budget_of_time),
		cmocka_unit_test(what_takes_long_spends_no_other_budget),
		cmocka_unit_test(a_locked_access_across_pages_ends_a_run_of_time),
		cmocka_unit_test(a_processor_that_was_stopped_ends_a_run_of_time),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
