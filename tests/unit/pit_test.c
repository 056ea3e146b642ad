// SPDX-License-Identifier: MIT
/*
 * The 8254 alone: counting in its modes, latches, the speaker's port, ticks of counter 0 with and
 * without reinjection, and the state image.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "irq/pit.h"

#define MS 1000000ull

static struct pit pit;

static int fresh(void **state)
{
	(void)state;
	pit_init(&pit, 0);
	return 0;
}

static void program(u32 counter, u32 mode, u16 count, u64 now)
{
	pit_write(&pit, 0x43, counter << 6 | 0x30 | mode << 1, now);
	pit_write(&pit, 0x40 + counter, count, now);
	pit_write(&pit, 0x40 + counter, count >> 8, now);
}

static u16 read_word(u32 counter, u64 now)
{
	u16 low = pit_read(&pit, 0x40 + counter, now);

	return low | pit_read(&pit, 0x40 + counter, now) << 8;
}

/* Nanoseconds after n clocks, rounded so that n of them are over. */
static u64 clocks(u64 n)
{
	return n * 1000000000ull / PIT_HZ + 1;
}

static void mode_0_counts_below_zero(void **state)
{
	(void)state;
	program(2, 0, 1000, 0);
	assert_int_equal(read_word(2, clocks(10)), 990);
	assert_int_equal(read_word(2, clocks(1000)), 0);
	assert_int_equal(read_word(2, clocks(1001)), 0xffff);
}

static void modes_2_and_3_start_again(void **state)
{
	(void)state;
	program(2, 2, 1000, 0);
	assert_int_equal(read_word(2, clocks(1)), 999);
	assert_int_equal(read_word(2, clocks(1001)), 999);
	program(2, 3, 1000, 0);
	assert_int_equal(read_word(2, clocks(1)), 998);
	assert_int_equal(read_word(2, clocks(501)), 998);
	program(2, 7, 1000, 0); /* the same as 3 */
	assert_int_equal(pit.channel[2].mode, 3);
}

static void a_count_of_0_is_65536(void **state)
{
	(void)state;
	program(0, 2, 0, 0);
	assert_int_equal(pit_expiry(&pit), 65536 * 1000000000ull / PIT_HZ);
}

static void a_latched_count_stands_still(void **state)
{
	(void)state;
	program(2, 0, 1000, 0);
	pit_write(&pit, 0x43, 0x80, clocks(10));
	assert_int_equal(read_word(2, clocks(500)), 990);
	assert_int_equal(read_word(2, clocks(500)), 500);
}

static void bytes_can_be_accessed_alone(void **state)
{
	(void)state;
	pit_write(&pit, 0x43, 0xa0, 0); /* high byte only, mode 0 */
	pit_write(&pit, 0x42, 0x12, 0);
	assert_int_equal(pit.channel[2].count, 0x1200);
	assert_int_equal(pit_read(&pit, 0x42, 0), 0x12);
	pit_write(&pit, 0x43, 0x90, 0); /* low byte only */
	pit_write(&pit, 0x42, 0x34, 0);
	assert_int_equal(pit.channel[2].count, 0x34);
	assert_int_equal(pit_read(&pit, 0x42, 0), 0x34);
}

static void read_back_latches_status_before_count(void **state)
{
	(void)state;
	program(2, 0, 1000, 0);
	pit_write(&pit, 0x43, 0xc8, clocks(10)); /* both, counter 2 */
	assert_int_equal(pit_read(&pit, 0x42, clocks(20)), 0x30);
	assert_int_equal(read_word(2, clocks(20)), 990);
	pit_write(&pit, 0x43, 0xe8, clocks(1000)); /* status only: OUT is up now */
	assert_int_equal(pit_read(&pit, 0x42, clocks(1000)), 0xb0);
}

/* How firmware and Linux measure time without interrupts. */
static void the_speaker_port_shows_counter_2(void **state)
{
	(void)state;
	pit_speaker_write(&pit, 0x01, 0);
	program(2, 0, 1000, 0);
	assert_int_equal(pit_speaker_read(&pit, clocks(999)) & 0x23, 0x01);
	assert_int_equal(pit_speaker_read(&pit, clocks(1000)) & 0x23, 0x21);
	pit_speaker_write(&pit, 0x02, 0);
	assert_int_equal(pit_speaker_read(&pit, 0) & 0x03, 0x02);
	assert_int_not_equal(pit_speaker_read(&pit, 0) & 0x10,
			     pit_speaker_read(&pit, 1 << 14) & 0x10);
}

static void a_rising_gate_restarts_mode_1_and_3(void **state)
{
	(void)state;
	program(2, 1, 1000, 0);
	pit_speaker_write(&pit, 1, clocks(600));
	assert_int_equal(pit_speaker_read(&pit, clocks(600)) & 0x20, 0x20);
	assert_int_equal(pit_speaker_read(&pit, clocks(1601)) & 0x20, 0);
}

static void an_unprogrammed_timer_never_expires(void **state)
{
	(void)state;
	assert_int_equal(pit_expiry(&pit), PIT_NO_EXPIRY);
	assert_false(pit_poll(&pit, 1000 * MS));
}

