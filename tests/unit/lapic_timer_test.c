// SPDX-License-Identifier: MIT
/*
 * The timer of the local APIC: its modes, what expired before its registers were written, and the
 * TSC deadline.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "unit/plain_lapic.h"

static void a_one_shot_timer_fires_once(void **state)
{
	(void)state;
	write_reg(LAPIC_LVT_TIMER, 0x40);
	write_reg(LAPIC_TIMER_DIVIDE, 0xb); /* by 1 */
	write_reg(LAPIC_TIMER_INITIAL, 1000);
	assert_int_equal(actions.what, LAPIC_DO_TIMER);
	assert_int_equal(lapic_timer_expiry(&lapic, at(0)), 1000);
	assert_int_equal(read_reg_at(LAPIC_TIMER_CURRENT, 400), 600);
	assert_false(lapic_timer_poll(&lapic, at(999)));
	assert_true(lapic_timer_poll(&lapic, at(1000)));
	assert_int_equal(lapic_pending(&lapic), 0x40);
	assert_int_equal(read_reg_at(LAPIC_TIMER_CURRENT, 1001), 0);
	assert_int_equal(lapic_timer_expiry(&lapic, at(1001)), LAPIC_NO_EXPIRY);
	assert_false(lapic_timer_poll(&lapic, at(5000)));
}

static void a_periodic_timer_keeps_its_phase_and_skips_what_was_missed(void **state)
{
	u64 period = 1000000;

	(void)state;
	write_reg(LAPIC_TIMER_DIVIDE, 0); /* by 2 */
	write_reg(LAPIC_LVT_TIMER, 0x20040);
	write_reg(LAPIC_TIMER_INITIAL, period / 2);
	assert_true(lapic_timer_poll(&lapic, at(period + 10)));
	assert_int_equal(lapic_timer_expiry(&lapic, at(0)), 2 * period);
	assert_true(lapic_timer_poll(&lapic, at(5 * period + 10)));
	assert_int_equal(lapic_timer_expiry(&lapic, at(0)), 6 * period);
	write_reg(LAPIC_TIMER_INITIAL, 0);
	assert_int_equal(lapic_timer_expiry(&lapic, at(0)), LAPIC_NO_EXPIRY);
	write_reg(LAPIC_TIMER_INITIAL, 1); /* KVM: not faster than 200 us */
	assert_int_equal(lapic_timer_expiry(&lapic, at(0)), 200000);
}

static void a_new_divisor_scales_what_remains(void **state)
{
	(void)state;
	write_reg(LAPIC_TIMER_DIVIDE, 0xb);
	write_reg(LAPIC_TIMER_INITIAL, 1000);
	write_reg(LAPIC_TIMER_DIVIDE, 1); /* by 4 */
	assert_int_equal(lapic_timer_expiry(&lapic, at(0)), 4000);
	assert_int_equal(read_reg_at(LAPIC_TIMER_CURRENT, 2000), 500);
}

static void the_tsc_deadline_fires_when_the_tsc_gets_there(void **state)
{
	(void)state;
	lapic_set_tsc_deadline(&lapic, 5000, at(0), &actions);
	assert_int_equal(lapic_get_tsc_deadline(&lapic), 0); /* not in that mode */
	write_reg(LAPIC_LVT_TIMER, 0x40040);
	write_reg(LAPIC_TIMER_INITIAL, 77); /* ignored */
	assert_int_equal(read_reg(LAPIC_TIMER_INITIAL), 0);
	lapic_set_tsc_deadline(&lapic, 5000, at(0), &actions);
	assert_int_equal(lapic_get_tsc_deadline(&lapic), 5000);
	assert_in_range(lapic_timer_expiry(&lapic, at(100)), 2500, 2501);
	assert_false(lapic_timer_poll(&lapic, at(2499)));
	assert_true(lapic_timer_poll(&lapic, at(2501)));
	assert_int_equal(lapic_get_tsc_deadline(&lapic), 0);
	lapic_set_tsc_deadline(&lapic, ~0ull, at(0), &actions);
	assert_true(lapic_timer_expiry(&lapic, at(1)) > BIT(60));
	write_reg(LAPIC_LVT_TIMER, 0x40); /* leaving the mode disarms */
	assert_int_equal(lapic_timer_expiry(&lapic, at(1)), LAPIC_NO_EXPIRY);
}

#define PERIOD	     1000000u
#define LVT_ONE_SHOT 0x40u
#define LVT_PERIODIC 0x20041u
#define LVT_DEADLINE 0x40042u

static void start_timer(u32 lvt)
{
	write_reg(LAPIC_TIMER_DIVIDE, 0xb);
	write_reg(LAPIC_LVT_TIMER, lvt);
	write_reg(LAPIC_TIMER_INITIAL, PERIOD);
}

/*
 * On a busy machine the owner polls late, after the guest has written the timer's registers again.
 * What expired before the write expired as the registers were then.
 */
static void a_one_shot_that_expired_is_not_reloaded_by_a_later_periodic_mode(void **state)
{
	(void)state;
	start_timer(LVT_ONE_SHOT);
	write_reg_at(LAPIC_LVT_TIMER, LVT_PERIODIC, PERIOD + 10);
	assert_int_equal(lapic_pending(&lapic), 0x40);
	assert_false(lapic_timer_poll(&lapic, at(PERIOD + 20)));
	assert_int_equal(read_reg_at(LAPIC_TIMER_CURRENT, PERIOD + 30), 0);
	assert_int_equal(lapic_timer_expiry(&lapic, at(PERIOD + 30)), LAPIC_NO_EXPIRY);
}

