// SPDX-License-Identifier: MIT
/*
 * The physical PMU alone: tallies are set by hand, as the engine would.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "hwpmu/hwpmu.h"

#define FIXED(i) (PMU_FIXED_BASE + (i))
#define TOP	 BIT(48)
#define ALL	 (~(retire_wanted)0)
#define COUNTING (EVENTSEL_EN | EVENTSEL_OS | EVENTSEL_USR)

/* Intel event selects. */
#define INSTRUCTIONS 0x00c0ull
#define BRANCHES     0x00c4ull
#define CYCLES	     0x003cull

static struct retire_tally tally;
static struct hwpmu pmu;

static int on_model(enum model_set model)
{
	memset(&tally, 0, sizeof(tally));
	hwpmu_init(&pmu, pmu_model_of(model), &tally);
	return 0;
}

static int on_icelake(void **state)
{
	(void)state;
	return on_model(MODEL_ICELAKE);
}

static void a_counter_counts_from_the_moment_it_is_enabled(void **state)
{
	(void)state;
	tally.instructions[RETIRE_OS] = 100;
	hwpmu_write_select(&pmu, 0, COUNTING | INSTRUCTIONS);
	assert_int_equal(hwpmu_read(&pmu, 0), 0);
	tally.instructions[RETIRE_OS] += 7;
	tally.instructions[RETIRE_USR] += 5;
	assert_int_equal(hwpmu_read(&pmu, 0), 12);
	hwpmu_write_select(&pmu, 0, INSTRUCTIONS);
	tally.instructions[RETIRE_OS] += 100;
	assert_int_equal(hwpmu_read(&pmu, 0), 12);
	hwpmu_write_select(&pmu, 0, COUNTING | INSTRUCTIONS);
	tally.instructions[RETIRE_OS] += 1;
	assert_int_equal(hwpmu_read(&pmu, 0), 13);
}

static void privileges_are_told_apart(void **state)
{
	(void)state;
	hwpmu_write_select(&pmu, 0, EVENTSEL_EN | EVENTSEL_OS | BRANCHES);
	hwpmu_write_select(&pmu, 1, EVENTSEL_EN | EVENTSEL_USR | BRANCHES);
	hwpmu_write_select(&pmu, 2, EVENTSEL_EN | BRANCHES);
	tally.branches[RETIRE_OS] = 3;
	tally.branches[RETIRE_USR] = 4;
	assert_int_equal(hwpmu_read(&pmu, 0), 3);
	assert_int_equal(hwpmu_read(&pmu, 1), 4);
	assert_int_equal(hwpmu_read(&pmu, 2), 0);
}

static void fixed_counters_have_their_events(void **state)
{
	(void)state;
	hwpmu_write_fixed_ctrl(&pmu, 0x3333);
	tally.instructions[RETIRE_USR] = 10;
	tally.cycles[RETIRE_USR] = 20 * TICKS_PER_CYCLE;
	tally.ref_cycles[RETIRE_USR] = 30 * TICKS_PER_CYCLE;
	assert_int_equal(hwpmu_read(&pmu, FIXED(0)), 10);
	assert_int_equal(hwpmu_read(&pmu, FIXED(1)), 20);
	assert_int_equal(hwpmu_read(&pmu, FIXED(2)), 30);
	assert_int_equal(hwpmu_read(&pmu, FIXED(3)), 20 * pmu.model->slots);
}

static void global_ctrl_gates_every_counter(void **state)
{
	(void)state;
	hwpmu_write_select(&pmu, 0, COUNTING | INSTRUCTIONS);
	hwpmu_write_fixed_ctrl(&pmu, 0x3);
	hwpmu_write_global_ctrl(&pmu, BIT(FIXED(0)));
	tally.instructions[RETIRE_OS] = 10;
	assert_int_equal(hwpmu_read(&pmu, 0), 0);
	assert_int_equal(hwpmu_read(&pmu, FIXED(0)), 10);
	hwpmu_write_global_ctrl(&pmu, BIT(0));
	tally.instructions[RETIRE_OS] = 15;
	assert_int_equal(hwpmu_read(&pmu, 0), 5);
	assert_int_equal(hwpmu_read(&pmu, FIXED(0)), 10);
}

