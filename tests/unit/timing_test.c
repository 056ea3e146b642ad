// SPDX-License-Identifier: MIT
/*
 * The timing model alone: sequences of accesses whose hits and misses can be counted by hand.
 * Prefetchers: prefetch_test.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "timing/levels.h"
#include "timing/params.h"
#include "unit/on_models.h"
#include "unit/plain_timing.h"

#define DIRECT(x) (0xffff888000000000ull + (x)) /* as Linux maps physical memory */

static u64 lines_of(enum model_cache_kind kind)
{
	return model->cache[kind].kbytes * 1024ull / LINE;
}

static void a_line_is_missed_once(void **state)
{
	(void)state;
	load(0x1000);
	load(0x1038);
	assert_int_equal(taken(RETIRE_L1D_MISSES), 1);
	assert_int_equal(taken(RETIRE_L2_REFERENCES), 1);
	assert_int_equal(taken(RETIRE_LLC_REFERENCES), 1);
	assert_int_equal(taken(RETIRE_LLC_MISSES), 1);
	assert_int_equal(taken(RETIRE_LOAD_L1_MISSES), 1);
	assert_int_equal(taken(RETIRE_LOAD_LLC_MISSES), 1);
	assert_int_equal(taken(RETIRE_LOAD_L2_HITS), 0);
}

static void an_access_across_lines_touches_both(void **state)
{
	(void)state;
	load(0x103c);
	assert_int_equal(taken(RETIRE_L1D_MISSES), 2);
	load(0x1000);
	load(0x1040);
	assert_int_equal(taken(RETIRE_L1D_MISSES), 0);
}

/* One line more than a set has ways, in turn: least recently used means that none is ever found. */
static void a_set_holds_as_many_lines_as_it_has_ways(void **state)
{
	u64 way = LINE * TIMING_LINES, ways = model->cache[CACHE_L1D].ways;

	(void)state;
	for (u64 round = 0; round < 3; round++)
		for (u64 i = 0; i < ways; i++)
			load_large(i * way);
	assert_int_equal(taken(RETIRE_L1D_MISSES), ways);
	for (u64 round = 0; round < 3; round++)
		for (u64 i = 0; i <= ways; i++)
			load_large(i * way);
	assert_int_equal(taken(RETIRE_L1D_MISSES), 3 * (ways + 1) - ways);
}

/* Twice through as many lines as one level holds: the second time it is the one that answers. */
static void each_level_holds_its_size(void **state)
{
	static const enum model_cache_kind kinds[] = { CACHE_L1D, CACHE_L2 };

	(void)state;
	for (u32 k = 0; k < ARRAY_SIZE(kinds); k++) {
		u64 lines = lines_of(kinds[k]);

		timing_flush_caches(timing);
		for (u64 i = 0; i < lines; i++)
			load_large(i * LINE);
		assert_int_equal(taken(RETIRE_L1D_MISSES), lines);
		assert_int_equal(taken(RETIRE_LLC_MISSES), lines);
		taken(RETIRE_LLC_REFERENCES);
		for (u64 i = 0; i < lines; i++)
			load_large(i * LINE);
		assert_int_equal(taken(RETIRE_L1D_MISSES), k ? lines : 0);
		assert_int_equal(taken(RETIRE_LLC_REFERENCES), 0);
		assert_int_equal(taken(RETIRE_LLC_MISSES), 0);
	}
}

/* As many lines as one set of L2 has ways, all in the set of `address`. */
static void push_out_of_l2(u64 address)
{
	for (u64 i = 1; i <= timing->l2.ways; i++)
		load_large(address + i * timing->l2.sets * LINE);
}

static void the_last_level_gets_what_the_second_loses(void **state)
{
	(void)state;
	load_large(0x2000);
	assert_true(holds(&timing->l2, 0x2000));
	assert_false(levels_hold_last(timing, 0x2000 / LINE));
	push_out_of_l2(0x2000);
	assert_false(holds(&timing->l2, 0x2000));
	assert_true(levels_hold_last(timing, 0x2000 / LINE));
	taken(RETIRE_LLC_MISSES);
	load_large(0x2000);
	assert_int_equal(timing->seen.access.level, OBSERVED_LLC);
	assert_int_equal(taken(RETIRE_LLC_MISSES), 0);
	assert_true(holds(&timing->l2, 0x2000));
	assert_int_equal(levels_hold_last(timing, 0x2000 / LINE), !model->is_amd);
	timing_flush_line(timing, 0x2000);
	assert_false(levels_hold_last(timing, 0x2000 / LINE));
	load_large(0x2000);
	assert_int_equal(taken(RETIRE_LLC_MISSES), 1);
}

