// SPDX-License-Identifier: MIT
/*
 * The prefetchers of the timing model: which lines they bring, and which they do not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "timing/levels.h"
#include "timing/params.h"
#include "timing/sets.h"
#include "unit/on_models.h"
#include "unit/plain_timing.h"

static void cold(u8 kinds)
{
	timing_flush_caches(timing);
	memset(&timing->prefetch, 0, sizeof(timing->prefetch));
	memset(count, 0, sizeof(count));
	timing->prefetch.kinds = kinds;
}

/* Loads lines of a page, each of which is `step` lines from the last. */
static void load_lines(u64 page, s64 first, s64 step, u32 n)
{
	for (u32 i = 0; i < n; i++)
		load_large(page + (u64)(first + (s64)i * step) * LINE);
}

static void the_next_line_follows_an_ascending_load(void **state)
{
	(void)state;
	cold(PREFETCH_NEXT);
	load_lines(0x2000, 0, 1, PAGE_LINES);
	assert_int_equal(taken(RETIRE_L1D_MISSES), 2);
	assert_int_equal(taken(RETIRE_LLC_MISSES), 2);
	assert_int_equal(taken(RETIRE_LOAD_LLC_MISSES), 2);
	assert_int_equal(taken(RETIRE_L1D_PREFETCHES), PAGE_LINES - 2);
	assert_int_equal(taken(RETIRE_L1D_FILLS), PAGE_LINES);
	assert_int_equal(taken(RETIRE_L2_FILLS), PAGE_LINES);
	assert_false(holds(&timing->l2, 0x3000));
	cold(PREFETCH_NEXT);
	load_lines(0x2000, PAGE_LINES - 1, -1, PAGE_LINES);
	load_lines(0x8000, 0, 2, PAGE_LINES / 2);
	assert_int_equal(taken(RETIRE_L1D_PREFETCHES), 0);
	cold(PREFETCH_NEXT | PREFETCH_AROUND);
	load_lines(0x2000, PAGE_LINES - 1, -1, PAGE_LINES);
	assert_int_equal(taken(RETIRE_L1D_MISSES), 2);
	assert_int_equal(taken(RETIRE_L1D_FILLS), PAGE_LINES);
	cold(PREFETCH_NEXT | PREFETCH_AROUND);
	load_lines(0, 1, 0, 1); /* it follows no load */
	assert_int_equal(taken(RETIRE_L1D_PREFETCHES), 0);
}

static void stores_are_not_prefetched_into_the_first_level(void **state)
{
	struct timing_access a = access_at(0x2000, 0x2000);

	(void)state;
	cold(PREFETCH_NEXT | PREFETCH_AROUND);
	a.store = true;
	for (u32 i = 0; i < PAGE_LINES; i++, a.linear += LINE, a.physical += LINE, a.host += LINE)
		timing_data(timing, &a);
	assert_int_equal(taken(RETIRE_L1D_MISSES), PAGE_LINES);
}

static void lines_come_in_pairs(void **state)
{
	(void)state;
	cold(PREFETCH_PAIR);
	load_large(0x2040);
	assert_true(holds(&timing->l2, 0x2000));
	assert_false(holds(&timing->l1d, 0x2000));
	assert_false(holds(&timing->l2, 0x2080));
	load_lines(0x8000, 0, 1, PAGE_LINES);
	assert_int_equal(taken(RETIRE_LLC_MISSES), 1 + PAGE_LINES / 2);
	assert_int_equal(taken(RETIRE_LLC_REFERENCES), 1 + PAGE_LINES / 2);
	assert_int_equal(taken(RETIRE_L1D_MISSES), 1 + PAGE_LINES);
	assert_int_equal(taken(RETIRE_L2_FILLS), 2 + PAGE_LINES);
}

/* Three requests make a stream. It ends with its page. */
static void a_stream_runs_ahead_of_what_is_asked_for(void **state)
{
	u64 ahead = timing->params->prefetch.ahead;

	(void)state;
	for (s64 step = 1; step >= -1; step -= 2) {
		u64 first = step > 0 ? 0 : PAGE_LINES - 1;

		cold(PREFETCH_STREAM);
		load_lines(0x10000, (s64)first, step, 2);
		assert_int_equal(taken(RETIRE_L2_FILLS), 2);
		load_lines(0x10000, (s64)first + 2 * step, step, 24);
		assert_int_equal(taken(RETIRE_L2_FILLS), 24 + ahead);
		load_lines(0x10000, (s64)first + 26 * step, step, PAGE_LINES - 26);
		assert_int_equal(taken(RETIRE_LLC_MISSES), 3);
		assert_int_equal(taken(RETIRE_LLC_REFERENCES), 3);
		assert_false(holds(&timing->l2, 0xf000 + 63 * LINE));
		assert_false(holds(&timing->l2, 0x11000));
	}
}

