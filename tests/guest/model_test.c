// SPDX-License-Identifier: MIT
/*
 * The timing model under guest code: what a working set misses can be computed from the model's
 * sizes, mispredictions are those of the model when it is shown the same branches by hand, and
 * neither slices nor a second run change a count.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/mode.h"
#include "guest/machine.h"
#include "timing/levels.h"
#include "timing/sets.h"

#define FOREVER (~0ull >> 1)
#define WANTED	(OBSERVED_IN_MEMORY | OBSERVED_IN_BRANCHES)

/* Follows RCX pointers, from RSI. */
GUEST_CODE(chase, "1: mov (%rsi), %rsi\n"
		  "dec %ecx\n"
		  "jnz 1b\n"
		  "out %al, $0xf4\n");

/* One branch that is taken as the bits of a table say, ECX times, and the loop's own. */
#define PATTERN_AT 0x1000 /* from IMAGE_CODE: the table */
GUEST_CODE(pattern, "pattern_first: xor %edx, %edx\n"
		    "1: bt %edx, (%rsi)\n"
		    "pattern_branch: jc 2f\n"
		    "nop\n"
		    "2: inc %edx\n"
		    "dec %ecx\n"
		    "pattern_loop: jnz 1b\n"
		    "out %al, $0xf4\n");
extern const u8 pattern_branch[] __attribute__((visibility("hidden")));
extern const u8 pattern_loop[] __attribute__((visibility("hidden")));

/* Calls through a table of four, in turn, each of which calls deeper than the return stack. */
GUEST_CODE(calls, "mov $200, %ebx\n"
		  "1: lea 5f(%rip), %rsi\n"
		  "mov %ebx, %eax\n"
		  "and $3, %eax\n"
		  "movslq (%rsi,%rax,4), %rax\n"
		  "add %rsi, %rax\n"
		  "call *%rax\n"
		  "dec %ebx\n"
		  "jnz 1b\n"
		  "out %al, $0xf4\n"
		  ".org calls_start + 128, 0x90\n" /* a line that was not fetched ahead */
		  "2: mov $3, %ecx\n"
		  "jmp 4f\n"
		  "3: mov $20, %ecx\n"
		  "4: dec %ecx\n"
		  "jz 6f\n"
		  "call 4b\n"
		  "6: mov $64, %ecx\n"
		  "lea 0x120010, %rdi\n"
		  "lea 0x130001, %rsi\n"
		  "rep movsb\n"
		  "clflush -8(%rsp)\n"
		  "mov $0, %ecx\n"
		  "ret\n"
		  ".balign 4\n"
		  "5: .long 2b - 5b, 3b - 5b, 2b - 5b, 3b - 5b\n");

/* A loop over six lines of code, the last on another page. */
#define CODE_LINES 6
GUEST_CODE(lines, "1: nop; .org lines_start + 1 * 64, 0x90\n"
		  "nop; .org lines_start + 2 * 64, 0x90\n"
		  "nop; .org lines_start + 3 * 64, 0x90\n"
		  "nop; .org lines_start + 4 * 64, 0x90\n"
		  "nop; jmp 2f; .org lines_start + 4096, 0x90\n"
		  "2: dec %ecx\n"
		  "jnz 1b\n"
		  "out %al, $0xf4\n");

/* Lines that CLFLUSH has taken out of every cache, loaded one after the other. */
GUEST_CODE(flushed, "1: clflush (%rsi)\n"
		    "mfence\n"
		    "mov (%rsi), %rax\n"
		    "add $64, %rsi\n"
		    "dec %ecx\n"
		    "jnz 1b\n"
		    "out %al, $0xf4\n");

/* Sequences of all kinds: loads up and down, stores, instructions with two operands in one set of
 * L1, a copy, pages whose translations are taken away, and lines of code. */
