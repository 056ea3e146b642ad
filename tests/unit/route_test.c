// SPDX-License-Identifier: MIT
/*
 * GSI routes and irqfds alone: the table's rules, readers beside a writer, and events that a thread
 * gets from eventfds and the timer.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
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

#define SHARED 5 /* the GSI that is read and written at once */

/* The n-th of the routes that follow each other: its halves tell. */
static int replace(struct route_table *of, u32 n)
{
	struct kvm_irq_routing_entry e = to_msi(SHARED, (u64)n << 32 | n, n);

	return route_set(of, &e, 1);
}

static void assert_whole(struct route route)
{
	assert_int_equal(route.address >> 32, route.data);
	assert_int_equal((u32)route.address, route.data);
}

static void *replace_often(void *done)
{
	u32 i = 1;

	while (i <= REPLACEMENTS && !replace(&table, i))
		i++;
	__atomic_store_n((u32 *)done, i, __ATOMIC_RELEASE);
	return NULL;
}

static void a_reader_goes_on_beside_a_writer(void **state)
{
	u32 done = 0;
	pthread_t writer;

	(void)state;
	assert_int_equal(pthread_create(&writer, NULL, replace_often, &done), 0);
	while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE))
		assert_whole(route_lookup(&table, SHARED));
	pthread_join(writer, NULL);
	assert_int_equal(done, REPLACEMENTS + 1);
	assert_int_equal(route_lookup(&table, SHARED).data, REPLACEMENTS);
}

static bool writer_waits; /* for the processor, of a lower priority: it gets that by a nap */
static u32 naps;

int nanosleep(const struct timespec *time, struct timespec *left)
{
	if (!writer_waits)
		return syscall(SYS_nanosleep, time, left);
	naps++;
	__atomic_store_n(&table.sequence, 2, __ATOMIC_RELEASE);
	return 0;
}

static void a_reader_lets_a_writer_of_lower_priority_finish(void **state)
{
	(void)state;
	assert_int_equal(replace(&table, 1), 0);
	naps = 0;
	writer_waits = true;
	alarm(10); /* or it spins for ever */
	for (u32 i = 0; i < 2; i++) {
		table.sequence = 1;
		if (i)
			assert_int_equal(route_gsi_of(&table, KVM_IRQCHIP_IOAPIC, 3), -1);
		else
			assert_whole(route_lookup(&table, SHARED));
	}
	alarm(0);
	writer_waits = false;
	assert_int_equal(naps, 2);
}

static struct route_table *apart; /* the words of the row are on two pages */
static u32 faults;

static void write_meanwhile(int sig)
{
	(void)sig;
	faults++;
	if (mprotect(&apart->row[SHARED][1], PAGE_SIZE, PROT_READ | PROT_WRITE))
		abort();
	replace(apart, 2);
}

/* A writer comes when one word was read and the other was not. */
static void a_reader_never_sees_half_a_route(void **state)
{
	const u64 offset = offsetof(struct route_table, row[SHARED][1]);
	const u64 before = (offset + PAGE_SIZE - 1) & PAGE_MASK, size = before + sizeof(table);
	struct sigaction act = { .sa_handler = write_meanwhile }, was;
	u8 *pages = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct route route;

	(void)state;
	assert_ptr_not_equal(pages, MAP_FAILED);
	apart = (void *)(pages + before - offset);
	faults = 0;
	route_init(apart);
	assert_int_equal(replace(apart, 1), 0);
	assert_int_equal(sigaction(SIGSEGV, &act, &was), 0);
	assert_int_equal(mprotect(&apart->row[SHARED][1], PAGE_SIZE, PROT_NONE), 0);
	route = route_lookup(apart, SHARED);
	sigaction(SIGSEGV, &was, NULL);
	assert_int_equal(faults, 1);
	assert_whole(route);
	assert_int_equal(route.data, 2);
	munmap(pages, size);
}

/* --- irqfds --- */

static struct irqfds irqfds;
static int fd, resample;
static s64 fallen;