/* What comes from memory takes no room of the last level. On AMD's models what comes from there
 * does not, either: a line leaves the set to which L2's victim goes. */
static void both_levels_together_hold_the_sum_of_their_sizes(void **state)
{
	u64 lines = lines_of(CACHE_L2) + lines_of(CACHE_L3);

	(void)state;
	for (u64 i = 0; i < lines; i++)
		load_large(i * LINE);
	assert_int_equal(taken(RETIRE_LLC_MISSES), lines);
	for (u64 i = 0; i < (model->is_amd ? lines_of(CACHE_L2) : 1); i++)
		load_large(i * LINE);
	assert_int_equal(taken(RETIRE_LLC_MISSES), 0);
}

/* A line that both have is one line less: the size that counts is the last level's. */
static void the_last_level_holds_its_size(void **state)
{
	u64 lines = lines_of(CACHE_L3);

	(void)state;
	for (u64 round = 0; round < 3; round++)
		for (u64 i = 0; i < lines; i++)
			load_large(i * LINE);
	assert_int_equal(taken(RETIRE_LLC_MISSES), lines);
	assert_int_equal(taken(RETIRE_LLC_REFERENCES), 3 * lines);
}

static void a_part_of_the_last_level_holds_its_size(void **state)
{
	u32 kbytes = model->cache[CACHE_L3].kbytes / 2 + 5;
	u64 lines;

	(void)state;
	timing_set_last(timing, kbytes);
	lines = (u64)timing->llc.sets * timing->llc.ways;
	assert_int_equal(timing->llc.sets % TIMING_LINES, 0);
	assert_true(lines <= kbytes * 1024ull / LINE);
	assert_true(lines + TIMING_LINES * timing->llc.ways > kbytes * 1024ull / LINE);
	for (u64 round = 0; round < 3; round++)
		for (u64 i = 0; i < lines; i++)
			load_large(i * LINE);
	assert_int_equal(taken(RETIRE_LLC_MISSES), lines);
	assert_int_equal(taken(RETIRE_LLC_REFERENCES), 3 * lines);
}

static void sizes_of_the_last_level_are_read(void **state)
{
	static const char *const wrong[] = { "",
					     "M",
					     "4",
					     "4G",
					     "4m",
					     "4MB",
					     "-4M",
					     "255K",
					     "0M",
					     "106M",
					     "1e3K",
					     " 4M",
					     "99999999999999999999M",
					     "4294967297M" };
	u32 kbytes = 0;

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_false(model_last_level(model, wrong[i], &kbytes));
	assert_true(model_last_level(model, "256K", &kbytes));
	assert_int_equal(kbytes, 256);
	assert_true(model_last_level(model, "7M", &kbytes));
	assert_int_equal(kbytes, 7168);
}

static void lives_of_lines_are_read(void **state)
{
	static const char *const wrong[] = { "",       "9999",	 "1000000001",		"1M",
					     "-20000", "20000 ", "18446744073709571616" };
	u32 cycles = 0;

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_false(model_last_level_life(wrong[i], &cycles));
	assert_true(model_last_level_life("10000", &cycles));
	assert_int_equal(cycles, 10000);
	assert_true(model_last_level_life("1000000000", &cycles));
	assert_int_equal(cycles, 1000000000);
}

#define LIFE 24000000u

/* The line is in the last level and not in L2. */
static void put_into_last(u64 line)
{
	levels_fill(timing, line);
	for (u64 i = 1; i <= timing->l2.ways; i++)
		levels_fill(timing, line + i * timing->l2.sets);
	assert_false(holds(&timing->l2, line * LINE));
}

/* Is it there, at this time? If so, L2 takes it. */
static bool is_found(u64 line, u64 ticks)
{
	penalty_at(timing, ticks, 0);
	return levels_fill(timing, line) == OBSERVED_LLC;
}

static void neighbours_push_out_what_is_not_used(void **state)
{
	u64 life, line = 0x80;

	(void)state;
	timing_set_full(timing, true);
	timing_set_life(timing, LIFE);
	life = timing->llc_period * timing->llc.ways;
	assert_in_range(life, (LIFE - 1) * (u64)TICKS_PER_CYCLE, LIFE * (u64)TICKS_PER_CYCLE);
	for (u64 begun = 0; begun < 3 * life; begun += life) {
		penalty_at(timing, begun, 0);
		put_into_last(line);
		assert_true(is_found(line, begun + life - 1));
		put_into_last(line);
		assert_true(is_found(line, begun + life));
	}
	penalty_at(timing, 10 * life, 0);
	put_into_last(line);
	assert_false(is_found(line, 11 * life));
	put_into_last(line);
	assert_false(is_found(line, ~0ull));
}