#define STREAMED_LINES 200
GUEST_CODE(streamed, "mov $200, %ecx\n"
		     "lea 0x200000, %rsi\n"
		     "1: mov (%rsi), %rax\n"
		     "add 32(%rsi), %rax\n"
		     "add $64, %rsi\n"
		     "dec %ecx\n"
		     "jnz 1b\n"
		     "mov $200, %ecx\n"
		     "lea 0x228000, %rsi\n"
		     "2: mov (%rsi), %rax\n"
		     "mov %rax, 0x10000(%rsi)\n"
		     "sub $64, %rsi\n"
		     "dec %ecx\n"
		     "jnz 2b\n"
		     "mov $200, %ecx\n"
		     "lea 0x250000, %rsi\n"
		     "mov %rsp, %rbp\n"
		     "3: lea 0x10008(%rsi), %rsp\n"
		     "pushq (%rsi)\n"
		     "add $64, %rsi\n"
		     "dec %ecx\n"
		     "jnz 3b\n"
		     "mov %rbp, %rsp\n"
		     "mov $1000, %ecx\n"
		     "lea 0x270000, %rsi\n"
		     "lea 0x280000, %rdi\n"
		     "rep movsq\n"
		     "mov $150, %ecx\n"
		     "8: lea 0x100000, %rsi\n"
		     "mov $20, %edx\n"
		     "9: mov (%rsi), %rax\n"
		     "add $0x3048, %rsi\n"
		     "dec %edx\n"
		     "jnz 9b\n"
		     "invlpg -0x3048(%rsi)\n"
		     "dec %ecx\n"
		     "jnz 8b\n"
		     "jmp 4f; .org streamed_start + 5 * 64, 0x90\n"
		     "4: jmp 5f; .org streamed_start + 6 * 64, 0x90\n"
		     "5: jmp 6f; .org streamed_start + 7 * 64, 0x90\n"
		     "6: jmp 7f; .org streamed_start + 8 * 64, 0x90\n"
		     "7: out %al, $0xf4\n");

static void load(struct machine *m, const u8 *start, const u8 *end)
{
	machine_load(m, start, (size_t)(end - start));
	machine_cold(m);
	m->cpu->port.wanted = WANTED;
	m->cpu->port.trips.armed = 0;
}

/* For counts that are computed by hand. */
static void load_without_prefetching(struct machine *m, const u8 *start, const u8 *end)
{
	load(m, start, end);
	cpu_priv(m->cpu)->timing.prefetch.kinds = 0;
}

static void run(struct machine *m, u64 slice)
{
	enum exit_reason reason;

	while ((reason = machine_run(m, slice)) == EXIT_BUDGET)
		;
	assert_int_equal(reason, EXIT_IO);
}

static u64 count(const struct machine *m, enum retire_class class)
{
	return retire_count(&m->cpu->port.tally, class, RETIRE_OS);
}

/* A ring of `n` pointers, a line each, `stride` bytes apart. */
static void make_ring(struct machine *m, u64 base, u64 stride, u64 n)
{
	for (u64 i = 0; i < n; i++) {
		u64 next = base + (i + 1) % n * stride;

		memcpy(m->ram + base + i * stride, &next, 8);
	}
}

static void chase_ring(struct machine *m, u64 base, u64 stride, u64 n, u32 rounds)
{
	load_without_prefetching(m, chase_start, chase_end);
	make_ring(m, base, stride, n);
	m->cpu->regs[RSI] = base;
	m->cpu->regs[RCX] = rounds * n;
	run(m, FOREVER);
}

#define LARGE_PAGE 0x200000

static void a_ring_that_fits_is_missed_once(void **state)
{
	struct machine *m = *state;
	u64 lines = m->cpu->port.model->cache[CACHE_L1D].kbytes * 1024 / LINE_SIZE;

	chase_ring(m, LARGE_PAGE, LINE_SIZE, lines, 5);
	assert_int_equal(count(m, RETIRE_L1D_MISSES), lines);
	assert_int_equal(count(m, RETIRE_LOAD_L1_MISSES), lines);
	assert_int_equal(count(m, RETIRE_LOAD_LLC_MISSES), lines);
	assert_int_equal(count(m, RETIRE_DTLB_LOAD_MISSES), 1);
}

