// SPDX-License-Identifier: MIT
/*
 * The virtual PMU under random register writes, filters and runs, beside a model of a few lines
 * that adds up what each counter should have counted. After every step all counters and the status
 * must agree: no counter is above its width, status comes from overflows and the program only, and
 * no denied event is counted.
 *
 * usage: pmu_registers_test [SEED]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "diff/diff.h"
#include "unit/pmu_machine.h"

#define STEPS 100000

static u64 seed = 1;

/* Where a vendor has its registers. */
static const struct layout {
	u32 select, counter, step, fixed_ctrl, status, global_ctrl, clear;
	u32 events[4]; /* instructions, branches, loads, unknown: as in a select */
} intel = {
	.select = 0x186,
	.counter = 0xc1,
	.step = 1,
	.fixed_ctrl = 0x38d,
	.status = 0x38e,
	.global_ctrl = 0x38f,
	.clear = 0x390,
	.events = { 0xc0, 0xc4, 0x81d0, 0xffff },
}, amd = {
	.select = 0xc0010200,
	.counter = 0xc0010201,
	.step = 2,
	.status = 0xc0000300,
	.global_ctrl = 0xc0000301,
	.clear = 0xc0000302,
	.events = { 0xc0, 0xc2, 0x0129, 0xffff },
};

static struct machine {
	struct pmu_machine m;
	const struct layout *at;
	struct pmu_filter filter;
	u64 value[PMU_COUNTERS], status; /* as they should be */
	u32 overflows;
} t;

static u32 slot(u32 counter)
{
	return counter < PMU_FIXED_BASE ? counter : counter - PMU_FIXED_BASE + PMU_GENERAL;
}

static u64 read_counter(u32 counter)
{
	if (counter < PMU_FIXED_BASE)
		return host_rdmsr(&t.m, t.at->counter + counter * t.at->step);
	return host_rdmsr(&t.m, 0x309 + counter - PMU_FIXED_BASE);
}

/* What a counter should add for a run. */
static u64 adds(u32 counter, enum retire_privilege privilege, const u64 counts[3])
{
	const struct pmu_filter *filter = t.m.pmu.filter;
	u64 select, on = privilege == RETIRE_OS ? EVENTSEL_OS : EVENTSEL_USR;

	if (!(host_rdmsr(&t.m, t.at->global_ctrl) & BIT(counter)))
		return 0;
	if (counter >= PMU_FIXED_BASE) {
		u32 i = counter - PMU_FIXED_BASE;

		on = privilege == RETIRE_OS ? FIXED_CTRL_OS : FIXED_CTRL_USR;
		if (i || !(host_rdmsr(&t.m, t.at->fixed_ctrl) & on))
			return 0;
		return pmu_filter_allows_fixed(filter, 0) ? counts[0] : 0;
	}
	select = host_rdmsr(&t.m, t.at->select + counter * t.at->step);
	/* Four counters of the host can count loads: who comes later goes without. */
	if (hostperf_starved(&t.m.events) & BIT(counter)) {
		assert_int_equal(select & 0xffff, t.at->events[2]);
		return 0;
	}
	if (!(select & EVENTSEL_EN) || !(select & on))
		return 0;
	if (!pmu_filter_allows(filter, select, t.m.pmu.model->is_amd))
		return 0;
	for (u32 i = 0; i < 3; i++)
		if ((select & 0xffff) == t.at->events[i])
			return counts[i];
	return 0;
}

static void count(u64 counters, enum retire_privilege privilege, const u64 counts[3])
{
	for (; counters; counters &= counters - 1) {
		u32 counter = __builtin_ctzll(counters);
		u64 *value = &t.value[slot(counter)];

		*value += adds(counter, privilege, counts);
		/* The horizon lets none go past 0. */
		assert_true(*value <= BIT(48));
		if (*value == BIT(48)) {
			*value = 0;
			t.status |= BIT(counter);
			t.overflows++;
		}
	}
}

static void run(struct rng *r)
{
	enum retire_privilege privilege = rng_below(r, 2);
	u64 n = rng_below(r, 5000), counts[3];

	pmu_enter(&t.m.pmu);
	if (hwpmu_horizon(&t.m.hw, privilege, ~0u) < n)
		n = hwpmu_horizon(&t.m.hw, privilege, ~0u);
	counts[0] = n;
	counts[1] = rng_below(r, n + 1);
	counts[2] = rng_below(r, n + 1);
	t.m.tally.instructions[privilege] += counts[0];
	t.m.tally.branches[privilege] += counts[1];
	t.m.tally.loads[privilege] += counts[2];
	pmu_leave(&t.m.pmu);
	count(t.m.pmu.all, privilege, counts);
}

/* A write is completed like any instruction, but what it replaced is lost. */
static void write_counter(u32 counter, u64 value)
{
	static const u64 one[3] = { 1 };

	if (counter < PMU_FIXED_BASE)
		host_wrmsr(&t.m, t.at->counter + counter * t.at->step, value);
	else
		host_wrmsr(&t.m, 0x309 + counter - PMU_FIXED_BASE, value);
	t.value[slot(counter)] = value & WIDTH;
	t.m.tally.instructions[RETIRE_OS]++;
	pmu_enter(&t.m.pmu);
	count(t.m.pmu.all & ~BIT(counter), RETIRE_OS, one);
}