static void and_nothing_with_static_timing(void **state)
{
	(void)state;
	timing_set_life(timing, LIFE);
	put_into_last(0x80);
	assert_true(is_found(0x80, ~0ull));
}

static void a_flushed_line_comes_from_memory(void **state)
{
	(void)state;
	load(0x2000);
	fetch(0x2040);
	memset(count, 0, sizeof(count));
	timing_flush_line(timing, 0x2010);
	load(0x2000);
	assert_int_equal(taken(RETIRE_LLC_MISSES), 1);
	fetch(0x2040);
	assert_int_equal(taken(RETIRE_L1I_MISSES), 0);
	timing_flush_line(timing, 0x2040);
	fetch(0x2040);
	assert_int_equal(taken(RETIRE_L1I_MISSES), 1);
	assert_int_equal(taken(RETIRE_LLC_MISSES), 1);
}

/* Code and data meet in the second level. */
static void data_finds_what_code_brought(void **state)
{
	(void)state;
	fetch(0x3000);
	assert_int_equal(taken(RETIRE_LLC_MISSES), 1);
	load(0x3000);
	assert_int_equal(taken(RETIRE_L1D_MISSES), 1);
	assert_int_equal(taken(RETIRE_LOAD_L2_HITS), 1);
	assert_int_equal(taken(RETIRE_LLC_MISSES), 0);
}

static u64 sets(const struct timing_tlb_size *tlb)
{
	return tlb->entries / tlb->ways;
}

/* Pages of one set of the first level, each with a line of its own. */
static void touch_pages(u64 n, u64 stride)
{
	for (u64 i = 0; i < n; i++)
		load(i * stride * PAGE_SIZE + i % TIMING_LINES * LINE);
}

static void a_page_is_walked_once(void **state)
{
	const struct timing_tlb_size *tlb = &timing->params->dtlb;
	u64 ways = tlb->ways, stride = sets(tlb);

	(void)state;
	touch_pages(ways, stride);
	assert_int_equal(taken(RETIRE_DTLB_L1_MISSES), ways);
	assert_int_equal(taken(RETIRE_DTLB_LOAD_MISSES), ways);
	memset(timing->data_line, 0, sizeof(timing->data_line));
	touch_pages(ways, stride);
	assert_int_equal(taken(RETIRE_DTLB_L1_MISSES), 0);
	touch_pages(ways + 1, stride);
	touch_pages(ways + 1, stride);
	assert_int_equal(taken(RETIRE_DTLB_LOAD_MISSES), 1);
	assert_true(taken(RETIRE_DTLB_LOAD_STLB) > 0);
}

/* Else a line that stays in the buffer would hide that its translation is gone. */
static void a_page_that_leaves_the_tlb_takes_its_lines_along(void **state)
{
	const struct timing_tlb_size *tlb = &timing->params->dtlb;
	u64 stride = sets(tlb);

	(void)state;
	load(0);
	for (u64 i = 1; i <= tlb->ways; i++)
		load(i * stride * PAGE_SIZE + LINE);
	taken(RETIRE_DTLB_L1_MISSES);
	load(0);
	assert_int_equal(taken(RETIRE_DTLB_L1_MISSES), 1);
	assert_int_equal(taken(RETIRE_L1D_MISSES), tlb->ways + 1);
}

/* --- page tables --- */

/* Four levels, flat: each table's entries are where the number of what they map says. */
static u32 flat_tables(void *owner, gva_t linear, struct timing_table *out)
{
	(*(u32 *)owner)++;
	for (u32 i = 0; i < 4; i++) {
		u8 shift = 39 - 9 * i;

		out[i] = (struct timing_table){ .entry = (1ull << (44 - i)) + (linear >> shift) * 8,
						.shift = shift,
						.above = 3 - i };
	}
	return 4;
}

static const struct timing_port flat = { flat_tables };

/* How many lines the walk of a load asked L2 for. */
static u64 walk_lines(u64 address)
{
	u64 before = count[RETIRE_L2_REQUESTS] - count[RETIRE_L2_REFERENCES];

	load(address);
	return count[RETIRE_L2_REQUESTS] - count[RETIRE_L2_REFERENCES] - before;
}

