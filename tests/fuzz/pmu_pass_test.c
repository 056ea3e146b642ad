// SPDX-License-Identifier: MIT
/*
 * Accesses that pass through to the physical PMU beside the same accesses that exit to the virtual
 * one: two machines take the same random steps, one with every access that may pass passed as the
 * engine does it, the other with every access handled by the hypervisor. No read and no fault may
 * tell them apart, and both must want the same PMIs.
 *
 * usage: pmu_pass_test [SEED]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "diff/diff.h"
#include "hwpmu/msr.h"
#include "unit/pmu_machine.h"

#define STEPS 50000

static u64 seed = 1;

static struct twins {
	struct pmu_machine passed, exited;
	struct pmu_filter filter;
	struct pmu_pass passes[PMU_PASSES];
	u32 npasses, shape;
	u64 npassed, pmis;
} t;

static bool passes(u32 index)
{
	if (t.shape != t.passed.pmu.pass_serial) {
		t.npasses = pmu_passes(&t.passed.pmu, t.passes);
		t.shape = t.passed.pmu.pass_serial;
	}
	for (u32 i = 0; i < t.npasses; i++)
		if (t.passes[i].index == index)
			return true;
	return false;
}

/* As engine/sys/passthrough.c. */
static bool pass_wrmsr(u32 index, u64 value)
{
	struct pmu_machine *m = &t.passed;

	if (hwpmu_wrmsr(&m->hw, index, value) != HWPMU_DONE)
		return false;
	m->tally.instructions[RETIRE_OS]++;
	return true;
}

/* As vm/exit.c. */
static bool exit_wrmsr(struct pmu_machine *m, u32 index, u64 value)
{
	if (pmu_wrmsr(&m->pmu, index, false, value) != PMU_OK)
		return false;
	pmu_sync(&m->pmu);
	m->tally.instructions[RETIRE_OS]++;
	return true;
}

/* The physical PMU is left as soon as the run ends, and so is the virtual one's turn. */
static u32 turn(struct pmu_machine *m)
{
	u32 pmi = 0;

	pmu_leave(&m->pmu);
	pmi |= pmu_take_requests(&m->pmu);
	pmu_enter(&m->pmu);
	return pmi | pmu_take_requests(&m->pmu);
}

static void write_both(u32 index, u64 value)
{
	bool pass = passes(index);
	bool a = pass ? pass_wrmsr(index, value) : exit_wrmsr(&t.passed, index, value);
	bool b = exit_wrmsr(&t.exited, index, value);
	u32 pmi;

	t.npassed += pass;
	assert_int_equal(a, b);
	pmi = turn(&t.passed);
	assert_int_equal(pmi, turn(&t.exited));
	t.pmis += !!pmi;
}

static void read_both(u32 index)
{
	u64 a = 0, b = 0;
	bool ok;

	if (passes(index))
		ok = hwpmu_rdmsr(&t.passed.hw, index, &a) == HWPMU_DONE;
	else
		ok = pmu_rdmsr(&t.passed.pmu, index, false, &a) == PMU_OK;
	assert_int_equal(ok, pmu_rdmsr(&t.exited.pmu, index, false, &b) == PMU_OK);
	if (a != b)
		fail_msg("seed %lu: MSR %#x reads %#lx passed, %#lx exited", (unsigned long)seed,
			 index, (unsigned long)a, (unsigned long)b);
}

static void rdpmc_both(u32 ecx)
{
	u64 a = 0, b = 0;
	bool ok;

	if (pmu_passes_rdpmc(&t.passed.pmu))
		ok = hwpmu_rdpmc(&t.passed.hw, ecx, &a) == HWPMU_DONE;
	else
		ok = pmu_rdpmc(&t.passed.pmu, ecx, true, &a) == PMU_OK;
	assert_int_equal(ok, pmu_rdpmc(&t.exited.pmu, ecx, true, &b) == PMU_OK);
	assert_int_equal(a, b);
}

