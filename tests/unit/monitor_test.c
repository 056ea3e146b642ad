// SPDX-License-Identifier: MIT
/*
 * QMP as exec/qmp.c speaks it, with the other end in this program: what QEMU would say is in
 * the socket before it is asked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "exec/exec.h"
#include "exec/qmp.h"

/* The rest of the command is not needed here. */
u64 monotonic_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000ull + now.tv_nsec / 1000000;
}

#define RUNNING "{\"return\": {\"status\": \"running\", \"running\": true}}\n"
#define FAILED	"{\"return\": {\"status\": \"internal-error\", \"running\": false}}\n"
#define PAUSED	"{\"return\": {\"status\": \"paused\", \"running\": false}}\n"
#define STOP	"{\"timestamp\": {\"seconds\": 1, \"microseconds\": 2}, \"event\": \"STOP\"}\n"
#define RESUME	"{\"timestamp\": {\"seconds\": 1, \"microseconds\": 2}, \"event\": \"RESUME\"}\n"

static const struct row {
	const char *says;
	bool hears; /* by monitor_read(), else asks */
	bool failed;
} rows[] = {
	{ RUNNING, false, false },
	{ FAILED, false, true },
	{ RESUME RUNNING, false, false },
	{ STOP FAILED, false, true },
	{ STOP RUNNING FAILED, false, true }, /* stopped after the answer was made */
	{ STOP RUNNING PAUSED, false, false },
	{ RESUME, true, false },
	{ STOP FAILED, true, true },
	{ STOP PAUSED, true, false },
	{ STOP RESUME RUNNING, true, false },
};

static void a_machine_that_fails_is_seen_to(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct row *row = &rows[i];
		int ends[2];

		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
		assert_int_equal(write(ends[1], row->says, strlen(row->says)), strlen(row->says));
		assert_int_equal(row->hears ? monitor_read(ends[0]) : monitor_has_failed(ends[0]),
				 row->failed);
		close(ends[0]);
		close(ends[1]);
	}
}

static void a_monitor_that_was_closed_is_seen_to(void **state)
{
	int ends[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	assert_false(monitor_is_closed(ends[0]));
	assert_int_equal(write(ends[1], RESUME "{", sizeof(RESUME)), sizeof(RESUME));
	close(ends[1]);
	assert_false(monitor_is_closed(ends[0])); /* there is a line to read */
	assert_false(monitor_read(ends[0]));
	assert_false(monitor_read(ends[0])); /* half a line is none, and not waited for */
	assert_true(monitor_is_closed(ends[0]));
	close(ends[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_machine_that_fails_is_seen_to),
		cmocka_unit_test(a_monitor_that_was_closed_is_seen_to),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