#define REGION (1ull << 21) /* what one entry of a page directory maps */

static void a_walk_reads_what_no_cache_of_tables_knows(void **state)
{
	const struct timing_params *p = timing->params;
	u32 walks = 0;

	(void)state;
	timing->port = &flat;
	timing->owner = &walks;
	assert_int_equal(walk_lines(0), 4);
	assert_int_equal(timing->walk_cycles, p->second + p->walk + 4 * p->latency[3]);
	assert_int_equal(timing->seen.access.latency, p->latency[3] + timing->walk_cycles);
	assert_int_equal(walk_lines(PAGE_SIZE), 1); /* the directory is known; its line is in L2 */
	assert_int_equal(timing->walk_cycles, p->second + p->walk + p->latency[1]);
	assert_int_equal(walk_lines(PAGE_SIZE + 0x40), 0);
	assert_int_equal(walk_lines(REGION), 2);
	assert_int_equal(walk_lines(512 * REGION), 3);
	assert_int_equal(walk_lines(PAGE_SIZE * 8), 1);
	assert_int_equal(timing->walk_cycles, p->second + p->walk + p->latency[3]);
	assert_int_equal(walks, 5);
	/* Walks are neither references nor misses of the last level. */
	assert_int_equal(count[RETIRE_LLC_MISSES], 6);
	assert_int_equal(count[RETIRE_DTLB_LOAD_MISSES], 5);
}

static void a_cache_of_tables_holds_its_entries(void **state)
{
	u64 entries = timing->params->directory;
	u32 walks = 0;

	(void)state;
	timing->port = &flat;
	timing->owner = &walks;
	for (u64 i = 0; i <= entries; i++)
		load(i * REGION);
	assert_int_equal(walk_lines(PAGE_SIZE + entries * REGION), 1);
	assert_int_equal(walk_lines(PAGE_SIZE), 2);
	assert_int_equal(walk_lines(PAGE_SIZE + REGION), 2);
}

static void invalidations_take_what_is_known_of_tables(void **state)
{
	u32 walks = 0;

	(void)state;
	timing->port = &flat;
	timing->owner = &walks;
	load(0);
	timing_flush_page(timing, 0x123456000); /* another page */
	assert_int_equal(walk_lines(PAGE_SIZE), 4);
	timing_flush_space(timing, 2);
	assert_int_equal(walk_lines(2 * PAGE_SIZE), 1);
	timing_flush_space(timing, 1);
	assert_int_equal(walk_lines(PAGE_SIZE), 4);
	timing_switch_space(timing);
	assert_int_equal(walk_lines(3 * PAGE_SIZE), 1);
	timing_flush_tlbs(timing);
	assert_int_equal(walk_lines(PAGE_SIZE), 4);
}

static void stores_and_loads_walk_apart(void **state)
{
	struct timing_access a = access_at(0x5000, 0x5000);

	(void)state;
	a.store = true;
	timing_data(timing, &a);
	assert_int_equal(taken(RETIRE_DTLB_STORE_MISSES), 1);
	assert_int_equal(taken(RETIRE_DTLB_LOAD_MISSES), 0);
	assert_int_equal(taken(RETIRE_LOAD_L1_MISSES), 0);
	assert_int_equal(taken(RETIRE_L1D_MISSES), 1);
	load(0x5000);
	assert_int_equal(taken(RETIRE_L1D_MISSES), 0);
}

static void a_large_page_is_one_entry(void **state)
{
	struct timing_access a = access_at(0x200000, 0x200000);

	(void)state;
	a.page_shift = 21;
	timing_data(timing, &a);
	a.linear += 5 * PAGE_SIZE;
	a.physical += 5 * PAGE_SIZE;
	a.host += 5 * PAGE_SIZE;
	timing_data(timing, &a);
	assert_int_equal(taken(RETIRE_DTLB_MISSES), 1);
	timing_flush_page(timing, 0x3ff000);
	timing_data(timing, &a);
	assert_int_equal(taken(RETIRE_DTLB_MISSES), 1);
}