static void reaching_zero_is_an_overflow_and_counting_goes_on(void **state)
{
	(void)state;
	hwpmu_write(&pmu, 0, TOP - 5);
	hwpmu_write_select(&pmu, 0, COUNTING | INSTRUCTIONS | EVENTSEL_INT);
	tally.instructions[RETIRE_OS] = 4;
	assert_false(hwpmu_retire(&pmu));
	assert_int_equal(pmu.global_status, 0);
	tally.instructions[RETIRE_OS] = 5;
	assert_true(hwpmu_retire(&pmu));
	assert_int_equal(pmu.global_status, BIT(0));
	assert_int_equal(hwpmu_read(&pmu, 0), 0);
	assert_false(hwpmu_retire(&pmu));
	tally.instructions[RETIRE_OS] = 8;
	assert_int_equal(hwpmu_read(&pmu, 0), 3);
}

static void without_int_only_the_status_remembers(void **state)
{
	(void)state;
	hwpmu_write(&pmu, 0, TOP - 1);
	hwpmu_write_select(&pmu, 0, COUNTING | INSTRUCTIONS);
	hwpmu_write(&pmu, FIXED(0), TOP - 1);
	hwpmu_write_fixed_ctrl(&pmu, 0x3);
	tally.instructions[RETIRE_OS] = 1;
	assert_false(hwpmu_retire(&pmu));
	assert_int_equal(pmu.global_status, BIT(0) | BIT(FIXED(0)));
	hwpmu_reset_status(&pmu, BIT(0));
	assert_int_equal(pmu.global_status, BIT(FIXED(0)));
	hwpmu_set_status(&pmu, BIT(1));
	assert_int_equal(pmu.global_status, BIT(1) | BIT(FIXED(0)));
}

static void disabling_does_not_lose_an_overflow(void **state)
{
	(void)state;
	hwpmu_write(&pmu, 0, TOP - 1);
	hwpmu_write_select(&pmu, 0, COUNTING | INSTRUCTIONS | EVENTSEL_INT);
	tally.instructions[RETIRE_OS] = 1;
	hwpmu_write_global_ctrl(&pmu, 0);
	assert_true(hwpmu_retire(&pmu));
	assert_int_equal(pmu.global_status, BIT(0));
}

static void the_horizon_is_the_nearest_overflow(void **state)
{
	(void)state;
	assert_int_equal(hwpmu_horizon(&pmu, RETIRE_OS, ALL), ~0ull);
	hwpmu_write(&pmu, 0, TOP - 1000);
	hwpmu_write_select(&pmu, 0, COUNTING | INSTRUCTIONS);
	hwpmu_write(&pmu, 1, TOP - 300);
	hwpmu_write_select(&pmu, 1, EVENTSEL_EN | EVENTSEL_USR | BRANCHES);
	assert_int_equal(hwpmu_horizon(&pmu, RETIRE_OS, ALL), 1000);
	assert_int_equal(hwpmu_horizon(&pmu, RETIRE_USR, ALL), 300);
	assert_int_equal(hwpmu_horizon(&pmu, RETIRE_USR, RETIRE_BIT(RETIRE_INSTRUCTIONS)), 1000);
	tally.instructions[RETIRE_USR] = 300;
	tally.branches[RETIRE_USR] = 100;
	assert_int_equal(hwpmu_horizon(&pmu, RETIRE_USR, ALL), 200);
	tally.branches[RETIRE_USR] = 300;
	assert_int_equal(hwpmu_horizon(&pmu, RETIRE_USR, ALL), 0);
	hwpmu_retire(&pmu);
	assert_int_equal(hwpmu_horizon(&pmu, RETIRE_USR, ALL), 700);
}

