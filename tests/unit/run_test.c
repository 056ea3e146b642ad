// SPDX-License-Identifier: MIT
/*
 * The next line of a run (timing/run.c): what is done in one pass is what look-ups would do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/splitmix.h"
#include "timing/levels.h"
#include "timing/params.h"
#include "unit/on_models.h"
#include "unit/plain_timing.h"

static u64 seed;

static u64 below(u64 n)
{
	return splitmix(&seed) % n;
}

#define PLACES	 6
#define ACCESSES 60000

/* Where a program goes through memory: pages lie anywhere. */
struct place {
	u64 at, left;
	s64 step;
	u16 size;
	bool store;
};

static u8 lines[4 << 20]; /* what loads find there */

static struct timing_access next_access(struct place *place)
{
	u64 linear, page;

	if (!place->left) {
		*place = (struct place){ .at = below(sizeof(lines)),
					 .left = below(400),
					 .step = (s64)below(9) * 16 - 32,
					 .size = (u16)(1 + below(64)),
					 .store = !below(3) };
		if (!below(20))
			place->size = PAGE_SIZE;
		return next_access(place);
	}
	place->left--;
	place->at += (u64)place->step;
	linear = place->at % sizeof(lines);
	page = linear / PAGE_SIZE;
	return (struct timing_access){ .linear = linear,
				       .physical = (page * 7919 % 8192) * PAGE_SIZE +
						   linear % PAGE_SIZE,
				       .host = (u64)(uintptr_t)lines + linear,
				       .size = place->size < PAGE_SIZE - linear % PAGE_SIZE
						       ? place->size
						       : (u16)(PAGE_SIZE - linear % PAGE_SIZE),
				       .page_shift = PAGE_SHIFT,
				       .store = place->store };
}

/* Another processor, which takes no short way: it looks for prefetched lines where they are not. */
static struct timing *slow;
static u64 slow_count[NRETIRE];
static void *slow_memory;

static void make_slow(void)
{
	slow = calloc(1, sizeof(*slow));
	slow_memory = calloc(1, timing_memory(model));
	assert_true(slow && slow_memory);
	memset(slow_count, 0, sizeof(slow_count));
	timing_init(slow, model, slow_memory, slow_count);
}

static void mislead(const struct timing_access *a)
{
	for (u64 at = 0; at < a->size + LINE; at += LINE) {
		u64 line = (a->physical + at) / LINE;
		const u64 *set = slow->l1d.tags + line % TIMING_LINES * slow->l1d.ways;
		u8 *way = prefetch_way(&slow->prefetch, line);

		if (set[*way] == (levels_tag(line) | SETS_MARK))
			*way = (u8)((*way + 1) % slow->l1d.ways);
	}
}

static void show(struct timing *t, u64 *counts, const struct timing_access *a, u64 i)
{
	penalty_at(t, i * 300 + counts[RETIRE_CYCLES], i * 4);
	timing_data(t, a);
	if (!(i % 40))
		penalty_branch(t);
}

static void a_run_costs_what_look_ups_would(void **state)
{
	struct place places[PLACES] = { 0 };

	(void)state;
	seed = 7;
	make_slow();
	timing->prefetch.kinds = timing->params->prefetch.kinds;
	timing_set_full(timing, true);
	timing_set_full(slow, true);
	for (u64 i = 1; i <= ACCESSES; i++) {
		struct timing_access a = next_access(&places[below(PLACES)]);

		show(timing, count, &a, i);
		mislead(&a);
		show(slow, slow_count, &a, i);
		assert_memory_equal(count, slow_count, sizeof(count));
		assert_int_equal(timing->seen.access.level, slow->seen.access.level);
		assert_int_equal(timing->seen.access.latency, slow->seen.access.latency);
	}
	assert_true(count[RETIRE_L1D_PREFETCHES] > ACCESSES / 20);
	free(slow);
	free(slow_memory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_run_costs_what_look_ups_would),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
