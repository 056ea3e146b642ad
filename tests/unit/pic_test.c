// SPDX-License-Identifier: MIT
/*
 * The 8259 pair alone: initialization, priorities, edges and levels, ends of interrupt, the modes
 * that PC software uses, and the state image.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "irq/pic.h"

static struct pic pic;

static void write_all(const u8 (*writes)[2], u32 n)
{
	for (u32 i = 0; i < n; i++)
		pic_write(&pic, writes[i][0], writes[i][1]);
}

static void pulse(u32 irq)
{
	pic_set_line(&pic, irq, 0, true);
	pic_set_line(&pic, irq, 0, false);
}

static int fresh(void **state)
{
	(void)state;
	pic_init(&pic);
	return 0;
}

/* As Linux does it: vectors 0x30 and 0x38, all unmasked. */
static int initialized(void **state)
{
	static const u8 writes[][2] = {
		{ 0x20, 0x11 }, { 0x21, 0x30 }, { 0x21, 0x04 }, { 0x21, 0x01 }, { 0xa0, 0x11 },
		{ 0xa1, 0x38 }, { 0xa1, 0x02 }, { 0xa1, 0x01 }, { 0x21, 0x00 }, { 0xa1, 0x00 },
	};

	fresh(state);
	write_all(writes, ARRAY_SIZE(writes));
	return 0;
}

static void a_chip_without_vectors_does_not_interrupt(void **state)
{
	static const u8 second[][2] = {
		{ 0xa0, 0x11 }, { 0xa1, 0x38 }, { 0xa1, 0x02 }, { 0xa1, 0x01 }
	};
	static const u8 first[][2] = {
		{ 0x20, 0x11 }, { 0x21, 0x30 }, { 0x21, 0x04 }, { 0x21, 0x01 }
	};

	(void)state;
	pic_write(&pic, 0x4d0, 0x20);
	pic_set_line(&pic, 0, 0, true);
	pic_set_line(&pic, 5, 0, true);
	assert_false(pic_output(&pic));
	write_all(second, ARRAY_SIZE(second));
	pulse(9);
	assert_false(pic_output(&pic));
	/* ICW1 forgets the edge of IRQ 0; the second chip and the level still ask. */
	write_all(first, ARRAY_SIZE(first));
	assert_true(pic_output(&pic));
	assert_int_equal(pic_ack(&pic), 0x39);
	pic_write(&pic, 0x20, 0x20);
	assert_int_equal(pic_ack(&pic), 0x35);
}

static void an_edge_is_taken_once(void **state)
{
	(void)state;
	assert_int_equal(pic_set_line(&pic, 1, 0, true), 1);
	assert_true(pic_output(&pic));
	assert_int_equal(pic_ack(&pic), 0x31);
	assert_false(pic_output(&pic));
	pic_write(&pic, 0x20, 0x20);
	assert_false(pic_output(&pic));
	/* Still up: no edge. Down and up again: one. */
	assert_int_equal(pic_set_line(&pic, 1, 0, true), 0);
	assert_false(pic_output(&pic));
	pic_set_line(&pic, 1, 0, false);
	pic_set_line(&pic, 1, 0, true);
	assert_true(pic_output(&pic));
}

static void an_edge_that_waits_is_coalesced(void **state)
{
	(void)state;
	pulse(1);
	assert_int_equal(pic_set_line(&pic, 1, 0, true), 0);
}

static void a_level_interrupts_until_it_falls(void **state)
{
	(void)state;
	pic_write(&pic, 0x4d0, 1 << 5);
	pic_set_line(&pic, 5, 0, true);
	assert_int_equal(pic_ack(&pic), 0x35);
	pic_write(&pic, 0x20, 0x20);
	assert_true(pic_output(&pic));
	assert_int_equal(pic_ack(&pic), 0x35);
	pic_set_line(&pic, 5, 0, false);
	pic_write(&pic, 0x20, 0x20);
	assert_false(pic_output(&pic));
}

static void a_line_is_up_while_any_source_holds_it(void **state)
{
	(void)state;
	pic_write(&pic, 0x4d1, 1 << 2);
	pic_set_line(&pic, 10, 0, true);
	pic_set_line(&pic, 10, 1, true);
	pic_set_line(&pic, 10, 0, false);
	assert_true(pic_output(&pic));
	pic_set_line(&pic, 10, 1, false);
	assert_int_equal(pic.chip[1].irr, 0);
}

