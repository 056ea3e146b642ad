// SPDX-License-Identifier: MIT
/*
 * A device that says what it has written (base/written.h): code on these pages is the new one once
 * its interrupt is taken, and no other code is compared. The guest never leaves for the program in
 * between, which would have all code compared. Run by `vpmu kvm`.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "base/inherited.h"
#include "base/memfile.h"
#include "base/written.h"
#include "guest/kvm_guest.h"

#define GSI	24
#define VECTOR	0x51
#define LAPIC	0xfee00000u
#define PATCHED (IMAGE_CODE + 0x800)
#define MAILBOX 0x100000
#define ELSE	0x80000 /* a page without code */
#define ROUNDS	200

/* The handler calls the function at PATCHED, and puts what it returns and a count into the mailbox,
 * whose third word ends the guest. */
GUEST_CODE(called, "mov $0x1b, %ecx; rdmsr; or $0x400, %eax; wrmsr\n"
		   "mov $0x80f, %ecx; mov $0x1ff, %eax; xor %edx, %edx; wrmsr\n"
		   "mov $0x10800, %edi; mov $0x100000, %esi; sti\n"
		   "incl 4(%rsi)\n"
		   "1: pause; cmpl $0, 8(%rsi); je 1b\n"
		   "out %al, $0xf4\n"
		   "called_handler:\n"
		   "call *%rdi; mov %eax, (%rsi)\n"
		   "mov $0x80b, %ecx; xor %eax, %eax; xor %edx, %edx; wrmsr\n"
		   "incl 4(%rsi); iretq\n");

extern const u8 called_handler[];

static struct kvm_guest g;
static struct written *ring;
static int call;
static u32 calls;

/* mov $value, %eax; ret */
static void write_function(u32 value)
{
	u8 code[6] = { 0xb8, 0, 0, 0, 0, 0xc3 };

	memcpy(code + 1, &value, 4);
	memcpy(g.ram + PATCHED, code, sizeof(code));
}

static u32 wait_for_guest(void)
{
	struct timespec pause = { .tv_nsec = 100000 };
	volatile u32 *mailbox = (u32 *)(g.ram + MAILBOX);

	for (u32 i = 0; i < 200000 && mailbox[1] != calls; i++)
		nanosleep(&pause, NULL);
	assert_int_equal(mailbox[1], calls);
	return mailbox[0];
}

/* What the function returned after this signal. */
static u32 answer(u64 signal)
{
	calls++;
	eventfd_write(call, signal);
	return wait_for_guest();
}

static void with_irqchip(int vm)
{
	KVM_CALL(vm, KVM_CREATE_IRQCHIP, NULL);
}

static void connect_device(void)
{
	struct { /* kvm_irq_routing with one entry */
		u32 nr, flags;
		struct kvm_irq_routing_entry entry;
	} routes = { .nr = 1,
		     .entry = { .gsi = GSI,
				.type = KVM_IRQ_ROUTING_MSI,
				.u.msi = { .address_lo = LAPIC, .data = VECTOR } } };
	struct kvm_irqfd irqfd = { .fd = call, .gsi = GSI };

	KVM_CALL(g.vm, KVM_SET_GSI_ROUTING, &routes);
	KVM_CALL(g.vm, KVM_IRQFD, &irqfd);
}

static void *run_guest(void *unused)
{
	(void)unused;
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_IO);
	return NULL;
}

static pthread_t begin(void)
{
	pthread_t thread;

	call = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	calls = 1; /* when it is ready */
	kvm_guest_create_with(&g, called_start, called_end - called_start, 1, with_irqchip);
	image_gate(g.ram, VECTOR, IMAGE_CODE + (called_handler - called_start), 0);
	connect_device();
	write_function(0);
	assert_int_equal(pthread_create(&thread, NULL, run_guest, NULL), 0);
	wait_for_guest();
	assert_int_equal(answer(1), 0);
	return thread;
}

static void end(pthread_t thread)
{
	((volatile u32 *)(g.ram + MAILBOX))[2] = 1;
	pthread_join(thread, NULL);
	kvm_guest_destroy(&g);
	close(call);
}

