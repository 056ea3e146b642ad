// SPDX-License-Identifier: MIT
/*
 * Full timing (timing/penalty.h), on every model: what chases of pointers, independent misses,
 * stores, mispredicted branches and lines of code take beyond their prices; and that time does not
 * depend on what else is counted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/mode.h"
#include "guest/machine.h"
#include "timing/params.h"
#include "x86/models.h"

#define FOREVER (~0ull >> 1)
#define CYCLES	RETIRE_BIT(RETIRE_CYCLES)
#define ALL	(COUNT_CYCLES | OBSERVED_IN_MEMORY | OBSERVED_IN_BRANCHES)

/* Follows RCX pointers, from RSI. */
GUEST_CODE(chase, "1: mov (%rsi), %rsi\n"
		  "dec %ecx\n"
		  "jnz 1b\n"
		  "out %al, $0xf4\n");

/* Follows RCX indices of an array of 8 bytes each, from RSI; INDEX is its first. */
GUEST_CODE(indexed, "1: mov 0x100000 - 0x8000000(,%rsi,8), %rsi\n"
		    "dec %ecx\n"
		    "jnz 1b\n"
		    "out %al, $0xf4\n");
#define INDEX 0x1000000u /* no address of the data's */

/* Follows four pointers at once. */
GUEST_CODE(four, "1: mov (%rsi), %rsi\n"
		 "mov (%rdi), %rdi\n"
		 "mov (%rbx), %rbx\n"
		 "mov (%rdx), %rdx\n"
		 "dec %ecx\n"
		 "jnz 1b\n"
		 "out %al, $0xf4\n");

/* A load, or a store, of each line, in turn. */
GUEST_CODE(loads, "1: mov (%rsi), %rax\n"
		  "add $64, %rsi\n"
		  "dec %ecx\n"
		  "jnz 1b\n"
		  "out %al, $0xf4\n");
GUEST_CODE(stores, "1: mov %rax, (%rsi)\n"
		   "add $64, %rsi\n"
		   "dec %ecx\n"
		   "jnz 1b\n"
		   "out %al, $0xf4\n");

/* A branch by chance. */
GUEST_CODE(chance, "mov $1, %ebx\n"
		   "1: imul $1103515245, %ebx, %ebx\n"
		   "add $12345, %ebx\n"
		   "bt $30, %ebx\n"
		   "jc 2f\n"
		   "nop\n"
		   "2: dec %ecx\n"
		   "jnz 1b\n"
		   "out %al, $0xf4\n");

/* Loads of lines by chance, each with a branch on a bit of it that is not to be foreseen. Where
 * both ways go on nothing depends on it. */
GUEST_CODE(doubts, "mov $1, %ebx\n"
		   "1: imul $1103515245, %ebx, %ebx\n"
		   "add $12345, %ebx\n"
		   "mov %ebx, %esi\n"
		   "shr $4, %esi\n"
		   "and $0x1fffc0, %esi\n"
		   "testb $1, 0x100000(%rsi)\n"
		   "jz 2f\n"
		   "nop\n"
		   "2: dec %ecx\n"
		   "jnz 1b\n"
		   "out %al, $0xf4\n");

/* Everything at once: chance, calls, strings, lines and pages. */
GUEST_CODE(mixture, "mov $2000, %ebp\n"
		    "mov $1, %ebx\n"
		    "1: imul $1103515245, %ebx, %ebx\n"
		    "add $12345, %ebx\n"
		    "mov %ebx, %esi\n"
		    "and $0x1fffc0, %esi\n"
		    "mov 0x100000(%rsi), %rax\n"
		    "add %rbx, 0x100020(%rsi)\n"
		    "bt $20, %ebx\n"
		    "jc 2f\n"
		    "call 3f\n"
		    "2: dec %ebp\n"
		    "jnz 1b\n"
		    "out %al, $0xf4\n"
		    ".org mixture_start + 4000, 0x90\n"
		    "3: lea 0x100000(%rsi), %rdi\n"
		    "mov $200, %ecx\n"
		    "rep stosb\n"
		    "ret\n");

/* Copies RBX bytes from RSI to RDI so often that lines from memory do not matter. */
GUEST_CODE(copies, "mov $100, %edx\n"
		   "1: mov %rbx, %rcx\n"
		   "mov %rsi, %r8\n"
		   "mov %rdi, %r9\n"
		   "rep movsb\n"
		   "mov %r8, %rsi\n"
		   "mov %r9, %rdi\n"
		   "dec %edx\n"
		   "jnz 1b\n"
		   "out %al, $0xf4\n");

#define DATA 0x100000ull
#define ROOM 0x2c0000ull /* more than any second level has */