static void a_one_shot_ticks_once(void **state)
{
	(void)state;
	program(0, 0, 1193, 5 * MS);
	assert_int_equal(pit_expiry(&pit), 5 * MS + 1193 * 1000000000ull / PIT_HZ);
	assert_false(pit_poll(&pit, 5 * MS));
	assert_true(pit_poll(&pit, 6 * MS));
	assert_int_equal(pit_expiry(&pit), PIT_NO_EXPIRY);
	assert_int_equal(read_word(0, 5 * MS + clocks(1194)), 0xffff);
}

static void a_periodic_timer_keeps_its_phase(void **state)
{
	u64 period;

	(void)state;
	pit_set_reinject(&pit, false);
	program(0, 2, 11932, 0);
	period = pit_expiry(&pit);
	assert_true(pit_poll(&pit, period + 77));
	assert_int_equal(pit_expiry(&pit), 2 * period);
	assert_true(pit_poll(&pit, 5 * period + 1)); /* three were missed */
	assert_int_equal(pit_expiry(&pit), 6 * period);
	assert_false(pit_acked(&pit));
}

static void reinjection_makes_up_for_ticks_that_fell_due_meanwhile(void **state)
{
	u64 period;

	(void)state;
	program(0, 2, 11932, 0);
	period = pit_expiry(&pit);
	assert_true(pit_poll(&pit, period));
	assert_false(pit_poll(&pit, 2 * period)); /* not acknowledged yet */
	assert_false(pit_poll(&pit, 3 * period));
	assert_true(pit_acked(&pit));
	assert_true(pit_acked(&pit));
	assert_false(pit_acked(&pit));
	assert_true(pit_poll(&pit, 4 * period));
	assert_false(pit_poll(&pit, 5 * period));
	pit_forget_ticks(&pit);
	assert_true(pit_poll(&pit, 6 * period));
	assert_false(pit_acked(&pit));
}

static void a_guest_cannot_ask_for_too_many_ticks(void **state)
{
	(void)state;
	program(0, 2, 2, 0);
	assert_true(pit_poll(&pit, MS));
	assert_true(pit_expiry(&pit) - MS <= 200000);
	assert_true(pit.period >= 200000);
}

static void hpet_legacy_mode_stops_ticks(void **state)
{
	struct kvm_pit_state2 image;

	(void)state;
	program(0, 2, 11932, 0);
	pit_get_state(&pit, &image);
	image.flags = KVM_PIT_FLAGS_HPET_LEGACY;
	pit_set_state(&pit, &image, 0);
	assert_int_equal(pit_expiry(&pit), PIT_NO_EXPIRY);
	program(0, 2, 11932, 0);
	assert_int_equal(pit_expiry(&pit), PIT_NO_EXPIRY);
	image.flags = 0;
	pit_set_state(&pit, &image, 0);
	assert_int_not_equal(pit_expiry(&pit), PIT_NO_EXPIRY);
}

static void the_state_image_starts_the_counters_again(void **state)
{
	struct kvm_pit_state2 image;

	program(0, 2, 11932, 0);
	program(2, 0, 1000, 0);
	pit_get_state(&pit, &image);
	fresh(state);
	pit_set_state(&pit, &image, 100 * MS);
	assert_int_equal(pit_expiry(&pit), 100 * MS + 11932 * 1000000000ull / PIT_HZ);
	assert_int_equal(read_word(2, 100 * MS + clocks(10)), 990);
	/* A count of 0 divides nothing. */
	memset(&image, 0, sizeof(image));
	pit_set_state(&pit, &image, 0);
	for (u32 i = 0; i < 3; i++)
		pit_read(&pit, 0x40 + i, MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(mode_0_counts_below_zero, fresh),
		cmocka_unit_test_setup(modes_2_and_3_start_again, fresh),
		cmocka_unit_test_setup(a_count_of_0_is_65536, fresh),
		cmocka_unit_test_setup(a_latched_count_stands_still, fresh),
		cmocka_unit_test_setup(bytes_can_be_accessed_alone, fresh),
		cmocka_unit_test_setup(read_back_latches_status_before_count, fresh),
		cmocka_unit_test_setup(the_speaker_port_shows_counter_2, fresh),
		cmocka_unit_test_setup(a_rising_gate_restarts_mode_1_and_3, fresh),
		cmocka_unit_test_setup(an_unprogrammed_timer_never_expires, fresh),
		cmocka_unit_test_setup(a_one_shot_ticks_once, fresh),
		cmocka_unit_test_setup(a_periodic_timer_keeps_its_phase, fresh),
		cmocka_unit_test_setup(reinjection_makes_up_for_ticks_that_fell_due_meanwhile,
				       fresh),
		cmocka_unit_test_setup(a_guest_cannot_ask_for_too_many_ticks, fresh),
		cmocka_unit_test_setup(hpet_legacy_mode_stops_ticks, fresh),
		cmocka_unit_test_setup(the_state_image_starts_the_counters_again, fresh),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
