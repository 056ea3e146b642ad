// SPDX-License-Identifier: MIT
/*
 * Counting with the virtual PMU, sections 3 and 4 of the specification, over both backends:
 * when a counter counts, what overflow does, RDPMC, the filter, saved state.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "unit/pmu_machine.h"

#define INSTRUCTIONS 0xc0ull
#define INT	     EVENTSEL_INT

static struct pmu_machine m;

static int on(enum model_set model)
{
	pmu_machine_create_either(&m, model);
	m.apart = true;
	return 0;
}

static int on_icelake(void **state)
{
	(void)state;
	return on(MODEL_ICELAKE);
}

static int on_genoa(void **state)
{
	(void)state;
	return on(MODEL_GENOA);
}

static void run(u64 n)
{
	pmu_machine_run(&m, n);
}

/* --- 3.1 --- */

static void a_general_counter_needs_both_enables(void **state)
{
	(void)state;
	guest_wrmsr(&m, EVNTSEL, COUNTING | INSTRUCTIONS);
	run(10);
	assert_int_equal(host_rdmsr(&m, PMC), 10);
	guest_wrmsr(&m, GLOBAL_CTRL, BIT(1));
	run(10);
	assert_int_equal(host_rdmsr(&m, PMC), 10);
	guest_wrmsr(&m, GLOBAL_CTRL, BIT(0));
	run(10);
	assert_int_equal(host_rdmsr(&m, PMC), 20);
	guest_wrmsr(&m, EVNTSEL, INSTRUCTIONS);
	run(10);
	assert_int_equal(host_rdmsr(&m, PMC), 20);
}

static void a_fixed_counter_needs_its_field_and_its_bit(void **state)
{
	(void)state;
	guest_wrmsr(&m, FIXED_CTRL, 0x2);
	run(10);
	assert_int_equal(host_rdmsr(&m, FIXED_CTR), 0);
	guest_wrmsr(&m, GLOBAL_CTRL, BIT(FIXED(0)));
	run(10);
	assert_int_equal(host_rdmsr(&m, FIXED_CTR), 10);
	guest_wrmsr(&m, FIXED_CTRL, 0x1); /* CPL 0 only */
	run(10);
	assert_int_equal(host_rdmsr(&m, FIXED_CTR), 10);
}

static void version_1_has_no_global_enable(void **state)
{
	struct pmu_guest guest = pmu_machine_guest(MODEL_ICELAKE);

	(void)state;
	guest.leaf_a_eax = (guest.leaf_a_eax & ~0xffu) | 1;
	pmu_configure(&m.pmu, &guest);
	guest_wrmsr(&m, EVNTSEL, COUNTING | INSTRUCTIONS | INT);
	host_wrmsr(&m, PMC, WIDTH);
	assert_int_equal(pmu_machine_run(&m, 3), 1);
	assert_int_equal(host_rdmsr(&m, PMC), 2);
	assert_int_equal(m.pmu.global_status, 0);
}

static void a_write_replaces_the_count_at_once(void **state)
{
	(void)state;
	guest_wrmsr(&m, EVNTSEL, COUNTING | INSTRUCTIONS);
	run(100);
	pmu_wrmsr(&m.pmu, PMC, false, 5);
	assert_int_equal(host_rdmsr(&m, PMC), 5);
	run(1);
	assert_int_equal(host_rdmsr(&m, PMC), 6);
}

/* --- 3.5: instructions that the hypervisor completes --- */

static void one_of_the_two_writes_around_a_block_is_counted(void **state)
{
	(void)state;
	m.apart = false;
	guest_wrmsr(&m, GLOBAL_CTRL, 0);
	guest_wrmsr(&m, EVNTSEL, COUNTING | INSTRUCTIONS);
	guest_wrmsr(&m, GLOBAL_CTRL, 1);
	run(34);
	guest_wrmsr(&m, GLOBAL_CTRL, 0);
	assert_int_equal(host_rdmsr(&m, PMC), 35);
	/* The same if counters are synchronized before the write completes, as KVM does. */
	guest_wrmsr(&m, PMC, 0);
	pmu_wrmsr(&m.pmu, GLOBAL_CTRL, false, 1);
	pmu_sync(&m.pmu);
	m.tally.instructions[RETIRE_OS]++;
	run(34);
	pmu_wrmsr(&m.pmu, GLOBAL_CTRL, false, 0);
	pmu_sync(&m.pmu);
	m.tally.instructions[RETIRE_OS]++;
	assert_int_equal(host_rdmsr(&m, PMC), 35);
}

