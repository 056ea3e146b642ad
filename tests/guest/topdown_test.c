// SPDX-License-Identifier: MIT
/*
 * Slots by cause, on every model: programs built to be bound by the front end, by mispredictions,
 * by memory and by execution are what their names say with full timing; all slots have exactly one
 * cause, after every slice; and with static timing there are two kinds, used ones and those that
 * wait for execution. Also milan's, whose silicon has no events for them.
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
#include "x86/models.h"

#define FOREVER (~0ull >> 1)
#define DATA	0x100000ull
#define LINES	40000u /* of the ring: more than any second level holds */
#define CODE	0x30000u

/* Follows ECX pointers, from RSI. */
GUEST_CODE(memory, "mov $60000, %ecx\n"
		   "1: mov (%rsi), %rsi\n"
		   "dec %ecx\n"
		   "jnz 1b\n"
		   "out %al, $0xf4\n");

/* Branches by chance. */
GUEST_CODE(branchy, "mov $40000, %ecx\n"
		    "mov $1, %ebx\n"
		    "1: imul $1103515245, %ebx, %ebx\n"
		    "add $12345, %ebx\n"
		    "bt $30, %ebx\n"
		    "jc 2f\n"
		    "nop\n"
		    "2: bt $27, %ebx\n"
		    "jc 3f\n"
		    "nop\n"
		    "3: dec %ecx\n"
		    "jnz 1b\n"
		    "out %al, $0xf4\n");

/* A chain of divisions. */
GUEST_CODE(core, "mov $20000, %ecx\n"
		 "mov $3, %ebx\n"
		 "1: mov $1000000, %eax\n"
		 "xor %edx, %edx\n"
		 "div %ebx\n"
		 "lea 3(%rdx), %ebx\n"
		 "dec %ecx\n"
		 "jnz 1b\n"
		 "out %al, $0xf4\n");

/* Instructions without a wait. */
GUEST_CODE(plain, "mov $20000, %ecx\n"
		  "1: nop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\n"
		  "nop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\n"
		  "nop\nnop\nnop\nnop\nnop\nnop\nnop\nnop\n"
		  "dec %ecx\n"
		  "jnz 1b\n"
		  "out %al, $0xf4\n");

enum category { RETIRING, BAD, FRONT, BACK, NCATEGORIES };

static const char *const names[] = { "retiring", "bad speculation", "front end", "back end" };

static u64 ticks(const struct machine *m, enum retire_class class)
{
	return retire_count(&m->cpu->port.tally, class, RETIRE_OS) +
	       retire_count(&m->cpu->port.tally, class, RETIRE_USR);
}

static void categories(const struct machine *m, u64 out[NCATEGORIES])
{
	out[RETIRING] = ticks(m, RETIRE_USED_SLOTS);
	out[BAD] = ticks(m, RETIRE_BAD_SLOTS);
	out[FRONT] = ticks(m, RETIRE_FRONT_SLOTS);
	out[BACK] = ticks(m, RETIRE_BACKEND_SLOTS);
}

static bool is_amd(const struct machine *m)
{
	return m->cpu->port.model->is_amd;
}

/* Each slot has one cause, and each part is less than its whole. */
static void check_sums(const struct machine *m)
{
	u64 slots[NCATEGORIES], wrong = ticks(m, RETIRE_ISSUED_SLOTS) - ticks(m, RETIRE_USED_SLOTS);

	categories(m, slots);
	assert_int_equal(slots[RETIRING] + slots[BAD] + slots[FRONT] + slots[BACK],
			 ticks(m, RETIRE_CYCLES));
	assert_int_equal(ticks(m, RETIRE_BACKEND_STALLS) + ticks(m, RETIRE_EMPTY_STALLS),
			 ticks(m, RETIRE_STALLS));
	assert_int_equal(wrong + ticks(m, RETIRE_RECOVERY), slots[BAD]);
	if (is_amd(m))
		assert_int_equal(ticks(m, RETIRE_RECOVERY), 0);
	assert_true(ticks(m, RETIRE_HEAVY_SLOTS) <= slots[RETIRING]);
	assert_true(ticks(m, RETIRE_FETCH_LATENCY) <= slots[FRONT]);
	assert_true(ticks(m, RETIRE_RESTEER) <= ticks(m, RETIRE_FETCH_LATENCY));
	assert_true(ticks(m, RETIRE_MEMORY_SLOTS) <= slots[BACK]);
	assert_int_equal(ticks(m, RETIRE_LOAD_STALLS) + ticks(m, RETIRE_STORE_STALLS),
			 ticks(m, RETIRE_MEMORY_SLOTS));
	assert_true(ticks(m, RETIRE_L1_STALLS) <= ticks(m, RETIRE_LOAD_STALLS));
	assert_true(ticks(m, RETIRE_L2_STALLS) <= ticks(m, RETIRE_L1_STALLS));
	assert_true(ticks(m, RETIRE_LLC_STALLS) <= ticks(m, RETIRE_L2_STALLS));
	assert_true(ticks(m, RETIRE_STALLS) <= ticks(m, RETIRE_CYCLES));
}

/* A ring of pointers in an order that no prefetcher foresees. */
static void make_ring(struct machine *m)
{
	static u32 order[LINES];
	u32 seed = 1;

	for (u32 i = 0; i < LINES; i++)
		order[i] = i;
	for (u32 i = LINES - 1; i; i--) {
		u32 j = (seed = seed * 1103515245 + 12345) % (i + 1), other = order[i];

		order[i] = order[j];
		order[j] = other;
	}
	for (u32 i = 0; i < LINES; i++) {
		u64 next = DATA + 64ull * order[(i + 1) % LINES];

		memcpy(m->ram + DATA + 64ull * order[i], &next, sizeof(next));
	}
	m->cpu->regs[RSI] = DATA + 64ull * order[0];
}