static void the_horizon_is_certain_for_modelled_classes(void **state)
{
	(void)state;
	hwpmu_write(&pmu, 0, TOP - 5462); /* 546 of them at most, less a tick */
	hwpmu_write_select(&pmu, 0, COUNTING | CYCLES);
	assert_int_equal(hwpmu_horizon(&pmu, RETIRE_OS, ALL), 10);
	hwpmu_write(&pmu, 0, TOP - 5463);
	assert_int_equal(hwpmu_horizon(&pmu, RETIRE_OS, ALL), 11);
	hwpmu_write(&pmu, 0, TOP - 1);
	assert_int_equal(hwpmu_horizon(&pmu, RETIRE_OS, ALL), 1);
}

static void a_trip_is_the_tally_of_the_overflow(void **state)
{
	struct retire_trips trips;

	(void)state;
	tally.far[RETIRE_OS] = 40;
	tally.far[RETIRE_USR] = 7;
	hwpmu_write(&pmu, 0, TOP - 2);
	hwpmu_write_select(&pmu, 0, EVENTSEL_EN | EVENTSEL_OS | 0x40c4);
	hwpmu_trips(&pmu, &trips);
	assert_int_equal(trips.armed, RETIRE_BIT(RETIRE_FAR));
	assert_int_equal(trips.at[RETIRE_FAR][RETIRE_IN_OS], 42);
	assert_int_equal(trips.at[RETIRE_FAR][RETIRE_IN_USR], RETIRE_NEVER);
	assert_int_equal(trips.at[RETIRE_FAR][RETIRE_IN_BOTH], RETIRE_NEVER);
	hwpmu_write(&pmu, 1, TOP - 9);
	hwpmu_write_select(&pmu, 1, COUNTING | 0x40c4);
	hwpmu_trips(&pmu, &trips);
	assert_int_equal(trips.at[RETIRE_FAR][RETIRE_IN_OS], 42);
	assert_int_equal(trips.at[RETIRE_FAR][RETIRE_IN_BOTH], 47 + 9);
}

/* Of which icelake has five a cycle. */
static void a_trip_of_slots_is_that_of_their_ticks(void **state)
{
	struct retire_trips trips;

	(void)state;
	hwpmu_write(&pmu, 0, TOP - 11);
	hwpmu_write_select(&pmu, 0, COUNTING | 0x01a4);
	hwpmu_trips(&pmu, &trips);
	assert_int_equal(trips.at[RETIRE_CYCLES][RETIRE_IN_BOTH], 11 * TICKS_PER_CYCLE / 5);
}

/* Icelake: 5 slots a cycle. */
static void used_and_idle_slots_are_all_slots(void **state)
{
	static const struct {
		u64 select, count;
	} rows[] = {
		{ 0x01a4, 650 },			    /* TOPDOWN.SLOTS_P */
		{ 0x02c2, 100 },			    /* UOPS_RETIRED.SLOTS */
		{ 0x02a4, 550 },			    /* TOPDOWN.BACKEND_BOUND_SLOTS */
		{ 0x02c2 | 1ull << 24, 20 },		    /* cycles of these slots */
		{ 0x02c2 | 6ull << 24, 0 },		    /* more than there are */
		{ 0x02c2 | EVENTSEL_INV | 1ull << 24, 30 }, /* stalls */
	};

	(void)state;
	hwpmu_init(&pmu, pmu_model_of(MODEL_ICELAKE), &tally);
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++)
		hwpmu_write_select(&pmu, i, COUNTING | rows[i].select);
	tally.cycles[RETIRE_OS] += 130 * TICKS_PER_CYCLE;
	tally.used_slots[RETIRE_OS] += 20 * TICKS_PER_CYCLE;
	tally.backend_slots[RETIRE_OS] += 110 * TICKS_PER_CYCLE;
	tally.stalls[RETIRE_OS] += 30 * TICKS_PER_CYCLE;
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(hwpmu_read(&pmu, i), rows[i].count);
}

