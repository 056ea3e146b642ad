// SPDX-License-Identifier: MIT
/*
 * NMIs from a program to its guest: by KVM_NMI, by message, and as a part of its state. Run by
 * `vpmu kvm`.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "guest/irq_guest.h"

static void an_nmi_needs_no_permission(void **state)
{
	(void)state;
	irq_start(irq_with_irqchip);
	KVM_CALL(irq_guest.vcpu[0], KVM_NMI, NULL);
	assert_int_equal(irq_next(PORT), 2);
	kvm_guest_destroy(&irq_guest);
}

/* SDM 3A 6.7.1: those that come while one is handled are one. */
static void nmis_meanwhile_are_one(void **state)
{
	struct kvm_vcpu_events events;

	(void)state;
	irq_start(irq_with_irqchip);
	KVM_CALL(irq_guest.vcpu[0], KVM_NMI, NULL);
	assert_int_equal(irq_next(PORT), 2);
	for (u32 i = 0; i < 3; i++)
		KVM_CALL(irq_guest.vcpu[0], KVM_NMI, NULL);
	KVM_CALL(irq_guest.vcpu[0], KVM_GET_VCPU_EVENTS, &events);
	assert_true(events.nmi.masked);
	assert_int_equal(events.nmi.pending, 1);
	assert_int_equal(irq_next(PORT), 2);
	irq_msi(MSI);
	assert_int_equal(irq_next(PORT), MSI);
	kvm_guest_destroy(&irq_guest);
}

#define MSI_NMI 0x400 /* delivery mode */

static u32 nmis_pending(void)
{
	struct kvm_vcpu_events events;

	KVM_CALL(irq_guest.vcpu[0], KVM_GET_VCPU_EVENTS, &events);
	return events.nmi.pending;
}

/* One is taken at once and one is latched while it is in service (KVM: process_nmi). */
static void two_nmi_messages_before_the_first_is_taken_are_two(void **state)
{
	(void)state;
	irq_start(irq_with_irqchip);
	for (u32 i = 0; i < 3; i++)
		irq_msi(MSI_NMI);
	irq_msi(MSI);
	assert_int_equal(irq_next(PORT), 2);
	assert_int_equal(nmis_pending(), 1);
	assert_int_equal(irq_next(PORT), 2);
	assert_int_equal(nmis_pending(), 0);
	assert_int_equal(irq_next(PORT), MSI);
	kvm_guest_destroy(&irq_guest);
}

static void pending_nmis_are_seen_and_set_as_a_number(void **state)
{
	struct kvm_vcpu_events events;

	(void)state;
	irq_start(irq_with_irqchip);
	irq_msi(MSI_NMI);
	KVM_CALL(irq_guest.vcpu[0], KVM_NMI, NULL);
	assert_int_equal(nmis_pending(), 2);
	KVM_CALL(irq_guest.vcpu[0], KVM_GET_VCPU_EVENTS, &events);
	events.nmi.injected = 1; /* as good as in service: one is latched and no more */
	KVM_CALL(irq_guest.vcpu[0], KVM_SET_VCPU_EVENTS, &events);
	assert_int_equal(nmis_pending(), 1);
	events.nmi.injected = events.nmi.pending = 0; /* messages that wait are forgotten too */
	irq_msi(MSI_NMI);
	KVM_CALL(irq_guest.vcpu[0], KVM_SET_VCPU_EVENTS, &events);
	irq_msi(MSI);
	assert_int_equal(irq_next(PORT), MSI);
	kvm_guest_destroy(&irq_guest);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_nmi_needs_no_permission),
		cmocka_unit_test(nmis_meanwhile_are_one),
		cmocka_unit_test(two_nmi_messages_before_the_first_is_taken_are_two),
		cmocka_unit_test(pending_nmis_are_seen_and_set_as_a_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
