// SPDX-License-Identifier: MIT
/*
 * GSI routes and irqfds alone: the table's rules, readers beside a writer, and events that a thread
 * gets from eventfds and the timer.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cmocka.h>

#include "irq/irqfd.h"
#include "irq/route.h"

#define REPLACEMENTS 200u

static struct route_table table;

static struct kvm_irq_routing_entry to_pin(u32 gsi, u32 chip, u32 pin)
{
	return (struct kvm_irq_routing_entry){
		.gsi = gsi,
		.type = KVM_IRQ_ROUTING_IRQCHIP,
		.u.irqchip = { .irqchip = chip, .pin = pin },
	};
}

static struct kvm_irq_routing_entry to_msi(u32 gsi, u64 address, u32 data)
{
	return (struct kvm_irq_routing_entry){
		.gsi = gsi,
		.type = KVM_IRQ_ROUTING_MSI,
		.u.msi = { .address_lo = address, .address_hi = address >> 32, .data = data },
	};
}

static int empty(void **state)
{
	(void)state;
	route_init(&table);
	return 0;
}

static void the_default_is_one_to_one(void **state)
{
	struct route route;

	(void)state;
	assert_int_equal(route_set_default(&table), 0);
	route = route_lookup(&table, 12);
	assert_false(route.msi);
	assert_int_equal(route.pin[KVM_IRQCHIP_PIC_MASTER], ROUTE_NO_PIN);
	assert_int_equal(route.pin[KVM_IRQCHIP_PIC_SLAVE], 4);
	assert_int_equal(route.pin[KVM_IRQCHIP_IOAPIC], 12);
	route = route_lookup(&table, 20);
	assert_int_equal(route.pin[KVM_IRQCHIP_PIC_SLAVE], ROUTE_NO_PIN);
	assert_int_equal(route.pin[KVM_IRQCHIP_IOAPIC], 20);
	assert_int_equal(route_gsi_of(&table, KVM_IRQCHIP_IOAPIC, 20), 20);
	assert_int_equal(route_gsi_of(&table, KVM_IRQCHIP_PIC_SLAVE, 4), 12);
}

static void a_gsi_without_a_route_goes_nowhere(void **state)
{
	struct route route = route_lookup(&table, 3);

	(void)state;
	assert_false(route.msi);
	for (u32 i = 0; i < ROUTE_CHIPS; i++)
		assert_int_equal(route.pin[i], ROUTE_NO_PIN);
	assert_false(route_lookup(&table, ROUTE_MAX_GSIS).msi);
	assert_int_equal(route_gsi_of(&table, KVM_IRQCHIP_IOAPIC, 3), -1);
}

static void an_msi_keeps_all_its_bits(void **state)
{
	struct kvm_irq_routing_entry e = to_msi(4095, 0x12345600fee0f00c, 0xdeadbeef);
	struct route route;

	(void)state;
	assert_int_equal(route_set(&table, &e, 1), 0);
	route = route_lookup(&table, 4095);
	assert_true(route.msi);
	assert_int_equal(route.address, 0x12345600fee0f00c);
	assert_int_equal(route.data, 0xdeadbeef);
}

static void a_gsi_may_not_have_two_routes_of_a_kind(void **state)
{
	const struct kvm_irq_routing_entry twice[] = { to_pin(1, 2, 1), to_pin(1, 2, 2) };
	const struct kvm_irq_routing_entry mixed[] = { to_pin(1, 2, 1),
						       to_msi(1, 0xfee00000, 0x40) };
	const struct kvm_irq_routing_entry msis[] = { to_msi(1, 0xfee00000, 0x40),
						      to_msi(1, 0xfee00000, 0x41) };

	(void)state;
	route_set_default(&table);
	assert_int_equal(route_set(&table, twice, 2), -EINVAL);
	assert_int_equal(route_set(&table, mixed, 2), -EINVAL);
	assert_int_equal(route_set(&table, msis, 2), -EINVAL);
	/* A refused table changes nothing. */
	assert_int_equal(route_lookup(&table, 1).pin[KVM_IRQCHIP_IOAPIC], 1);
}

static void a_new_table_forgets_the_old(void **state)
{
	struct kvm_irq_routing_entry e = to_pin(30, 2, 7);

	(void)state;
	route_set_default(&table);
	assert_int_equal(route_set(&table, &e, 1), 0);
	assert_int_equal(route_lookup(&table, 7).pin[KVM_IRQCHIP_IOAPIC], ROUTE_NO_PIN);
	assert_int_equal(route_gsi_of(&table, KVM_IRQCHIP_IOAPIC, 7), 30);
	assert_int_equal(route_gsi_of(&table, KVM_IRQCHIP_IOAPIC, 8), -1);
}

static void *replace_often(void *unused)
{
	(void)unused;
	for (u32 i = 1; i <= REPLACEMENTS; i++) {
		struct kvm_irq_routing_entry e = to_msi(5, (u64)i << 32 | i, i);

		route_set(&table, &e, 1);
	}
	return NULL;
}

static void a_reader_never_sees_half_a_route(void **state)
{
	struct route route;
	pthread_t writer;

	(void)state;
	pthread_create(&writer, NULL, replace_often, NULL);
	do {
		route = route_lookup(&table, 5);
		assert_int_equal(route.address >> 32, route.data);
		assert_int_equal((u32)route.address, route.data);
	} while (route.data < REPLACEMENTS);
	pthread_join(writer, NULL);
}

