// SPDX-License-Identifier: MIT
/*
 * Modelled time does not depend on how code is cut: random code is executed one instruction at a
 * time, then in blocks that become hot, and then in slices of random lengths while events come and
 * go. After each slice the tally of cycles is what it was after the same instruction at first. The
 * code has loops, some with calls, jumps over instructions, long straight-line code, instructions
 * across lines and a page, and stores that change instructions near them, and with these prices. On
 * every model, with static timing and with full timing, where loads and stores all over memory,
 * strings, branches by chance and lines of code take time, too.
 *
 * usage: cuts_test [--cuts N], of each model and timing (5000)
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/control.h"
#include "cpu/mode.h"
#include "guest/machine.h"

#define FOREVER	  (~0ull >> 1)
#define DATA	  0x100100 /* RSI */
#define POINTER	  0x80000  /* from there: where a pointer to itself is */
#define CODE_SIZE 0x1200   /* a page and the beginning of another */
#define CODE_OVER 2304	   /* what the last turn of make() may add beyond that */
#define ROUNDS	  60	   /* more than make blocks hot */
#define MOST	  400000   /* instructions */

struct code {
	u8 bytes[CODE_SIZE + CODE_OVER];
	u32 size;
	u64 seed;
};

static u32 pick(u64 *seed, u32 n)
{
	*seed ^= *seed << 13;
	*seed ^= *seed >> 7;
	*seed ^= *seed << 17;
	return (*seed >> 20) % n;
}

/* Pairs of hexadecimal digits; ?? is a byte of any value. */
static void add(struct code *c, const char *text)
{
	for (; *text; text += 2) {
		const char digits[] = { text[0], text[1], 0 };

		c->bytes[c->size++] =
			*text == '?' ? pick(&c->seed, 256) : strtoul(digits, NULL, 16);
	}
}

static void add_number(struct code *c, u32 value)
{
	memcpy(c->bytes + c->size, &value, sizeof(value));
	c->size += sizeof(value);
}

/* RSI points to data and EBP is 7. R8, R12 and R14 are the loops' and the stores'. */
static void add_plain(struct code *c)
{
	static const char *const insns[] = {
		"4801d8",		/* add %rbx, %rax */
		"480fafd8",		/* imul %rax, %rbx */
		"4883c0??",		/* add $, %rax */
		"4805????????",		/* add $, %rax */
		"488d5c02??",		/* lea $(%rdx, %rax), %rbx */
		"488d9c10????????",	/* lea $(%rax, %rdx), %rbx */
		"488d98????????",	/* lea $(%rax), %rbx */
		"488b5e??",		/* mov $(%rsi), %rbx */
		"48895e??",		/* mov %rbx, $(%rsi) */
		"48015e??",		/* add %rbx, $(%rsi) */
		"0fb6c3",		/* movzbl %bl, %eax */
		"90",			/* nop */
		"660f1f440000",		/* nop */
		"48c1c3??",		/* rol $, %rbx */
		"48d3e3",		/* shl %cl, %rbx */
		"505a",			/* push %rax; pop %rdx */
		"31d2f7f5",		/* xor %edx, %edx; div %ebp */
		"31c0",			/* xor %eax, %eax */
		"4839d80f94c1",		/* cmp %rbx, %rax; sete %cl */
		"660ffec1660fefd2",	/* paddd %xmm1, %xmm0; pxor %xmm2, %xmm2 */
		"f20f59c1f20f5ed0",	/* mulsd %xmm1, %xmm0; divsd %xmm0, %xmm2 */
		"49bb????????????????", /* mov $, %r11 */
		"0faee8",		/* lfence */
		"eb00",			/* jmp to the next */
		"e80000000058",		/* call the next; pop %rax */
		"0fa2",			/* cpuid, which exits */
		/* imul $, %r9d, %r9d; inc %r9d; mov %r9d, %ecx; and $0x7fff8, %ecx; mov (%rsi,
		   %rcx), %rbx */
		"4569c96d4ec64141ffc14489c981e1f8ff0700488b1c0e",
		"4489c981e1f8ff070048010c0e",	/* and add %rcx, (%rsi, %rcx) */
		"4489c981e1ffff07004c894c0e3c", /* mov %r9, 60(%rsi, %rcx): across lines, pages */
		"488b9e00000800488b1b", /* mov 0x80000(%rsi), %rbx; mov (%rbx), %rbx: to itself */
		"57488dbe00020000b940000000f3aa5f", /* 64 bytes of rep stosb at 512(%rsi) */
	};

	add(c, insns[pick(&c->seed, ARRAY_SIZE(insns))]);
}