/* Slots by what became of them, for PERF_METRICS. */
static void tally_slots(struct retire_tally *tally, enum retire_privilege privilege, u64 n,
			u32 kind)
{
	tally->cycles[privilege] += 600 * n;
	tally->used_slots[privilege] += 20 * n;
	tally->heavy_slots[privilege] += 7 * n;
	tally->front_slots[privilege] += kind & 1 ? 300 * n : 0;
	tally->bad_slots[privilege] += kind & 2 ? 200 * n : 0;
	tally->memory_slots[privilege] += kind & 4 ? 50 * n : 0;
}

static void retire_both(struct rng *r)
{
	enum retire_privilege privilege = rng_below(r, 2);
	u64 n = rng_below(r, 5000), branches;
	u32 pmi, kind = rng_below(r, 8);

	if (hwpmu_horizon(&t.passed.hw, privilege, ~0u) < n)
		n = hwpmu_horizon(&t.passed.hw, privilege, ~0u);
	branches = rng_below(r, n + 1);
	t.passed.tally.instructions[privilege] += n;
	t.passed.tally.branches[privilege] += branches;
	t.exited.tally.instructions[privilege] += n;
	t.exited.tally.branches[privilege] += branches;
	tally_slots(&t.passed.tally, privilege, n, kind);
	tally_slots(&t.exited.tally, privilege, n, kind);
	pmi = turn(&t.passed);
	assert_int_equal(pmi, turn(&t.exited));
	t.pmis += !!pmi;
}

static void branch_both(struct rng *r)
{
	struct branch branch = { .kind = rng_below(r, NBRANCHES),
				 .from = rng_next(r),
				 .to = rng_next(r),
				 .before = rng_below(r, 2),
				 .after = rng_below(r, 2) };

	branch.next = branch.from + 2;
	branch_record(&t.passed.branches, &t.passed.tally, &branch);
	branch_record(&t.exited.branches, &t.exited.tally, &branch);
}

static void debugctl_both(u64 value)
{
	value &= pmu_debugctl_legal(&t.passed.pmu);
	pmu_set_debugctl(&t.passed.pmu, value);
	pmu_set_debugctl(&t.exited.pmu, value);
	assert_int_equal(turn(&t.passed), turn(&t.exited));
}

/* Recording comes and goes, with everything allowed or something chosen, and so do branches. */
static void branches_both(struct rng *r)
{
	static const u32 select[] = {
		[LBR_LEGACY] = 0x1c8, [LBR_ARCH] = 0x14ce, [LBR_AMD] = 0xc000010e
	};
	enum pmu_lbr stack = t.passed.pmu.lbr;

	if (!stack)
		return;
	if (rng_one_in(r, 4))
		debugctl_both(rng_next(r));
	if (rng_one_in(r, 8))
		write_both(select[stack],
			   stack == LBR_ARCH ? BIT(0) | rng_value(r) : rng_below(r, 512));
	if (stack == LBR_AMD && rng_one_in(r, 8))
		write_both(0xc000010f, rng_next(r));
	for (u32 n = rng_below(r, 8); n; n--)
		branch_both(r);
}

static void filter_both(struct rng *r)
{
	u64 events[2] = { 0xc0, rng_one_in(r, 4) ? 0x8000 : 0xc4 };
	struct pmu_filter_args args = {
		.action = rng_below(r, 2),
		.nevents = rng_below(r, 3),
		.fixed_bitmap = rng_below(r, 16),
		.events = events,
	};
	bool none = !rng_one_in(r, 3);

	assert_int_equal(pmu_filter_make(&t.filter, &args, t.passed.pmu.model->is_amd),
			 PMU_FILTER_OK);
	pmu_set_filter(&t.passed.pmu, none ? NULL : &t.filter);
	pmu_set_filter(&t.exited.pmu, none ? NULL : &t.filter);
	assert_int_equal(turn(&t.passed), turn(&t.exited));
}

