// SPDX-License-Identifier: MIT
/*
 * PERF_METRICS: its arithmetic, and the register with each backend: when it counts and what, what
 * software's writes do, the event filter, save and restore, RDPMC, and which guests have it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "unit/pmu_machine.h"

#define METRICS 0x329
#define SLOTS	(FIXED_CTR + 3)
#define ENABLE	(BIT(FIXED(3)) | BIT(48))
#define BOTH	0x3000ull /* fixed counter 3, both privileges */

static struct pmu_machine m;

static u32 byte_of(u64 value, u32 i)
{
	return value >> 8 * i & 0xff;
}

static u32 sum_of(u64 value)
{
	return byte_of(value, 0) + byte_of(value, 1) + byte_of(value, 2) + byte_of(value, 3);
}

/* --- arithmetic --- */

static void level_1_is_always_all_slots(void **state)
{
	struct metrics metrics = { .counted = true };
	u64 seed = 1;

	(void)state;
	for (u32 n = 0; n < 20000; n++) {
		u64 value;

		for (u32 i = 0; i < NMETRICS; i++) {
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			metrics.ticks[i] = seed >> (seed >> 6 & 63);
		}
		metrics.ticks[0] |= 1;
		value = metrics_value(&metrics, NMETRICS);
		assert_int_equal(sum_of(value), 0xff);
		for (u32 i = 0; i < NMETRICS_L1; i++)
			assert_true(byte_of(value, NMETRICS_L1 + i) <= byte_of(value, i));
		assert_int_equal(metrics_value(&metrics, NMETRICS_L1), (u32)value);
	}
}

static void fractions_are_rounded_by_largest_remainder(void **state)
{
	struct metrics metrics = { .counted = true, .ticks = { 1, 1, 1, 0, 1, 0, 0, 0 } };

	(void)state;
	assert_int_equal(metrics_value(&metrics, 4), 0x00555555);
	metrics.ticks[METRIC_BACKEND] = 1;
	assert_int_equal(metrics_value(&metrics, 4), 0x3f404040);
	assert_int_equal(metrics_value(&metrics, 8), 0x3f404040 + (0x40ull << 32));
	/* All of a field is all of it on level 2. */
	metrics = (struct metrics){ .counted = true, .ticks = { 2000, 3, 0, 7, 0, 3, 0, 7 } };
	assert_int_equal(metrics_value(&metrics, 8), 0x01000000010000fe);
	metrics = (struct metrics){ .counted = true, .ticks = { 0, 0, 0, ~0ull } };
	assert_int_equal(metrics_value(&metrics, 8), 0xff000000);
}

static void what_is_written_is_a_fraction_of_the_slots(void **state)
{
	struct metrics metrics;

	(void)state;
	metrics_write(&metrics, 0x7f008000, 255 * 1000);
	assert_int_equal(metrics.ticks[METRIC_BAD_SPECULATION], 128 * 1000);
	assert_int_equal(metrics.ticks[METRIC_BACKEND], 127 * 1000);
	assert_int_equal(metrics_value(&metrics, 4), 0x7f008000);
	metrics_add(&metrics, (const u64[NMETRICS]){ 0 });
	assert_false(metrics.counted);
	metrics_add(&metrics, (const u64[NMETRICS]){ 255 * 1000 });
	assert_int_equal(sum_of(metrics_value(&metrics, 4)), 0xff);
	assert_int_equal(byte_of(metrics_value(&metrics, 4), METRIC_RETIRING), 0x80);
}

/* --- the register --- */