static void add_some(struct code *c, u32 most)
{
	for (u32 n = pick(&c->seed, most + 1); n; n--)
		add_plain(c);
}

static void add_skip(struct code *c)
{
	u32 at;

	/* test $4, %al; jz; or by chance: bt $18, %r9d; jnc */
	add(c, pick(&c->seed, 2) ? "a80474" : "410fbae11273");
	at = c->size++;
	add_some(c, 4);
	c->bytes[at] = c->size - at - 1;
}

/* A store that makes MUL %EBX or NOT %EBX of an instruction after it. */
static void add_change(struct code *c)
{
	u32 at;

	add(c, "448835"); /* mov %r14b, $(%rip) */
	at = c->size;
	add_number(c, 0);
	add_some(c, 4);
	add(c, "f7d3");
	memcpy(c->bytes + at, &(u32){ c->size - 1 - (at + 4) }, 4);
	add_some(c, 3);
}

static void add_loop(struct code *c)
{
	u32 begin;

	add(c, "41b8"); /* mov $, %r8d */
	add_number(c, 1 + pick(&c->seed, 6));
	begin = c->size;
	add_some(c, 6);
	if (pick(&c->seed, 2))
		add_skip(c);
	if (!pick(&c->seed, 4))
		add_change(c);
	add_some(c, 3);
	add(c, "41ffc80f85"); /* dec %r8d; jnz */
	add_number(c, begin - c->size - 4);
}

/* Instructions with a chain, without branches; one of them may be changed, as above. */
static void add_straight(struct code *c, u32 n)
{
	static const char *const insns[] = {
		"4801d8",     /* add %rbx, %rax */
		"480fafd8",   /* imul %rax, %rbx */
		"488d5c02??", /* lea $(%rdx, %rax), %rbx */
		"48c1c3??",   /* rol $, %rbx */
		"488b5e??",   /* mov $(%rsi), %rbx */
		"31d8",	      /* xor %ebx, %eax */
		"4889c2",     /* mov %rax, %rdx */
		"f20f58c1",   /* addsd %xmm1, %xmm0 */
		"48895e??",   /* mov %rbx, $(%rsi) */
	};
	u32 changed = pick(&c->seed, 2 * n + 1), at = 0;

	if (changed < n) {
		add(c, "448835"); /* mov %r14b, $(%rip) */
		at = c->size;
		add_number(c, 0);
	}
	for (u32 i = 0; i < n; i++) {
		add(c, i == changed ? "f7d3" : insns[pick(&c->seed, ARRAY_SIZE(insns))]);
		if (i == changed)
			memcpy(c->bytes + at, &(u32){ c->size - 1 - (at + 4) }, 4);
	}
}

/* A loop that calls a function, in which it may change an instruction. */
static void add_calls(struct code *c)
{
	u32 skip, function, begin;

	add(c, "eb"); /* jmp over the function */
	skip = c->size++;
	function = c->size;
	add_straight(c, pick(&c->seed, 10));
	if (!pick(&c->seed, 8))
		add(c, "7400"); /* jz to the next */
	add(c, "c3");
	c->bytes[skip] = c->size - skip - 1;
	add(c, "41b8"); /* mov $, %r8d */
	add_number(c, 1 + pick(&c->seed, 6));
	begin = c->size;
	add_some(c, 2);
	add(c, "e8");
	add_number(c, function - c->size - 4);
	add_straight(c, pick(&c->seed, 4));
	add(c, "41ffc80f85"); /* dec %r8d; jnz */
	add_number(c, begin - c->size - 4);
}

static void make(struct code *c, u64 seed)
{
	u32 begin;

	c->seed = seed;
	c->size = 0;
	add(c, "be00011000bd0700000041b6d341bc"); /* ESI 0x100100, EBP, R14B, R12D */
	add_number(c, ROUNDS);
	for (u32 n = pick(&c->seed, 64); n; n--)
		add(c, "90");
	begin = c->size;
	while (c->size < CODE_SIZE) {
		add_some(c, 12);
		add_skip(c);
		if (pick(&c->seed, 2))
			add_loop(c);
		if (!pick(&c->seed, 4))
			add_change(c);
		if (!pick(&c->seed, 4))
			add_calls(c);
		if (!pick(&c->seed, 6))
			add_straight(c, 60 + pick(&c->seed, 140));
	}
	add(c, "4180f63041ffcc0f85"); /* xor $0x30, %r14b; dec %r12d; jnz */
	add_number(c, begin - c->size - 4);
	add(c, "e6f4"); /* out %al, $0xf4 */
	assert_true(c->size <= sizeof(c->bytes));
}