static void the_closing_write_can_overflow(void **state)
{
	(void)state;
	m.apart = false;
	host_wrmsr(&m, PMC, WIDTH - 9);
	guest_wrmsr(&m, EVNTSEL, COUNTING | INSTRUCTIONS | INT);
	run(9);
	guest_wrmsr(&m, GLOBAL_CTRL, 0);
	assert_int_equal(host_rdmsr(&m, PMC), 0);
	assert_int_equal(host_rdmsr(&m, STATUS), 1);
	assert_true(pmu_take_requests(&m.pmu) & PMU_REQUEST_PMI);
}

/* --- 3.2, 3.3 --- */

static void overflow_sets_status_and_int_decides_on_the_interrupt(void **state)
{
	(void)state;
	host_wrmsr(&m, PMC, WIDTH);
	host_wrmsr(&m, FIXED_CTR, WIDTH);
	guest_wrmsr(&m, EVNTSEL, COUNTING | INSTRUCTIONS);
	guest_wrmsr(&m, FIXED_CTRL, 0x2);
	guest_wrmsr(&m, GLOBAL_CTRL, 1 | BIT(FIXED(0)));
	assert_int_equal(pmu_machine_run(&m, 10), 0);
	assert_int_equal(host_rdmsr(&m, STATUS), 1 | BIT(FIXED(0)));
	assert_int_equal(host_rdmsr(&m, PMC), 9);
	guest_wrmsr(&m, OVF_CTRL, BIT(FIXED(0)));
	assert_int_equal(host_rdmsr(&m, STATUS), 1);
	guest_wrmsr(&m, FIXED_CTRL, 0xa);
	guest_wrmsr(&m, FIXED_CTR, WIDTH);
	assert_int_equal(pmu_machine_run(&m, 10), 1);
}

static void a_period_is_kept_exactly(void **state)
{
	(void)state;
	guest_wrmsr(&m, EVNTSEL, COUNTING | INSTRUCTIONS | INT);
	for (u32 i = 0; i < 20; i++) {
		guest_wrmsr(&m, PMC, -1000);
		assert_int_equal(pmu_machine_run(&m, 999), 0);
		assert_int_equal(pmu_machine_run(&m, 1), 1);
		assert_int_equal(host_rdmsr(&m, PMC), 0);
	}
}

static void overflows_before_delivery_make_one_interrupt(void **state)
{
	(void)state;
	for (u32 i = 0; i < 3; i++) {
		host_wrmsr(&m, PMC + i, WIDTH);
		guest_wrmsr(&m, EVNTSEL + i, COUNTING | INSTRUCTIONS | INT);
	}
	pmu_enter(&m.pmu);
	m.tally.instructions[RETIRE_USR]++;
	pmu_leave(&m.pmu);
	assert_int_equal(host_rdmsr(&m, STATUS), 7);
	assert_int_equal(pmu_take_requests(&m.pmu), PMU_REQUEST_PMI | PMU_REQUEST_MASK_LVTPC);
	assert_int_equal(pmu_take_requests(&m.pmu), 0);
}

static void amd_interrupts_leave_lvtpc_alone(void **state)
{
	(void)state;
	host_wrmsr(&m, K7_PMC, WIDTH);
	guest_wrmsr(&m, K7_EVNTSEL, COUNTING | INSTRUCTIONS | INT);
	pmu_enter(&m.pmu);
	m.tally.instructions[RETIRE_USR] += 4;
	pmu_leave(&m.pmu);
	assert_int_equal(pmu_take_requests(&m.pmu), PMU_REQUEST_PMI);
	assert_int_equal(host_rdmsr(&m, AMD_STATUS), 1);
	run(5);
	assert_int_equal(host_rdmsr(&m, K7_PMC), 8);
}