/* One line too many: least recently used is the worst that can be done to a ring. Only the sets
 * that have one more than they have ways are hurt. */
static void a_ring_of_one_line_more_is_missed_for_ever(void **state)
{
	struct machine *m = *state;
	u64 ways = m->cpu->port.model->cache[CACHE_L1D].ways;
	u64 lines = ways * TIMING_LINES + 1, rounds = 5;

	chase_ring(m, LARGE_PAGE, LINE_SIZE, lines, rounds);
	assert_int_equal(count(m, RETIRE_L1D_MISSES), lines + (rounds - 1) * (ways + 1));
	assert_int_equal(count(m, RETIRE_LOAD_L2_HITS), (rounds - 1) * (ways + 1));
	assert_int_equal(count(m, RETIRE_LLC_MISSES), lines + count(m, RETIRE_L1I_MISSES));
}

/* 100 pages with a pointer each, on a line set of its own: more pages than the first TLB has
 * entries. Those that share a set of it with too many others come from the second each time. */
static void pages_beyond_the_first_tlb_hit_the_second(void **state)
{
	struct machine *m = *state;
	u64 pages = 100, rounds = 4;
	u64 stride = PAGE_SIZE + LINE_SIZE, last = (IMAGE_DATA + (pages - 1) * stride) / PAGE_SIZE;

	assert_int_equal(last, IMAGE_DATA / PAGE_SIZE + pages); /* one page has no pointer */
	chase_ring(m, IMAGE_DATA, stride, pages, rounds);
	assert_int_equal(count(m, RETIRE_DTLB_LOAD_MISSES), pages);
	assert_int_equal(count(m, RETIRE_DTLB_LOAD_STLB), (rounds - 1) * pages);
}

/* Eight entries of a page table are a line. The tables above were read for the first line of code,
 * uncounted. A page of 2 MB is an entry of the page directory, which was read too. */
static void walks_read_the_page_tables(void **state)
{
	struct machine *m = *state;
	const struct timing *t = &cpu_priv(m->cpu)->timing;
	u64 pages = 100, lines = 13, entry = IMAGE_PT + (IMAGE_DATA >> PAGE_SHIFT) * 8;

	chase_ring(m, IMAGE_DATA, PAGE_SIZE + LINE_SIZE, pages, 4);
	assert_int_equal(count(m, RETIRE_L2_FILLS) - count(m, RETIRE_LLC_REFERENCES), lines);
	assert_int_equal(count(m, RETIRE_L2_REQUESTS) - count(m, RETIRE_L2_REFERENCES), pages);
	for (u64 i = 0; i < lines; i++, entry += LINE_SIZE)
		assert_true(
			sets_hold(&t->l2, entry >> LINE_SHIFT, levels_tag(entry >> LINE_SHIFT)));
	chase_ring(m, LARGE_PAGE, LINE_SIZE, pages, 1);
	assert_int_equal(count(m, RETIRE_L2_FILLS) - count(m, RETIRE_LLC_REFERENCES), 0);
	assert_int_equal(count(m, RETIRE_L2_REQUESTS) - count(m, RETIRE_L2_REFERENCES), 1);
}

/* Of the lines of code, and their pages, all are missed but those that were fetched when counting
 * began: the first and the next. */
static void code_is_fetched_by_the_line(void **state)
{
	struct machine *m = *state;

	load_without_prefetching(m, lines_start, lines_end);
	m->cpu->regs[RCX] = 100;
	run(m, FOREVER);
	assert_int_equal(count(m, RETIRE_L1I_MISSES), CODE_LINES - 2);
	assert_int_equal(count(m, RETIRE_LLC_MISSES), CODE_LINES - 2);
	assert_int_equal(count(m, RETIRE_ITLB_MISSES), 1);
}

/* Wherever the loop lies: the processor runs it already when counting begins, so of code there is
 * nothing left to miss. */