static void load(struct machine *m, const u8 *start, const u8 *end, bool full)
{
	machine_load(m, start, (size_t)(end - start));
	machine_cold(m);
	m->cpu->port.full_timing = full;
	m->cpu->port.wanted = CYCLES;
	m->cpu->port.trips.armed = 0;
}

static u64 ticks(const struct machine *m)
{
	return retire_count(&m->cpu->port.tally, RETIRE_CYCLES, RETIRE_OS);
}

static u64 run_in(struct machine *m, u64 slice)
{
	enum exit_reason reason;

	do
		reason = machine_run(m, slice);
	while (reason == EXIT_BUDGET);
	assert_int_equal(reason, EXIT_IO);
	return ticks(m);
}

static u64 run(struct machine *m)
{
	return run_in(m, FOREVER);
}

/* A ring through n lines of the data in an order that no prefetcher foresees, by pointers or by
 * indices. */
static void make_ring(struct machine *m, u32 n, bool pointers)
{
	static u32 order[ROOM / LINE_SIZE];
	u32 seed = 1;

	for (u32 i = 0; i < n; i++)
		order[i] = i;
	for (u32 i = n - 1; i; i--) {
		u32 j = (seed = seed * 1103515245 + 12345) % (i + 1), other = order[i];

		order[i] = order[j];
		order[j] = other;
	}
	for (u32 i = 0; i < n; i++) {
		u64 offset = (u64)order[(i + 1) % n] * LINE_SIZE;
		u64 next = pointers ? DATA + offset : INDEX + offset / sizeof(next);

		memcpy(m->ram + DATA + (u64)order[i] * LINE_SIZE, &next, sizeof(next));
	}
}

/* Ticks of so many turns, beyond those of as many before them, on a ring. */
static u64 of_turns(struct machine *m, const u8 *start, const u8 *end, bool full, u32 lines,
		    u32 turns)
{
	bool pointers = start != indexed_start;
	u64 time[2];

	for (u32 i = 0; i < 2; i++) {
		load(m, start, end, full);
		make_ring(m, lines, pointers);
		m->cpu->regs[RSI] = pointers ? DATA : INDEX;
		m->cpu->regs[RDI] = DATA + LINE_SIZE;
		m->cpu->regs[RBX] = DATA + 2 * LINE_SIZE;
		m->cpu->regs[RDX] = DATA + 3 * LINE_SIZE;
		m->cpu->regs[RCX] = (i + 1) * turns;
		time[i] = run(m);
	}
	return time[1] - time[0];
}

static const struct timing_params *params(const struct machine *m)
{
	return timing_params_of(m->cpu->port.model->set);
}

static void assert_near(const char *what, u64 got, u64 expected, u32 percent)
{
	u64 off = got > expected ? got - expected : expected - got;

	if (off * 100 > expected * percent)
		fail_msg("%s: %lu, expected %lu", what, (unsigned long)got,
			 (unsigned long)expected);
}

static u32 cache_lines(const struct machine *m, u32 cache)
{
	return m->cpu->port.model->cache[cache].kbytes * 1024 / LINE_SIZE;
}

/* What one pointer takes is the latency of the level that holds the ring. */
static void a_chase_takes_the_latency_of_its_level(struct machine *m)
{
	u32 small = cache_lines(m, CACHE_L1D) / 2, middle = cache_lines(m, CACHE_L2) / 2,
	    large = ROOM / LINE_SIZE;
	u64 l1 = of_turns(m, chase_start, chase_end, true, small, 4 * small);

	assert_int_equal(l1, of_turns(m, chase_start, chase_end, false, small, 4 * small));
	/* L1's share is its price, in which the latency of loops is what the pipeline has. */
	assert_near("second level",
		    of_turns(m, chase_start, chase_end, true, middle, 2 * middle) / middle / 2,
		    (u64)(params(m)->latency[1] + params(m)->second) * TICKS_PER_CYCLE, 40);
	assert_near("third level", of_turns(m, chase_start, chase_end, true, large, large) / large,
		    (u64)params(m)->latency[2] * TICKS_PER_CYCLE, 30);
}

/* So does an index that is loaded. */
static void so_does_a_chase_of_indices(struct machine *m)
{
	u32 large = ROOM / LINE_SIZE;

	assert_near("indices", of_turns(m, indexed_start, indexed_end, true, large, large) / large,
		    (u64)params(m)->latency[2] * TICKS_PER_CYCLE, 30);
}

/* Four chases at once take little more than one. */
static void independent_misses_overlap(struct machine *m)
{
	u32 lines = ROOM / LINE_SIZE;
	u64 one = of_turns(m, chase_start, chase_end, true, lines, lines / 4);
	u64 all = of_turns(m, four_start, four_end, true, lines, lines / 4);

	assert_true(all < one * 3 / 2);
}