static void an_overflow_of_a_count_that_was_replaced_is_void(void **state)
{
	(void)state;
	host_wrmsr(&m, PMC, WIDTH);
	guest_wrmsr(&m, EVNTSEL, COUNTING | INSTRUCTIONS | INT);
	pmu_wrmsr(&m.pmu, PMC, false, 0);
	m.tally.instructions[RETIRE_OS]++;
	run(10);
	assert_int_equal(host_rdmsr(&m, STATUS), 0);
	assert_int_equal(host_rdmsr(&m, PMC), 10);
}

static void narrow_counters_overflow_at_their_own_width(void **state)
{
	struct pmu_guest guest = pmu_machine_guest(MODEL_ICELAKE);

	(void)state;
	guest.leaf_a_eax = (guest.leaf_a_eax & ~0xff0000u) | 4 << 16;
	pmu_configure(&m.pmu, &guest);
	guest_wrmsr(&m, EVNTSEL, COUNTING | INSTRUCTIONS | INT);
	assert_int_equal(pmu_machine_run(&m, 50), 3);
	assert_int_equal(host_rdmsr(&m, PMC), 50 % 16);
	assert_int_equal(host_rdmsr(&m, STATUS), 1);
}

/* --- 3.4 --- */

static void rdpmc_reads_what_its_index_names(void **state)
{
	u64 value;

	(void)state;
	host_wrmsr(&m, PMC + 7, 70);
	host_wrmsr(&m, FIXED_CTR + 2, 32);
	assert_int_equal(pmu_rdpmc(&m.pmu, 7, true, &value), PMU_OK);
	assert_int_equal(value, 70);
	assert_int_equal(pmu_rdpmc(&m.pmu, BIT(30) | 2, true, &value), PMU_OK);
	assert_int_equal(value, 32);
	assert_int_equal(pmu_rdpmc(&m.pmu, 7, false, &value), PMU_FAULT);
}

static void rdpmc_faults_on_other_indices(void **state)
{
	static const u32 bad[] = {
		8, 64, 0xffff, BIT(30) | 4, BIT(31), BIT(29) | 1, BIT(31) | BIT(30), BIT(16), ~0u,
	};
	u64 value;

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(bad); i++)
		assert_int_equal(pmu_rdpmc(&m.pmu, bad[i], true, &value), PMU_FAULT);
	on_genoa(state);
	assert_int_equal(pmu_rdpmc(&m.pmu, 5, true, &value), PMU_OK);
	assert_int_equal(pmu_rdpmc(&m.pmu, 6, true, &value), PMU_FAULT);
	assert_int_equal(pmu_rdpmc(&m.pmu, BIT(30), true, &value), PMU_FAULT);
}

/* --- 4.5 --- */

static void a_filter_stops_running_counters(void **state)
{
	static const u64 instructions = INSTRUCTIONS;
	struct pmu_filter_args args = {
		.action = PMU_FILTER_DENY,
		.nevents = 1,
		.fixed_bitmap = 1,
		.events = &instructions,
	};
	struct pmu_filter filter;

	(void)state;
	pmu_filter_make(&filter, &args, false);
	guest_wrmsr(&m, EVNTSEL, COUNTING | INSTRUCTIONS);
	guest_wrmsr(&m, FIXED_CTRL, 0x3);
	guest_wrmsr(&m, GLOBAL_CTRL, 1 | BIT(FIXED(0)));
	run(10);
	pmu_set_filter(&m.pmu, &filter);
	run(10);
	assert_int_equal(host_rdmsr(&m, PMC), 10);
	assert_int_equal(host_rdmsr(&m, FIXED_CTR), 10);
	assert_int_equal(host_rdmsr(&m, EVNTSEL), COUNTING | INSTRUCTIONS);
	assert_int_equal(hwpmu_wanted(&m.hw), 0);
	pmu_set_filter(&m.pmu, NULL);
	run(10);
	assert_int_equal(host_rdmsr(&m, PMC), 20);
	assert_int_equal(host_rdmsr(&m, FIXED_CTR), 20);
}

/* --- 2.8 --- */

