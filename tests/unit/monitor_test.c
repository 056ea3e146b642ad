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
		struct monitor monitor;
		int ends[2];

		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
		monitor = (struct monitor){ .fd = ends[0] };
		assert_int_equal(write(ends[1], row->says, strlen(row->says)), strlen(row->says));
		assert_int_equal(row->hears ? monitor_read(&monitor) : monitor_has_failed(&monitor),
				 row->failed);
		close(ends[0]);
		close(ends[1]);
	}
}

/* The rest is about a QEMU that a guest has taken over. Whatever it says or does not say, its user
 * can end it: nothing here waits for it for ever. */
#define LIMIT_SECONDS 20

static void open_ends(int ends[2], struct monitor *monitor)
{
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	*monitor = (struct monitor){ .fd = ends[0] };
	alarm(LIMIT_SECONDS);
}

static void close_ends(const int ends[2])
{
	alarm(0);
	close(ends[0]);
	close(ends[1]);
}

static void say(int fd, const char *text)
{
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void one_that_stops_before_every_answer_has_failed(void **state)
{
	struct monitor monitor;
	int ends[2];

	(void)state;
	open_ends(ends, &monitor);
	for (u32 i = 0; i < 100; i++)
		say(ends[1], STOP RUNNING);
	shutdown(ends[1], SHUT_WR);
	assert_true(monitor_has_failed(&monitor));
	close_ends(ends);
}

static void half_a_line_is_not_waited_for_and_not_forgotten(void **state)
{
	static const char text[] = STOP FAILED;
	struct monitor monitor;
	int ends[2];

	(void)state;
	for (u32 half = 1; half < sizeof(text) - 1; half++) {
		open_ends(ends, &monitor);
		assert_int_equal(write(ends[1], text, half), half);
		assert_false(monitor_read(&monitor));
		assert_false(monitor_read(&monitor));
		say(ends[1], text + half);
		assert_true(monitor_read(&monitor));
		close_ends(ends);
	}
}

static void an_answer_that_does_not_come_is_not_waited_for(void **state)
{
	struct monitor monitor;
	int ends[2];

	(void)state;
	open_ends(ends, &monitor);
	say(ends[1], STOP);
	assert_false(monitor_read(&monitor));
	say(ends[1], RESUME);
	assert_false(monitor_read(&monitor));
	say(ends[1], STOP RUNNING); /* stopped after the answer was made */
	assert_false(monitor_read(&monitor));
	say(ends[1], FAILED);
	assert_true(monitor_read(&monitor));
	close_ends(ends);
}

static void one_that_reads_no_question_has_failed(void **state)
{
	bool failed = false;
	struct monitor monitor;
	int ends[2];

	(void)state;
	open_ends(ends, &monitor);
	for (u32 i = 0; i < 100000 && !failed; i++) {
		say(ends[1], STOP RUNNING);
		failed = monitor_read(&monitor);
	}
	assert_true(failed);
	close_ends(ends);
}

static void a_monitor_that_was_closed_is_seen_to(void **state)
{
	struct monitor monitor;
	int ends[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	monitor = (struct monitor){ .fd = ends[0] };
	assert_false(monitor_is_closed(&monitor));
	assert_int_equal(write(ends[1], RESUME "{", sizeof(RESUME)), sizeof(RESUME));
	close(ends[1]);
	assert_false(monitor_is_closed(&monitor)); /* there is a line to read */
	assert_false(monitor_read(&monitor));
	assert_false(monitor_read(&monitor)); /* half a line is none, and not waited for */
	assert_true(monitor_is_closed(&monitor));
	close(ends[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_machine_that_fails_is_seen_to),
		cmocka_unit_test(one_that_stops_before_every_answer_has_failed),
		cmocka_unit_test(half_a_line_is_not_waited_for_and_not_forgotten),
		cmocka_unit_test(an_answer_that_does_not_come_is_not_waited_for),
		cmocka_unit_test(one_that_reads_no_question_has_failed),
		cmocka_unit_test(a_monitor_that_was_closed_is_seen_to),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