static void elcr_leaves_the_timer_and_the_keyboard_edge_triggered(void **state)
{
	(void)state;
	pic_write(&pic, 0x4d0, 0xff);
	pic_write(&pic, 0x4d1, 0xff);
	assert_int_equal(pic_read(&pic, 0x4d0), 0xf8);
	assert_int_equal(pic_read(&pic, 0x4d1), 0xde);
}

static void lower_numbers_go_first_and_interrupt_higher_ones(void **state)
{
	(void)state;
	pulse(4);
	pulse(3);
	assert_int_equal(pic_ack(&pic), 0x33);
	assert_false(pic_output(&pic)); /* 4 waits for 3 */
	pulse(0);
	assert_int_equal(pic_ack(&pic), 0x30);
	pic_write(&pic, 0x20, 0x20);
	assert_false(pic_output(&pic));
	pic_write(&pic, 0x20, 0x20);
	assert_int_equal(pic_ack(&pic), 0x34);
}

static void the_second_chip_comes_through_irq_2(void **state)
{
	(void)state;
	pulse(12);
	assert_int_equal(pic_ack(&pic), 0x3c);
	assert_int_equal(pic.chip[0].isr, 1 << 2);
	assert_int_equal(pic.chip[1].isr, 1 << 4);
	pic_write(&pic, 0xa0, 0x64); /* specific EOI */
	pic_write(&pic, 0x20, 0x62);
	assert_int_equal(pic.chip[0].isr | pic.chip[1].isr, 0);
	assert_int_equal(pic.acked, 1 << 2 | 1 << 12);
}

static void a_cause_that_went_away_is_spurious(void **state)
{
	(void)state;
	pic_write(&pic, 0x4d0, 1 << 5);
	pic_set_line(&pic, 5, 0, true);
	pic_set_line(&pic, 5, 0, false);
	assert_int_equal(pic_ack(&pic), 0x37);
	assert_int_equal(pic.chip[0].isr, 0);
}

static void masked_requests_wait(void **state)
{
	(void)state;
	pic_write(&pic, 0x21, 0xff);
	assert_int_equal(pic_set_line(&pic, 1, 0, true), -1);
	assert_false(pic_output(&pic));
	pic_write(&pic, 0x21, 0xfd);
	assert_true(pic_output(&pic));
	assert_int_equal(pic.unmasked, 1 << 1);
	assert_int_equal(pic_read(&pic, 0x21), 0xfd);
}

static void automatic_eoi_leaves_nothing_in_service(void **state)
{
	static const u8 writes[][2] = {
		{ 0x20, 0x11 }, { 0x21, 0x30 }, { 0x21, 0x04 }, { 0x21, 0x03 }, { 0x21, 0 }
	};

	(void)state;
	write_all(writes, ARRAY_SIZE(writes));
	pulse(3);
	assert_int_equal(pic_ack(&pic), 0x33);
	assert_int_equal(pic.chip[0].isr, 0);
	assert_int_equal(pic.acked, 1 << 3);
}

static void rotation_gives_the_served_one_the_lowest_priority(void **state)
{
	(void)state;
	pulse(3);
	pic_ack(&pic);
	pic_write(&pic, 0x20, 0xa0); /* rotate on non-specific EOI */
	pulse(3);
	pulse(4);
	assert_int_equal(pic_ack(&pic), 0x34);
	pic_write(&pic, 0x20, 0xc7); /* set priority: 7 is lowest, so 0 is highest again */
	assert_int_equal(pic.chip[0].priority_add, 0);
	assert_int_equal(pic_ack(&pic), 0x33);
}

static void special_mask_mode_lets_lower_priorities_through(void **state)
{
	(void)state;
	pulse(1);
	pic_ack(&pic);
	pulse(4);
	assert_false(pic_output(&pic));
	pic_write(&pic, 0x21, 1 << 1);
	assert_false(pic_output(&pic));
	pic_write(&pic, 0x20, 0x68);
	assert_int_equal(pic_ack(&pic), 0x34);
	pic_write(&pic, 0x20, 0x48);
	assert_false(pic_output(&pic));
}