static void loads_of_flushed_lines_are_all_that_is_missed(void **state)
{
	struct machine *m = *state;
	size_t size = flushed_end - flushed_start;
	u64 lines = 100;

	assert_true(size < LINE_SIZE);
	for (u32 at = 0; at < LINE_SIZE; at++) {
		load(m, flushed_start, flushed_end);
		memcpy(m->ram + IMAGE_CODE + LINE_SIZE + at, flushed_start, size);
		m->cpu->rip += LINE_SIZE + at;
		m->cpu->regs[RSI] = LARGE_PAGE;
		m->cpu->regs[RCX] = lines;
		run(m, FOREVER);
		assert_int_equal(count(m, RETIRE_LLC_MISSES), lines);
		assert_int_equal(count(m, RETIRE_LOAD_LLC_MISSES), lines);
		assert_int_equal(count(m, RETIRE_L1I_MISSES), 0);
	}
}

/* The same branches, shown to a model of its own. */
static u64 misses_by_hand(const u8 *table, u32 n)
{
	const struct model *model = model_find("icelake");
	struct timing *t = calloc(1, sizeof(*t));
	void *memory = calloc(1, timing_memory(model));
	u64 counts[NRETIRE] = { 0 };

	assert_true(t && memory);
	timing_init(t, model, memory, counts);
	for (u32 i = 0; i < n; i++) {
		u64 branch = IMAGE_CODE + (pattern_branch - pattern_start);
		u64 loop = IMAGE_CODE + (pattern_loop - pattern_start);

		timing_conditional(t, branch, branch + 3, table[i / 8] >> i % 8 & 1);
		timing_conditional(t, loop, IMAGE_CODE + 2, i + 1 < n);
	}
	free(memory);
	free(t);
	return counts[RETIRE_BRANCH_MISSES];
}

static u64 misses_of_guest(struct machine *m, const u8 *table, u32 n)
{
	load(m, pattern_start, pattern_end);
	memcpy(m->ram + IMAGE_DATA, table, n / 8);
	m->cpu->regs[RSI] = IMAGE_DATA;
	m->cpu->regs[RCX] = n;
	run(m, FOREVER);
	assert_int_equal(count(m, RETIRE_COND_MISSES), count(m, RETIRE_BRANCH_MISSES));
	return count(m, RETIRE_BRANCH_MISSES);
}

static void branches_are_mispredicted_as_the_model_says(void **state)
{
	enum { N = 8000 };
	static u8 regular[N / 8], random[N / 8];
	u64 known, chance;
	u32 seed = 1;

	for (u32 i = 0; i < N / 8; i++) {
		regular[i] = 0x11;
		random[i] = (seed = seed * 1103515245 + 12345) >> 16;
	}
	known = misses_by_hand(regular, N);
	chance = misses_by_hand(random, N);
	assert_true(known < N / 50 && chance > N / 4);
	assert_int_equal(misses_of_guest(*state, regular, N), known);
	assert_int_equal(misses_of_guest(*state, random, N), chance);
}

static void neither_slices_nor_a_second_run_change_a_count(void **state)
{
	static const u64 slices[] = { FOREVER, 1, 2, 7, 100 };
	static const enum retire_class missed[] = { RETIRE_L1D_MISSES,	    RETIRE_L1I_MISSES,
						    RETIRE_LLC_MISSES,	    RETIRE_DTLB_MISSES,
						    RETIRE_INDIRECT_MISSES, RETIRE_RETURN_MISSES,
						    RETIRE_COND_MISSES };
	struct machine *m = *state;
	struct retire_tally first;

	load(m, calls_start, calls_end);
	run(m, FOREVER);
	first = m->cpu->port.tally;
	for (u32 i = 0; i < ARRAY_SIZE(missed); i++)
		assert_true(retire_count(&first, missed[i], RETIRE_OS) > 0);
	for (u32 i = 0; i < ARRAY_SIZE(slices); i++) {
		load(m, calls_start, calls_end);
		run(m, slices[i]);
		assert_memory_equal(&m->cpu->port.tally, &first, sizeof(first));
	}
}