/* Events of causes: what Linux's perf asks for, as its metrics do. */
static void slots_and_stalls_are_counted_by_cause(void **state)
{
	static const struct {
		enum model_set model;
		u64 select, count;
	} rows[] = {
		{ MODEL_SKYLAKE, 0x019c, 80 },		    /* IDQ_UOPS_NOT_DELIVERED.CORE */
		{ MODEL_SKYLAKE, 0x019c | 4ull << 24, 15 }, /* … CYCLES_0_UOPS_DELIV.CORE */
		{ MODEL_SKYLAKE, 0x019c | 5ull << 24, 0 },  /* more than there are */
		{ MODEL_SKYLAKE, 0x010e, 240 },		    /* UOPS_ISSUED.ANY */
		{ MODEL_SKYLAKE, 0x02c2, 200 },		    /* UOPS_RETIRED.RETIRE_SLOTS */
		{ MODEL_SKYLAKE, 0x04c2, 9 },		    /* UOPS_RETIRED.MACRO_FUSED */
		{ MODEL_SKYLAKE, 0x010d, 7 },		    /* INT_MISC.RECOVERY_CYCLES */
		{ MODEL_SKYLAKE, 0x010d | 1ull << 24 | EVENTSEL_EDGE, 3 }, /* … CLEARS_COUNT */
		{ MODEL_SKYLAKE, 0x800d, 5 },		     /* … CLEAR_RESTEER_CYCLES */
		{ MODEL_SKYLAKE, 0x04a3 | 4ull << 24, 60 },  /* CYCLE_ACTIVITY.STALLS_TOTAL */
		{ MODEL_SKYLAKE, 0x14a3 | 20ull << 24, 24 }, /* … STALLS_MEM_ANY */
		{ MODEL_SKYLAKE, 0x0ca3 | 12ull << 24, 23 }, /* … STALLS_L1D_MISS */
		{ MODEL_SKYLAKE, 0x05a3 | 5ull << 24, 22 },  /* … STALLS_L2_MISS */
		{ MODEL_SKYLAKE, 0x06a3 | 6ull << 24, 21 },  /* … STALLS_L3_MISS */
		{ MODEL_SKYLAKE, 0x06a3, 0 },		     /* without its CMASK */
		{ MODEL_SKYLAKE, 0x40a6, 11 },		     /* EXE_ACTIVITY.BOUND_ON_STORES */
		{ MODEL_ICELAKE, 0x40a6, 0 },		     /* which has a CMASK there */
		{ MODEL_ICELAKE, 0x40a6 | 2ull << 24, 11 },
		{ MODEL_ICELAKE, 0x019c | 5ull << 24, 15 },
		{ MODEL_ICELAKE, 0x02a4, 5 * 35 },		   /* TOPDOWN.BACKEND_BOUND_SLOTS */
		{ MODEL_SAPPHIRERAPIDS, 0x04a4, 6 * 17 },	   /* … BAD_SPEC_SLOTS */
		{ MODEL_SAPPHIRERAPIDS, 0x10a4, 6 * 30 },	   /* … MEMORY_BOUND_SLOTS */
		{ MODEL_SAPPHIRERAPIDS, 0x01c2, 6 * 8 },	   /* UOPS_RETIRED.HEAVY */
		{ MODEL_SAPPHIRERAPIDS, 0x21a6 | 5ull << 24, 24 }, /* … BOUND_ON_LOADS */
		{ MODEL_GENOA, 0x01a0 | BIT(32), 6 * 20 },	   /* … no_ops_from_frontend */
		{ MODEL_GENOA, 0x01a0 | BIT(32) | 6ull << 24, 15 }, /* … with cmask=0x6 */
		{ MODEL_GENOA, 0x1ea0 | BIT(32), 6 * 35 },	    /* … backend_stalls */
		{ MODEL_GENOA, 0x07aa, 6 * 60 },		    /* de_src_op_disp.all */
		{ MODEL_GENOA, 0x00c1, 6 * 50 },		    /* ex_ret_ops */
		{ MODEL_GENOA, 0x00c2 | BIT(32), 6 * 8 },	    /* ex_ret_ucode_ops */
		{ MODEL_GENOA, 0x01d6, 26 },			    /* ex_no_retire.empty */
		{ MODEL_GENOA, 0x02d6, 34 },			    /* ex_no_retire.not_complete */
		{ MODEL_GENOA, 0xa2d6, 24 },			    /* … load_not_complete */
		{ MODEL_GENOA, 0x00a9, 15 },			    /* de_op_queue_empty */
		{ MODEL_MILAN, 0x00a9, 15 },
	};

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		on_model(rows[i].model);
		hwpmu_write_select(&pmu, 0, COUNTING | rows[i].select);
		tally.used_slots[RETIRE_OS] += 50 * TICKS_PER_CYCLE;
		tally.heavy_slots[RETIRE_OS] += 8 * TICKS_PER_CYCLE;
		tally.issued_slots[RETIRE_OS] += 60 * TICKS_PER_CYCLE;
		tally.backend_slots[RETIRE_OS] += 35 * TICKS_PER_CYCLE;
		tally.bad_slots[RETIRE_OS] += 17 * TICKS_PER_CYCLE;
		tally.front_slots[RETIRE_OS] += 20 * TICKS_PER_CYCLE;
		tally.fetch_latency[RETIRE_OS] += 15 * TICKS_PER_CYCLE;
		tally.memory_slots[RETIRE_OS] += 30 * TICKS_PER_CYCLE;
		tally.stalls[RETIRE_OS] += 60 * TICKS_PER_CYCLE;
		tally.backend_stalls[RETIRE_OS] += 34 * TICKS_PER_CYCLE;
		tally.empty_stalls[RETIRE_OS] += 26 * TICKS_PER_CYCLE;
		tally.load_stalls[RETIRE_OS] += 24 * TICKS_PER_CYCLE;
		tally.l1_stalls[RETIRE_OS] += 23 * TICKS_PER_CYCLE;
		tally.l2_stalls[RETIRE_OS] += 22 * TICKS_PER_CYCLE;
		tally.llc_stalls[RETIRE_OS] += 21 * TICKS_PER_CYCLE;
		tally.store_stalls[RETIRE_OS] += 11 * TICKS_PER_CYCLE;
		tally.recovery[RETIRE_OS] += 7 * TICKS_PER_CYCLE;
		tally.resteer[RETIRE_OS] += 5 * TICKS_PER_CYCLE;
		tally.clears[RETIRE_OS] += 3;
		tally.fused[RETIRE_OS] += 9;
		if (hwpmu_read(&pmu, 0) != rows[i].count)
			fail_msg("row %u: %lu, not %lu", i, (unsigned long)hwpmu_read(&pmu, 0),
				 (unsigned long)rows[i].count);
	}
}

