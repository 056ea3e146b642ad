// SPDX-License-Identifier: MIT
/*
 * The processor stops after the very instruction with which a tally reaches its trip. What that is
 * comes from a run of single instructions; then the same code runs with trips, which end in the
 * middle of blocks, at branches, in faults and with the interrupt handler's IRET. With static
 * timing, and with full timing, where a miss or a misprediction may reach a trip of cycles.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/mmu/mmu.h"
#include "engine/engine.h"
#include "guest/trips.h"
#include "x86/models.h"
#include "x86/paging.h"

/* A user program that enters the kernel by an interrupt each round; the kernel has long blocks,
 * too. */
GUEST_CODE(crossing, "pushq $0x23\n"	/* IMAGE_UDS */
		     "pushq $0xa0000\n" /* IMAGE_USER_STACK */
		     "pushq $2\n"
		     "pushq $0x2b\n" /* IMAGE_UCS */
		     "lea 1f(%rip), %rax\n"
		     "push %rax\n"
		     "mov $40, %ecx\n"
		     "iretq\n"
		     "1: nop\nnop\nnop\n"
		     "mov -8(%rsp), %rax\n"
		     "imul %rax, %rax\n"
		     "int $0x80\n"
		     "push %rax\n"
		     "pop %rax\n"
		     "dec %ecx\n"
		     "jnz 1b\n"
		     "int $0x81\n"
		     ".org crossing_start + 0x100\n"
		     "push %rax\n"
		     "mov (%rsp), %rax\n"
		     "mul %rax\n"
		     "nop\nnop\nnop\nnop\nnop\n"
		     "pop %rax\n"
		     "iretq\n"
		     ".org crossing_start + 0x180\n"
		     "out %al, $0xf4\n");

/* Branches that go one way or the other by chance, often enough that its blocks become hot and that
 * a trip of branches is far away at first. */
GUEST_CODE(chance, "mov $0x7e57, %eax\n"
		   "mov $2000, %ecx\n"
		   "1: imul $69069, %eax, %eax\n"
		   "inc %eax\n"
		   "bt $30, %eax\n"
		   "jc 2f\n"
		   "mov %eax, -64(%rsp)\n"
		   "2: bt $29, %eax\n"
		   "jnc 3f\n"
		   "call 5f\n"
		   "addl $1, -64(%rsp)\n"
		   "3: test $7, %cl\n"
		   "jnz 4f\n"
		   "add %eax, %edx\n"
		   "mov %edx, -64(%rsp)\n"
		   "jmp 4f\n"
		   "nop\n"
		   "4: sub $1, %ecx\n"
		   "jnz 1b\n"
		   "out %al, $0xf4\n"
		   "5: bt $28, %eax\n"
		   "jc 6f\n"
		   "jmp 6f\n"
		   "6: ret\n");

/* Six instructions a turn: two loads and two stores, a call, a return and a conditional branch,
 * taken but for the last time. */
#define TURNS 1200000ull
GUEST_CODE(turns, "mov $1200000, %ecx\n"
		  "1: mov (%rsp), %rax\n"
		  "mov %rax, -64(%rsp)\n"
		  "call 2f\n"
		  "dec %ecx\n"
		  "jnz 1b\n"
		  "out %al, $0xf4\n"
		  "2: ret\n");

struct program {
	const u8 *start, *end;
	struct {
		u32 vector, at, dpl;
	} gate[2];
};

static const struct program in_kernel = { work_start, work_end, { { VEC_DE, 0x100, 0 } } };
static const struct program in_both = { crossing_start,
					crossing_end,
					{ { 0x80, 0x100, 3 }, { 0x81, 0x180, 3 } } };

static const struct program by_chance = { chance_start, chance_end, { { 0 } } };

static const struct program long_loop = { turns_start, turns_end, { { 0 } } };

static const struct program *program;
static retire_wanted wanted;
static bool full;
static struct retire_tally after[MOST]; /* each instruction of the reference */
static u64 ninsns;