static u32 any_register(struct rng *r, bool is_amd)
{
	static const u32 intel[] = { 0xc1, 0x186, 0x309, 0x326, 0x38d, 0x38e, 0x38f, 0x390, 0x4c1 };
	static const u32 amd[] = { 0xc0000300, 0xc0010000, 0xc0010004, 0xc0010200, 0xc0010206 };
	static const u32 records[] = { 0x1c8, 0x680, 0x6c0, 0xdc0, 0x14ce, 0x1200, 0x1500, 0x1600 };

	if (rng_one_in(r, 4))
		return (is_amd ? 0xc0010300 : records[rng_below(r, 8)]) + rng_below(r, 34);
	return is_amd ? amd[rng_below(r, 5)] + rng_below(r, 6)
		      : intel[rng_below(r, 9)] + rng_below(r, 4);
}

static u64 any_value(struct rng *r)
{
	switch (rng_below(r, 5)) {
	case 0:
		return rng_value(r);
	case 1:
		return -(u64)rng_below(r, 999);
	case 2:
		return rng_below(r, 64) | BIT(PMU_FIXED_BASE) * rng_below(r, 16) |
		       (rng_one_in(r, 4) ? GLOBAL_STATUS_LBR_FRZ : 0) |
		       (rng_one_in(r, 4) ? GLOBAL_METRICS : 0);
	case 3:
		return (rng_next(r) & 0xbbbb) |
		       (rng_one_in(r, 2) ? rng_next(r) & 0x1111ull << 32 : 0);
	default:
		return (rng_below(r, 2) ? 0xc0 : 0xc4) | (rng_next(r) & (COUNTING | EVENTSEL_INT));
	}
}

/* Now and then everything is switched on, or next to nothing would overflow. */
static void write_any(struct rng *r, bool is_amd)
{
	if (rng_one_in(r, 8))
		write_both(is_amd ? 0xc0000301 : 0x38f,
			   t.passed.pmu.all | (t.passed.pmu.has_metrics ? GLOBAL_METRICS : 0));
	else
		write_both(any_register(r, is_amd), any_value(r));
}

static void step(struct rng *r)
{
	bool is_amd = t.passed.pmu.model->is_amd;

	switch (rng_below(r, 9)) {
	case 0:
		filter_both(r);
		break;
	case 8:
		branches_both(r);
		break;
	case 1:
	case 2:
		retire_both(r);
		break;
	case 3:
		rdpmc_both(rng_one_in(r, 4) ? RDPMC_METRICS
					    : rng_below(r, 10) | (rng_one_in(r, 2) ? BIT(30) : 0));
		break;
	default:
		write_any(r, is_amd);
	}
	for (u32 i = 0; i < 4; i++)
		read_both(any_register(r, is_amd));
}

/* `lacks`: fixed counters that the guest is not given (version 5 has a set of them). */
static void random_steps(enum model_set model, u32 lacks)
{
	struct rng r = rng_for(seed, model);
	struct pmu_guest guest = pmu_machine_guest(model);

	t = (struct twins){ 0 };
	pmu_machine_create(&t.passed, model);
	pmu_machine_create(&t.exited, model);
	if (lacks) {
		guest.leaf_a_ecx &= ~lacks;
		guest.leaf_a_edx &= ~MASK(4, 0);
		pmu_configure(&t.passed.pmu, &guest);
		pmu_configure(&t.exited.pmu, &guest);
	}
	pmu_enter(&t.passed.pmu);
	pmu_enter(&t.exited.pmu);
	for (u32 n = 0; n < STEPS; n++)
		step(&r);
	assert_true(t.npassed > STEPS / 20);
	assert_true(t.pmis > 10);
}

static void a_guest_cannot_tell_who_serves_it(void **state)
{
	(void)state;
	random_steps(MODEL_SKYLAKE, 0);
	random_steps(MODEL_ICELAKE, 0);
	random_steps(MODEL_ICELAKE, BIT(3));
	random_steps(MODEL_ICELAKE, BIT(1));
	random_steps(MODEL_SAPPHIRERAPIDS, 0);
	random_steps(MODEL_MILAN, 0);
	random_steps(MODEL_GENOA, 0);
}

int main(int argc, char **argv)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_guest_cannot_tell_who_serves_it),
	};

	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