/* Lines of code, each with a jump to one far away, until all were executed; and again. */
static u32 make_code(u8 *out)
{
	enum { STEP = 37 * 64, COUNT = CODE / 64 - 1 };
	u32 at = 0;
	s32 back;

	memset(out, 0x90, CODE);
	out[0] = 0xbd; /* mov $8, %ebp */
	out[1] = 8;
	out[2] = out[3] = out[4] = 0;
	for (u32 i = 0; i < COUNT; i++) {
		u32 next = (at + STEP) % (COUNT * 64);
		s32 jump = (s32)next - (s32)(at + 60);

		if (i == COUNT - 1)
			jump = (s32)(COUNT * 64) - (s32)(at + 60);
		out[at + 55] = 0xe9;
		memcpy(out + at + 56, &jump, sizeof(jump));
		at = next;
	}
	at = COUNT * 64;
	memcpy(out + at, "\xff\xcd\x0f\x85", 4); /* dec %ebp; jnz */
	back = 5 - (s32)(at + 8);
	memcpy(out + at + 4, &back, sizeof(back));
	memcpy(out + at + 8, "\xe6\xf4", 2); /* out %al, $0xf4 */
	return CODE;
}

static void load(struct machine *m, const u8 *start, size_t size, bool full)
{
	machine_load(m, start, size);
	machine_cold(m);
	m->cpu->port.full_timing = full;
	m->cpu->port.wanted = COUNT_CYCLES;
	m->cpu->port.trips.armed = 0;
}

/* In slices, so that sums are checked in the middle. */
static void run(struct machine *m)
{
	enum exit_reason reason;
	u64 slice = 1;

	while ((reason = machine_run(m, slice)) == EXIT_BUDGET) {
		check_sums(m);
		slice = slice * 3 % 9973 + 1;
	}
	assert_int_equal(reason, EXIT_IO);
	check_sums(m);
}

static void check_leader(const struct machine *m, const char *what, enum category leader)
{
	u64 slots[NCATEGORIES], all = ticks(m, RETIRE_CYCLES);

	categories(m, slots);
	for (enum category c = RETIRING; c < NCATEGORIES; c++)
		if (c != leader && slots[c] >= slots[leader])
			fail_msg("%s: %s has %lu of 1000 slots, %s %lu", what, names[c],
				 (unsigned long)(slots[c] * 1000 / all), names[leader],
				 (unsigned long)(slots[leader] * 1000 / all));
}

static void front_end(struct machine *m, bool full)
{
	static u8 code[CODE];

	load(m, code, make_code(code), full);
	run(m);
}

static void run_code(struct machine *m, const u8 *start, const u8 *end, bool full)
{
	load(m, start, (size_t)(end - start), full);
	make_ring(m);
	run(m);
}

#define RUN(m, code, full) run_code(m, code##_start, code##_end, full)

/* Mispredictions that took time are some of all. */
static void check_clears(struct machine *m)
{
	load(m, branchy_start, (size_t)(branchy_end - branchy_start), true);
	m->cpu->port.wanted |= OBSERVED_IN_BRANCHES;
	run(m);
	assert_in_range(ticks(m, RETIRE_CLEARS), 20001, ticks(m, RETIRE_BRANCH_MISSES));
}

static void check_full(struct machine *m)
{
	front_end(m, true);
	check_leader(m, "code", FRONT);
	assert_true(ticks(m, RETIRE_FETCH_LATENCY) > ticks(m, RETIRE_FRONT_SLOTS) / 2);
	RUN(m, branchy, true);
	check_leader(m, "branches", BAD);
	check_clears(m);
	RUN(m, memory, true);
	check_leader(m, "memory", BACK);
	assert_true(ticks(m, RETIRE_MEMORY_SLOTS) > ticks(m, RETIRE_BACKEND_SLOTS) * 9 / 10);
	assert_true(ticks(m, RETIRE_L2_STALLS) > ticks(m, RETIRE_LOAD_STALLS) / 2);
	RUN(m, core, true);
	check_leader(m, "divisions", BACK);
	assert_true(ticks(m, RETIRE_MEMORY_SLOTS) < ticks(m, RETIRE_BACKEND_SLOTS) / 10);
	RUN(m, plain, true);
	check_leader(m, "plain", RETIRING);
}

static void the_right_category_leads_on_every_model(void **state)
{
	struct machine m;

	(void)state;
	for (u32 i = 0; model_at(i); i++) {
		machine_create_model(&m, model_at(i)->name);
		check_full(&m);
		machine_destroy(&m);
	}
}

static void check_static(struct machine *m)
{
	assert_int_equal(ticks(m, RETIRE_USED_SLOTS) + ticks(m, RETIRE_BACKEND_SLOTS),
			 ticks(m, RETIRE_CYCLES));
	assert_int_equal(ticks(m, RETIRE_BAD_SLOTS) + ticks(m, RETIRE_FRONT_SLOTS) +
				 ticks(m, RETIRE_MEMORY_SLOTS) + ticks(m, RETIRE_EMPTY_STALLS),
			 0);
}

static void static_waits_are_those_of_execution(void **state)
{
	struct machine m;

	(void)state;
	for (u32 i = 0; model_at(i); i++) {
		machine_create_model(&m, model_at(i)->name);
		front_end(&m, false);
		check_static(&m);
		RUN(&m, branchy, false);
		check_static(&m);
		RUN(&m, core, false);
		check_static(&m);
		check_leader(&m, "divisions", BACK);
		machine_destroy(&m);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_right_category_leads_on_every_model),
		cmocka_unit_test(static_waits_are_those_of_execution),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