/* A sum of all that the caches and the prefetchers hold. */
static u64 state_of(const struct machine *m)
{
	const struct timing *t = &cpu_priv(m->cpu)->timing;
	const u64 *prefetch = (const u64 *)&t->prefetch;
	u64 sum = 0;

	for (u64 i = 0; i < timing_memory(m->cpu->port.model) / sizeof(u64); i++)
		if (t->l1d.tags[i])
			sum = (sum + i) * 0x9e3779b97f4a7c15ull ^ t->l1d.tags[i];
	for (u32 i = 0; i < sizeof(t->prefetch) / sizeof(u64); i++)
		sum = sum * 0x9e3779b97f4a7c15ull + prefetch[i];
	return sum;
}

static void in_slices(struct machine *m, const struct retire_tally *first, u64 sum)
{
	static const u64 slices[] = { 1, 2, 7, 100, FOREVER };

	for (u32 i = 0; i < ARRAY_SIZE(slices); i++) {
		load(m, streamed_start, streamed_end);
		run(m, slices[i]);
		assert_memory_equal(&m->cpu->port.tally, first, sizeof(*first));
		assert_int_equal(state_of(m), sum);
	}
}

/* Stops at each trip, as a counter that samples does: the instruction that reaches one is taken
 * back and executed again. */
static void with_overflows(struct machine *m, enum retire_class class)
{
	struct retire_trips *trips = &m->cpu->port.trips;
	enum exit_reason reason;
	u64 stops = 0;

	load(m, streamed_start, streamed_end);
	trips->armed = RETIRE_BIT(class);
	trips->at[class][RETIRE_IN_USR] = trips->at[class][RETIRE_IN_BOTH] = RETIRE_NEVER;
	do {
		trips->at[class][RETIRE_IN_OS] = count(m, class) + 1;
		reason = machine_run(m, FOREVER);
		stops++;
	} while (reason == EXIT_BUDGET);
	assert_int_equal(reason, EXIT_IO);
	assert_in_range(stops, 3, count(m, class) + 1);
}

static void check_streams(const char *model)
{
	static const enum retire_class classes[] = { RETIRE_L1D_MISSES, RETIRE_L1D_FILLS,
						     RETIRE_L2_FILLS, RETIRE_L1I_MISSES,
						     RETIRE_DTLB_MISSES };
	struct retire_tally first;
	struct machine m;
	u64 sum;

	machine_create_model(&m, model);
	load(&m, streamed_start, streamed_end);
	run(&m, FOREVER);
	first = m.cpu->port.tally;
	sum = state_of(&m);
	assert_in_range(count(&m, RETIRE_LOAD_L1_MISSES), 1, STREAMED_LINES + 70);
	assert_true(count(&m, RETIRE_L1D_FILLS) > 6 * STREAMED_LINES);
	assert_true(count(&m, RETIRE_DTLB_MISSES) > 100);
	in_slices(&m, &first, sum);
	for (u32 i = 0; i < ARRAY_SIZE(classes); i++) {
		with_overflows(&m, classes[i]);
		assert_memory_equal(&m.cpu->port.tally, &first, sizeof(first));
		assert_int_equal(state_of(&m), sum);
	}
	machine_destroy(&m);
}

/* What the caches and the prefetchers hold is the same afterwards, not only what was counted. */
static void caches_hold_the_same_whatever_slices_and_overflows_there_are(void **state)
{
	(void)state;
	for (u32 i = 0; model_at(i); i++)
		check_streams(model_at(i)->name);
}

/* 20 calls of the next instruction, 20 returns to the next, and an indirect and a direct jump to
 * the next, and a loop of 6 turns, sometimes of 9, ECX times: more calls than the return stack has
 * entries, returns that no call matches, a loop that is counted. */