/* Three cycles in steps of less than one, while the counter's contents are moved to another. */
static void a_part_of_a_cycle_is_kept(void **state)
{
	const u64 step = TICKS_PER_CYCLE * 3 / 5;

	(void)state;
	hwpmu_write_select(&pmu, 0, COUNTING | CYCLES);
	tally.cycles[RETIRE_OS] += 2 * step;
	assert_int_equal(hwpmu_read(&pmu, 0), 1);
	assert_int_equal(hwpmu_part(&pmu, 0), 2 * step - TICKS_PER_CYCLE);
	hwpmu_write_select(&pmu, 1, COUNTING | CYCLES);
	hwpmu_write(&pmu, 1, hwpmu_read(&pmu, 0));
	hwpmu_write_part(&pmu, 1, hwpmu_part(&pmu, 0));
	hwpmu_write_select(&pmu, 1, CYCLES); /* and disabled, and enabled again */
	tally.cycles[RETIRE_OS] += TICKS_PER_CYCLE;
	hwpmu_write_select(&pmu, 1, COUNTING | CYCLES);
	tally.cycles[RETIRE_OS] += 3 * step;
	assert_int_equal(hwpmu_read(&pmu, 1), 3);
	assert_int_equal(hwpmu_part(&pmu, 1), 0);
	tally.cycles[RETIRE_OS] += step;
	hwpmu_write(&pmu, 1, 0);
	assert_int_equal(hwpmu_part(&pmu, 1), 0);
}

