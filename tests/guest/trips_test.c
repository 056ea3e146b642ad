// SPDX-License-Identifier: MIT
/*
 * The processor stops behind the very instruction with which a tally reaches its trip. What that is
 * comes from a run of single instructions; then the same code runs with trips, which end in the
 * middle of blocks, at branches, in faults and with the interrupt handler's IRET.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu/mode.h"
#include "guest/machine.h"

#define FOREVER (~0ull >> 1)
#define MOST	8000
#define WANT_ALL \
	(COUNT_BRANCHES | COUNT_MEMORY | COUNT_CYCLES | OBSERVED_IN_MEMORY | OBSERVED_IN_BRANCHES)

/* Loads, stores, calls, jumps taken and not, divisions that fault and are skipped, long blocks; and
 * strings, and accesses to page after page, across lines and across pages. */
GUEST_CODE(work, "mov $60, %ecx\n"
		 "mov $0x100ffa, %r8d\n"
		 "1: mov (%rsp), %rax\n"
		 "addq $1, -72(%rsp)\n"
		 "add $4100, %r8\n"
		 "mov (%r8), %rdx\n"
		 "addq $1, 60(%r8)\n"
		 "pushq (%r8)\n"
		 "popq 128(%r8)\n"
		 "push %rcx\n"
		 "lea 256(%r8), %rsi\n"
		 "lea 0x40000(%r8), %rdi\n"
		 "mov $100, %ecx\n"
		 "rep movsb\n"
		 "pop %rcx\n"
		 "imul %rax, %rax\n"
		 "call 2f\n"
		 "test $3, %cl\n"
		 "jz 3f\n"
		 "mov %rax, -64(%rsp)\n"
		 "xor %edx, %edx\n"
		 "mov $7, %ebx\n"
		 "div %rbx\n"
		 "jmp 4f\n"
		 "3: xor %ebx, %ebx\n"
		 "div %ebx\n"
		 "4: nop\nnop\nnop\nnop\nnop\nnop\n"
		 "lea 5f(%rip), %rax\n"
		 "jmp *%rax\n"
		 "5: dec %ecx\n"
		 "jnz 1b\n"
		 "out %al, $0xf4\n"
		 "2: push %rbx\n"
		 "pop %rbx\n"
		 "ret\n"
		 ".org work_start + 0x100\n"
		 "addq $2, (%rsp)\n"
		 "iretq\n");

static struct retire_tally after[MOST]; /* each instruction of the reference */
static u64 ninsns;

static void load(struct machine *m)
{
	machine_load(m, work_start, (size_t)(work_end - work_start));
	image_gate(m->ram, VEC_DE, IMAGE_CODE + 0x100, 0);
	m->cpu->wanted = WANT_ALL;
	m->cpu->trips.armed = 0;
	machine_cold(m);
}

static int reference(void **state)
{
	struct machine *m;

	machine_set_up(state);
	m = *state;
	load(m);
	for (ninsns = 0; machine_run(m, 1) == EXIT_BUDGET; ninsns++)
		after[ninsns] = m->cpu->tally;
	return ninsns < 1000 || ninsns >= MOST;
}

static u64 first_at(enum retire_class class, u64 value)
{
	u64 i = 0;

	while (i < ninsns && retire_count(&after[i], class, RETIRE_OS) < value)
		i++;
	return i;
}

static void arm(struct cpu *cpu, enum retire_class class, u64 at)
{
	for (u32 i = 0; i < NRETIRE_DOMAINS; i++)
		cpu->trips.at[class][i] = RETIRE_NEVER;
	cpu->trips.at[class][RETIRE_IN_BOTH] = at;
	cpu->trips.armed |= RETIRE_BIT(class);
}

/* One class with one period, from the first trip to the end of the code. */
static u64 check_trips(struct machine *m, enum retire_class class, u64 period)
{
	u64 trips = 0;

	load(m);
	for (u64 at = period;; at += period, trips++) {
		u64 i = first_at(class, at);

		arm(m->cpu, class, at);
		if (machine_run(m, FOREVER) != EXIT_BUDGET) {
			assert_int_equal(i, ninsns);
			return trips;
		}
		/* One instruction may carry a tally past several multiples. */
		at = retire_count(&after[i], class, RETIRE_OS) / period * period;
		assert_int_equal(machine_retired(m), i + 1);
		assert_int_equal(retire_count(&m->cpu->tally, class, RETIRE_OS),
				 retire_count(&after[i], class, RETIRE_OS));
	}
}

static void every_class_stops_at_its_trip(void **state)
{
	static const u64 periods[] = { 1, 2, 7, 50 };
	u32 checked = 0;

	for (enum retire_class class = 0; class < NRETIRE; class ++) {
		u64 total = retire_count(&after[ninsns - 1], class, RETIRE_OS), trips = 0;

		for (u32 i = 0; total && i < ARRAY_SIZE(periods); i++)
			trips += check_trips(*state, class, periods[i]);
		assert_true(!total || trips);
		checked += trips > 0;
	}
	assert_true(checked > 25); /* all but what this code never does */
}

static void the_nearest_of_several_trips_comes_first(void **state)
{
	struct machine *m = *state;
	u64 load_at = first_at(RETIRE_LOADS, 31), cycle_at = first_at(RETIRE_CYCLES, 400);

	load(m);
	arm(m->cpu, RETIRE_LOADS, 31);
	arm(m->cpu, RETIRE_CYCLES, 400);
	arm(m->cpu, RETIRE_BRANCHES, 10000);
	assert_int_equal(machine_run(m, FOREVER), EXIT_BUDGET);
	assert_int_equal(machine_retired(m) - 1, load_at < cycle_at ? load_at : cycle_at);
}

static void a_trip_of_the_other_privilege_is_no_trip(void **state)
{
	struct machine *m = *state;

	load(m);
	arm(m->cpu, RETIRE_CYCLES, RETIRE_NEVER);
	m->cpu->trips.at[RETIRE_CYCLES][RETIRE_IN_USR] = 5;
	assert_int_equal(machine_run(m, FOREVER), EXIT_IO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_class_stops_at_its_trip),
		cmocka_unit_test(the_nearest_of_several_trips_comes_first),
		cmocka_unit_test(a_trip_of_the_other_privilege_is_no_trip),
	};

	return cmocka_run_group_tests(tests, reference, machine_tear_down);
}