/* Cycles of these kinds, in user mode. */
static void cycles(u32 used, u32 bad, u32 front, u32 back, u32 heavy, u32 memory)
{
	struct retire_tally *t = &m.tally;
	const u32 one = TICKS_PER_CYCLE;

	pmu_enter(&m.pmu);
	t->cycles[RETIRE_USR] += (used + bad + front + back) * one;
	t->used_slots[RETIRE_USR] += used * one;
	t->bad_slots[RETIRE_USR] += bad * one;
	t->front_slots[RETIRE_USR] += front * one;
	t->fetch_latency[RETIRE_USR] += front * one;
	t->backend_slots[RETIRE_USR] += back * one;
	t->heavy_slots[RETIRE_USR] += heavy * one;
	t->memory_slots[RETIRE_USR] += memory * one;
	pmu_leave(&m.pmu);
}

/* Writes of the guest that does not count itself. */
static void start(enum model_set model)
{
	pmu_machine_create_either(&m, model);
	m.apart = true;
	assert_int_equal(guest_wrmsr(&m, FIXED_CTRL, BOTH), PMU_OK);
	assert_int_equal(guest_wrmsr(&m, SLOTS, 0), PMU_OK);
	assert_int_equal(guest_wrmsr(&m, METRICS, 0), PMU_OK);
	assert_int_equal(guest_wrmsr(&m, GLOBAL_CTRL, ENABLE), PMU_OK);
}

static u64 read_metrics(void)
{
	u64 value;

	assert_int_equal(pmu_rdmsr(&m.pmu, METRICS, false, &value), PMU_OK);
	return value;
}

static void it_tells_what_became_of_the_slots(void **state)
{
	u64 value;

	(void)state;
	start(MODEL_ICELAKE);
	assert_int_equal(read_metrics(), 0);
	cycles(51, 102, 51, 51, 25, 25);
	assert_int_equal(read_metrics(), 0x33336633);
	assert_int_equal(host_rdmsr(&m, SLOTS), 5 * 255);
	assert_int_equal(pmu_rdpmc(&m.pmu, 0x20000000, true, &value), PMU_OK);
	assert_int_equal(value, 0x33336633);
	assert_int_equal(pmu_rdpmc(&m.pmu, 0x20000001, true, &value), PMU_FAULT);
	assert_int_equal(pmu_rdpmc(&m.pmu, 0x20000000, false, &value), PMU_FAULT);
	start(MODEL_SAPPHIRERAPIDS);
	cycles(51, 102, 51, 51, 25, 24);
	assert_int_equal(read_metrics(), 0x1833661933336633);
	assert_int_equal(host_rdmsr(&m, SLOTS), 6 * 255);
}

/* The event backend asks the host for slots; the hardware counts what metrics need, and no more. */
static void only_what_it_needs_is_counted(void **state)
{
	const retire_wanted first = RETIRE_BIT(RETIRE_CYCLES) | RETIRE_BIT(RETIRE_USED_SLOTS) |
				    RETIRE_BIT(RETIRE_BAD_SLOTS) | RETIRE_BIT(RETIRE_FRONT_SLOTS);

	(void)state;
	start(MODEL_ICELAKE);
	pmu_enter(&m.pmu);
	assert_true(hwpmu_wanted(&m.hw) == first);
	guest_wrmsr(&m, GLOBAL_CTRL, BIT(FIXED(3)));
	pmu_enter(&m.pmu);
	assert_true(hwpmu_wanted(&m.hw) == RETIRE_BIT(RETIRE_CYCLES));
	guest_wrmsr(&m, GLOBAL_CTRL, BIT(48));
	pmu_enter(&m.pmu);
	assert_true(hwpmu_wanted(&m.hw) == 0);
}