static void special_fully_nested_mode_lets_the_second_chip_nest(void **state)
{
	static const u8 writes[][2] = {
		{ 0x20, 0x11 }, { 0x21, 0x30 }, { 0x21, 0x04 }, { 0x21, 0x11 }, { 0x21, 0 }
	};

	(void)state;
	write_all(writes, ARRAY_SIZE(writes));
	pulse(12);
	pic_ack(&pic);
	pulse(8);
	assert_int_equal(pic_ack(&pic), 0x38);
}

static void polling_replaces_the_acknowledge_cycle(void **state)
{
	(void)state;
	pic_write(&pic, 0x20, 0x0c);
	assert_int_equal(pic_read(&pic, 0x20), 0x07);
	pulse(6);
	pic_write(&pic, 0x20, 0x0c);
	assert_int_equal(pic_read(&pic, 0x20), 0x86);
	assert_false(pic_output(&pic));
	pulse(9);
	pic_write(&pic, 0xa0, 0x0c);
	assert_int_equal(pic_read(&pic, 0xa0), 0x81);
	assert_false(pic_output(&pic));
}

static void ocw3_selects_what_is_read(void **state)
{
	(void)state;
	pulse(3);
	assert_int_equal(pic_read(&pic, 0x20), 1 << 3);
	pic_ack(&pic);
	pic_write(&pic, 0x20, 0x0b);
	assert_int_equal(pic_read(&pic, 0x20), 1 << 3);
	pic_write(&pic, 0x20, 0x0a);
	assert_int_equal(pic_read(&pic, 0x20), 0);
}

static void the_state_image_carries_a_request(void **state)
{
	struct kvm_pic_state image[2];

	pulse(12);
	for (u32 i = 0; i < 2; i++)
		pic_get_state(&pic, i, &image[i]);
	fresh(state);
	assert_false(pic_output(&pic));
	for (u32 i = 0; i < 2; i++)
		pic_set_state(&pic, i, &image[i]);
	assert_int_equal(pic_ack(&pic), 0x3c);
}

static void only_its_own_ports_are_its_own(void **state)
{
	u32 n = 0;

	(void)state;
	for (u32 port = 0; port < 0x10000; port++)
		n += pic_has_port(port);
	assert_int_equal(n, 6);
	assert_true(pic_has_port(0x20) && pic_has_port(0x21) && pic_has_port(0xa0));
	assert_true(pic_has_port(0xa1) && pic_has_port(0x4d0) && pic_has_port(0x4d1));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_chip_without_vectors_does_not_interrupt, fresh),
		cmocka_unit_test_setup(an_edge_is_taken_once, initialized),
		cmocka_unit_test_setup(an_edge_that_waits_is_coalesced, initialized),
		cmocka_unit_test_setup(a_level_interrupts_until_it_falls, initialized),
		cmocka_unit_test_setup(a_line_is_up_while_any_source_holds_it, initialized),
		cmocka_unit_test_setup(elcr_leaves_the_timer_and_the_keyboard_edge_triggered,
				       fresh),
		cmocka_unit_test_setup(lower_numbers_go_first_and_interrupt_higher_ones,
				       initialized),
		cmocka_unit_test_setup(the_second_chip_comes_through_irq_2, initialized),
		cmocka_unit_test_setup(a_cause_that_went_away_is_spurious, initialized),
		cmocka_unit_test_setup(masked_requests_wait, initialized),
		cmocka_unit_test_setup(automatic_eoi_leaves_nothing_in_service, initialized),
		cmocka_unit_test_setup(rotation_gives_the_served_one_the_lowest_priority,
				       initialized),
		cmocka_unit_test_setup(special_mask_mode_lets_lower_priorities_through,
				       initialized),
		cmocka_unit_test_setup(special_fully_nested_mode_lets_the_second_chip_nest,
				       initialized),
		cmocka_unit_test_setup(polling_replaces_the_acknowledge_cycle, initialized),
		cmocka_unit_test_setup(ocw3_selects_what_is_read, initialized),
		cmocka_unit_test_setup(the_state_image_carries_a_request, initialized),
		cmocka_unit_test_setup(only_its_own_ports_are_its_own, fresh),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
