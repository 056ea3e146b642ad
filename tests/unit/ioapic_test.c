// SPDX-License-Identifier: MIT
/*
 * The I/O APIC alone: its registers, messages of edges and levels, remote IRR and the end of
 * service, and the state image.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "irq/ioapic.h"

#define LEVEL	   BIT(15)
#define REMOTE_IRR BIT(14)
#define MASKED	   BIT(16)

static struct ioapic ioapic;
static struct lapic_message message;

static int fresh(void **state)
{
	(void)state;
	ioapic_init(&ioapic);
	return 0;
}

static void write_reg(u32 reg, u32 value)
{
	ioapic_write(&ioapic, 0x00, reg);
	ioapic_write(&ioapic, 0x10, value);
}

static u32 read_reg(u32 reg)
{
	ioapic_write(&ioapic, 0x00, reg);
	return ioapic_read(&ioapic, 0x10);
}

static void write_entry(u32 pin, u64 value)
{
	write_reg(0x11 + 2 * pin, value >> 32);
	write_reg(0x10 + 2 * pin, value);
}

/* Sends what is due, accepted by one: how many messages. */
static u32 send_all(void)
{
	u32 n = 0;
	int pin;

	for (; (pin = ioapic_next(&ioapic, &message)) >= 0; n++)
		ioapic_sent(&ioapic, pin, 1);
	return n;
}

static void registers_have_the_values_of_the_manual(void **state)
{
	(void)state;
	assert_int_equal(read_reg(1), 0x170011);
	write_reg(0, 0x5fffffff);
	assert_int_equal(read_reg(0), 0xf000000);
	assert_int_equal(read_reg(2), 0xf000000);
	assert_int_equal(read_reg(0x10), MASKED);
	assert_int_equal(read_reg(0x3f), 0);
	assert_int_equal(read_reg(0x40), ~0u);
	assert_int_equal(ioapic_read(&ioapic, 0x00), 0x40);
	assert_int_equal(ioapic_read(&ioapic, 0x20), 0);
	assert_true(ioapic_has_address(&ioapic, 0xfec00010));
	assert_false(ioapic_has_address(&ioapic, 0xfec00100));
	assert_false(ioapic_has_address(&ioapic, 0xfebfffff));
}

static void an_entry_becomes_a_message(void **state)
{
	(void)state;
	write_entry(4, 0xab00000000000931); /* logical, lowest priority, vector 0x31 */
	assert_int_equal(ioapic_set_line(&ioapic, 4, 0, true), IOAPIC_DUE);
	assert_int_equal(ioapic_next(&ioapic, &message), 4);
	assert_int_equal(message.vector, 0x31);
	assert_int_equal(message.mode, LAPIC_LOWEST);
	assert_int_equal(message.dest, 0xab);
	assert_true(message.logical && message.assert && !message.level && !message.ipi);
	assert_int_equal(ioapic_next(&ioapic, &message), -1);
}

static void an_edge_is_sent_once(void **state)
{
	(void)state;
	write_entry(4, 0x31);
	assert_int_equal(ioapic_set_line(&ioapic, 4, 0, true), IOAPIC_DUE);
	assert_int_equal(send_all(), 1);
	assert_int_equal(ioapic_set_line(&ioapic, 4, 0, true), IOAPIC_COALESCED);
	assert_int_equal(send_all(), 0);
	assert_int_equal(ioapic_set_line(&ioapic, 4, 0, false), IOAPIC_TAKEN);
	assert_int_equal(ioapic_set_line(&ioapic, 4, 0, true), IOAPIC_DUE);
	assert_int_equal(send_all(), 1);
}

static void a_level_is_sent_again_after_each_eoi_until_it_falls(void **state)
{
	(void)state;
	write_entry(9, LEVEL | 0x41);
	ioapic_set_line(&ioapic, 9, 0, true);
	assert_int_equal(send_all(), 1);
	assert_true(message.level);
	assert_true(read_reg(0x10 + 18) & REMOTE_IRR);
	ioapic_set_line(&ioapic, 9, 0, true);
	assert_int_equal(send_all(), 0);
	ioapic_eoi(&ioapic, 0x41, true);
	assert_int_equal(ioapic.acked, 1 << 9);
	assert_int_equal(send_all(), 1);
	ioapic_set_line(&ioapic, 9, 0, false);
	ioapic_eoi(&ioapic, 0x41, true);
	assert_int_equal(send_all(), 0);
	assert_false(read_reg(0x10 + 18) & REMOTE_IRR);
}

static void a_level_that_falls_before_it_is_sent_is_not_sent(void **state)
{
	(void)state;
	write_entry(9, LEVEL | 0x41);
	ioapic_set_line(&ioapic, 9, 0, true);
	ioapic_set_line(&ioapic, 9, 0, false);
	assert_int_equal(send_all(), 0);
}

