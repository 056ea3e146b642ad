// SPDX-License-Identifier: MIT
/*
 * irqfds that are taken without waiting. Which threads are inside of Linux's epoll at the same time
 * is chance: epoll_wait() is replaced by one that finds nothing, as Linux's may.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "irq/irqfd.h"

#define GSI 7

static s64 fallen;
static u32 misses; /* calls of epoll_wait() that are to find nothing */

int epoll_wait(int epoll, struct epoll_event *events, int n, int timeout)
{
	if (misses) {
		misses--;
		return 0;
	}
	return syscall(SYS_epoll_wait, epoll, events, n, timeout);
}

static int assign(struct irqfds *irqfds)
{
	struct kvm_irqfd args = { .fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), .gsi = GSI };

	assert_int_equal(irqfd_open(irqfds), 0);
	assert_int_equal(irqfd_assign(irqfds, &args, &fallen), 0);
	return args.fd;
}

static void what_was_signalled_is_taken_though_epoll_misses_it(void **state)
{
	struct irqfd_event event = { .what = IRQFD_STOP };
	struct irqfds irqfds;
	int fd = assign(&irqfds);

	(void)state;
	for (misses = 0; misses < 4; misses++) {
		u32 before = misses;

		assert_int_equal(eventfd_write(fd, 1), 0);
		assert_int_equal(irqfd_take(&irqfds, &event, 1), 1);
		assert_int_equal(misses, 0);
		assert_int_equal(event.what, IRQFD_EDGE);
		assert_int_equal(event.gsi, GSI);
		assert_int_equal(irqfd_take(&irqfds, &event, 1), 0);
		misses = before;
	}
	irqfd_close(&irqfds);
	close(fd);
}

static void nothing_is_taken_twice_or_of_a_file_that_is_not_ours(void **state)
{
	struct irqfd_event event;
	struct irqfds irqfds;
	int fd = assign(&irqfds), other = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);

	(void)state;
	misses = 0;
	assert_int_equal(irqfd_take(&irqfds, &event, 1), 0);
	for (int number = 3; number < 64;
	     number++) /* a program that closes what it does not know */
		if (number != fd && number != other && number != irqfds.epoll &&
		    number != irqfds.stop && number != irqfds.timer)
			dup2(other, number);
	assert_int_equal(irqfd_take(&irqfds, &event, 1), 0);
	close(fd);
}

/* The eventfd stays open elsewhere, so that epoll still has it under its old number. */
static void no_file_of_the_program_is_read_or_written(void **state)
{
	struct irqfd_event event;
	struct irqfds irqfds;
	struct kvm_irqfd args = { .fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC),
				  .resamplefd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC),
				  .flags = KVM_IRQFD_FLAG_RESAMPLE,
				  .gsi = GSI };
	char bytes[16] = { 0 };
	int pipes[2];

	(void)state;
	misses = 0;
	assert_int_equal(irqfd_open(&irqfds), 0);
	assert_int_equal(pipe2(pipes, O_NONBLOCK | O_CLOEXEC), 0);
	assert_int_equal(irqfd_assign(&irqfds, &args, &fallen), 0);
	assert_int_equal(write(pipes[1], bytes, sizeof(bytes)), sizeof(bytes));
	/* The numbers of both duplicates become the program's. */
	assert_int_equal(dup2(pipes[0], pipes[1] + 1), pipes[1] + 1);
	assert_int_equal(dup2(pipes[1], pipes[1] + 2), pipes[1] + 2);
	assert_int_equal(eventfd_write(args.fd, 1), 0);
	irqfd_wait(&irqfds);
	assert_int_equal(irqfd_next(&irqfds, &event, 1), 1);
	assert_int_equal(event.what, IRQFD_STOP); /* it would spin */
	assert_true(irqfd_resample(&irqfds, GSI, true));
	assert_int_equal(read(pipes[0], bytes, sizeof(bytes)), sizeof(bytes));
	assert_int_equal(read(pipes[0], bytes, 1), -1);
	irqfd_close(&irqfds);
	assert_int_equal(fcntl(pipes[1] + 1, F_GETFD), 0);
	assert_int_equal(fcntl(pipes[1] + 2, F_GETFD), 0);
}

static bool rings(const struct irqfds *irqfds)
{
	struct pollfd now = { irqfds->bell, POLLIN, 0 };

	return poll(&now, 1, 0) > 0;
}

static void the_thread_is_not_woken_while_another_looks(void **state)
{
	struct irqfd_event event;
	struct irqfds irqfds;
	int fd = assign(&irqfds);

	(void)state;
	misses = 0;
	assert_true(irqfd_look_begin(&irqfds));
	assert_false(irqfd_look(&irqfds));
	assert_int_equal(eventfd_write(fd, 1), 0);
	assert_false(rings(&irqfds));
	assert_true(irqfd_look(&irqfds));
	assert_int_equal(irqfd_next(&irqfds, &event, 1), 1);
	assert_int_equal(event.gsi, GSI);
	assert_false(irqfd_look(&irqfds));
	irqfd_look_end(&irqfds);
	assert_false(rings(&irqfds));
	irqfd_close(&irqfds);
	close(fd);
}

static void what_comes_after_the_last_look_wakes_the_thread(void **state)
{
	struct irqfds irqfds;
	int fd = assign(&irqfds);

	(void)state;
	misses = 0;
	assert_true(irqfd_look_begin(&irqfds));
	assert_int_equal(eventfd_write(fd, 1), 0);
	irqfd_look_end(&irqfds);
	assert_true(rings(&irqfds));
	irqfd_close(&irqfds);
	close(fd);
}

/* The program has put a file of its own where the bell was. */
static void nobody_looks_whose_descriptors_are_the_programs(void **state)
{
	struct irqfd_event event;
	struct irqfds irqfds;
	int fd = assign(&irqfds), other = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);

	(void)state;
	misses = 0;
	assert_int_equal(dup2(other, irqfds.bell), irqfds.bell);
	assert_false(irqfd_look_begin(&irqfds));
	assert_int_equal(irqfd_next(&irqfds, &event, 1), 1);
	assert_int_equal(event.what, IRQFD_STOP);
	irqfd_close(&irqfds);
	assert_int_equal(fcntl(irqfds.bell, F_GETFD), 0);
	close(irqfds.bell);
	close(irqfds.epoll);
	close(other);
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_signalled_is_taken_though_epoll_misses_it),
		cmocka_unit_test(nothing_is_taken_twice_or_of_a_file_that_is_not_ours),
		cmocka_unit_test(no_file_of_the_program_is_read_or_written),
		cmocka_unit_test(the_thread_is_not_woken_while_another_looks),
		cmocka_unit_test(what_comes_after_the_last_look_wakes_the_thread),
		cmocka_unit_test(nobody_looks_whose_descriptors_are_the_programs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
