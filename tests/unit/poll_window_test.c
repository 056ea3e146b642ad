// SPDX-License-Identifier: MIT
/*
 * How long a thread looks before it sleeps: what it learns from waits of a known length. Waits are
 * as long as they say and what this process is held up by, so that limits are far from both.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "base/poll_window.h"

#define SECOND 1000000000ull
#define HOUR   (3600 * SECOND)

/* A wait that began so long ago is over. */
static void wait_for(struct poll_window *window, u64 ns, u64 most)
{
	u64 now = poll_clock();
	struct poll_look look = { .begun = now - ns, .last = now, .end = now };

	poll_learn(window, &look, most);
}

static void it_grows_while_waits_are_short(void **state)
{
	struct poll_window window = { 0 };

	(void)state;
	for (u64 ns = POLL_FIRST_NS; ns < HOUR; ns *= 2) {
		wait_for(&window, window.ns + 1, HOUR);
		assert_int_equal(window.ns, ns);
	}
	wait_for(&window, window.ns + 1, HOUR);
	assert_int_equal(window.ns, HOUR);
}

static void a_wait_within_it_changes_nothing(void **state)
{
	struct poll_window window = { .ns = HOUR };

	(void)state;
	wait_for(&window, 0, HOUR);
	wait_for(&window, HOUR / 2, HOUR);
	assert_int_equal(window.ns, HOUR);
}

static void it_shrinks_after_long_waits_until_nobody_looks(void **state)
{
	struct poll_window window = { .ns = 4 * POLL_FIRST_NS };
	u64 expected[] = { 2 * POLL_FIRST_NS, POLL_FIRST_NS, 0, 0 };

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(expected); i++) {
		wait_for(&window, SECOND, POLL_MOST_NS);
		assert_int_equal(window.ns, expected[i]);
	}
}

static void a_limit_of_nothing_is_kept(void **state)
{
	struct poll_window window = { .ns = 8 * POLL_FIRST_NS };

	(void)state;
	for (u32 i = 0; i < 2; i++) {
		wait_for(&window, 1, 0);
		assert_int_equal(window.ns, 0);
	}
}

static void it_looks_until_its_end_or_that_of_the_wait(void **state)
{
	struct poll_window window = { .ns = HOUR };
	struct poll_look look = poll_begin(&window, 2 * HOUR), brief = poll_begin(&window, 1);

	(void)state;
	assert_int_equal(look.end - look.begun, HOUR);
	assert_int_equal(brief.end - brief.begun, 1);
	window.ns = 0;
	look = poll_begin(&window, HOUR);
	assert_false(poll_again(&window, &look));
}

/* The processor was another's for an hour. */
static void it_rests_where_processors_are_few(void **state)
{
	struct poll_window window = { .ns = HOUR };
	struct poll_look look = poll_begin(&window, HOUR);

	(void)state;
	look.last -= HOUR;
	assert_false(poll_again(&window, &look));
	assert_int_equal(window.ns, 0);
	assert_true(window.rests_until > look.last);
	window.rests_until += HOUR; /* not before this test has ended */
	wait_for(&window, 1, HOUR);
	assert_int_equal(window.ns, 0);
	window.rests_until = 0;
	wait_for(&window, 1, HOUR);
	assert_int_equal(window.ns, POLL_FIRST_NS);
}

static u64 rest_after_another(struct poll_window *window)
{
	struct poll_look look = poll_begin(window, HOUR);
	u64 began = look.begun, rest;

	look.last -= HOUR;
	poll_again(window, &look);
	rest = window->rests_until - look.last;
	assert_true(look.last >= began && rest >= POLL_REST_FIRST_NS && rest <= POLL_REST_MOST_NS);
	return rest;
}

static void rests_grow_while_processors_are_few(void **state)
{
	struct poll_window window = { .ns = HOUR };

	(void)state;
	for (u64 rest = POLL_REST_FIRST_NS; rest < POLL_REST_MOST_NS; rest *= 2)
		assert_int_equal(rest_after_another(&window), rest);
	assert_int_equal(rest_after_another(&window), POLL_REST_MOST_NS);
	window.ns = HOUR;
	wait_for(&window, 1, HOUR); /* a look that found something */
	assert_int_equal(rest_after_another(&window), POLL_REST_MOST_NS);
	for (u64 rest = POLL_REST_MOST_NS; rest; rest /= 2) {
		window.ns = HOUR;
		wait_for(&window, 1, HOUR);
	}
	assert_int_equal(rest_after_another(&window), POLL_REST_FIRST_NS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_grows_while_waits_are_short),
		cmocka_unit_test(a_wait_within_it_changes_nothing),
		cmocka_unit_test(it_shrinks_after_long_waits_until_nobody_looks),
		cmocka_unit_test(a_limit_of_nothing_is_kept),
		cmocka_unit_test(it_looks_until_its_end_or_that_of_the_wait),
		cmocka_unit_test(it_rests_where_processors_are_few),
		cmocka_unit_test(rests_grow_while_processors_are_few),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
