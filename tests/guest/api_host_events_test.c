// SPDX-License-Identifier: MIT
/*
 * Events of the host beside a guest that counts: pinned ones that exclude it, the host's own view
 * of a mediated guest, and the watchdog. Whichever come and go, the guest counts on and is exact.
 * Run by `vpmu kvm`.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "guest/control_client.h"
#include "guest/counting_guest.h"

/* Pinned events of the host that exclude the guest, while it owns the counters. */
static void events_of_the_host_come_and_go(void **state)
{
	(void)state;
	for (u32 i = 0; i < 200; i++) {
		int fd = control_dial();

		control_ask(fd, "0 open 0 0x300c0 9 0\n", "ok");
		control_ask(fd, "0 open 1 0x30076 9 0\n", "ok");
		control_ask(fd, "0 open 2 0x300c0 1 0\n",
			    "error: a mediated guest owns its counters");
		control_ask(fd, "0 read 0\n", "event 0 value ");
		control_ask(fd, "0 read 9\n", "event 9 value 0 ");
		close(fd); /* and the events are gone */
	}
}

static void wait_for_count(int fd, u32 id)
{
	u32 ms = 0;

	for (; !control_event(fd, id) && ms < COUNTING_PATIENCE_MS; ms++)
		usleep(1000);
	assert_true(ms < COUNTING_PATIENCE_MS);
}

/* On a second set of counters: the guest's own count is exact all the same. */
static void the_hosts_view_counts_a_mediated_guest(void **state)
{
	int fd = control_dial();

	(void)state;
	control_ask(fd, "0 set host-view=on\n", "ok");
	control_ask(fd, counting_guest.amd ? "0 open 0 0x300c2 4 0\n" : "0 open 0 0x300c4 4 0\n",
		    "ok");
	wait_for_count(fd, 0);
	control_ask(fd, "0 set host-view=off\n", "ok");
	close(fd);
}

/* Events of loads have all of its counters, until it is the turn of those of stores. */
static void events_of_the_hosts_view_take_turns(void **state)
{
	int fd = control_dial();
	char line[64];

	(void)state;
	control_ask(fd, "0 set host-view=on\n", "ok");
	for (u32 i = 0; i < 16; i++) {
		u32 loads = counting_guest.amd ? 0x30129 : 0x381d0,
		    stores = counting_guest.amd ? 0x30229 : 0x382d0;

		snprintf(line, sizeof(line), "0 open %u %#x 4 0\n", i, i < 8 ? loads : stores);
		control_ask(fd, line, "ok");
	}
	for (u32 i = 0; i < 16; i++)
		wait_for_count(fd, i);
	control_ask(fd, "0 set host-view=off\n", "ok");
	close(fd);
}

/* It counts guests: a mediated one does not tolerate it, one in event mode loses a counter. */
static void the_watchdog_takes_a_counter(void **state)
{
	int fd = control_dial();

	(void)state;
	control_ask(fd, "0 set watchdog=on\n", "error: a mediated guest owns its counters");
	control_ask(fd, "0 set pmu=event\n", "ok");
	control_ask(fd, "0 set watchdog=on\n", "ok");
	control_ask(fd, "0 set pmu=mediated\n", "error: events of the host count this guest");
	control_ask(fd, "0 set watchdog=off\n", "ok");
	control_ask(fd, "0 set pmu=mediated\n", "ok");
	close(fd);
}

#define TEST(name) \
	cmocka_unit_test_setup_teardown(name, counting_guest_start, counting_guest_finish)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(events_of_the_host_come_and_go),
		TEST(the_hosts_view_counts_a_mediated_guest),
		TEST(events_of_the_hosts_view_take_turns),
		TEST(the_watchdog_takes_a_counter),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