static u32 next_events(struct irqfd_event *events, u32 n)
{
	irqfd_wait(&irqfds);
	return irqfd_next(&irqfds, events, n);
}

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
	assert_int_equal(irqfd_assign(&irqfds, &args, &fallen), 0);
	assert_int_equal(irqfd_assign(&irqfds, &args, &fallen), -EBUSY);
	eventfd_write(fd, 3);
	assert_int_equal(next_events(events, 4), 1);
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
	assert_int_equal(irqfd_assign(&irqfds, &args, &fallen), 0);
	assert_int_equal(next_events(events, 4), 1);
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
	assert_int_equal(irqfd_assign(&irqfds, &args, &fallen), 0);
	eventfd_write(fd, 1);
	assert_int_equal(next_events(events, 4), 1);
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
	assert_int_equal(next_events(events, 4), 1);
	assert_int_equal(events[0].what, IRQFD_TIMER);
	irqfd_set_timer(&irqfds, 1);
	irqfd_set_timer(&irqfds, IRQFD_NEVER);
	irqfd_stop(&irqfds);
	assert_int_equal(next_events(events, 4), 1);
	assert_int_equal(events[0].what, IRQFD_STOP);
}

static void bad_numbers_are_refused(void **state)
{
	struct kvm_irqfd args = { .fd = 9999, .gsi = 1 };
	bool last;

	(void)state;
	assert_int_equal(irqfd_assign(&irqfds, &args, &fallen), -EBADF);
	assert_int_equal(irqfd_deassign(&irqfds, &args, &last), 0);
	assert_false(last);
}

static void a_number_that_was_reused_is_a_new_eventfd(void **state)
{
	struct kvm_irqfd args = { .fd = fd, .gsi = 17 };
	struct irqfd_event events[4];
	int other = eventfd(0, EFD_NONBLOCK);

	(void)state;
	assert_int_equal(irqfd_assign(&irqfds, &args, &fallen), 0);
	dup2(other, fd);
	close(other);
	args.gsi = 18;
	assert_int_equal(irqfd_assign(&irqfds, &args, &fallen), 0);
	eventfd_write(fd, 1);
	assert_int_equal(next_events(events, 4), 1);
	assert_int_equal(events[0].gsi, 18);
	assert_int_equal(fallen, -1);
}

static void the_last_level_of_a_reused_number_falls(void **state)
{
	struct kvm_irqfd args = {
		.fd = fd, .gsi = 9, .flags = KVM_IRQFD_FLAG_RESAMPLE, .resamplefd = resample
	};
	struct kvm_irqfd second = args;

	(void)state;
	second.fd = eventfd(0, EFD_NONBLOCK);
	assert_int_equal(irqfd_assign(&irqfds, &args, &fallen), 0);
	assert_int_equal(irqfd_assign(&irqfds, &second, &fallen), 0);
	for (u32 i = 0; i < 2; i++) {
		int number = i ? (int)second.fd : fd, other = eventfd(0, EFD_NONBLOCK);

		assert_int_equal(fallen, -1);
		dup2(other, number);
		close(other);
		args.fd = number;
		args.gsi = 10 + i;
		assert_int_equal(irqfd_assign(&irqfds, &args, &fallen), 0);
	}
	assert_int_equal(fallen, 9);
	close(second.fd);
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
		cmocka_unit_test_setup(a_reader_goes_on_beside_a_writer, empty),
		cmocka_unit_test_setup(a_reader_lets_a_writer_of_lower_priority_finish, empty),
		cmocka_unit_test(a_reader_never_sees_half_a_route),
		irqfd_test(an_eventfd_becomes_an_event),
		irqfd_test(what_was_written_before_counts),
		irqfd_test(a_resampling_irqfd_asks_again),
		irqfd_test(the_timer_and_the_end_are_events_too),
		irqfd_test(bad_numbers_are_refused),
		irqfd_test(a_number_that_was_reused_is_a_new_eventfd),
		irqfd_test(the_last_level_of_a_reused_number_falls),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