static void a_level_that_nobody_takes_is_not_in_service(void **state)
{
	(void)state;
	write_entry(9, LEVEL | 0x41);
	ioapic_set_line(&ioapic, 9, 0, true);
	ioapic_sent(&ioapic, ioapic_next(&ioapic, &message), 0);
	assert_false(read_reg(0x10 + 18) & REMOTE_IRR);
}

static void the_end_of_an_edge_changes_no_level(void **state)
{
	(void)state;
	write_entry(9, LEVEL | 0x41);
	ioapic_set_line(&ioapic, 9, 0, true);
	send_all();
	ioapic_eoi(&ioapic, 0x41, false);
	assert_true(read_reg(0x10 + 18) & REMOTE_IRR);
}

static void a_pin_is_up_while_any_source_holds_it(void **state)
{
	(void)state;
	write_entry(9, LEVEL | 0x41);
	ioapic_set_line(&ioapic, 9, 0, true);
	ioapic_set_line(&ioapic, 9, 1, true);
	send_all();
	ioapic_set_line(&ioapic, 9, 0, false);
	ioapic_eoi(&ioapic, 0x41, true);
	assert_int_equal(send_all(), 1);
	ioapic_set_line(&ioapic, 9, 1, false);
	ioapic_eoi(&ioapic, 0x41, true);
	assert_int_equal(send_all(), 0);
}

static void unmasking_sends_a_level_that_is_up(void **state)
{
	(void)state;
	write_entry(9, LEVEL | MASKED | 0x41);
	ioapic_set_line(&ioapic, 9, 0, true);
	assert_int_equal(send_all(), 0);
	assert_int_equal(ioapic.unmasked, 0);
	write_entry(9, LEVEL | 0x41);
	assert_int_equal(ioapic.unmasked, 1 << 9);
	assert_int_equal(ioapic.reopened, 1 << 9);
	assert_int_equal(send_all(), 1);
}

static void status_bits_are_read_only_and_an_edge_has_no_remote_irr(void **state)
{
	(void)state;
	write_entry(9, LEVEL | REMOTE_IRR | BIT(12) | 0x41);
	assert_int_equal(read_reg(0x10 + 18), LEVEL | 0x41);
	ioapic_set_line(&ioapic, 9, 0, true);
	send_all();
	write_entry(9, LEVEL | MASKED | 0x41);
	assert_true(read_reg(0x10 + 18) & REMOTE_IRR);
	write_entry(9, MASKED | 0x41);
	assert_false(read_reg(0x10 + 18) & REMOTE_IRR);
}

static void it_knows_which_vectors_it_uses(void **state)
{
	(void)state;
	assert_false(ioapic_uses(&ioapic, 0xf1));
	write_entry(23, 0xf1);
	assert_true(ioapic_uses(&ioapic, 0xf1));
	write_entry(23, 0x31);
	assert_false(ioapic_uses(&ioapic, 0xf1));
}

static void the_state_image_carries_entries_and_levels(void **state)
{
	struct kvm_ioapic_state image;

	write_entry(9, LEVEL | MASKED | 0x41);
	write_entry(4, 0x31);
	write_reg(0, 7 << 24);
	ioapic_set_line(&ioapic, 9, 0, true);
	ioapic_set_line(&ioapic, 4, 0, true);
	send_all();
	ioapic_get_state(&ioapic, &image);
	assert_int_equal(image.irr, 1 << 9); /* the edge was taken */
	assert_int_equal(image.base_address, IOAPIC_BASE);
	image.redirtbl[9].fields.mask = 0;
	fresh(state);
	ioapic_set_state(&ioapic, &image);
	assert_int_equal(read_reg(0), 7 << 24);
	assert_int_equal(send_all(), 1);
	assert_int_equal(message.vector, 0x41);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(registers_have_the_values_of_the_manual, fresh),
		cmocka_unit_test_setup(an_entry_becomes_a_message, fresh),
		cmocka_unit_test_setup(an_edge_is_sent_once, fresh),
		cmocka_unit_test_setup(a_level_is_sent_again_after_each_eoi_until_it_falls, fresh),
		cmocka_unit_test_setup(a_level_that_falls_before_it_is_sent_is_not_sent, fresh),
		cmocka_unit_test_setup(a_level_that_nobody_takes_is_not_in_service, fresh),
		cmocka_unit_test_setup(the_end_of_an_edge_changes_no_level, fresh),
		cmocka_unit_test_setup(a_pin_is_up_while_any_source_holds_it, fresh),
		cmocka_unit_test_setup(unmasking_sends_a_level_that_is_up, fresh),
		cmocka_unit_test_setup(status_bits_are_read_only_and_an_edge_has_no_remote_irr,
				       fresh),
		cmocka_unit_test_setup(it_knows_which_vectors_it_uses, fresh),
		cmocka_unit_test_setup(the_state_image_carries_entries_and_levels, fresh),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
