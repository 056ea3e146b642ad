// SPDX-License-Identifier: MIT
/*
 * Sets that are rings (timing/rings.h): they keep what those that are lists do (timing/sets.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/splitmix.h"
#include "timing/rings.h"

static u64 seed;

static u64 below(u64 n)
{
	return splitmix(&seed) % n;
}

#define WAYS 5u

static void a_ring_is_a_list(void **state)
{
	u64 list[WAYS] = { 0 }, tags[WAYS] = { 0 }, of_list, of_ring;
	u32 narrow[WAYS] = { 0 };
	u8 youngest[2] = { 0 };
	struct timing_sets one = { .tags = list, .sets = 1, .ways = WAYS };
	struct ring rings[] = { { tags, &youngest[0], WAYS, false },
				{ narrow, &youngest[1], WAYS, true } };

	(void)state;
	seed = 5;
	for (u32 i = 0; i < 10000; i++) {
		u64 tag = 1 + below(8);
		u64 what = below(3);
		bool there = sets_hold(&one, 0, tag);

		of_list = 0;
		if (what == 0)
			sets_use(&one, 0, tag, &of_list);
		else if (what == 1 && there)
			sets_touch(&one, 0, tag);
		else if (what == 1)
			sets_use(&one, 0, tag, &of_list);
		else
			sets_drop(&one, 0, tag);
		for (u32 k = 0; k < ARRAY_SIZE(rings); k++) {
			const struct ring *r = &rings[k];
			u32 place = ring_find(r, tag);

			assert_int_equal(place < WAYS, there);
			of_ring = 0;
			if (what == 0)
				assert_int_equal(ring_use(r, tag, &of_ring), there);
			else if (what == 1 && there)
				ring_rise(r, place, tag);
			else if (what == 1)
				of_ring = ring_add(r, tag);
			else if (there)
				ring_drop(r, place);
			assert_int_equal(of_ring, of_list);
			for (u32 way = 0; way < WAYS; way++)
				assert_int_equal(ring_at(r, (*r->youngest + way) % WAYS),
						 list[way]);
			assert_int_equal(ring_oldest(r), list[WAYS - 1]);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_ring_is_a_list),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