static void a_period_that_passed_is_reloaded_before_the_mode_becomes_one_shot(void **state)
{
	(void)state;
	start_timer(LVT_PERIODIC);
	write_reg_at(LAPIC_LVT_TIMER, LVT_ONE_SHOT, PERIOD + 10);
	assert_int_equal(lapic_pending(&lapic), 0x41);
	assert_false(lapic_timer_poll(&lapic, at(PERIOD + 20)));
	assert_int_equal(read_reg_at(LAPIC_TIMER_CURRENT, PERIOD + 30), PERIOD - 30);
}

static void the_count_of_a_period_that_passed_is_that_of_the_next(void **state)
{
	struct kvm_lapic_state image;
	u32 count;

	(void)state;
	start_timer(LVT_PERIODIC);
	assert_int_equal(read_reg_at(LAPIC_TIMER_CURRENT, 2 * PERIOD + 10), PERIOD - 10);
	assert_int_equal(lapic_pending(&lapic), 0x41);
	lapic_get_state(&lapic, at(4 * PERIOD + 20), &image);
	memcpy(&count, image.regs + LAPIC_TIMER_CURRENT, 4);
	assert_int_equal(count, PERIOD - 20);
}

static void an_expiry_precedes_a_later_write_of_any_timer_register(void **state)
{
	static const struct {
		u32 reg, value;
	} rows[] = {
		{ LAPIC_TIMER_INITIAL, 5 * PERIOD }, { LAPIC_TIMER_INITIAL, 0 },
		{ LAPIC_TIMER_DIVIDE, 1 },	     { LAPIC_LVT_TIMER, LVT_DEADLINE },
		{ LAPIC_LVT_TIMER, 0x10040 },	     { LAPIC_SVR, 0xff },
	};

	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		plain_lapic_enabled(state);
		start_timer(LVT_ONE_SHOT);
		write_reg_at(rows[i].reg, rows[i].value, PERIOD + 10);
		assert_int_equal(lapic_highest_irr(&lapic), 0x40);
	}
}

static void a_deadline_that_passed_precedes_a_new_one(void **state)
{
	(void)state;
	write_reg(LAPIC_LVT_TIMER, LVT_DEADLINE);
	lapic_set_tsc_deadline(&lapic, 5000, at(0), &actions);
	lapic_set_tsc_deadline(&lapic, 9000, at(3000), &actions);
	assert_int_equal(lapic_pending(&lapic), 0x42);
	lapic_ack(&lapic, 0x42);
	assert_int_equal(lapic_get_tsc_deadline(&lapic), 9000);
}

/* Modes one-shot, periodic and TSC-deadline are 0 to 2. */
static void the_reserved_timer_mode_counts_nothing(void **state)
{
	struct kvm_lapic_state image;
	u32 one = 1;

	(void)state;
	start_timer(LVT_PERIODIC | LVT_DEADLINE);
	assert_int_equal(lapic_timer_expiry(&lapic, at(1)), LAPIC_NO_EXPIRY);
	assert_false(lapic_timer_poll(&lapic, at(2 * PERIOD)));
	lapic_get_state(&lapic, at(1), &image);
	memcpy(image.regs + LAPIC_TIMER_CURRENT, &one, sizeof(one));
	assert_int_equal(lapic_set_state(&lapic, at(2), &image), 0);
	assert_int_equal(lapic_timer_expiry(&lapic, at(3)), LAPIC_NO_EXPIRY);
	assert_int_equal(lapic_highest_irr(&lapic), -1);
	write_reg(LAPIC_LVT_TIMER, LVT_ONE_SHOT);
	assert_int_equal(lapic_timer_expiry(&lapic, at(4)), LAPIC_NO_EXPIRY);
}

static void a_masked_timer_expires_silently(void **state)
{
	(void)state;
	write_reg(LAPIC_LVT_TIMER, 0x10040);
	write_reg(LAPIC_TIMER_INITIAL, 1000);
	assert_false(lapic_timer_poll(&lapic, at(3000)));
	assert_int_equal(lapic_highest_irr(&lapic), -1);
	assert_int_equal(lapic_timer_expiry(&lapic, at(0)), LAPIC_NO_EXPIRY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_one_shot_timer_fires_once, plain_lapic_enabled),
		cmocka_unit_test_setup(a_periodic_timer_keeps_its_phase_and_skips_what_was_missed,
				       plain_lapic_enabled),
		cmocka_unit_test_setup(a_new_divisor_scales_what_remains, plain_lapic_enabled),
		cmocka_unit_test_setup(the_tsc_deadline_fires_when_the_tsc_gets_there,
				       plain_lapic_enabled),
		cmocka_unit_test_setup(
			a_one_shot_that_expired_is_not_reloaded_by_a_later_periodic_mode,
			plain_lapic_enabled),
		cmocka_unit_test_setup(
			a_period_that_passed_is_reloaded_before_the_mode_becomes_one_shot,
			plain_lapic_enabled),
		cmocka_unit_test_setup(the_count_of_a_period_that_passed_is_that_of_the_next,
				       plain_lapic_enabled),
		cmocka_unit_test(an_expiry_precedes_a_later_write_of_any_timer_register),
		cmocka_unit_test_setup(a_deadline_that_passed_precedes_a_new_one,
				       plain_lapic_enabled),
		cmocka_unit_test_setup(the_reserved_timer_mode_counts_nothing, plain_lapic_enabled),
		cmocka_unit_test_setup(a_masked_timer_expires_silently, plain_lapic_enabled),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