/* Saved states are not to be trusted, and a counter may have another event than it had. */
static void a_part_is_less_than_the_events_unit(void **state)
{
	(void)state;
	hwpmu_write_part(&pmu, 0, 100); /* before there is an event */
	hwpmu_write_select(&pmu, 0, COUNTING | CYCLES);
	assert_int_equal(hwpmu_part(&pmu, 0), 100);
	hwpmu_write_part(&pmu, 0, ~0u);
	assert_int_equal(hwpmu_part(&pmu, 0), 0);
	assert_int_equal(hwpmu_read(&pmu, 0), 0);
	hwpmu_write_part(&pmu, 0, 100);
	hwpmu_write_select(&pmu, 0, COUNTING | INSTRUCTIONS);
	assert_int_equal(hwpmu_part(&pmu, 0), 0);
	assert_int_equal(hwpmu_read(&pmu, 0), 0);
}

/* A period of 1000 on a loop with a branch every 5 instructions, run by the horizon. */
static void following_the_horizon_every_overflow_is_exact(void **state)
{
	u64 instructions = 0;

	(void)state;
	hwpmu_write(&pmu, 0, TOP - 1000);
	hwpmu_write_select(&pmu, 0, COUNTING | BRANCHES | EVENTSEL_INT);
	for (u32 pmis = 0; pmis < 20;) {
		u64 n = hwpmu_horizon(&pmu, RETIRE_USR, ALL);

		assert_int_not_equal(n, 0);
		instructions += n;
		tally.instructions[RETIRE_USR] = instructions;
		tally.branches[RETIRE_USR] = instructions / 5;
		if (hwpmu_retire(&pmu)) {
			pmis++;
			assert_int_equal(instructions, pmis * 5000);
			assert_int_equal(hwpmu_read(&pmu, 0), 0);
			hwpmu_write(&pmu, 0, TOP - 1000);
		}
	}
}

static void only_classes_that_are_counted_are_wanted(void **state)
{
	(void)state;
	assert_int_equal(hwpmu_wanted(&pmu), 0);
	hwpmu_write_select(&pmu, 0, COUNTING | INSTRUCTIONS);
	hwpmu_write_select(&pmu, 3, COUNTING | 0x81d0);
	assert_int_equal(hwpmu_wanted(&pmu),
			 RETIRE_BIT(RETIRE_INSTRUCTIONS) | RETIRE_BIT(RETIRE_LOADS));
	hwpmu_write_global_ctrl(&pmu, BIT(3));
	assert_int_equal(hwpmu_wanted(&pmu), RETIRE_BIT(RETIRE_LOADS));
	hwpmu_write_select(&pmu, 3, 0x81d0);
	assert_int_equal(hwpmu_wanted(&pmu), 0);
}

static void a_pmi_freezes_by_status_from_version_4_on(void **state)
{
	(void)state;
	hwpmu_write_freeze(&pmu, true);
	hwpmu_write(&pmu, 0, TOP - 1);
	hwpmu_write_select(&pmu, 0, COUNTING | INSTRUCTIONS | EVENTSEL_INT);
	tally.instructions[RETIRE_OS] = 1;
	assert_true(hwpmu_retire(&pmu));
	assert_int_equal(pmu.global_status, BIT(0) | GLOBAL_STATUS_CTR_FRZ);
	tally.instructions[RETIRE_OS] = 100;
	assert_int_equal(hwpmu_read(&pmu, 0), 0);
	hwpmu_reset_status(&pmu, BIT(0) | GLOBAL_STATUS_CTR_FRZ);
	tally.instructions[RETIRE_OS] = 103;
	assert_int_equal(hwpmu_read(&pmu, 0), 3);
}

