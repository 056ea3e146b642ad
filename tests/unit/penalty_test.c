// SPDX-License-Identifier: MIT
/*
 * Penalties of full timing (timing/penalty.h) alone: they depend on what was shown since
 * observation began, and not on what the processor has done before, or since it ended. And what
 * lines of code cost.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "timing/params.h"
#include "timing/timing.h"
#include "unit/on_models.h"

#define SIZE  (8u << 20)
#define STEPS 20000
#define LIFE  500000 /* cycles */

struct side {
	struct timing timing;
	u64 count[NRETIRE];
	u64 ticks, insns; /* up to the instruction at hand, without penalties */
	void *tags;
};

static struct side *side[2];
static u8 *memory;
static u64 chance;

static u64 draw(u64 below)
{
	chance = chance * 6364136223846793005ull + 1442695040888963407ull;
	return (chance >> 33) % below;
}

static int on_model(void **state)
{
	const struct model *model = model_find(*state);

	memory = calloc(1, SIZE);
	assert_non_null(memory);
	for (u32 i = 0; i < 2; i++) {
		side[i] = calloc(1, sizeof(*side[i]));
		assert_non_null(side[i]);
		side[i]->tags = calloc(1, timing_memory(model));
		assert_non_null(side[i]->tags);
		timing_init(&side[i]->timing, model, side[i]->tags, side[i]->count);
		timing_set_full(&side[i]->timing, true);
	}
	return 0;
}

static int done(void **state)
{
	(void)state;
	for (u32 i = 0; i < 2; i++) {
		free(side[i]->tags);
		free(side[i]);
	}
	free(memory);
	return 0;
}

/* The instruction at hand fetches, loads, stores or is mispredicted. */
static void one_event(struct timing *t)
{
	u64 what = draw(16), at = draw(4) ? draw(SIZE / 64) : draw(SIZE / 8);
	struct timing_access a = { .linear = at * 8,
				   .physical = at * 8,
				   .host = (u64)(uintptr_t)memory + at * 8,
				   .size = 8,
				   .page_shift = PAGE_SHIFT,
				   .store = !draw(4),
				   .space = 1 };

	if (!what)
		penalty_branch(t);
	else if (what < 4)
		timing_fetch(t, &a);
	else
		timing_data(t, &a);
}

/* From begin to end of observation. Each begin is shown the same. */
static void observe(struct side *s, u32 steps)
{
	timing_observe(&s->timing, true);
	chance = 1;
	for (u32 i = 0; i < steps; i++) {
		u64 n = 1 + draw(20);

		s->insns += n;
		s->ticks += n * draw(TICKS_PER_CYCLE);
		penalty_at(&s->timing, s->ticks + s->count[RETIRE_CYCLES], s->insns);
		one_event(&s->timing);
	}
	timing_observe(&s->timing, false);
}

static void assert_equal(void)
{
	assert_memory_equal(side[0]->count, side[1]->count, sizeof(side[0]->count));
	assert_true(side[0]->count[RETIRE_STALLS]);
}

static void earlier_instructions_change_no_penalty(void **state)
{
	static const u64 insns[] = { 10, 400, 1000000, 1000000000 };

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(insns); i++) {
		side[1]->insns += insns[i]; /* no cycles were counted, */
		observe(side[0], 30 + 10 * i);
		observe(side[1], 30 + 10 * i);
		assert_equal();
		side[1]->ticks += insns[i] * TICKS_PER_CYCLE; /* or so many */
		observe(side[0], STEPS);
		observe(side[1], STEPS);
		assert_equal();
	}
}

/* Three times more lines than L2 has. Before each time, a hundred lives pass for the second side
 * that are not observed. */
static void observe_many(struct side *s)
{
	for (u32 i = 0; i < 3; i++) {
		if (s == side[1])
			s->ticks += LIFE * 1000ull / 7 * TICKS_PER_CYCLE;
		observe(s, 4 * STEPS);
	}
}

static void lines_of_the_last_level_age_while_they_are_observed(void **state)
{
	u64 aged;

	for (u32 i = 0; i < 2; i++) {
		timing_set_life(&side[i]->timing, LIFE);
		observe_many(side[i]);
	}
	assert_equal();
	aged = side[0]->count[RETIRE_LLC_MISSES];
	done(state); /* again, where lines live for ever */
	on_model(state);
	observe_many(side[0]);
	assert_true(aged > side[0]->count[RETIRE_LLC_MISSES]);
}

/* What the fetch of a line of code adds to a class. */
static u64 of_fetch(struct side *s, u64 at, enum retire_class class)
{
	struct timing_access a = { .linear = at, .physical = at, .page_shift = PAGE_SHIFT };
	u64 before = s->count[class];

	s->insns += 16;
	s->ticks += 4 * TICKS_PER_CYCLE;
	penalty_at(&s->timing, s->ticks + s->count[RETIRE_CYCLES], s->insns);
	timing_fetch(&s->timing, &a);
	return s->count[class] - before;
}

/* Straight-line code: a line that follows is fetched ahead, but not before its page is known. */
static void a_translation_is_not_fetched_ahead(void **state)
{
	struct side *s = side[0];
	const struct timing_params *params = s->timing.params;
	u64 walk = (params->walk + params->second) * (u64)TICKS_PER_CYCLE, ahead;

	(void)state;
	s->timing.prefetch.kinds = 0;
	timing_observe(&s->timing, true);
	of_fetch(s, 0x7000, RETIRE_CYCLES); /* the first one shown */
	of_fetch(s, 0x10f80, RETIRE_CYCLES);
	ahead = of_fetch(s, 0x10fc0, RETIRE_CYCLES);
	assert_int_not_equal(ahead, 0);
	assert_int_equal(of_fetch(s, 0x11000, RETIRE_CYCLES), ahead + walk);
	/* Of the two the translation is latency. */
	of_fetch(s, 0x20fc0, RETIRE_CYCLES);
	assert_int_equal(of_fetch(s, 0x21000, RETIRE_FETCH_LATENCY), walk);
	assert_int_equal(of_fetch(s, 0x21040, RETIRE_FETCH_LATENCY), 0);
}

static void the_first_line_that_is_missed_follows_no_other(void **state)
{
	struct side *s = side[0];
	const u16 *latency = s->timing.params->latency;

	(void)state;
	s->timing.prefetch.kinds = 0;
	timing_observe(&s->timing, true);
	of_fetch(s, 0x800, RETIRE_CYCLES); /* the first one shown */
	assert_int_equal(of_fetch(s, LINE_SIZE, RETIRE_FETCH_LATENCY),
			 (latency[3] - latency[0]) * (u64)TICKS_PER_CYCLE);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(earlier_instructions_change_no_penalty),
		TEST(lines_of_the_last_level_age_while_they_are_observed),
		TEST(a_translation_is_not_fetched_ahead),
		TEST(the_first_line_that_is_missed_follows_no_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
