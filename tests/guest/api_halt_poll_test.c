// SPDX-License-Identifier: MIT
/*
 * A halted vCPU that looks for its interrupt before it sleeps, as long as the program allows that
 * (KVM_CAP_HALT_POLL): it takes each in either case, and says how it waited. Run by `vpmu kvm`.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "guest/irq_guest.h"

#define TURNS 200
#define NEVER 0
#define LONG  4000000000u /* ns: longer than any thread of this test waits for another */

#define PATIENCE 10 /* seconds */

static int line;
static int stats; /* of the vCPU; can be read while it runs */

static void set_limit(u64 ns)
{
	struct kvm_enable_cap cap = { .cap = KVM_CAP_HALT_POLL, .args = { ns } };

	KVM_CALL(irq_guest.vm, KVM_ENABLE_CAP, &cap);
}

/* A number of the vCPU's that KVM_GET_STATS_FD shows. */
static u64 stat_of(const char *name)
{
	struct kvm_stats_header header;
	u64 value = ~0ull;

	assert_int_equal(pread(stats, &header, sizeof(header), 0), sizeof(header));
	for (u32 i = 0; i < header.num_desc; i++) {
		u32 size = sizeof(struct kvm_stats_desc) + header.name_size;
		struct kvm_stats_desc *desc = malloc(size);

		assert_non_null(desc);
		assert_int_equal(pread(stats, desc, size, header.desc_offset + i * size), size);
		if (!strcmp(desc->name, name))
			assert_int_equal(pread(stats, &value, 8, header.data_offset + desc->offset),
					 8);
		free(desc);
	}
	assert_true(value != ~0ull);
	return value;
}

/* Interrupts the guest each time that it has executed HLT. */
static void *interrupt(void *arg)
{
	time_t end = time(NULL) + PATIENCE;

	for (u64 halts = 1; halts <= TURNS; halts++) {
		while (stat_of("halt_exits") < halts && time(NULL) < end)
			sched_yield();
		eventfd_write(line, 1);
	}
	return arg;
}

static void take_interrupts(u64 limit)
{
	struct kvm_irqfd arg = { .gsi = EDGE_PIN };
	pthread_t thread;

	irq_start(irq_with_pit);
	irq_redirect(EDGE_PIN, EDGE, HIGH_PIN, LEVEL | BIT(15));
	set_limit(limit);
	stats = KVM_CALL(irq_guest.vcpu[0], KVM_GET_STATS_FD, NULL);
	line = arg.fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	KVM_CALL(irq_guest.vm, KVM_IRQFD, &arg);
	assert_int_equal(pthread_create(&thread, NULL, interrupt, NULL), 0);
	for (u32 i = 0; i < TURNS; i++)
		assert_int_equal(irq_next(PORT), EDGE);
	pthread_join(thread, NULL);
}

static void end(void)
{
	close(line);
	close(stats);
	kvm_guest_destroy(&irq_guest);
}

static void a_vcpu_that_may_not_look_sleeps(void **state)
{
	(void)state;
	take_interrupts(NEVER);
	assert_int_equal(stat_of("halt_attempted_poll"), 0);
	assert_int_equal(stat_of("halt_poll_fail_ns") + stat_of("halt_poll_success_ns"), 0);
	end();
}

/* The first wait is slept through, since nothing is known of it. How many others find their
 * interrupt is chance: another process may have the processors. */
static void a_vcpu_that_may_looks_and_tells_how_long(void **state)
{
	u64 attempts, found;

	(void)state;
	take_interrupts(LONG);
	attempts = stat_of("halt_attempted_poll");
	found = stat_of("halt_successful_poll");
	assert_true(attempts > 0 && attempts >= found);
	assert_true(!found == !stat_of("halt_poll_success_ns"));
	assert_true((attempts == found) == !stat_of("halt_poll_fail_ns"));
	end();
}

static void a_limit_has_32_bits(void **state)
{
	struct kvm_enable_cap cap = { .cap = KVM_CAP_HALT_POLL, .args = { 1ull << 32 } };

	(void)state;
	irq_start(irq_with_irqchip);
	assert_int_equal(ioctl(irq_guest.vm, KVM_ENABLE_CAP, &cap), -1);
	assert_int_equal(errno, EINVAL);
	kvm_guest_destroy(&irq_guest);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_vcpu_that_may_not_look_sleeps),
		cmocka_unit_test(a_vcpu_that_may_looks_and_tells_how_long),
		cmocka_unit_test(a_limit_has_32_bits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