static u64 over_lines(struct machine *m, const u8 *start, const u8 *end, bool full)
{
	load(m, start, end, full);
	m->cpu->regs[RSI] = DATA;
	m->cpu->regs[RCX] = ROOM / LINE_SIZE;
	return run(m);
}

/* Lines from memory overlap: one takes a part of its latency. But they follow each other at a
 * distance, those that prefetchers bring too. */
static void streams_take_a_part_of_the_latency(struct machine *m)
{
	const struct penalty_params *costs = penalty_params_of(m->cpu->port.model->set);
	u64 lines = ROOM / LINE_SIZE, memory = params(m)->latency[3] * TICKS_PER_CYCLE;
	u64 distance = costs->line[2] * TICKS_PER_CYCLE / 10;
	u64 loaded = over_lines(m, loads_start, loads_end, true) -
		     over_lines(m, loads_start, loads_end, false);
	u64 stored = over_lines(m, stores_start, stores_end, true) -
		     over_lines(m, stores_start, stores_end, false);

	assert_true(loaded < lines * memory / 4);
	assert_true(stored < lines * memory / 4);
	assert_true(over_lines(m, loads_start, loads_end, true) > lines * distance * 9 / 10);
}

static void a_misprediction_takes_its_penalty(struct machine *m)
{
	const struct penalty_params *costs = penalty_params_of(m->cpu->port.model->set);
	u64 time[2], missed, least;

	for (u32 full = 0; full < 2; full++) {
		load(m, chance_start, chance_end, full);
		m->cpu->port.wanted = ALL;
		m->cpu->regs[RCX] = 10000;
		time[full] = run(m);
	}
	missed = retire_count(&m->cpu->port.tally, RETIRE_BRANCH_MISSES, RETIRE_OS);
	assert_true(missed > 3000);
	/* It takes more the more instructions came since the one before, which are few here. */
	least = missed * (costs->refill + costs->resolve) * TICKS_PER_CYCLE;
	assert_in_range(time[1] - time[0], least * 98 / 100, least * 110 / 100);
}

/* The wrong path of a branch that waits for a load has begun the loads that follow: with outcomes
 * by chance it takes longer, but not by the latency of memory for each misprediction. */
static void loads_overlap_across_mispredictions(struct machine *m)
{
	u64 memory = params(m)->latency[3] * TICKS_PER_CYCLE, time[2], missed;
	u32 seed = 1;

	for (u32 by_chance = 0; by_chance < 2; by_chance++) {
		load(m, doubts_start, doubts_end, true);
		m->cpu->port.wanted = ALL;
		for (u64 at = 0; at < 0x200000; at += LINE_SIZE) {
			seed = seed * 1103515245 + 12345;
			m->ram[DATA + at] = by_chance ? seed >> 24 : 0;
		}
		m->cpu->regs[RCX] = 10000;
		time[by_chance] = run(m);
	}
	missed = retire_count(&m->cpu->port.tally, RETIRE_BRANCH_MISSES, RETIRE_OS);
	assert_true(missed > 3000);
	assert_in_range(time[1] - time[0], 1, missed * memory / 3);
}

#define COPIED 3000u

static u64 of_copies(struct machine *m, u64 distance, u64 slice)
{
	load(m, copies_start, copies_end, true);
	m->cpu->regs[RBX] = COPIED;
	m->cpu->regs[RSI] = DATA;
	m->cpu->regs[RDI] = DATA + 4 * PAGE_SIZE + distance;
	return run_in(m, slice);
}

/* On AMD's models a byte takes a cycle if the copy seems to overlap, in whatever slices. */
static void copies_that_seem_to_overlap_are_slow(struct machine *m)
{
	u32 alias = penalty_params_of(m->cpu->port.model->set)->alias;
	u64 usual = of_copies(m, 0, FOREVER), slow = of_copies(m, 7, FOREVER);

	assert_near("below its source", of_copies(m, (u64)-7, FOREVER), usual, 10);
	assert_near("far above its source", of_copies(m, 64, FOREVER), usual, 10);
	assert_int_equal(of_copies(m, 7, 10), slow);
	if (alias)
		assert_true(slow > 100ull * COPIED * TICKS_PER_CYCLE && usual * 5 < slow);
	else
		assert_near("above its source", slow, usual, 10);
}

/* After each instruction: neither what else is counted nor slices matter, and time is no less than
 * with static timing. */