#define NESTED 20u
#define TURNS  1000u
GUEST_CODE(through, "1: .rept 20; call .+5; .endr\n"
		    "add $160, %rsp\n"
		    ".rept 20; lea 2(%rip), %rax; push %rax; ret; .endr\n"
		    "lea 2(%rip), %rax\n"
		    "jmp *%rax\n"
		    "jmp .+2\n"
		    "mov $6, %edx\n"
		    "test $63, %ecx\n"
		    "through_usual: jnz 2f\n"
		    "mov $9, %edx\n"
		    "2: dec %edx\n"
		    "through_inner: jnz 2b\n"
		    "dec %ecx\n"
		    "through_loop: jnz 1b\n"
		    "out %al, $0xf4\n");
extern const u8 through_usual[] __attribute__((visibility("hidden")));
extern const u8 through_inner[] __attribute__((visibility("hidden")));
extern const u8 through_loop[] __attribute__((visibility("hidden")));

/* Was the loop counted? */
static bool show_inner(struct timing *t, bool usual)
{
	u64 from = IMAGE_CODE + (through_inner - through_start), to = from - 2;
	bool counted = t->predict.sure[predict_place(from)].streak == COUNTED_AFTER;

	timing_conditional(t, IMAGE_CODE + (through_usual - through_start), to, usual);
	for (u32 left = usual ? 6 : 9; left--;)
		timing_conditional(t, from, to, left > 0);
	return counted;
}

/* Turn number ECX, which is the last one if that is 1. */
static bool show_turn(struct timing *t, u32 ecx)
{
	u64 loop = IMAGE_CODE + (through_loop - through_start), at = IMAGE_CODE;
	bool counted;

	for (u32 i = 0; i < NESTED; i++, at += 5) {
		timing_call(t, at + 5);
		timing_jump(t, at, at + 5);
	}
	at += 7; /* ADD */
	for (u32 i = 0; i < NESTED; i++, at += 9)
		timing_return(t, at + 8, at + 9);
	timing_indirect(t, at + 7, at + 9);
	timing_jump(t, at + 9, at + 11);
	counted = show_inner(t, ecx & 63);
	timing_conditional(t, loop, IMAGE_CODE, ecx > 1);
	return counted;
}

static void show_by_hand(const char *name)
{
	const struct model *model = model_find(name);
	struct timing *t = calloc(1, sizeof(*t));
	void *memory = calloc(1, timing_memory(model));
	u64 counts[NRETIRE] = { 0 };
	struct machine m;
	u32 counted = 0;

	assert_true(t && memory);
	machine_create_model(&m, name);
	timing_init(t, model, memory, counts);
	for (u32 ecx = TURNS; ecx; ecx--)
		counted += show_turn(t, ecx);
	assert_in_range(counted, TURNS / 2, TURNS);
	load(&m, through_start, through_end);
	m.cpu->regs[RCX] = TURNS;
	run(&m, FOREVER);
	assert_true(counts[RETIRE_RETURN_MISSES] > 0);
	for (u32 class = RETIRE_BRANCH_MISSES; class <= RETIRE_RETURN_MISSES; class ++)
		assert_int_equal(count(&m, class), counts[class]);
	assert_memory_equal(&cpu_priv(m.cpu)->timing.predict, &t->predict, sizeof(t->predict));
	machine_destroy(&m);
	free(memory);
	free(t);
}

/* Translated code does to the predictor what C does. */
static void the_predictor_is_the_same_when_it_is_shown_branches_by_hand(void **state)
{
	(void)state;
	for (u32 i = 0; model_at(i); i++)
		show_by_hand(model_at(i)->name);
}

/* A program with sure branches, patterns, chance, loops that are counted until they have more
 * turns, calls deeper than the return stack, and indirect calls of both kinds: those that are sure,
 * and those that are not. */
