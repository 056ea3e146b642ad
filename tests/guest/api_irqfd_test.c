// SPDX-License-Identifier: MIT
/*
 * What is left of an irqfd after it was taken away: nothing that comes later. Run by `vpmu kvm`.
 */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "guest/irq_guest.h"

#define OTHER_PIN 11
#define TURNS	  100
#define PATIENCE  10 /* seconds */

static bool is_up(u32 pin)
{
	struct kvm_irqchip chip = { .chip_id = KVM_IRQCHIP_IOAPIC };

	KVM_CALL(irq_guest.vm, KVM_GET_IRQCHIP, &chip);
	return chip.chip.ioapic.irr >> pin & 1;
}

static bool comes_up(u32 pin)
{
	time_t end = time(NULL) + PATIENCE;

	while (!is_up(pin) && time(NULL) < end)
		sched_yield();
	return is_up(pin);
}

/*
 * This thread is to run as soon as the VM's has read the eventfd, and before that does anything
 * with it. Both on one processor, and this one first: where that is not allowed, it is chance.
 */
static void come_first(cpu_set_t *before)
{
	struct sched_param param = { .sched_priority = 1 };
	cpu_set_t one;

	assert_int_equal(sched_getaffinity(0, sizeof(*before), before), 0);
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
		if (CPU_ISSET(i, before))
			CPU_SET(i, &one);
	sched_setaffinity(0, sizeof(one), &one);
	irq_start(irq_with_pit); /* the VM has its thread */
	if (sched_setscheduler(0, SCHED_FIFO, &param))
		print_message("no real-time priority: the test may miss what it looks for\n");
}

static void be_as_before(const cpu_set_t *before)
{
	struct sched_param param = { 0 };

	sched_setscheduler(0, SCHED_OTHER, &param);
	sched_setaffinity(0, sizeof(*before), before);
}

/* A full eventfd: it can be written when it was read. */
static void write_and_wait(int fd)
{
	struct pollfd wait = { .fd = fd, .events = POLLOUT };

	assert_int_equal(eventfd_write(fd, ~0ull - 1), 0);
	assert_int_equal(poll(&wait, 1, PATIENCE * 1000), 1);
}

/* KVM flushes what is on its way. */
static void a_level_is_down_for_good_after_a_deassign(void **state)
{
	struct kvm_irqfd arg = { .fd = eventfd(0, EFD_NONBLOCK),
				 .gsi = HIGH_PIN,
				 .resamplefd = eventfd(0, EFD_NONBLOCK) };
	struct kvm_irqfd next = { .fd = eventfd(0, EFD_NONBLOCK), .gsi = OTHER_PIN };
	cpu_set_t before;
	bool up = false;

	(void)state;
	come_first(&before);
	KVM_CALL(irq_guest.vm, KVM_IRQFD, &next);
	for (u32 turn = 0; turn < TURNS && !up; turn++) {
		arg.flags = KVM_IRQFD_FLAG_RESAMPLE;
		KVM_CALL(irq_guest.vm, KVM_IRQFD, &arg);
		write_and_wait(arg.fd);
		arg.flags = KVM_IRQFD_FLAG_DEASSIGN;
		KVM_CALL(irq_guest.vm, KVM_IRQFD, &arg);
		write_and_wait(next.fd); /* taken after all else was done */
		up = is_up(HIGH_PIN);
	}
	be_as_before(&before);
	assert_false(up);
	close(arg.fd);
	close(next.fd);
	close(arg.resamplefd);
	kvm_guest_destroy(&irq_guest);
}

/* KVM hears of the close. */
static void a_level_falls_when_its_number_becomes_another_eventfd(void **state)
{
	struct kvm_irqfd arg = { .fd = eventfd(0, EFD_NONBLOCK),
				 .gsi = HIGH_PIN,
				 .flags = KVM_IRQFD_FLAG_RESAMPLE,
				 .resamplefd = eventfd(0, EFD_NONBLOCK) };
	int other = eventfd(0, EFD_NONBLOCK);

	(void)state;
	irq_start(irq_with_irqchip);
	KVM_CALL(irq_guest.vm, KVM_IRQFD, &arg);
	eventfd_write(arg.fd, 1);
	assert_true(comes_up(HIGH_PIN));
	assert_int_equal(dup2(other, arg.fd), arg.fd);
	close(other);
	arg.gsi = OTHER_PIN;
	KVM_CALL(irq_guest.vm, KVM_IRQFD, &arg);
	assert_false(is_up(HIGH_PIN));
	eventfd_write(arg.fd, 1);
	assert_true(comes_up(OTHER_PIN));
	kvm_guest_destroy(&irq_guest);
	close(arg.fd);
	close(arg.resamplefd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_level_is_down_for_good_after_a_deassign),
		cmocka_unit_test(a_level_falls_when_its_number_becomes_another_eventfd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