static void a_pmi_freezes_by_global_ctrl_before(void **state)
{
	struct pmu_model old = *pmu_model_of(MODEL_SKYLAKE);

	(void)state;
	old.version = 3;
	hwpmu_init(&pmu, &old, &tally);
	hwpmu_write_freeze(&pmu, true);
	hwpmu_write(&pmu, 0, TOP - 1);
	hwpmu_write_select(&pmu, 0, COUNTING | INSTRUCTIONS | EVENTSEL_INT);
	tally.instructions[RETIRE_OS] += 1;
	assert_true(hwpmu_retire(&pmu));
	assert_int_equal(pmu.global_ctrl, 0);
	assert_int_equal(pmu.global_status, BIT(0));
}

static void counters_are_as_wide_as_the_model_says(void **state)
{
	struct pmu_model narrow = *pmu_model_of(MODEL_SKYLAKE);

	(void)state;
	narrow.general_width = 40;
	hwpmu_init(&pmu, &narrow, &tally);
	hwpmu_write(&pmu, 0, ~0ull);
	assert_int_equal(hwpmu_read(&pmu, 0), BIT(40) - 1);
	hwpmu_write_select(&pmu, 0, COUNTING | INSTRUCTIONS);
	assert_int_equal(hwpmu_horizon(&pmu, RETIRE_OS, ALL), 1);
	tally.instructions[RETIRE_OS] += 2;
	assert_int_equal(hwpmu_read(&pmu, 0), 1);
}

/* Where a select's CMASK, INV and EDGE lead: each tally has its own number. */
static void per_cycle_conditions_pick_a_class(void **state)
{
	static const struct {
		u64 select, count;
	} rows[] = {
		{ INSTRUCTIONS, 100 },
		{ INSTRUCTIONS | 1ull << 24, 100 },
		{ INSTRUCTIONS | 2ull << 24, 0 },
		{ INSTRUCTIONS | EVENTSEL_INV, 100 },
		{ INSTRUCTIONS | EVENTSEL_INV | 1ull << 24, 30 },
		{ INSTRUCTIONS | EVENTSEL_INV | 16ull << 24, 130 }, /* cycles:pp of skylake */
		{ INSTRUCTIONS | EVENTSEL_EDGE, 100 },
		{ BRANCHES | EVENTSEL_INV | 1ull << 24, 130 },
		{ CYCLES | 1ull << 24, 130 },
		{ CYCLES | 2ull << 24, 0 },
		{ CYCLES | EVENTSEL_INV | 1ull << 24, 0 },
		{ CYCLES | EVENTSEL_EDGE, 0 },
		{ 0x01a4, 650 },
		{ 0x01a4 | 5ull << 24, 130 },
		{ 0x01a4 | 6ull << 24, 0 },
		{ INSTRUCTIONS | EVENTSEL_IN_TX, 0 },
		{ INSTRUCTIONS | EVENTSEL_IN_TXCP, 100 },
	};

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		on_model(MODEL_ICELAKE);
		hwpmu_write_select(&pmu, 0, COUNTING | rows[i].select);
		tally.instructions[RETIRE_OS] = 100;
		tally.branches[RETIRE_OS] = 20;
		tally.stalls[RETIRE_OS] = 30 * TICKS_PER_CYCLE;
		tally.cycles[RETIRE_OS] = 130 * TICKS_PER_CYCLE;
		assert_int_equal(hwpmu_read(&pmu, 0), rows[i].count);
	}
}

static void amd_events_have_twelve_bits(void **state)
{
	(void)state;
	on_model(MODEL_GENOA);
	assert_int_equal(hwpmu_all(&pmu), 0x3f);
	hwpmu_write_select(&pmu, 0, COUNTING | BIT(32) | 0x0120);
	hwpmu_write_select(&pmu, 5, COUNTING | 0x00d1);
	tally.ref_cycles[RETIRE_OS] = 9 * TICKS_PER_CYCLE;
	tally.conditional[RETIRE_OS] = 8;
	assert_int_equal(hwpmu_read(&pmu, 0), 9);
	assert_int_equal(hwpmu_read(&pmu, 5), 8);
}

