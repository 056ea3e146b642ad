// SPDX-License-Identifier: MIT
/*
 * Instruction-based sampling without a guest: counts, samples as the registers tell them, and what
 * software does between two of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "unit/pmu_machine.h"

#define MSR(reg) (IBS_MSR + (reg))
#define MAX(n)	 ((n) >> 4)

static struct pmu_machine m;
static struct ibs_sample next; /* what the processor will say */

static void store_ibs(void *owner, struct ibs_sample *sample)
{
	(void)owner;
	*sample = next;
}

static const struct hwpmu_store store = { .ibs = store_ibs };

static void create(enum model_set model)
{
	pmu_machine_create(&m, model);
	hwpmu_attach_store(&m.hw, &store, NULL);
	next = (struct ibs_sample){ .rip = 0x401000 };
}

static int on_milan(void **state)
{
	(void)state;
	create(MODEL_MILAN);
	return 0;
}

static int on_genoa(void **state)
{
	(void)state;
	create(MODEL_GENOA);
	return 0;
}

/* Retires instructions, each of two cycles, up to the trip. True: it interrupts. */
static bool run(u64 n)
{
	pmu_enter(&m.pmu);
	m.tally.instructions[RETIRE_USR] += n;
	m.tally.cycles[RETIRE_USR] += 2 * n * TICKS_PER_CYCLE;
	pmu_leave(&m.pmu);
	return hwpmu_take_ibs(&m.hw);
}

static u64 trip(enum retire_class class)
{
	struct retire_trips trips;

	hwpmu_trips(&m.hw, &trips);
	assert_true(trips.armed & RETIRE_BIT(class));
	return trips.at[class][RETIRE_IN_BOTH];
}

static u64 get(enum ibs_register reg)
{
	return host_rdmsr(&m, MSR(reg));
}

static void set(enum ibs_register reg, u64 value)
{
	assert_int_equal(pmu_wrmsr(&m.pmu, MSR(reg), false, value), PMU_OK);
	pmu_enter(&m.pmu);
}

static void ops_are_counted_to_the_very_one(void **state)
{
	(void)state;
	m.tally.instructions[RETIRE_OS] = 1000;
	set(IBS_OP_CTL, IBS_OP_EN | IBS_OP_COUNTS_OPS | MAX(0x200));
	assert_int_equal(trip(RETIRE_INSTRUCTIONS), 1000 + 0x200);
	assert_false(run(0x1ff));
	assert_int_equal((get(IBS_OP_CTL) & IBS_OP_CNT) >> IBS_OP_CNT_AT, 0x1ff);
	assert_int_equal(trip(RETIRE_INSTRUCTIONS), 1000 + 0x200);
	assert_true(run(1));
	assert_true(get(IBS_OP_CTL) & IBS_OP_VAL);
	assert_true(get(IBS_OP_CTL) & IBS_OP_EN);
	assert_int_equal(get(IBS_OP_RIP), 0x401000);
	/* It waits for software. */
	next.rip = 0x402000;
	assert_false(run(0x10000));
	assert_int_equal(get(IBS_OP_RIP), 0x401000);
}

static void a_count_may_begin_anywhere_and_be_wide(void **state)
{
	(void)state;
	set(IBS_OP_CTL,
	    IBS_OP_EN | IBS_OP_COUNTS_OPS | 1ull << 20 | MAX(0x10) | 0x100008ull << IBS_OP_CNT_AT);
	assert_int_equal(trip(RETIRE_INSTRUCTIONS), 8);
	assert_true(run(8));
}

/* Linux reckons with samples, whatever period it came to. */
static void no_period_is_too_short_for_a_sample(void **state)
{
	(void)state;
	for (u64 period = 0; period < IBS_OP_LEAST; period += 0x10) {
		set(IBS_OP_CTL, IBS_OP_EN | IBS_OP_COUNTS_OPS | MAX(period));
		assert_int_equal(get(IBS_OP_CTL) & IBS_OP_MAX, MAX(period));
		assert_false(run(IBS_OP_LEAST - 1));
		assert_true(run(1));
		set(IBS_OP_CTL, IBS_OP_EN | MAX(period));
		assert_true(run(IBS_OP_LEAST / 2));
	}
	set(IBS_OP_CTL, 0);
	set(IBS_FETCH_CTL, IBS_FETCH_EN);
	assert_false(run(IBS_FETCH_LEAST - 1));
	assert_true(run(1));
}