static void it_counts_while_both_are_enabled(void **state)
{
	(void)state;
	start(MODEL_ICELAKE);
	cycles(10, 0, 0, 0, 0, 0);
	assert_int_equal(read_metrics(), 0xff);
	guest_wrmsr(&m, GLOBAL_CTRL, BIT(FIXED(3)));
	cycles(0, 10, 0, 0, 0, 0);
	guest_wrmsr(&m, GLOBAL_CTRL, BIT(48));
	cycles(0, 10, 0, 0, 0, 0);
	guest_wrmsr(&m, GLOBAL_CTRL, ENABLE);
	guest_wrmsr(&m, FIXED_CTRL, 0);
	cycles(0, 10, 0, 0, 0, 0);
	guest_wrmsr(&m, FIXED_CTRL, 0x1000); /* not in user mode */
	cycles(0, 10, 0, 0, 0, 0);
	assert_int_equal(read_metrics(), 0xff);
	guest_wrmsr(&m, FIXED_CTRL, 0x2000);
	cycles(0, 0, 0, 10, 0, 0);
	assert_int_equal(read_metrics(), 0x7f000080);
}

static void a_write_begins_anew(void **state)
{
	(void)state;
	start(MODEL_SAPPHIRERAPIDS);
	cycles(10, 20, 30, 40, 5, 6);
	guest_wrmsr(&m, SLOTS, 0);
	guest_wrmsr(&m, METRICS, 0);
	assert_int_equal(read_metrics(), 0);
	cycles(0, 0, 7, 0, 0, 0);
	assert_int_equal(read_metrics(), 0x00ff000000ff0000);
	assert_int_equal(host_rdmsr(&m, SLOTS), 42);
	/* Linux puts back what it has saved: slots first. */
	guest_wrmsr(&m, GLOBAL_CTRL, 0);
	guest_wrmsr(&m, SLOTS, 600);
	guest_wrmsr(&m, METRICS, 0xff);
	assert_int_equal(read_metrics(), 0xff);
	guest_wrmsr(&m, GLOBAL_CTRL, ENABLE);
	cycles(0, 0, 0, 100, 0, 0);
	assert_int_equal(read_metrics(), 0x7f000080);
	assert_int_equal(host_rdmsr(&m, SLOTS), 1200);
}

/* KVM's tests: it reads as written while nothing counts, whatever the slots are. */
static void it_reads_as_written_until_slots_are_counted(void **state)
{
	u64 value;

	(void)state;
	pmu_machine_create_either(&m, MODEL_ICELAKE);
	m.apart = true;
	guest_wrmsr(&m, METRICS, 0x123456789abcdef0);
	assert_int_equal(pmu_rdpmc(&m.pmu, 0x20000000, true, &value), PMU_OK);
	assert_int_equal(value, 0x123456789abcdef0);
	pmu_enter(&m.pmu);
	assert_int_equal(read_metrics(), 0x123456789abcdef0);
	cycles(1, 2, 3, 4, 0, 0);
	assert_int_equal(read_metrics(), 0x123456789abcdef0);
}

/* --- the filter --- */

static void set_filter(u32 action, u32 fixed, const u64 *events, u32 n)
{
	static struct pmu_filter filter;
	const struct pmu_filter_args args = {
		.action = action, .nevents = n, .fixed_bitmap = fixed, .events = events
	};

	assert_int_equal(pmu_filter_make(&filter, &args, false), PMU_FILTER_OK);
	pmu_set_filter(&m.pmu, &filter);
}

static void check_filter(u32 action, u32 fixed, u64 event, bool counts)
{
	start(MODEL_SAPPHIRERAPIDS);
	set_filter(action, fixed, &event, 1);
	cycles(10, 0, 0, 0, 0, 0);
	assert_int_equal(read_metrics(), counts ? 0xff : 0);
	/* The guest sees its own bit all the same. */
	assert_int_equal(host_rdmsr(&m, GLOBAL_CTRL), ENABLE);
	pmu_set_filter(&m.pmu, NULL);
	cycles(0, 0, 10, 0, 0, 0);
	assert_int_equal(read_metrics(), counts ? 0x007f0000007f0080 : 0x00ff000000ff0000);
}