/* The values that Linux writes for LLC-loads, its misses, LLC-stores, and all that the LLC saw. */
static void an_offcore_event_is_what_its_register_says(void **state)
{
	static const struct {
		enum model_set model;
		u64 select, response;
		enum retire_class class;
	} rows[] = {
		{ MODEL_SKYLAKE, 0x1b7, 0x3f80010001, RETIRE_LOAD_L2_MISSES },
		{ MODEL_SKYLAKE, 0x1b7, 0x3fbc020001, RETIRE_LOAD_LLC_MISSES },
		{ MODEL_SKYLAKE, 0x1b7, 0x3f80010002, RETIRE_STORE_L2_MISSES },
		{ MODEL_ICELAKE, 0x1b7, 0x3f803c0001, RETIRE_LOAD_LLC_HITS },
		{ MODEL_SAPPHIRERAPIDS, 0x12a, 0x10001, RETIRE_LOAD_L2_MISSES },
		{ MODEL_SAPPHIRERAPIDS, 0x12a, 0x3fbfc00001, RETIRE_LOAD_LLC_MISSES },
		{ MODEL_SAPPHIRERAPIDS, 0x12a, 0x10007, RETIRE_LLC_REFERENCES },
	};

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		on_model(rows[i].model);
		hwpmu_write_offcore(&pmu, 0, rows[i].response);
		hwpmu_write_select(&pmu, 0, COUNTING | rows[i].select);
		assert_int_equal(hwpmu_wanted(&pmu), RETIRE_BIT(rows[i].class));
		hwpmu_write_offcore(&pmu, 0, 0x1); /* no responder is selected */
		assert_int_equal(hwpmu_wanted(&pmu), 0);
	}
}

static void unknown_events_count_nothing(void **state)
{
	(void)state;
	hwpmu_write_select(&pmu, 0, COUNTING | 0xffff);
	hwpmu_write_select(&pmu, 1, COUNTING | 0xffff);
	memset(&tally, 0x11, sizeof(tally));
	assert_int_equal(hwpmu_read(&pmu, 0), 0);
	assert_int_equal(pmu.nunknown, 1);
}

#define TEST(name) cmocka_unit_test_setup(name, on_icelake)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(a_counter_counts_from_the_moment_it_is_enabled),
		TEST(privileges_are_told_apart),
		TEST(fixed_counters_have_their_events),
		TEST(global_ctrl_gates_every_counter),
		TEST(reaching_zero_is_an_overflow_and_counting_goes_on),
		TEST(without_int_only_the_status_remembers),
		TEST(disabling_does_not_lose_an_overflow),
		TEST(the_horizon_is_the_nearest_overflow),
		TEST(the_horizon_is_certain_for_modelled_classes),
		TEST(a_trip_is_the_tally_of_the_overflow),
		TEST(a_trip_of_slots_is_that_of_their_ticks),
		TEST(used_and_idle_slots_are_all_slots),
		TEST(slots_and_stalls_are_counted_by_cause),
		TEST(a_part_of_a_cycle_is_kept),
		TEST(a_part_is_less_than_the_events_unit),
		TEST(following_the_horizon_every_overflow_is_exact),
		TEST(only_classes_that_are_counted_are_wanted),
		TEST(a_pmi_freezes_by_status_from_version_4_on),
		TEST(a_pmi_freezes_by_global_ctrl_before),
		TEST(counters_are_as_wide_as_the_model_says),
		TEST(per_cycle_conditions_pick_a_class),
		TEST(amd_events_have_twelve_bits),
		TEST(an_offcore_event_is_what_its_register_says),
		TEST(unknown_events_count_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