static void a_sample_that_is_not_wanted_costs_a_period(void **state)
{
	(void)state;
	set(IBS_OP_CTL, IBS_OP_EN | IBS_OP_COUNTS_OPS | IBS_OP_L3_MISS | MAX(0x10));
	for (u32 i = 0; i < 100; i++) {
		u64 now = m.tally.instructions[RETIRE_USR], end = trip(RETIRE_INSTRUCTIONS);

		assert_in_range(end - now, 1, IBS_OP_LEAST);
		assert_false(run(end - now));
	}
}

static void the_rest_of_a_count_is_random_and_small(void **state)
{
	u64 seen = 0;

	(void)state;
	for (u32 i = 0; i < 100; i++) {
		set(IBS_OP_CTL, IBS_OP_EN | IBS_OP_COUNTS_OPS | MAX(0x200));
		assert_true(run(0x200));
		assert_int_equal(get(IBS_OP_CTL) >> IBS_OP_CNT_AT & ~IBS_RANDOM, 0);
		seen |= get(IBS_OP_CTL) >> IBS_OP_CNT_AT;
	}
	assert_int_equal(seen, IBS_RANDOM);
}

static void cycles_are_counted_else(void **state)
{
	u64 first;

	(void)state;
	set(IBS_OP_CTL, IBS_OP_EN | MAX(0x1000));
	first = trip(RETIRE_CYCLES);
	assert_int_equal(first % TICKS_PER_CYCLE, 0);
	assert_in_range(first / TICKS_PER_CYCLE, 0x1000 - IBS_RANDOM, 0x1000);
	assert_true(hwpmu_wanted(&m.hw) & RETIRE_BIT(RETIRE_CYCLES));
	assert_true(run(0x800));
	assert_false(hwpmu_wanted(&m.hw) & RETIRE_BIT(RETIRE_CYCLES));
}

static void describe(struct observed_access access)
{
	next.access = access;
	set(IBS_OP_CTL, IBS_OP_EN | IBS_OP_COUNTS_OPS | MAX(IBS_OP_LEAST));
	assert_true(run(IBS_OP_LEAST));
}

static void loads_and_stores_are_described(void **state)
{
	u64 l3 = m.hw.model->set == MODEL_MILAN ? 2 : 1;
	u64 not_modified = m.hw.model->set == MODEL_MILAN ? 0 : BIT(5);

	(void)state;
	describe((struct observed_access){ .valid = true,
					   .level = OBSERVED_L1,
					   .tlb = OBSERVED_TLB_L1,
					   .size = 8,
					   .latency = 4,
					   .linear = 0x7000,
					   .physical = 0x9000 });
	assert_int_equal(get(IBS_OP_DATA3),
			 IBS_DATA3_LOAD | IBS_DATA3_LINEAR | IBS_DATA3_PHYSICAL | 4ull << 22);
	assert_int_equal(get(IBS_DC_LINEAR), 0x7000);
	assert_int_equal(get(IBS_DC_PHYSICAL), 0x9000);
	assert_int_equal(get(IBS_OP_DATA2), 0);
	describe((struct observed_access){ .valid = true,
					   .level = OBSERVED_LLC,
					   .tlb = OBSERVED_TLB_WALK,
					   .size = 64,
					   .latency = 80 });
	assert_int_equal(get(IBS_OP_DATA3), IBS_DATA3_LOAD | IBS_DATA3_LINEAR | IBS_DATA3_PHYSICAL |
						    7ull << 22 | IBS_DATA3_L1TLB_MISS |
						    IBS_DATA3_L2TLB_MISS | IBS_DATA3_DC_MISS |
						    IBS_DATA3_L2_MISS | 80ull << 32);
	assert_int_equal(get(IBS_OP_DATA2), l3 | not_modified);
	describe((struct observed_access){ .valid = true,
					   .level = OBSERVED_LLC,
					   .snoop = OBSERVED_SNOOP_MODIFIED,
					   .tlb = OBSERVED_TLB_L1,
					   .size = 4 });
	assert_int_equal(get(IBS_OP_DATA2), l3);
	describe((struct observed_access){
		.valid = true, .level = OBSERVED_MEMORY, .tlb = OBSERVED_TLB_L1, .size = 4 });
	assert_int_equal(get(IBS_OP_DATA2), IBS_SOURCE_MEMORY);
	describe((struct observed_access){ .valid = true,
					   .store = true,
					   .level = OBSERVED_L2,
					   .tlb = OBSERVED_TLB_L2,
					   .size = 1,
					   .latency = 14 });
	assert_int_equal(get(IBS_OP_DATA3),
			 IBS_DATA3_STORE | IBS_DATA3_LINEAR | IBS_DATA3_PHYSICAL | 1ull << 22 |
				 IBS_DATA3_L1TLB_MISS | IBS_DATA3_DC_MISS | 14ull << 32);
	describe((struct observed_access){ .valid = true,
					   .store = true,
					   .modify = true,
					   .level = OBSERVED_LLC,
					   .snoop = OBSERVED_SNOOP_MODIFIED,
					   .tlb = OBSERVED_TLB_L1,
					   .size = 8,
					   .latency = 90 });
	assert_int_equal(get(IBS_OP_DATA3) & (IBS_DATA3_LOAD | IBS_DATA3_STORE),
			 IBS_DATA3_LOAD | IBS_DATA3_STORE);
	assert_int_equal(get(IBS_OP_DATA2), l3);
	describe((struct observed_access){ 0 });
	assert_int_equal(get(IBS_OP_DATA3) | get(IBS_DC_LINEAR) | get(IBS_OP_DATA2), 0);
}

