// SPDX-License-Identifier: MIT
/*
 * The 8254 of the library, on the time of the host. Run by `vpmu kvm`.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "guest/irq_guest.h"

static u64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ull + ts.tv_nsec / 1000000;
}

/* The guest of irq_with_pit programs a tick every 10 ms. */
#define TICK_MS	   10
#define TICKS_MOST 3000

static void the_8254_never_ticks_early(void **state)
{
	u64 begun = now_ms();

	(void)state;
	irq_start(irq_with_pit);
	for (u32 i = 0; i < 30; i++)
		assert_int_equal(irq_next(PORT), PIC_BASE);
	assert_true(now_ms() - begun + 1 >= 30 * TICK_MS);
	kvm_guest_destroy(&irq_guest);
}

/* Lost ticks would keep their count behind the clock for ever; a busy machine does not. */
static void the_8254_makes_up_for_a_pause(void **state)
{
	u64 begun;

	(void)state;
	irq_start(irq_with_pit);
	assert_int_equal(irq_next(PORT), PIC_BASE);
	begun = now_ms();
	usleep(30 * TICK_MS * 1000);
	for (u32 ticks = 0; (ticks + 2) * TICK_MS < now_ms() - begun; ticks++) {
		assert_true(ticks < TICKS_MOST);
		assert_int_equal(irq_next(PORT), PIC_BASE);
	}
	kvm_guest_destroy(&irq_guest);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_8254_never_ticks_early),
		cmocka_unit_test(the_8254_makes_up_for_a_pause),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