static void flushes_take_what_they_name(void **state)
{
	struct timing_access user = access_at(0x7000, 0x7000),
			     kernel = access_at(DIRECT(0x9000), 0x9000);

	(void)state;
	kernel.global = true;
	timing_data(timing, &user);
	timing_data(timing, &kernel);
	assert_int_equal(taken(RETIRE_DTLB_MISSES), 2);
	timing_switch_space(timing);
	user.space = 2;
	timing_data(timing, &user);
	timing_data(timing, &kernel);
	assert_int_equal(taken(RETIRE_DTLB_MISSES), 1); /* another space, but one kernel */
	timing_flush_space(timing, 2);
	timing_data(timing, &user);
	timing_data(timing, &kernel);
	assert_int_equal(taken(RETIRE_DTLB_MISSES), 1);
	user.space = 1;
	timing_switch_space(timing);
	timing_data(timing, &user);
	assert_int_equal(taken(RETIRE_DTLB_MISSES), 0);
	timing_flush_page(timing, 0x7000);
	timing_data(timing, &user);
	assert_int_equal(taken(RETIRE_DTLB_MISSES), 1);
	timing_flush_tlbs(timing);
	timing_data(timing, &user);
	timing_data(timing, &kernel);
	assert_int_equal(taken(RETIRE_DTLB_MISSES), 2);
}

/* Every PCID, odd ones and the last too. */
static void each_space_is_flushed_by_its_number(void **state)
{
	struct timing_access user = access_at(0x7000, 0x7000);

	(void)state;
	for (u32 space = 0; space < 0x1000; space += 0x333) {
		user.space = space;
		timing_flush_tlbs(timing);
		timing_data(timing, &user);
		timing_flush_space(timing, space ^ 1);
		timing_data(timing, &user);
		assert_int_equal(taken(RETIRE_DTLB_MISSES), 1);
		timing_flush_space(timing, space);
		timing_data(timing, &user);
		assert_int_equal(taken(RETIRE_DTLB_MISSES), 1);
	}
}

static void instruction_pages_are_walked_on_their_own(void **state)
{
	(void)state;
	fetch(0x4000);
	fetch(0x4040);
	assert_int_equal(taken(RETIRE_ITLB_MISSES), 1);
	assert_int_equal(taken(RETIRE_L1I_MISSES), 2);
	assert_int_equal(taken(RETIRE_DTLB_MISSES), 0);
}

static void the_last_access_is_described(void **state)
{
	const struct timing_params *p = timing->params;
	const struct observed_access *seen = &timing->seen.access;

	(void)state;
	load(0x6008);
	assert_true(seen->valid && !seen->store);
	assert_int_equal(seen->linear, 0x6008);
	assert_int_equal(seen->physical, 0x6008);
	assert_int_equal(seen->level, OBSERVED_MEMORY);
	assert_int_equal(seen->tlb, OBSERVED_TLB_WALK);
	assert_int_equal(seen->latency, p->latency[3] + p->second + p->walk);
	load(0x6010);
	assert_int_equal(seen->level, OBSERVED_L1);
	assert_int_equal(seen->tlb, OBSERVED_TLB_L1);
	assert_int_equal(seen->latency, p->latency[0]);
}

static void every_model_has_its_numbers(void **state)
{
	(void)state;
	for (u32 i = 0; model_at(i); i++) {
		const struct timing_params *p = timing_params_of(model_at(i)->set);

		assert_int_equal(p->dtlb.entries % p->dtlb.ways, 0);
		assert_int_equal(p->itlb.entries % p->itlb.ways, 0);
		assert_int_equal(p->stlb.entries % p->stlb.ways, 0);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_model_has_its_numbers),
		TEST(a_line_is_missed_once),
		TEST(an_access_across_lines_touches_both),
		TEST(a_set_holds_as_many_lines_as_it_has_ways),
		TEST(each_level_holds_its_size),
		TEST(the_last_level_gets_what_the_second_loses),
		TEST(both_levels_together_hold_the_sum_of_their_sizes),
		TEST(the_last_level_holds_its_size),
		TEST(a_part_of_the_last_level_holds_its_size),
		TEST(sizes_of_the_last_level_are_read),
		TEST(lives_of_lines_are_read),
		TEST(neighbours_push_out_what_is_not_used),
		TEST(and_nothing_with_static_timing),
		TEST(a_flushed_line_comes_from_memory),
		TEST(data_finds_what_code_brought),
		TEST(a_page_is_walked_once),
		TEST(a_page_that_leaves_the_tlb_takes_its_lines_along),
		TEST(a_walk_reads_what_no_cache_of_tables_knows),
		TEST(a_cache_of_tables_holds_its_entries),
		TEST(invalidations_take_what_is_known_of_tables),
		TEST(stores_and_loads_walk_apart),
		TEST(a_large_page_is_one_entry),
		TEST(flushes_take_what_they_name),
		TEST(each_space_is_flushed_by_its_number),
		TEST(instruction_pages_are_walked_on_their_own),
		TEST(the_last_access_is_described),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