static void branches_are_described(void **state)
{
	(void)state;
	next = (struct ibs_sample){ .rip = 0x10,
				    .branch = true,
				    .taken = true,
				    .is_return = true,
				    .mispredicted = true,
				    .target = 0x77 };
	describe((struct observed_access){ 0 });
	assert_int_equal(get(IBS_OP_DATA) & ~MASK(31, 0), IBS_DATA_BRANCH | IBS_DATA_TAKEN |
								  IBS_DATA_RETURN |
								  IBS_DATA_MISPREDICTED);
	assert_int_equal(get(IBS_BRANCH_TARGET), 0x77);
	next = (struct ibs_sample){ .rip = 0x10, .branch = true, .target = 0x77 };
	describe((struct observed_access){ 0 });
	assert_int_equal(get(IBS_OP_DATA) & ~MASK(31, 0), IBS_DATA_BRANCH);
	assert_int_equal(get(IBS_BRANCH_TARGET), 0);
}

static void only_misses_of_l3_if_so_asked(void **state)
{
	(void)state;
	next.access = (struct observed_access){ .valid = true, .level = OBSERVED_L2, .size = 8 };
	set(IBS_OP_CTL, IBS_OP_EN | IBS_OP_COUNTS_OPS | IBS_OP_L3_MISS | MAX(0x200));
	assert_false(run(0x200));
	assert_false(get(IBS_OP_CTL) & IBS_OP_VAL);
	next.access.level = OBSERVED_MEMORY;
	assert_true(run(0x200));
	assert_int_equal(get(IBS_OP_RIP), 0x401000);
}

/* The model knows of no fetch that missed. */
static void no_fetch_misses_l3(void **state)
{
	(void)state;
	set(IBS_FETCH_CTL, IBS_FETCH_EN | IBS_FETCH_L3_MISS | MAX(0x40));
	for (u32 i = 0; i < 100; i++) {
		u64 now = m.tally.instructions[RETIRE_USR];

		assert_int_equal(trip(RETIRE_INSTRUCTIONS) - now, 0x40);
		assert_false(run(0x40));
		assert_false(get(IBS_FETCH_CTL) & IBS_FETCH_VAL);
	}
	set(IBS_FETCH_CTL, IBS_FETCH_EN | MAX(0x40));
	assert_true(run(0x40));
}

/* 8000001BH:EAX[11] is 0 there, and the bits are reserved. */
static void milan_does_not_know_misses_of_l3(void **state)
{
	(void)state;
	set(IBS_OP_CTL, IBS_OP_EN | IBS_OP_COUNTS_OPS | IBS_OP_L3_MISS | MAX(0x200));
	assert_true(run(0x200));
	assert_true(get(IBS_OP_CTL) & IBS_OP_VAL);
	set(IBS_OP_CTL, 0);
	set(IBS_FETCH_CTL, IBS_FETCH_EN | IBS_FETCH_L3_MISS | MAX(0x40));
	assert_true(run(0x40));
}