static void code_that_a_device_says_it_wrote_is_executed(void **state)
{
	pthread_t thread = begin();

	(void)state;
	for (u32 i = 1; i <= ROUNDS; i++) {
		write_function(i);
		written_add(ring, ELSE, 1);
		written_add(ring, PATCHED - i % 2 * PAGE_SIZE, i % 2 * PAGE_SIZE + 6);
		written_add(ring, ELSE, 2 * PAGE_SIZE);
		assert_int_equal(answer(WRITTEN_SIGNAL), i);
	}
	end(thread);
}

/* The device's address is not the one that the code is executed at. */
static void code_that_a_device_wrote_through_another_slot_is_executed(void **state)
{
	struct kvm_userspace_memory_region alias = { .slot = 1,
						     .guest_phys_addr = IMAGE_MMIO,
						     .memory_size = PAGE_SIZE };
	pthread_t thread = begin();

	(void)state;
	alias.userspace_addr = (u64)g.ram + (PATCHED & PAGE_MASK);
	KVM_CALL(g.vm, KVM_SET_USER_MEMORY_REGION, &alias);
	for (u32 i = 1; i <= ROUNDS; i++) {
		write_function(i);
		written_add(ring, IMAGE_MMIO + (PATCHED & ~PAGE_MASK), 6);
		assert_int_equal(answer(WRITTEN_SIGNAL), i);
	}
	end(thread);
}

static void no_other_code_is_compared(void **state)
{
	pthread_t thread = begin();

	(void)state;
	for (u32 i = 1; i <= ROUNDS; i++) {
		write_function(i);
		written_add(ring, ELSE, PAGE_SIZE);
		assert_int_equal(answer(WRITTEN_SIGNAL), 0);
	}
	end(thread);
}

static void a_signal_that_says_nothing_compares_all_code(void **state)
{
	static const u64 signals[] = { 1, 2, WRITTEN_SIGNAL + 1, 1ull << 32, 3ull << 32 | 2 };
	pthread_t thread = begin();

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(signals); i++) {
		write_function(i + 1);
		assert_int_equal(answer(signals[i]), i + 1);
	}
	end(thread);
}

static void what_the_ring_does_not_hold_compares_all_code(void **state)
{
	pthread_t thread = begin();

	(void)state;
	write_function(1);
	written_add(ring, PATCHED, 6);
	for (u32 i = 0; i < WRITTEN_RANGES; i++)
		written_add(ring, ELSE, 1);
	assert_int_equal(answer(WRITTEN_SIGNAL), 1);
	write_function(2);
	written_add(ring, ELSE, 1ull << 30);
	assert_int_equal(answer(WRITTEN_SIGNAL), 2);
	end(thread);
}

/* A full ring, whose device is about to write the next range over the first one. */
static void a_range_that_is_being_overwritten_compares_all_code(void **state)
{
	pthread_t thread = begin();

	(void)state;
	write_function(1);
	written_add(ring, PATCHED, 6);
	for (u32 i = 1; i < WRITTEN_RANGES; i++)
		written_add(ring, ELSE, 1);
	ring->range[ring->next % WRITTEN_RANGES] = ELSE;
	assert_int_equal(answer(WRITTEN_SIGNAL), 1);
	end(thread);
}

static int make_ring(void **state)
{
	int fd = memfile_fixed("written", sizeof(*ring));

	(void)state;
	ring = fd < 0 ? NULL : memfile_map(fd, sizeof(*ring));
	/* For VMs that are made from now on. */
	return ring && inherited_export("VPMU_WRITTEN", &fd, 1) ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(code_that_a_device_says_it_wrote_is_executed),
		cmocka_unit_test(code_that_a_device_wrote_through_another_slot_is_executed),
		cmocka_unit_test(no_other_code_is_compared),
		cmocka_unit_test(a_signal_that_says_nothing_compares_all_code),
		cmocka_unit_test(what_the_ring_does_not_hold_compares_all_code),
		cmocka_unit_test(a_range_that_is_being_overwritten_compares_all_code),
	};

	return cmocka_run_group_tests(tests, make_ring, NULL);
}