/* --- running it --- */

static u64 after[MOST + 1];	  /* ticks when so many instructions have retired */
static u64 parts_after[MOST + 1]; /* and parts() */
static u64 ninsns;
static u64 cuts_wanted = 5000;
static bool full;

static u64 ticks(const struct machine *m, enum retire_class class)
{
	return retire_count(&m->cpu->port.tally, class, RETIRE_OS);
}

static void load(struct machine *m, const struct code *c, retire_wanted wanted)
{
	u64 pointer = DATA + POINTER;

	machine_load(m, c->bytes, c->size);
	memcpy(m->ram + DATA + POINTER, &pointer, sizeof(pointer));
	if (full)
		machine_cold(m);
	m->cpu->port.full_timing = full;
	m->cpu->port.wanted = wanted;
	m->cpu->port.trips.armed = 0;
}

/* A digest of all classes of time, slots by cause included. */
static u64 parts(const struct machine *m)
{
	u64 digest = 0;

	for (retire_wanted left = COUNT_CYCLES; left; left &= left - 1)
		digest = digest * 0x9e3779b97f4a7c15ull + ticks(m, retire_first(left));
	return digest;
}

static void note(const struct machine *m)
{
	after[ninsns] = ticks(m, RETIRE_CYCLES);
	parts_after[ninsns] = parts(m);
}

static struct retire_tally one_at_a_time(struct machine *m, const struct code *c)
{
	load(m, c, COUNT_CYCLES);
	for (ninsns = 0; machine_run(m, 1) == EXIT_BUDGET; note(m)) {
		ninsns = machine_retired(m);
		assert_true(ninsns < MOST);
	}
	assert_true(ninsns > 50000);
	assert_int_equal(ticks(m, RETIRE_USED_SLOTS) + ticks(m, RETIRE_BACKEND_SLOTS) +
				 ticks(m, RETIRE_BAD_SLOTS) + ticks(m, RETIRE_FRONT_SLOTS),
			 ticks(m, RETIRE_CYCLES));
	return m->cpu->port.tally;
}

/* Cycles are counted all the time, or all classes of time, and others some of it. */
static retire_wanted any_events(u64 *seed, bool all)
{
	static const retire_wanted sets[] = {
		0,
		COUNT_CYCLES,
		RETIRE_BIT(RETIRE_STALLS),
		COUNT_BRANCHES,
		COUNT_MEMORY | RETIRE_BIT(RETIRE_USED_SLOTS),
		OBSERVED_IN_BRANCHES,
		OBSERVED_IN_MEMORY,
	};

	return (all ? COUNT_CYCLES : RETIRE_BIT(RETIRE_CYCLES)) |
	       sets[pick(seed, ARRAY_SIZE(sets))];
}

/* Few instructions, a handful or many. */
static u64 any_length(u64 *seed)
{
	static const u32 most[] = { 3, 3, 12, 12, 12, 70 };

	return 1 + pick(seed, most[pick(seed, ARRAY_SIZE(most))]);
}

static u32 in_slices(struct machine *m, const struct code *c, u64 *seed, bool all)
{
	u32 cuts = 0;

	load(m, c, any_events(seed, all));
	while (machine_run(m, any_length(seed)) == EXIT_BUDGET) {
		if (ticks(m, RETIRE_CYCLES) != after[machine_retired(m)])
			fail_msg("cut %u: %lu ticks for %lu instructions, not %lu", cuts,
				 (unsigned long)ticks(m, RETIRE_CYCLES),
				 (unsigned long)machine_retired(m),
				 (unsigned long)after[machine_retired(m)]);
		if (all && parts(m) != parts_after[machine_retired(m)])
			fail_msg("cut %u: other slots or stalls than after %lu instructions", cuts,
				 (unsigned long)machine_retired(m));
		if (!pick(seed, 16))
			m->cpu->port.wanted = any_events(seed, all);
		cuts++;
	}
	assert_int_equal(ticks(m, RETIRE_CYCLES), after[ninsns]);
	return cuts;
}

