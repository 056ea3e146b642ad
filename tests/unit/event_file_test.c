// SPDX-License-Identifier: MIT
/*
 * Eventfds that the program opened to block: reading and writing them does not, and they stay as
 * they are. What fails here hangs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <linux/kcmp.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/event_file.h"

#define FULL (~0ull - 1)

static void an_empty_one_is_not_waited_for(void **state)
{
	int fd = eventfd(3, 0);

	(void)state;
	assert_true(event_file_take(fd));
	assert_false(event_file_take(fd));
	assert_true(event_file_blocks(fd));
	close(fd);
}

static void a_full_one_stays_full(void **state)
{
	int fd = eventfd(0, 0);
	eventfd_t count;

	(void)state;
	event_file_signal(fd, true);
	assert_int_equal(eventfd_write(fd, FULL - 1), 0);
	event_file_signal(fd, true);
	assert_int_equal(eventfd_read(fd, &count), 0);
	assert_int_equal(count, FULL);
	assert_true(event_file_blocks(fd));
	close(fd);
}

static void one_that_does_not_block_is_written_to(void **state)
{
	int fd = eventfd(0, EFD_NONBLOCK);
	eventfd_t count;

	(void)state;
	assert_false(event_file_blocks(fd));
	assert_false(event_file_take(fd));
	event_file_signal(fd, false);
	assert_int_equal(eventfd_read(fd, &count), 0);
	assert_int_equal(count, 1);
	close(fd);
}

/* A host may refuse to tell, and then the caller's guess is all there is. */
static bool host_tells(int a, int copy)
{
	return !syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, a, copy);
}

static void copies_are_one_file(void **state)
{
	int a = eventfd(0, 0), b = eventfd(0, 0), copy = dup(a);

	(void)state;
	assert_true(event_file_same(a, copy, true));
	assert_false(event_file_same(a, b, false));
	if (host_tells(a, copy)) {
		assert_true(event_file_same(a, copy, false));
		assert_false(event_file_same(a, b, true));
	} else {
		print_message("the host does not tell\n");
		assert_false(event_file_same(a, copy, false));
		assert_true(event_file_same(a, b, true));
	}
	close(a);
	close(b);
	close(copy);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_one_is_not_waited_for),
		cmocka_unit_test(a_full_one_stays_full),
		cmocka_unit_test(one_that_does_not_block_is_written_to),
		cmocka_unit_test(copies_are_one_file),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