/* --- irqfds --- */

static struct irqfds irqfds;
static int fd, resample;

static int opened(void **state)
{
	(void)state;
	fd = eventfd(0, EFD_NONBLOCK);
	resample = eventfd(0, EFD_NONBLOCK);
	return irqfd_open(&irqfds);
}

static int closed(void **state)
{
	(void)state;
	irqfd_close(&irqfds);
	close(fd);
	close(resample);
	return 0;
}

static void an_eventfd_becomes_an_event(void **state)
{
	struct kvm_irqfd args = { .fd = fd, .gsi = 17 };
	struct irqfd_event events[4];
	eventfd_t count;

	(void)state;
	assert_int_equal(irqfd_assign(&irqfds, &args), 0);
	assert_int_equal(irqfd_assign(&irqfds, &args), -EBUSY);
	eventfd_write(fd, 3);
	assert_int_equal(irqfd_wait(&irqfds, events, 4), 1);
	assert_int_equal(events[0].what, IRQFD_EDGE);
	assert_int_equal(events[0].gsi, 17);
	assert_int_equal(eventfd_read(fd, &count), -1); /* consumed */
}

static void what_was_written_before_counts(void **state)
{
	struct kvm_irqfd args = { .fd = fd, .gsi = 17 };
	struct irqfd_event events[4];

	(void)state;
	eventfd_write(fd, 1);
	assert_int_equal(irqfd_assign(&irqfds, &args), 0);
	assert_int_equal(irqfd_wait(&irqfds, events, 4), 1);
}

static void a_resampling_irqfd_asks_again(void **state)
{
	struct kvm_irqfd args = {
		.fd = fd, .gsi = 9, .flags = KVM_IRQFD_FLAG_RESAMPLE, .resamplefd = resample
	};
	struct irqfd_event events[4];
	eventfd_t count;
	bool last;

	(void)state;
	assert_false(irqfd_resample(&irqfds, 9, true));
	assert_int_equal(irqfd_assign(&irqfds, &args), 0);
	eventfd_write(fd, 1);
	assert_int_equal(irqfd_wait(&irqfds, events, 4), 1);
	assert_int_equal(events[0].what, IRQFD_LEVEL);
	assert_false(irqfd_resample(&irqfds, 8, true));
	assert_true(irqfd_resample(&irqfds, 9, true));
	assert_int_equal(eventfd_read(resample, &count), 0);
	assert_int_equal(irqfd_deassign(&irqfds, &args, &last), 0);
	assert_true(last);
	assert_false(irqfd_resample(&irqfds, 9, true));
}

static void the_timer_and_the_end_are_events_too(void **state)
{
	struct irqfd_event events[4];

	(void)state;
	irqfd_set_timer(&irqfds, 1);
	assert_int_equal(irqfd_wait(&irqfds, events, 4), 1);
	assert_int_equal(events[0].what, IRQFD_TIMER);
	irqfd_set_timer(&irqfds, 1);
	irqfd_set_timer(&irqfds, IRQFD_NEVER);
	irqfd_stop(&irqfds);
	assert_int_equal(irqfd_wait(&irqfds, events, 4), 1);
	assert_int_equal(events[0].what, IRQFD_STOP);
}

static void bad_numbers_are_refused(void **state)
{
	struct kvm_irqfd args = { .fd = 9999, .gsi = 1 };
	bool last;

	(void)state;
	assert_int_equal(irqfd_assign(&irqfds, &args), -EBADF);
	assert_int_equal(irqfd_deassign(&irqfds, &args, &last), 0);
	assert_false(last);
}

static void a_number_that_was_reused_is_a_new_eventfd(void **state)
{
	struct kvm_irqfd args = { .fd = fd, .gsi = 17 };
	struct irqfd_event events[4];
	int other = eventfd(0, EFD_NONBLOCK);

	(void)state;
	assert_int_equal(irqfd_assign(&irqfds, &args), 0);
	dup2(other, fd);
	close(other);
	args.gsi = 18;
	assert_int_equal(irqfd_assign(&irqfds, &args), 0);
	eventfd_write(fd, 1);
	assert_int_equal(irqfd_wait(&irqfds, events, 4), 1);
	assert_int_equal(events[0].gsi, 18);
}

#define irqfd_test(f) cmocka_unit_test_setup_teardown(f, opened, closed)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(the_default_is_one_to_one, empty),
		cmocka_unit_test_setup(a_gsi_without_a_route_goes_nowhere, empty),
		cmocka_unit_test_setup(an_msi_keeps_all_its_bits, empty),
		cmocka_unit_test_setup(a_gsi_may_not_have_two_routes_of_a_kind, empty),
		cmocka_unit_test_setup(a_new_table_forgets_the_old, empty),
		cmocka_unit_test_setup(a_reader_never_sees_half_a_route, empty),
		irqfd_test(an_eventfd_becomes_an_event),
		irqfd_test(what_was_written_before_counts),
		irqfd_test(a_resampling_irqfd_asks_again),
		irqfd_test(the_timer_and_the_end_are_events_too),
		irqfd_test(bad_numbers_are_refused),
		irqfd_test(a_number_that_was_reused_is_a_new_eventfd),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