static void time_is_the_same_whatever_is_counted(struct machine *m)
{
	static const retire_wanted also[] = { 0, OBSERVED_IN_MEMORY, OBSERVED_IN_BRANCHES,
					      RETIRE_BIT(RETIRE_LOADS), ALL };
	static const u64 slices[] = { 1, 7, 1000, FOREVER };
	u64 expected, fixed;

	load(m, mixture_start, mixture_end, false);
	fixed = run(m);
	load(m, mixture_start, mixture_end, true);
	expected = run(m);
	assert_true(expected > 2 * fixed);
	for (u32 i = 0; i < ARRAY_SIZE(also) * ARRAY_SIZE(slices); i++) {
		load(m, mixture_start, mixture_end, true);
		m->cpu->port.wanted |= also[i / ARRAY_SIZE(slices)];
		assert_int_equal(run_in(m, slices[i % ARRAY_SIZE(slices)]), expected);
	}
}

/* What the model counts is what it counts with static timing. */
static void misses_are_those_of_static_timing(struct machine *m)
{
	struct retire_tally tally[2];

	for (u32 full = 0; full < 2; full++) {
		load(m, mixture_start, mixture_end, full);
		m->cpu->port.wanted = ALL;
		run(m);
		tally[full] = m->cpu->port.tally;
	}
	for (enum retire_class class = RETIRE_BRANCH_MISSES; class < NRETIRE; class ++)
		assert_int_equal(retire_count(&tally[0], class, RETIRE_OS),
				 retire_count(&tally[1], class, RETIRE_OS));
}

/* A ring that the last level can hold, so many times through it, with a part of that level, or with
 * neighbours; 0: without. */
static u64 last_level_misses(struct machine *m, u32 kbytes, u32 life, u32 rounds, u64 slice)
{
	struct timing *t = &cpu_priv(m->cpu)->timing;
	u32 lines = ROOM / LINE_SIZE;

	load(m, chase_start, chase_end, true);
	make_ring(m, lines, true);
	t->prefetch.kinds = 0;
	if (kbytes)
		timing_set_last(t, kbytes);
	if (life)
		timing_set_life(t, life);
	m->cpu->port.wanted = ALL;
	m->cpu->regs[RSI] = DATA;
	m->cpu->regs[RCX] = rounds * lines;
	run_in(m, slice);
	return retire_count(&m->cpu->port.tally, RETIRE_LLC_MISSES, RETIRE_OS);
}

/* The first round misses all lines of the ring, and the program's. With the part that is left a few
 * lines are found that L2 has only just lost. */
static void a_smaller_last_level_misses_more(struct machine *m)
{
	u32 lines = ROOM / LINE_SIZE;
	u64 first = last_level_misses(m, 0, 0, 1, FOREVER), small;

	assert_in_range(first, lines, lines + 4);
	assert_int_equal(last_level_misses(m, 0, 0, 3, FOREVER), first);
	assert_int_equal(
		last_level_misses(m, m->cpu->port.model->cache[CACHE_L3].kbytes, 0, 3, FOREVER),
		first);
	small = last_level_misses(m, 256, 0, 3, FOREVER);
	assert_in_range(small, first + 2 * lines * 98 / 100, first + 2 * lines);
	assert_int_equal(last_level_misses(m, 256, 0, 3, 1009), small);
}

/* A round from memory takes more than ten million cycles, one from the last level one or two. */
static void neighbours_take_lines_away(struct machine *m)
{
	u32 lines = ROOM / LINE_SIZE;
	u64 first = last_level_misses(m, 0, 0, 1, FOREVER), some;

	assert_int_equal(last_level_misses(m, 0, 1000000000, 3, FOREVER), first);
	some = last_level_misses(m, 0, 500000, 3, FOREVER);
	assert_in_range(some, first + 2 * lines * 90 / 100, first + 2 * lines);
	some = last_level_misses(m, 0, 7000000, 3, FOREVER);
	assert_in_range(some, first, first + 2 * lines);
	assert_int_equal(last_level_misses(m, 0, 7000000, 3, 1), some);
	assert_int_equal(last_level_misses(m, 0, 7000000, 3, 1009), some);
}

static void (*const checks[])(struct machine *) = {
	a_chase_takes_the_latency_of_its_level,
	so_does_a_chase_of_indices,
	independent_misses_overlap,
	streams_take_a_part_of_the_latency,
	a_misprediction_takes_its_penalty,
	loads_overlap_across_mispredictions,
	copies_that_seem_to_overlap_are_slow,
	time_is_the_same_whatever_is_counted,
	misses_are_those_of_static_timing,
	a_smaller_last_level_misses_more,
	neighbours_take_lines_away,
};

static void full_timing_holds_on(const char *model)
{
	struct machine m;

	print_message("%s\n", model);
	machine_create_model(&m, model);
	for (u32 i = 0; i < ARRAY_SIZE(checks); i++)
		checks[i](&m);
	machine_destroy(&m);
}

static void full_timing_holds_on_every_model(void **state)
{
	(void)state;
	for (u32 i = 0; model_at(i); i++)
		full_timing_holds_on(model_at(i)->name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(full_timing_holds_on_every_model),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