static void as_many_streams_are_followed_as_there_are_entries(void **state)
{
	(void)state;
	cold(PREFETCH_STREAM);
	for (u64 line = 0; line < PAGE_LINES; line++)
		for (u64 page = 0; page < STREAM_SETS * STREAM_WAYS; page++)
			load_large(page * PAGE_SIZE + line * LINE);
	assert_int_equal(taken(RETIRE_LLC_MISSES), 3 * STREAM_SETS * STREAM_WAYS);
}

static void accesses_without_a_direction_are_no_stream(void **state)
{
	static const u8 lines[] = { 7, 40, 3, 22, 50, 9, 33, 60, 1, 18 };

	(void)state;
	cold(PREFETCH_STREAM | PREFETCH_NEXT | PREFETCH_AROUND);
	for (u32 i = 0; i < sizeof(lines); i++)
		load_large(0x2000 + lines[i] * LINE);
	load_lines(0x8000, 0, 5, 12);
	assert_int_equal(taken(RETIRE_L2_FILLS), sizeof(lines) + 12);
}

static void the_next_line_is_up_or_down(void **state)
{
	(void)state;
	cold(PREFETCH_UP_DOWN);
	load_lines(0x2000, 10, 0, 1);
	assert_int_equal(taken(RETIRE_L2_FILLS), 1);
	load_lines(0x2000, 20, 0, 1);
	assert_true(holds(&timing->l2, 0x2000 + 21 * LINE));
	load_lines(0x2000, 5, 0, 1);
	assert_true(holds(&timing->l2, 0x2000 + 4 * LINE));
	assert_int_equal(taken(RETIRE_L2_FILLS), 4);
	load_lines(0x2000, PAGE_LINES - 1, 0, 1);
	assert_int_equal(taken(RETIRE_L2_FILLS), 1);
}

/* Lines that are prefetched into the set of a line buffer do not push its line out. */
static void a_line_in_its_buffer_stays(void **state)
{
	u64 pages = 2 * timing->l1d.ways;

	(void)state;
	cold(PREFETCH_NEXT);
	load_large(0x100000 + 5 * LINE);
	for (u64 page = 0; page < pages; page++)
		load_lines(page * PAGE_SIZE, 3, 1, 2);
	assert_int_equal(taken(RETIRE_L1D_PREFETCHES), pages);
	assert_true(timing->data_line[timing_place(HOST + 0x100000 + 5 * LINE)]);
	assert_true(holds(&timing->l1d, 0x100000 + 5 * LINE));
	for (u64 page = 0; page < pages; page++)
		assert_int_equal(sets_hold(&timing->l1d, page * PAGE_SIZE / LINE + 5,
					   levels_tag(page * PAGE_SIZE / LINE + 5) | SETS_MARK),
				 page > pages - timing->l1d.ways);
	timing_flush_line(timing, (pages - 1) * PAGE_SIZE + 5 * LINE);
	load_large((pages - 1) * PAGE_SIZE + 5 * LINE);
	assert_int_equal(timing->seen.access.level, OBSERVED_MEMORY);
}

/* An instruction that reaches a trip is executed again: that teaches the prefetchers nothing. */
static void an_instruction_that_is_executed_again_changes_nothing(void **state)
{
	struct prefetch before;

	(void)state;
	cold(timing->params->prefetch.kinds);
	for (u32 i = 0; i < 3 * PAGE_LINES; i++) {
		load_large(0x100000 + i * LINE); /* two operands, in one set of L1 */
		load_large(0x300000 + i * LINE);
		before = timing->prefetch;
		memset(count, 0, sizeof(count));
		load_large(0x100000 + i * LINE);
		load_large(0x300000 + i * LINE);
		assert_memory_equal(&timing->prefetch, &before, sizeof(before));
		for (u32 class = 0; class < NRETIRE; class ++)
			assert_int_equal(count[class], 0);
	}
}

/* The first line of each page is missed. */
static void every_model_prefetches_a_stream(void **state)
{
	u64 pages = 16;

	(void)state;
	cold(timing->params->prefetch.kinds);
	load_lines(0x100000, 0, 1, pages * PAGE_LINES);
	assert_in_range(taken(RETIRE_LLC_MISSES), pages, pages + 1);
	assert_int_equal(taken(RETIRE_L1D_MISSES), pages + 1);
	assert_int_equal(taken(RETIRE_L1D_FILLS), pages * PAGE_LINES);
	assert_int_equal(taken(RETIRE_L2_FILLS), pages * PAGE_LINES);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(the_next_line_follows_an_ascending_load),
		TEST(stores_are_not_prefetched_into_the_first_level),
		TEST(lines_come_in_pairs),
		TEST(a_stream_runs_ahead_of_what_is_asked_for),
		TEST(as_many_streams_are_followed_as_there_are_entries),
		TEST(accesses_without_a_direction_are_no_stream),
		TEST(the_next_line_is_up_or_down),
		TEST(a_line_in_its_buffer_stays),
		TEST(an_instruction_that_is_executed_again_changes_nothing),
		TEST(every_model_prefetches_a_stream),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