static void fetches_are_sampled_too(void **state)
{
	(void)state;
	set(IBS_FETCH_CTL, IBS_FETCH_EN | MAX(0x40));
	assert_false(run(0x3f));
	assert_int_equal((get(IBS_FETCH_CTL) & IBS_FETCH_CNT) >> IBS_FETCH_CNT_AT, 3);
	assert_true(run(1));
	assert_true(get(IBS_FETCH_CTL) & IBS_FETCH_VAL);
	assert_int_equal((get(IBS_FETCH_CTL) & IBS_FETCH_CNT) >> IBS_FETCH_CNT_AT, 4);
	assert_int_equal(get(IBS_FETCH_LINEAR), 0x401000);
	assert_false(get(IBS_FETCH_CTL) & BIT(52)); /* the physical address is not valid */
}

static void a_filter_holds_for_ibs(void **state)
{
	const u64 events[] = { 0x76 };
	struct pmu_filter_args args = { .action = PMU_FILTER_DENY, .nevents = 1, .events = events };
	struct pmu_filter filter;

	(void)state;
	assert_int_equal(pmu_filter_make(&filter, &args, true), PMU_FILTER_OK);
	set(IBS_OP_CTL, IBS_OP_EN | MAX(0x1000));
	pmu_set_filter(&m.pmu, &filter);
	assert_false(get(IBS_OP_CTL) & IBS_OP_EN);
	set(IBS_OP_CTL, IBS_OP_EN | MAX(0x1000));
	assert_false(run(0x10000));
	set(IBS_OP_CTL, IBS_OP_EN | IBS_OP_COUNTS_OPS | MAX(0x1000));
	assert_true(run(0x1000));
}

static void without_the_feature_there_are_no_registers(void **state)
{
	struct pmu_guest guest = pmu_machine_guest(MODEL_MILAN);
	u64 value;

	(void)state;
	guest.ibs = false;
	pmu_configure(&m.pmu, &guest);
	assert_int_not_equal(pmu_rdmsr(&m.pmu, MSR(IBS_OP_CTL), false, &value), PMU_OK);
	assert_int_not_equal(pmu_wrmsr(&m.pmu, MSR(IBS_CTL), false, 0), PMU_OK);
}

static void the_lvt_is_told(void **state)
{
	(void)state;
	assert_int_equal(get(IBS_CTL), IBS_CTL_VALID | IBS_LVT);
	set(IBS_CTL, 0);
	assert_int_equal(get(IBS_CTL), IBS_CTL_VALID | IBS_LVT);
}

/* An embedder need not have one. */
static void without_a_core_to_ask_a_sample_says_nothing(void **state)
{
	(void)state;
	hwpmu_attach_store(&m.hw, NULL, NULL);
	set(IBS_OP_CTL, IBS_OP_EN | IBS_OP_COUNTS_OPS | MAX(0x200));
	assert_true(run(0x200));
	assert_true(get(IBS_OP_CTL) & IBS_OP_VAL);
	assert_int_equal(get(IBS_OP_RIP), 0);
	set(IBS_OP_CTL, 0);
	set(IBS_FETCH_CTL, IBS_FETCH_EN | MAX(0x200));
	assert_true(run(0x200));
	assert_true(get(IBS_FETCH_CTL) & IBS_FETCH_VAL);
}

int main(void)
{
#define ON(setup, test) cmocka_unit_test_setup(test, setup)
	static const struct CMUnitTest tests[] = {
		ON(on_milan, ops_are_counted_to_the_very_one),
		ON(on_milan, a_count_may_begin_anywhere_and_be_wide),
		ON(on_milan, no_period_is_too_short_for_a_sample),
		ON(on_genoa, a_sample_that_is_not_wanted_costs_a_period),
		ON(on_milan, the_rest_of_a_count_is_random_and_small),
		ON(on_milan, cycles_are_counted_else),
		ON(on_milan, loads_and_stores_are_described),
		ON(on_genoa, loads_and_stores_are_described),
		ON(on_milan, branches_are_described),
		ON(on_genoa, only_misses_of_l3_if_so_asked),
		ON(on_genoa, no_fetch_misses_l3),
		ON(on_milan, milan_does_not_know_misses_of_l3),
		ON(on_milan, fetches_are_sampled_too),
		ON(on_genoa, a_filter_holds_for_ibs),
		ON(on_milan, without_the_feature_there_are_no_registers),
		ON(on_milan, the_lvt_is_told),
		ON(on_milan, without_a_core_to_ask_a_sample_says_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