static void set_filter(struct rng *r)
{
	u64 events[3];
	struct pmu_filter_args args = {
		.action = rng_below(r, 2),
		.nevents = rng_below(r, 4),
		.fixed_bitmap = rng_below(r, 8),
		.events = events,
	};

	for (u32 i = 0; i < 3; i++)
		events[i] = t.at->events[rng_below(r, 4)];
	assert_int_equal(pmu_filter_make(&t.filter, &args, t.m.pmu.model->is_amd), PMU_FILTER_OK);
	pmu_set_filter(&t.m.pmu, rng_one_in(r, 3) ? NULL : &t.filter);
	pmu_sync(&t.m.pmu);
}

static u32 any_counter(struct rng *r)
{
	u32 i = rng_below(r, t.m.pmu.general + t.m.pmu.fixed);

	return i < t.m.pmu.general ? i : PMU_FIXED_BASE + i - t.m.pmu.general;
}

static void write_control(struct rng *r)
{
	u32 i = rng_below(r, t.m.pmu.general);
	u64 bits = rng_next(r) & (COUNTING | EVENTSEL_INT);

	switch (rng_below(r, 4)) {
	case 0:
	case 1:
		guest_wrmsr(&t.m, t.at->select + i * t.at->step,
			    t.at->events[rng_below(r, 4)] | bits | EVENTSEL_EN);
		break;
	case 2:
		guest_wrmsr(&t.m, t.at->global_ctrl, rng_next(r) & t.m.pmu.all);
		break;
	default:
		if (t.m.pmu.fixed)
			guest_wrmsr(&t.m, t.at->fixed_ctrl, rng_next(r) & 0xbbb);
	}
}

/* Any value to any address nearby: what it does to controls is fine, if consistent. */
static void write_garbage(struct rng *r)
{
	static const u32 around[] = { 0x180, 0x388, 0x4c0, 0xc0010200, 0xc00102f8 };
	u32 index = around[rng_below(r, 5)] + rng_below(r, 16);
	u64 value = rng_value(r);
	u64 per_cycle = EVENTSEL_CMASK | EVENTSEL_INV | EVENTSEL_EDGE;

	/* Not clearing or setting status, or writing counters: those steps are told the model. */
	if (index == t.at->clear || index == 0x391 || (index >= 0x4c1 && index < 0x4d0))
		return;
	if (index > 0xc0010200 && index % 2)
		return;
	if (index == t.at->status || (value & per_cycle) || (value & MASK(35, 32)))
		return;
	guest_wrmsr(&t.m, index, value);
}

static void clear_status(struct rng *r)
{
	u64 bits = rng_next(r) & t.m.pmu.all;

	if (rng_one_in(r, 4)) {
		assert_int_equal(host_wrmsr(&t.m, t.at->status, bits), PMU_OK);
		t.status = bits;
	} else {
		assert_int_equal(guest_wrmsr(&t.m, t.at->clear, bits), PMU_OK);
		t.status &= ~bits;
	}
}

static void step(struct rng *r)
{
	switch (rng_below(r, 8)) {
	case 0:
		write_counter(any_counter(r),
			      rng_one_in(r, 4) ? rng_next(r) : -(u64)rng_below(r, 9999));
		break;
	case 1:
		set_filter(r);
		break;
	case 2:
		clear_status(r);
		break;
	case 3:
		write_garbage(r);
		break;
	case 4:
	case 5:
		write_control(r);
		break;
	default:
		run(r);
	}
}

static void agree(u32 n)
{
	for (u64 left = t.m.pmu.all; left; left &= left - 1) {
		u32 counter = __builtin_ctzll(left);

		if (read_counter(counter) != t.value[slot(counter)])
			fail_msg("seed %lu, step %u: counter %u is %#lx, not %#lx",
				 (unsigned long)seed, n, counter,
				 (unsigned long)read_counter(counter),
				 (unsigned long)t.value[slot(counter)]);
	}
	if (host_rdmsr(&t.m, t.at->status) != t.status)
		fail_msg("seed %lu, step %u: status is %#lx, not %#lx", (unsigned long)seed, n,
			 (unsigned long)host_rdmsr(&t.m, t.at->status), (unsigned long)t.status);
}

static void random_steps(enum model_set model, const struct layout *at)
{
	struct rng r = rng_for(seed, model);

	t = (struct machine){ .at = at };
	pmu_machine_create_either(&t.m, model);
	t.m.apart = true;
	for (u32 n = 0; n < STEPS; n++) {
		step(&r);
		agree(n);
	}
	assert_true(t.overflows > STEPS / 1000);
}

static void random_steps_on_intel_agree_with_the_model(void **state)
{
	(void)state;
	random_steps(MODEL_ICELAKE, &intel);
}

static void random_steps_on_amd_agree_with_the_model(void **state)
{
	(void)state;
	random_steps(MODEL_GENOA, &amd);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(random_steps_on_intel_agree_with_the_model),
		cmocka_unit_test(random_steps_on_amd_agree_with_the_model),
	};

	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	return pmu_machine_test_both(tests);
}