static void the_filter_denies_it(void **state)
{
	(void)state;
	check_filter(PMU_FILTER_DENY, 0, 0xc0, true);
	check_filter(PMU_FILTER_DENY, BIT(3), 0xc0, false);
	check_filter(PMU_FILTER_DENY, 7, 0xc0, true);
	check_filter(PMU_FILTER_DENY, 0, 0x0400, false); /* slots */
	check_filter(PMU_FILTER_DENY, 0, 0x8000, false); /* topdown-retiring */
	check_filter(PMU_FILTER_DENY, 0, 0x8700, false); /* topdown-mem-bound */
	check_filter(PMU_FILTER_ALLOW, BIT(3), 0xc0, true);
	check_filter(PMU_FILTER_ALLOW, 7, 0xc0, false);
}

/* --- save and restore --- */

struct saved {
	struct pmu_msr msr[PMU_MSRS];
	u32 n, part;
	u64 metric[NMETRICS];
};

static void save(struct saved *s)
{
	s->n = pmu_save(&m.pmu, s->msr);
	s->part = pmu_read_part(&m.pmu, FIXED(3));
	for (enum metric i = 0; i < NMETRICS; i++)
		s->metric[i] = pmu_read_metric(&m.pmu, i);
}

static void restore_hidden(const struct saved *s)
{
	pmu_write_part(&m.pmu, FIXED(3), s->part);
	for (enum metric i = 0; i < NMETRICS; i++)
		pmu_write_metric(&m.pmu, i, s->metric[i]);
}

static void restored_metrics_are_exact(void **state)
{
	static struct saved s;

	(void)state;
	for (u32 order = 0; order < 2; order++) {
		u64 value;

		start(MODEL_SAPPHIRERAPIDS);
		cycles(1, 2, 3, 400000, 1, 3);
		value = read_metrics();
		save(&s);
		cycles(99999, 200000, 0, 0, 0, 0);
		pmu_machine_create_either(&m, MODEL_SAPPHIRERAPIDS);
		m.apart = true;
		if (order)
			restore_hidden(&s);
		assert_int_equal(pmu_restore(&m.pmu, s.msr, s.n), s.n);
		if (!order)
			restore_hidden(&s);
		assert_int_equal(read_metrics(), value);
		for (enum metric i = 0; i < NMETRICS; i++)
			assert_int_equal(pmu_read_metric(&m.pmu, i), s.metric[i]);
		cycles(99999, 200000, 0, 0, 0, 0);
		assert_int_equal(pmu_read_metric(&m.pmu, METRIC_RETIRING), 100000 * 120);
		assert_int_equal(pmu_read_metric(&m.pmu, METRIC_BAD_SPECULATION), 200002 * 120);
	}
}

/* A world switch: the hardware is taken away, or has another backend. */
static void it_survives_a_change_of_backend(void **state)
{
	(void)state;
	pmu_machine_create_event(&m, MODEL_ICELAKE);
	m.apart = true;
	guest_wrmsr(&m, FIXED_CTRL, BOTH);
	guest_wrmsr(&m, GLOBAL_CTRL, ENABLE);
	cycles(100, 0, 0, 0, 0, 0);
	pmu_put(&m.pmu);
	m.tally.bad_slots[RETIRE_USR] += 1000;
	m.tally.cycles[RETIRE_USR] += 1000;
	cycles(0, 0, 50, 0, 0, 0);
	pmu_set_backend(&m.pmu, &hostperf_mediated, &m.hw);
	hostperf_yield(&m.host);
	cycles(0, 0, 0, 50, 0, 0);
	assert_int_equal(read_metrics(), 0x40400000 + 0x7f); /* 50, 25, 25 % */
	assert_int_equal(host_rdmsr(&m, SLOTS), 1000);
}

/* --- who has it --- */

static bool passes(u32 index)
{
	struct pmu_pass pass[PMU_PASSES];
	u32 n = pmu_passes(&m.pmu, pass);

	for (u32 i = 0; i < n; i++)
		if (pass[i].index == index)
			return pass[i].read && pass[i].write;
	return false;
}