GUEST_CODE(mixture, "mov $3000, %ebp\n"
		    "mov $1, %ebx\n"
		    "1: imul $1103515245, %ebx, %ebx\n"
		    "add $12345, %ebx\n"
		    "test %ebp, %ebp\n"
		    "jz 9f\n"
		    "test $3, %ebp\n"
		    "jz 2f\n"
		    "nop\n"
		    "2: bt $30, %ebx\n"
		    "jc 3f\n"
		    "nop\n"
		    "3: lea 7f(%rip), %rax\n"
		    "call *%rax\n"
		    "lea 6f(%rip), %rax\n"
		    "test $4, %ebp\n"
		    "jz 4f\n"
		    "lea 7f(%rip), %rax\n"
		    "4: call *%rax\n"
		    "test $63, %ebp\n"
		    "jnz 5f\n"
		    "mov $20, %edx\n"
		    "10: mov $5, %ecx\n"
		    "cmp $1, %edx\n"
		    "jne 11f\n"
		    "mov $7, %ecx\n"
		    "11: dec %ecx\n"
		    "jnz 11b\n"
		    "dec %edx\n"
		    "jnz 10b\n"
		    "mov $40, %ecx\n"
		    "call 8f\n"
		    "5: dec %ebp\n"
		    "jmp 1b\n"
		    "6: nop\n"
		    "7: ret\n"
		    "8: dec %ecx\n"
		    "jz 7b\n"
		    "call 8b\n"
		    "ret\n"
		    "9: out %al, $0xf4\n");

static void check_mixture(const char *model)
{
	const retire_wanted more = WANTED | RETIRE_BIT(RETIRE_CYCLES) | RETIRE_BIT(RETIRE_LOADS);
	const retire_wanted few = OBSERVED_IN_BRANCHES;
	const retire_wanted wanted[] = { few, few, few, WANTED, WANTED, more };
	static const u64 slices[] = { FOREVER, 1, 7, 100, FOREVER, FOREVER };
	static struct predict first;
	struct machine m;
	u64 missed = 0;

	machine_create_model(&m, model);
	for (u32 i = 0; i < ARRAY_SIZE(wanted); i++) {
		load(&m, mixture_start, mixture_end);
		m.cpu->port.wanted = wanted[i];
		run(&m, slices[i]);
		first = i ? first : cpu_priv(m.cpu)->timing.predict;
		missed = i ? missed : count(&m, RETIRE_BRANCH_MISSES);
		assert_int_equal(count(&m, RETIRE_BRANCH_MISSES), missed);
		assert_memory_equal(&cpu_priv(m.cpu)->timing.predict, &first, sizeof(first));
		assert_true(missed > 1000 && count(&m, RETIRE_RETURN_MISSES) > 0);
	}
	machine_destroy(&m);
}

/* The whole predictor is the same afterwards, not only what it counted. */
static void branches_are_predicted_alike_whatever_else_is_counted_in_whatever_slices(void **state)
{
	(void)state;
	for (u32 i = 0; model_at(i); i++)
		check_mixture(model_at(i)->name);
}

static void without_anybody_who_counts_nothing_is_observed(void **state)
{
	struct machine *m = *state;
	static struct timing before;

	load(m, calls_start, calls_end);
	m->cpu->port.wanted = 0;
	memcpy(&before, &cpu_priv(m->cpu)->timing, sizeof(before));
	run(m, FOREVER);
	assert_memory_equal(&cpu_priv(m->cpu)->timing, &before, sizeof(before));
	assert_int_equal(count(m, RETIRE_L1D_MISSES), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_ring_that_fits_is_missed_once),
		cmocka_unit_test(a_ring_of_one_line_more_is_missed_for_ever),
		cmocka_unit_test(pages_beyond_the_first_tlb_hit_the_second),
		cmocka_unit_test(walks_read_the_page_tables),
		cmocka_unit_test(code_is_fetched_by_the_line),
		cmocka_unit_test(loads_of_flushed_lines_are_all_that_is_missed),
		cmocka_unit_test(branches_are_mispredicted_as_the_model_says),
		cmocka_unit_test(neither_slices_nor_a_second_run_change_a_count),
		cmocka_unit_test(caches_hold_the_same_whatever_slices_and_overflows_there_are),
		cmocka_unit_test(the_predictor_is_the_same_when_it_is_shown_branches_by_hand),
		cmocka_unit_test(
			branches_are_predicted_alike_whatever_else_is_counted_in_whatever_slices),
		cmocka_unit_test(without_anybody_who_counts_nothing_is_observed),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
