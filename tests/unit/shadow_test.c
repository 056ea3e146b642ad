// SPDX-License-Identifier: MIT
/*
 * Counting beside the guest's counters (hwpmu/shadow.h): tallies are set by hand, as the engine
 * would.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "hwpmu/hwpmu.h"
#include "hwpmu/shadow.h"

#define COUNTING (EVENTSEL_EN | EVENTSEL_OS | EVENTSEL_USR)
#define CLASSES	 (RETIRE_BIT(RETIRE_LOADS) | RETIRE_BIT(RETIRE_L1D_MISSES))

static struct retire_tally tally;
static struct hwpmu pmu;
static struct hwpmu_shadow shadow;

static int on_model(enum model_set model)
{
	memset(&tally, 0, sizeof(tally));
	shadow = (struct hwpmu_shadow){ .classes = CLASSES };
	hwpmu_init(&pmu, pmu_model_of(model), &tally);
	hwpmu_attach_shadow(&pmu, &shadow);
	return 0;
}

static int on_icelake(void **state)
{
	(void)state;
	return on_model(MODEL_ICELAKE);
}

static int on_milan(void **state)
{
	(void)state;
	return on_model(MODEL_MILAN);
}

/* The processor executes: whatever is wanted grows, and so may other classes. */
static void execute(u64 n)
{
	tally.loads[RETIRE_USR] += n;
	tally.loads[RETIRE_OS] += 10 * n;
	tally.stores[RETIRE_USR] += n;
}

static void assert_counted(u64 user)
{
	assert_int_equal(shadow.counts.loads[RETIRE_USR], user);
	assert_int_equal(shadow.counts.loads[RETIRE_OS], 10 * user);
	assert_int_equal(shadow.counts.stores[RETIRE_USR], 0);
}

static void all_classes_count_while_the_marker_is_enabled(void **state)
{
	(void)state;
	execute(100);
	hwpmu_write_select(&pmu, 1, COUNTING | SHADOW_MARKER);
	assert_int_equal(hwpmu_wanted(&pmu), CLASSES);
	execute(7);
	hwpmu_write_select(&pmu, 1, SHADOW_MARKER);
	assert_int_equal(hwpmu_wanted(&pmu), 0);
	execute(100);
	assert_counted(7);
	hwpmu_write_select(&pmu, 1, COUNTING | SHADOW_MARKER);
	execute(2);
	hwpmu_write_select(&pmu, 1, 0);
	assert_counted(9);
}

/* Whatever is counted, software reads the same. */
static void the_marker_itself_counts_nothing(void **state)
{
	(void)state;
	hwpmu_write_select(&pmu, 1, COUNTING | SHADOW_MARKER);
	hwpmu_write(&pmu, 1, BIT(48) - 1);
	execute(7);
	assert_false(hwpmu_retire(&pmu));
	assert_int_equal(hwpmu_read(&pmu, 1), BIT(48) - 1);
}

/* Registers that say the same again, and other counters, open and close nothing. */
static void a_window_is_counted_once(void **state)
{
	(void)state;
	hwpmu_write_select(&pmu, 1, COUNTING | SHADOW_MARKER);
	execute(1);
	hwpmu_write_select(&pmu, 1, EVENTSEL_EN | EVENTSEL_USR | SHADOW_MARKER);
	execute(1);
	hwpmu_write_select(&pmu, 2, COUNTING | SHADOW_MARKER);
	execute(1);
	hwpmu_write_select(&pmu, 0, COUNTING | 0xc0);
	hwpmu_retire(&pmu);
	execute(1);
	hwpmu_write_select(&pmu, 1, 0);
	execute(1);
	hwpmu_write_select(&pmu, 2, 0);
	execute(100);
	assert_counted(5);
}

static void global_control_and_a_freeze_end_a_window(void **state)
{
	(void)state;
	hwpmu_write_select(&pmu, 0, COUNTING | SHADOW_MARKER);
	execute(3);
	hwpmu_write_global_ctrl(&pmu, hwpmu_all(&pmu) & ~1ull);
	execute(100);
	assert_counted(3);
	hwpmu_write_global_ctrl(&pmu, hwpmu_all(&pmu));
	execute(4);
	hwpmu_set_status(&pmu, GLOBAL_STATUS_CTR_FRZ);
	execute(100);
	assert_counted(7);
	hwpmu_reset_status(&pmu, GLOBAL_STATUS_CTR_FRZ);
	execute(1);
	hwpmu_reset(&pmu);
	execute(100);
	assert_counted(8);
}

static void without_a_shadow_the_marker_is_an_unknown_event(void **state)
{
	(void)state;
	hwpmu_attach_shadow(&pmu, NULL);
	hwpmu_write_select(&pmu, 1, COUNTING | SHADOW_MARKER);
	execute(7);
	hwpmu_write_select(&pmu, 1, 0);
	assert_counted(0);
	assert_int_equal(pmu.unreported, 1);
}

static void the_marker_is_not_reported_as_unknown(void **state)
{
	(void)state;
	hwpmu_write_select(&pmu, 1, COUNTING | SHADOW_MARKER);
	assert_int_equal(pmu.unreported, 0);
}

/* A page that others share cannot make the processor count what it does not have. */
static void classes_that_there_are_not_are_ignored(void **state)
{
	(void)state;
	shadow.classes = ~(retire_wanted)0;
	hwpmu_attach_shadow(&pmu, &shadow);
	hwpmu_write_select(&pmu, 1, COUNTING | SHADOW_MARKER);
	assert_true(hwpmu_wanted(&pmu) == RETIRE_ALL);
	execute(7);
	hwpmu_write_select(&pmu, 1, 0);
	assert_int_equal(shadow.counts.stores[RETIRE_USR], 7);
}

#define ON(model, name) cmocka_unit_test_setup(name, on_##model)

int main(void)
{
	const struct CMUnitTest tests[] = {
		ON(icelake, all_classes_count_while_the_marker_is_enabled),
		ON(milan, all_classes_count_while_the_marker_is_enabled),
		ON(icelake, the_marker_itself_counts_nothing),
		ON(milan, the_marker_itself_counts_nothing),
		ON(icelake, a_window_is_counted_once),
		ON(milan, a_window_is_counted_once),
		ON(icelake, global_control_and_a_freeze_end_a_window),
		ON(icelake, without_a_shadow_the_marker_is_an_unknown_event),
		ON(icelake, the_marker_is_not_reported_as_unknown),
		ON(icelake, classes_that_there_are_not_are_ignored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