static void a_guest_reaches_the_hardware_unless_a_filter_denies(void **state)
{
	static const u64 retiring = 0x8000, instructions = 0xc0;
	bool own;

	(void)state;
	start(MODEL_ICELAKE);
	own = m.pmu.backend->owns_hardware;
	assert_int_equal(passes(METRICS), own);
	assert_int_equal(passes(GLOBAL_CTRL), own);
	set_filter(PMU_FILTER_DENY, 0, &instructions, 1);
	assert_int_equal(passes(METRICS), own);
	set_filter(PMU_FILTER_DENY, 0, &retiring, 1);
	assert_false(passes(METRICS));
	assert_false(passes(GLOBAL_CTRL));
}

static void without_the_capability_there_is_none(void **state)
{
	struct pmu_guest guest = pmu_machine_guest(MODEL_ICELAKE);
	u64 value;

	(void)state;
	pmu_machine_create_either(&m, MODEL_ICELAKE);
	m.apart = true;
	host_wrmsr(&m, PERF_CAPS, PERF_CAP_FULL_WIDTH);
	assert_int_equal(guest_wrmsr(&m, METRICS, 0), PMU_UNKNOWN);
	assert_int_equal(guest_wrmsr(&m, GLOBAL_CTRL, BIT(48)), PMU_FAULT);
	assert_int_equal(pmu_rdpmc(&m.pmu, 0x20000000, true, &value), PMU_FAULT);
	assert_false(passes(METRICS));
	pmu_enter(&m.pmu);
	if (m.pmu.backend->owns_hardware) { /* nor when the guest reaches its registers */
		assert_true(passes(GLOBAL_CTRL));
		assert_int_equal(hwpmu_wrmsr(&m.hw, GLOBAL_CTRL, BIT(48)), HWPMU_FAULT);
		assert_int_equal(hwpmu_wrmsr(&m.hw, METRICS, 0), HWPMU_FAULT);
		assert_int_equal(hwpmu_rdpmc(&m.hw, 0x20000000, &value), HWPMU_FAULT);
	}
	pmu_machine_create_either(&m, MODEL_ICELAKE);
	guest.leaf_a_ecx = 7;
	guest.leaf_a_edx = (guest.leaf_a_edx & ~0x1fu) | 3;
	pmu_configure(&m.pmu, &guest);
	assert_int_equal(guest_wrmsr(&m, METRICS, 0), PMU_UNKNOWN);
	pmu_machine_create_either(&m, MODEL_SKYLAKE);
	assert_int_equal(guest_wrmsr(&m, METRICS, 0), PMU_UNKNOWN);
	assert_int_equal(host_wrmsr(&m, METRICS, 0), PMU_UNKNOWN);
	pmu_machine_create_either(&m, MODEL_GENOA);
	assert_int_equal(pmu_rdpmc(&m.pmu, 0x20000000, true, &value), PMU_FAULT);
}

int main(void)
{
	const struct CMUnitTest arithmetic[] = {
		cmocka_unit_test(level_1_is_always_all_slots),
		cmocka_unit_test(fractions_are_rounded_by_largest_remainder),
		cmocka_unit_test(what_is_written_is_a_fraction_of_the_slots),
		cmocka_unit_test(it_survives_a_change_of_backend),
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_tells_what_became_of_the_slots),
		cmocka_unit_test(only_what_it_needs_is_counted),
		cmocka_unit_test(it_counts_while_both_are_enabled),
		cmocka_unit_test(a_write_begins_anew),
		cmocka_unit_test(it_reads_as_written_until_slots_are_counted),
		cmocka_unit_test(the_filter_denies_it),
		cmocka_unit_test(restored_metrics_are_exact),
		cmocka_unit_test(a_guest_reaches_the_hardware_unless_a_filter_denies),
		cmocka_unit_test(without_the_capability_there_is_none),
	};
	int failed = cmocka_run_group_tests(arithmetic, NULL, NULL);

	return failed | pmu_machine_test_both(tests);
}