static void load(struct machine *m)
{
	machine_load(m, program->start, (size_t)(program->end - program->start));
	for (u32 i = 0; i < ARRAY_SIZE(program->gate); i++)
		if (program->gate[i].at)
			image_gate(m->ram, program->gate[i].vector,
				   IMAGE_CODE + program->gate[i].at, program->gate[i].dpl);
	m->cpu->port.wanted = wanted;
	m->cpu->port.trips.armed = 0;
	m->cpu->port.full_timing = full;
	machine_cold(m);
}

static void reference(struct machine *m, const struct program *of)
{
	program = of;
	wanted = WANT_ALL;
	load(m);
	for (ninsns = 0; machine_run(m, 1) == EXIT_BUDGET; ninsns++) {
		assert_true(ninsns < MOST);
		after[ninsns] = m->cpu->port.tally;
	}
	assert_true(ninsns > 500);
}

static u64 sum(const struct retire_tally *t, enum retire_class class, enum retire_domain domain)
{
	u64 os = retire_count(t, class, RETIRE_OS), usr = retire_count(t, class, RETIRE_USR);

	return domain == RETIRE_IN_OS ? os : domain == RETIRE_IN_USR ? usr : os + usr;
}

static u64 first_at(enum retire_class class, enum retire_domain domain, u64 value)
{
	u64 low = 0, high = ninsns;

	while (low < high) {
		u64 middle = (low + high) / 2;

		if (sum(&after[middle], class, domain) < value)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void arm(struct cpu *cpu, enum retire_class class, enum retire_domain domain, u64 at)
{
	for (u32 i = 0; i < NRETIRE_DOMAINS; i++)
		cpu->port.trips.at[class][i] = RETIRE_NEVER;
	cpu->port.trips.at[class][domain] = at;
	cpu->port.trips.armed |= RETIRE_BIT(class);
}

/* A trip of one class loses nothing of the others that are counted. */
static void check_others(const struct retire_tally *tally, const struct retire_tally *expected)
{
	for (retire_wanted left = wanted & (COUNT_PACKED | COUNT_CYCLES); left; left &= left - 1) {
		enum retire_class class = retire_first(left);

		assert_int_equal(sum(tally, class, RETIRE_IN_BOTH),
				 sum(expected, class, RETIRE_IN_BOTH));
	}
}

/* One class with one period, from the first trip to the end of the code. */
static u64 check_trips(struct machine *m, enum retire_class class, enum retire_domain domain,
		       u64 period)
{
	u64 trips = 0;

	load(m);
	for (u64 at = period;; at += period, trips++) {
		u64 i = first_at(class, domain, at);

		arm(m->cpu, class, domain, at);
		if (machine_run(m, FOREVER) != EXIT_BUDGET) {
			assert_int_equal(i, ninsns);
			return trips;
		}
		/* One instruction may carry a tally past several multiples. */
		at = sum(&after[i], class, domain) / period * period;
		assert_int_equal(machine_retired(m), i + 1);
		assert_int_equal(sum(&m->cpu->port.tally, class, domain),
				 sum(&after[i], class, domain));
		check_others(&m->cpu->port.tally, &after[i]);
	}
}

/* How many classes the code reaches trips of. */
static u32 check_classes(struct machine *m, enum retire_domain domain)
{
	static const u64 periods[] = { 1, 2, 7, 50 };
	u32 checked = 0;

	for (enum retire_class class = 0; class < NRETIRE; class ++) {
		u64 total = sum(&after[ninsns - 1], class, domain), trips = 0;

		for (u32 i = 0; total && i < ARRAY_SIZE(periods); i++)
			trips += check_trips(m, class, domain, periods[i]);
		assert_true(!total || trips);
		checked += trips > 0;
	}
	return checked;
}

static void every_class_stops_at_its_trip(void **state)
{
	reference(*state, &in_kernel);
	assert_true(check_classes(*state, RETIRE_IN_BOTH) > 25); /* all but what it never does */
}

/* A counter of one privilege waits while the other runs; one of both adds them up. */
static void trips_are_of_a_privilege_or_of_both(void **state)
{
	reference(*state, &in_both);
	assert_true(check_classes(*state, RETIRE_IN_OS) > 10);
	assert_true(check_classes(*state, RETIRE_IN_USR) > 10);
	assert_true(check_classes(*state, RETIRE_IN_BOTH) > 10);
}

/* Blocks continue after branches, but where caches are modelled. */
static const enum retire_class counted_when_hot[] = {
	RETIRE_INSTRUCTIONS,
	RETIRE_BRANCHES,
	RETIRE_CONDITIONAL,
	RETIRE_TAKEN,
	RETIRE_NEAR_TAKEN,
	RETIRE_COND_TAKEN,
	RETIRE_NOT_TAKEN,
	RETIRE_CALLS,
	RETIRE_RETURNS,
	RETIRE_LOADS,
	RETIRE_STORES,
	RETIRE_LOAD_STORES,
	RETIRE_ACCESSES,
	RETIRE_COND_MISSES,
	RETIRE_COND_TAKEN_MISSES,
	RETIRE_NOT_TAKEN_MISSES,
	RETIRE_BRANCH_MISSES,
	RETIRE_TAKEN_MISSES,
};

static void hot_blocks_stop_at_a_trip(void **state)
{
	static const u64 periods[] = { 1, 3, 40, 1100 };
	static const retire_wanted beside[] = { 0, COUNT_CYCLES,
						COUNT_BRANCHES | OBSERVED_IN_BRANCHES,
						COUNT_MEMORY | OBSERVED_IN_MEMORY };

	reference(*state, &by_chance);
	for (u32 n = 0; n < ARRAY_SIZE(counted_when_hot); n++)
		for (u32 i = 0; i < ARRAY_SIZE(periods) * ARRAY_SIZE(beside); i++) {
			enum retire_class class = counted_when_hot[n];
			u64 period = periods[i / ARRAY_SIZE(beside)];
			u64 total = sum(&after[ninsns - 1], class, RETIRE_IN_BOTH);

			wanted = RETIRE_BIT(class) | beside[i % ARRAY_SIZE(beside)];
			assert_int_equal(check_trips(*state, class, RETIRE_IN_BOTH, period),
					 total / period);
		}
}

/* On another model than the group's. */
static void check_full(const char *model)
{
	static const u64 periods[] = { 120, 1000, 7777, 240000 };
	struct machine m;

	machine_create_model(&m, model);
	full = true;
	reference(&m, &in_kernel);
	assert_true(check_classes(&m, RETIRE_IN_BOTH) > 25);
	reference(&m, &in_both);
	assert_true(check_classes(&m, RETIRE_IN_USR) > 10);
	reference(&m, &by_chance);
	wanted = RETIRE_BIT(RETIRE_CYCLES); /* and no event of misses */
	for (u32 i = 0; i < ARRAY_SIZE(periods); i++)
		assert_true(check_trips(&m, RETIRE_CYCLES, RETIRE_IN_BOTH, periods[i]) > 3);
	full = false;
	machine_destroy(&m);
}

static void with_full_timing_misses_reach_the_trips_of_cycles(void **state)
{
	(void)state;
	for (u32 i = 0; model_at(i); i++)
		check_full(model_at(i)->name);
}

static void the_nearest_of_several_trips_comes_first(void **state)
{
	struct machine *m = *state;
	u64 load_at, cycle_at;

	reference(m, &in_kernel);
	load_at = first_at(RETIRE_LOADS, RETIRE_IN_BOTH, 31);
	cycle_at = first_at(RETIRE_CYCLES, RETIRE_IN_BOTH, 400);
	load(m);
	arm(m->cpu, RETIRE_LOADS, RETIRE_IN_BOTH, 31);
	arm(m->cpu, RETIRE_CYCLES, RETIRE_IN_BOTH, 400);
	arm(m->cpu, RETIRE_BRANCHES, RETIRE_IN_BOTH, 10000);
	assert_int_equal(machine_run(m, FOREVER), EXIT_BUDGET);
	assert_int_equal(machine_retired(m) - 1, load_at < cycle_at ? load_at : cycle_at);
}

static void run_long_loop(struct machine *m, retire_wanted classes)
{
	program = &long_loop;
	wanted = classes;
	load(m);
}

/* Translated code counts in fields that hold some thousands or millions, by how many classes there
 * are. */
static void counts_are_exact_where_fields_are_full(void **state)
{
	static const retire_wanted sets[] = {
		RETIRE_BIT(RETIRE_LOADS),
		RETIRE_BIT(RETIRE_LOADS) | RETIRE_BIT(RETIRE_STORES),
		RETIRE_BIT(RETIRE_LOADS) | RETIRE_BIT(RETIRE_STORES) | RETIRE_BIT(RETIRE_TAKEN),
		COUNT_MEMORY | RETIRE_BIT(RETIRE_BRANCHES) | RETIRE_BIT(RETIRE_TAKEN),
		COUNT_PACKED,
	};
	struct machine *m = *state;
	const struct retire_tally *tally = &m->cpu->port.tally;

	for (u32 i = 0; i < ARRAY_SIZE(sets); i++) {
		run_long_loop(m, sets[i]);
		assert_int_equal(machine_run(m, FOREVER), EXIT_IO);
		assert_int_equal(tally->loads[RETIRE_OS], 2 * TURNS);
		if (sets[i] & RETIRE_BIT(RETIRE_STORES))
			assert_int_equal(tally->stores[RETIRE_OS], 2 * TURNS);
		if (sets[i] & RETIRE_BIT(RETIRE_TAKEN))
			assert_int_equal(tally->taken[RETIRE_OS], 3 * TURNS - 1);
		run_long_loop(m, sets[i]);
		arm(m->cpu, RETIRE_LOADS, RETIRE_IN_BOTH, 2 * TURNS - 1); /* a turn's first */
		assert_int_equal(machine_run(m, FOREVER), EXIT_BUDGET);
		assert_int_equal(machine_retired(m), 1 + 6 * (TURNS - 1) + 1);
	}
}

/* The second jump's target is no instruction; nor is the first one's, which is on another page. */
GUEST_CODE(ahead, "nop\nnop\n"
		  "jmp ahead_start + 0x1000\n"
		  ".org ahead_start + 0x80\n"
		  "nop\nnop\n"
		  "jmp 1f\n"
		  "1: .byte 0x06\n"
		  ".org ahead_start + 0x100\n"
		  "out %al, $0xf4\n"
		  ".org ahead_start + 0x1000\n"
		  ".byte 0x06\n");

#define AHEAD_PAGE (IMAGE_CODE + 0x1000)

static void run_up_to(struct machine *m, u64 from, enum retire_class class, u64 trip, u64 to)
{
	machine_start(m);
	m->cpu->rip = from;
	m->cpu->port.wanted = RETIRE_BIT(class);
	arm(m->cpu, class, RETIRE_IN_BOTH, trip);
	assert_int_equal(machine_run(m, FOREVER), EXIT_BUDGET);
	assert_int_equal(machine_retired(m), 3);
	assert_int_equal(m->cpu->rip, to);
}

/* In ticks. */
static u64 time_of_three(struct machine *m, u64 from)
{
	machine_start(m);
	m->cpu->rip = from;
	m->cpu->port.wanted = COUNT_CYCLES;
	assert_int_equal(machine_run(m, 3), EXIT_BUDGET);
	return sum(&m->cpu->port.tally, RETIRE_CYCLES, RETIRE_IN_BOTH);
}

/* What the processor has of the next instruction does not matter: nothing, or a linked block. */
static void check_ahead(struct machine *m, u64 from, u64 to)
{
	for (u32 known = 0; known < 4; known++) {
		m->cpu->port.trips.armed = 0;
		run_up_to(m, from, RETIRE_CYCLES, time_of_three(m, from), to);
		m->cpu->port.trips.armed = 0;
		run_up_to(m, from, RETIRE_INSTRUCTIONS, 3, to);
		m->cpu->port.trips.armed = 0;
		machine_start(m);
		m->cpu->rip = from;
		assert_int_equal(machine_run(m, FOREVER), EXIT_IO); /* of the handler */
	}
}

/* A timer's interrupt is taken before the exception of the instruction that it comes before, and
 * that instruction's page has not been accessed. */
static void a_trip_comes_before_what_the_next_instruction_raises(void **state)
{
	struct machine *m = *state;
	u64 *entry;

	machine_load(m, ahead_start, (size_t)(ahead_end - ahead_start));
	image_gate(m->ram, VEC_UD, IMAGE_CODE + 0x100, 0);
	image_gate(m->ram, VEC_PF, IMAGE_CODE + 0x100, 0);
	entry = image_pte(m->ram, AHEAD_PAGE);
	*entry &= ~(u64)PTE_A;
	run_up_to(m, IMAGE_CODE, RETIRE_INSTRUCTIONS, 3, AHEAD_PAGE);
	assert_false(*entry & PTE_A);
	check_ahead(m, IMAGE_CODE, AHEAD_PAGE);
	check_ahead(m, IMAGE_CODE + 0x80, IMAGE_CODE + 0x84);
	*entry = 0;
	tlb_flush(m->cpu);
	check_ahead(m, IMAGE_CODE, AHEAD_PAGE);
}

static u32 mode_for(struct cpu *cpu, retire_wanted classes)
{
	cpu->port.wanted = classes;
	/* What was wanted lingers for a while. */
	cpu->port.tally.instructions[RETIRE_OS] += 10000000;
	cpu_update_mode(cpu);
	return cpu_priv(cpu)->mode;
}

/* Linux has events take turns if they are more than there are counters. */
static void events_that_take_turns_are_counted_by_the_same_code(void **state)
{
	const retire_wanted first = RETIRE_BIT(RETIRE_LOADS) | RETIRE_BIT(RETIRE_STORES);
	const retire_wanted second = RETIRE_BIT(RETIRE_STORES) | RETIRE_BIT(RETIRE_TAKEN);
	const retire_wanted many = COUNT_MEMORY | RETIRE_BIT(RETIRE_CALLS);
	struct machine *m = *state;
	u32 mode;

	memset(cpu_priv(m->cpu)->count_sets, 0,
	       sizeof(cpu_priv(m->cpu)->count_sets)); /* as in the beginning */
	cpu_priv(m->cpu)->count_set = 0;
	engine_forget(m->cpu);
	mode_for(m->cpu, first);
	mode = mode_for(m->cpu, second);
	assert_int_equal(mode_for(m->cpu, first), mode);
	assert_int_not_equal(mode_for(m->cpu, 0), mode);
	assert_int_equal(mode_for(m->cpu, second), mode);
	assert_int_not_equal(mode_for(m->cpu, many), mode); /* these take two words */
	mode = mode_for(m->cpu, first); /* and are no reason to go on with two */
	assert_int_equal(cpu_packs(m->cpu, mode), first);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_class_stops_at_its_trip),
		cmocka_unit_test(hot_blocks_stop_at_a_trip),
		cmocka_unit_test(with_full_timing_misses_reach_the_trips_of_cycles),
		cmocka_unit_test(the_nearest_of_several_trips_comes_first),
		cmocka_unit_test(trips_are_of_a_privilege_or_of_both),
		cmocka_unit_test(counts_are_exact_where_fields_are_full),
		cmocka_unit_test(events_that_take_turns_are_counted_by_the_same_code),
		cmocka_unit_test(a_trip_comes_before_what_the_next_instruction_raises),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
