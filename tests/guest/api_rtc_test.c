// SPDX-License-Identifier: MIT
/*
 * What KVM_IRQ_LINE_STATUS says of the RTC's pin, which KVM treats in a way of its own. Run by
 * `vpmu kvm`.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "guest/irq_guest.h"

#define RTC_PIN 8
#define RTC	0x62

static int pulse_status(u32 irq)
{
	int status = irq_line(irq, 1);

	irq_line(irq, 0);
	return status;
}

static void start_with_rtc(void)
{
	irq_start(irq_with_irqchip);
	irq_redirect(RTC_PIN, RTC, RTC_PIN + 1, RTC + 1);
}

/* The guest waits again: a vector of lower priority was taken. */
static void let_it_end(void)
{
	irq_msi(MSI);
	assert_int_equal(irq_next(PORT), MSI);
}

/* KVM: rtc_irq_check_coalesced(), by which a program knows when to send lost ticks again. */
static void a_tick_of_the_rtc_is_coalesced_until_the_last_one_has_ended(void **state)
{
	struct kvm_irq_level up = { .irq = RTC_PIN, .level = 1 };

	(void)state;
	start_with_rtc();
	for (u32 i = 0; i < 3; i++) {
		assert_int_equal(pulse_status(RTC_PIN), 1);
		assert_int_equal(pulse_status(RTC_PIN), 0);
		assert_int_equal(irq_next(PORT), RTC);
		assert_int_equal(pulse_status(RTC_PIN), 0); /* in service */
		let_it_end();
	}
	KVM_CALL(irq_guest.vm, KVM_IRQ_LINE, &up); /* not for one that does not ask */
	irq_line(RTC_PIN, 0);
	assert_int_equal(pulse_status(RTC_PIN), 1);
	assert_int_equal(irq_next(PORT), RTC);
	let_it_end();
	assert_int_equal(pulse_status(RTC_PIN + 1), 1);
	assert_int_equal(pulse_status(RTC_PIN + 1), 1);
	kvm_guest_destroy(&irq_guest);
}

static void ticks_of_the_rtc_are_restored_with_the_apics(void **state)
{
	struct kvm_irqchip chip = { .chip_id = KVM_IRQCHIP_IOAPIC };
	struct kvm_lapic_state lapic, none;

	(void)state;
	start_with_rtc();
	KVM_CALL(irq_guest.vcpu[0], KVM_GET_LAPIC, &none);
	assert_int_equal(pulse_status(RTC_PIN), 1);
	KVM_CALL(irq_guest.vm, KVM_GET_IRQCHIP, &chip);
	KVM_CALL(irq_guest.vm, KVM_SET_IRQCHIP, &chip);
	assert_int_equal(pulse_status(RTC_PIN), 0);
	KVM_CALL(irq_guest.vcpu[0], KVM_GET_LAPIC, &lapic);
	KVM_CALL(irq_guest.vcpu[0], KVM_SET_LAPIC, &none);
	KVM_CALL(irq_guest.vcpu[0], KVM_SET_LAPIC, &lapic);
	assert_int_equal(pulse_status(RTC_PIN), 0);
	KVM_CALL(irq_guest.vcpu[0], KVM_SET_LAPIC, &none);
	assert_int_equal(pulse_status(RTC_PIN), 1);
	kvm_guest_destroy(&irq_guest);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_tick_of_the_rtc_is_coalesced_until_the_last_one_has_ended),
		cmocka_unit_test(ticks_of_the_rtc_are_restored_with_the_apics),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
