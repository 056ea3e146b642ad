// SPDX-License-Identifier: MIT
/*
 * Events as perf writes them (cli/base/event_name.c): modifiers, and raw codes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cli/base/client.h"
#include "hostperf/hostperf.h"

static u32 flags_of(const char *text)
{
	struct event_wanted event;

	assert_true(event_parse(text, "icelake", &event));
	return event.flags;
}

static void host_and_guest_together_exclude_nothing(void **state)
{
	(void)state;
	assert_int_equal(flags_of("cycles:H"), HOST_EXCLUDE_GUEST);
	assert_int_equal(flags_of("cycles:uG"), HOST_EXCLUDE_HOST);
	assert_int_equal(flags_of("cycles:GH"), 0);
	assert_int_equal(flags_of("cycles:HuGH"), 0);
}

static void a_raw_code_is_up_to_16_hex_digits(void **state)
{
	static const char *const wrong[] = { "r",	   "r-1",  "r+c4", "r c4",
					     "r0xc4",	   "rc4g", "rz",   "r000000000000000c4",
					     "R00000000c4" };
	struct event_wanted event;

	(void)state;
	assert_true(event_parse("r00000000000001C4:u", "icelake", &event));
	assert_int_equal(event.select & 0xffff, 0x1c4);
	assert_true(event_parse("r40004a3", "icelake", &event));
	assert_int_equal(event.select >> 24, 4);
	for (u32 i = 0; i < ARRAY_SIZE(wrong); i++)
		if (event_parse(wrong[i], "icelake", &event))
			fail_msg("'%s' is taken for an event", wrong[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(host_and_guest_together_exclude_nothing),
		cmocka_unit_test(a_raw_code_is_up_to_16_hex_digits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