static void state_survives_a_move(enum model_set model)
{
	struct pmu_msr saved[PMU_MSRS], again[PMU_MSRS];
	u32 n;

	n = pmu_save(&m.pmu, saved);
	assert_int_equal(n, pmu_msr_list(m.pmu.model, NULL, 0));
	on(model);
	assert_int_equal(pmu_restore(&m.pmu, saved, n), n);
	assert_int_equal(pmu_save(&m.pmu, again), n);
	for (u32 i = 0; i < n; i++) {
		assert_int_equal(again[i].index, saved[i].index);
		assert_int_equal(again[i].value, saved[i].value);
	}
}

static void intel_state_survives_a_move(void **state)
{
	(void)state;
	guest_wrmsr(&m, EVNTSEL + 5, COUNTING | INSTRUCTIONS);
	guest_wrmsr(&m, FIXED_CTRL, 0xb);
	guest_wrmsr(&m, FIXED_CTR, WIDTH - 5);
	guest_wrmsr(&m, GLOBAL_CTRL, BIT(5) | BIT(FIXED(0)));
	run(1000);
	state_survives_a_move(MODEL_ICELAKE);
	assert_int_equal(host_rdmsr(&m, STATUS), BIT(FIXED(0)));
	run(1);
	assert_int_equal(host_rdmsr(&m, PMC + 5), 1001);
	assert_int_equal(host_rdmsr(&m, FIXED_CTR), 995);
}

static void amd_state_survives_a_move(void **state)
{
	(void)state;
	guest_wrmsr(&m, K7_EVNTSEL + 1, COUNTING | INSTRUCTIONS);
	host_wrmsr(&m, K7_PMC + 1, WIDTH - 5);
	guest_wrmsr(&m, AMD_CTL, BIT(1));
	run(1000);
	state_survives_a_move(MODEL_GENOA);
	assert_int_equal(host_rdmsr(&m, AMD_STATUS), BIT(1));
	run(1);
	assert_int_equal(host_rdmsr(&m, K7_PMC + 1), 995);
}

/* The event of the off-core responses: loads that missed L2, or LLC. */
static void an_offcore_event_counts_what_its_register_says(void **state)
{
	const u32 offcore_rsp = 0x1a6;

	(void)state;
	guest_wrmsr(&m, EVNTSEL, COUNTING | 0x1b7);
	guest_wrmsr(&m, offcore_rsp, 0x3f80010001);
	run(1);
	m.tally.load_l2_misses[RETIRE_USR] += 7;
	assert_int_equal(host_rdmsr(&m, PMC), 7);
	guest_wrmsr(&m, offcore_rsp, 0x3fbc020001);
	run(1);
	m.tally.load_l2_misses[RETIRE_USR] += 7;
	m.tally.load_llc_misses[RETIRE_USR] += 2;
	assert_int_equal(host_rdmsr(&m, PMC), 9);
}

#define INTEL(name) cmocka_unit_test_setup(name, on_icelake)
#define AMD(name)   cmocka_unit_test_setup(name, on_genoa)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		INTEL(a_general_counter_needs_both_enables),
		INTEL(a_fixed_counter_needs_its_field_and_its_bit),
		INTEL(version_1_has_no_global_enable),
		INTEL(a_write_replaces_the_count_at_once),
		INTEL(one_of_the_two_writes_around_a_block_is_counted),
		INTEL(the_closing_write_can_overflow),
		INTEL(overflow_sets_status_and_int_decides_on_the_interrupt),
		INTEL(a_period_is_kept_exactly),
		INTEL(overflows_before_delivery_make_one_interrupt),
		AMD(amd_interrupts_leave_lvtpc_alone),
		INTEL(an_overflow_of_a_count_that_was_replaced_is_void),
		INTEL(narrow_counters_overflow_at_their_own_width),
		INTEL(rdpmc_reads_what_its_index_names),
		INTEL(rdpmc_faults_on_other_indices),
		INTEL(a_filter_stops_running_counters),
		INTEL(an_offcore_event_counts_what_its_register_says),
		INTEL(intel_state_survives_a_move),
		AMD(amd_state_survives_a_move),
	};

	return pmu_machine_test_both(tests);
}