static void check_model(const char *model, bool with_full)
{
	static struct code code;
	struct retire_tally tally;
	struct machine m;
	u64 seed = 88172645463325252ull;

	machine_create_model(&m, model);
	full = with_full;
	for (u64 cuts = 0; cuts < cuts_wanted;) {
		make(&code, seed + cuts);
		tally = one_at_a_time(&m, &code);
		load(&m, &code, COUNT_CYCLES);
		assert_int_equal(machine_run(&m, FOREVER), EXIT_IO);
		assert_int_equal(machine_retired(&m), ninsns);
		assert_int_equal(parts(&m), parts_after[ninsns]);
		/* Later, what was wanted before may be counted on for a while (cpu/mode.c). */
		if (!cuts)
			assert_memory_equal(&m.cpu->port.tally, &tally, sizeof(tally));
		cuts += in_slices(&m, &code, &seed, false);
		cuts += in_slices(&m, &code, &seed, true);
	}
	machine_destroy(&m);
}

static void neither_slices_nor_events_change_cycles(void **state)
{
	(void)state;
	for (u32 i = 0; model_at(i); i++)
		check_model(model_at(i)->name, false);
}

static void nor_do_they_with_full_timing(void **state)
{
	(void)state;
	for (u32 i = 0; model_at(i); i++)
		check_model(model_at(i)->name, true);
}

#define TURNS 1000

/* A loop that calls eight dependent IMULs, of three cycles each on every model: with the function
 * in its page the chain is seen, in another one it is not. */
static u64 cycles_of_calls(struct machine *m, u32 function)
{
	static struct code code;

	code.size = 0;
	add(&code, "41b8"); /* mov $, %r8d */
	add_number(&code, TURNS);
	add(&code, "e8"); /* call */
	add_number(&code, function - code.size - 4);
	add(&code, "41ffc875f6e6f4"); /* dec %r8d; jnz to the call; out %al, $0xf4 */
	memset(code.bytes + code.size, 0x90, function - code.size);
	code.size = function;
	for (u32 i = 0; i < 8; i++)
		add(&code, "480fafc0"); /* imul %rax, %rax */
	add(&code, "c3");
	load(m, &code, COUNT_CYCLES);
	assert_int_equal(machine_run(m, FOREVER), EXIT_IO);
	return ticks(m, RETIRE_CYCLES) / TICKS_PER_CYCLE;
}

static void a_chain_through_a_called_function_takes_its_time(void **state)
{
	(void)state;
	full = false;
	for (u32 i = 0; model_at(i); i++) {
		struct machine m;

		machine_create_model(&m, model_at(i)->name);
		assert_in_range(cycles_of_calls(&m, 0x40), 24 * TURNS, 25 * TURNS);
		assert_in_range(cycles_of_calls(&m, 0x1040), 8 * TURNS, 14 * TURNS);
		machine_destroy(&m);
	}
}

/* Code of 32 bits at offset 0 of a segment that has all offsets: a jump to its first instruction
 * comes from blocks that begin after it. */
static u64 cycles_from_zero(struct machine *m, u64 at_once)
{
	static struct code code;
	struct segment *cs = &m->cpu->seg[CS];
	enum exit_reason reason;

	code.size = 0;
	add(&code, "0fafc04975fae6f4"); /* imul %eax, %eax; dec %ecx; jnz; out %al, $0xf4 */
	load(m, &code, COUNT_CYCLES);
	*cs = (struct segment){ .sel = cs->sel,
				.base = IMAGE_CODE,
				.limit = ~0u,
				.attr = (cs->attr & ~(u32)SEG_L) | SEG_DB };
	m->cpu->rip = 0;
	m->cpu->regs[RCX] = TURNS;
	cpu_state_changed(m->cpu);
	do
		reason = machine_run(m, at_once);
	while (reason == EXIT_BUDGET);
	assert_int_equal(reason, EXIT_IO);
	return ticks(m, RETIRE_CYCLES) / TICKS_PER_CYCLE;
}

static void a_loop_at_offset_zero_costs_the_same_in_slices(void **state)
{
	struct machine m;

	(void)state;
	full = false;
	machine_create_model(&m, "icelake");
	assert_in_range(cycles_from_zero(&m, FOREVER), 3 * TURNS, 4 * TURNS);
	assert_int_equal(cycles_from_zero(&m, 1), cycles_from_zero(&m, FOREVER));
	machine_destroy(&m);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_chain_through_a_called_function_takes_its_time),
		cmocka_unit_test(a_loop_at_offset_zero_costs_the_same_in_slices),
		cmocka_unit_test(neither_slices_nor_events_change_cycles),
		cmocka_unit_test(nor_do_they_with_full_timing),
	};

	if (argc == 3 && !strcmp(argv[1], "--cuts"))
		cuts_wanted = strtoull(argv[2], NULL, 10);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
