// SPDX-License-Identifier: MIT
/*
 * Branch records without a guest: filters, wrap, freeze, call stack and registers of the three
 * kinds of stack, through the virtual PMU, with branches that the test retires. What translated
 * code notes of branches: lbr_notes_test.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/lbr_machine.h"

static void retire_between(enum branch_kind kind, u64 from, u64 to, enum retire_privilege before,
			   enum retire_privilege after)
{
	struct branch branch = { .kind = kind,
				 .from = from,
				 .to = to,
				 .next = from + 5,
				 .before = before,
				 .after = after };

	m.tally.cycles[before] += 3 * TICKS_PER_CYCLE;
	branch_record(&m.branches, &m.tally, &branch);
}

static void retire(enum branch_kind kind, u64 from, u64 to)
{
	retire_between(kind, from, to, RETIRE_USR, RETIRE_USR);
}

/* --- the legacy stack --- */

static void the_top_moves_and_wraps(void **state)
{
	(void)state;
	debugctl(DEBUGCTL_LBR);
	for (u32 i = 0; i < 33; i++)
		retire(BRANCH_JCC, 0x1000 + i, 0x2000 + i);
	expect(LBR_TOS, 1);
	expect(FROM(1), 0x1020);
	expect(TO(1), 0x2020);
	expect(FROM(2), 0x1001);
	expect(INFO(1), 3);
}

static void nothing_is_recorded_unless_enabled(void **state)
{
	(void)state;
	retire(BRANCH_JCC, 1, 2);
	expect(LBR_TOS, 0);
	debugctl(DEBUGCTL_LBR);
	retire(BRANCH_JCC, 1, 2);
	expect(LBR_TOS, 1);
	debugctl(0);
	retire(BRANCH_JCC, 1, 2);
	expect(LBR_TOS, 1);
}

static void each_bit_of_select_suppresses_its_kind(void **state)
{
	(void)state;
	debugctl(DEBUGCTL_LBR);
	for (u32 kind = 0; kind < NBRANCHES; kind++) {
		guest_wrmsr(&m, LBR_SELECT, BIT(LBR_SELECT_KINDS + kind));
		guest_wrmsr(&m, LBR_TOS, 0);
		retire(kind, 0x10, 0x20);
		expect(LBR_TOS, 0);
		retire((kind + 1) % NBRANCHES, 0x10, 0x20);
		expect(LBR_TOS, 1);
	}
}

static void privileges_are_those_that_a_branch_ends_in(void **state)
{
	(void)state;
	debugctl(DEBUGCTL_LBR);
	guest_wrmsr(&m, LBR_SELECT, LBR_SELECT_OS);
	retire_between(BRANCH_FAR, 0x10, 0xf000, RETIRE_USR, RETIRE_OS);
	expect(LBR_TOS, 0);
	retire_between(BRANCH_FAR, 0xf000, 0x10, RETIRE_OS, RETIRE_USR);
	expect(LBR_TOS, 1);
	expect(FROM(1), 0xf000);
	guest_wrmsr(&m, LBR_SELECT, LBR_SELECT_USR);
	retire_between(BRANCH_FAR, 0xf000, 0x10, RETIRE_OS, RETIRE_USR);
	expect(LBR_TOS, 1);
}

static void a_call_stack_is_pushed_and_popped(void **state)
{
	u64 others = BIT(2) | BIT(6) | BIT(7) | BIT(8);

	(void)state;
	guest_wrmsr(&m, LBR_SELECT, LBR_SELECT_CALL_STACK | others);
	debugctl(DEBUGCTL_LBR);
	retire(BRANCH_REL_CALL, 0x100, 0x200);
	retire(BRANCH_IND_CALL, 0x210, 0x300);
	retire(BRANCH_JCC, 0x310, 0x320);
	retire(BRANCH_REL_CALL, 0x320, 0x325); /* of the next instruction */
	expect(LBR_TOS, 2);
	retire(BRANCH_RET, 0x330, 0x212);
	expect(LBR_TOS, 1);
	expect(FROM(2), 0);
	expect(TO(2), 0);
	expect(INFO(2), 0);
	expect(FROM(1), 0x100);
	/* More returns than calls: the top goes round, nothing is below. */
	retire(BRANCH_RET, 0x214, 0x105);
	retire(BRANCH_RET, 0x110, 0x90);
	expect(LBR_TOS, 31);
	expect(FROM(0), 0);
}

static void outside_call_stack_mode_a_call_of_the_next_instruction_is_a_call(void **state)
{
	(void)state;
	debugctl(DEBUGCTL_LBR);
	retire(BRANCH_REL_CALL, 0x320, 0x325);
	expect(LBR_TOS, 1);
}

static void overflow_soon(u64 select)
{
	guest_wrmsr(&m, GLOBAL_CTRL, 1);
	guest_wrmsr(&m, PMC, -2ull);
	guest_wrmsr(&m, EVNTSEL, select | EVENTSEL_USR | EVENTSEL_EN | 0xc0);
	pmu_machine_run(&m, 4);
}

static void a_pmi_freezes_until_software_enables_again(void **state)
{
	(void)state;
	m.apart = true;
	debugctl(DEBUGCTL_LBR | DEBUGCTL_FREEZE_LBRS);
	overflow_soon(EVENTSEL_INT);
	assert_int_equal(m.pmu.debugctl, DEBUGCTL_FREEZE_LBRS);
	retire(BRANCH_JCC, 1, 2);
	expect(LBR_TOS, 0);
	debugctl(DEBUGCTL_LBR | DEBUGCTL_FREEZE_LBRS);
	retire(BRANCH_JCC, 1, 2);
	expect(LBR_TOS, 1);
}

static void an_overflow_without_pmi_freezes_nothing(void **state)
{
	(void)state;
	m.apart = true;
	debugctl(DEBUGCTL_LBR | DEBUGCTL_FREEZE_LBRS);
	overflow_soon(0);
	assert_int_equal(m.pmu.debugctl, DEBUGCTL_LBR | DEBUGCTL_FREEZE_LBRS);
}

static void registers_keep_what_is_written(void **state)
{
	(void)state;
	for (u32 i = 0; i < 32; i++) {
		assert_int_equal(guest_wrmsr(&m, FROM(i), ~0ull << i), PMU_OK);
		assert_int_equal(guest_wrmsr(&m, TO(i), 0x1234567890ull + i), PMU_OK);
		assert_int_equal(guest_wrmsr(&m, INFO(i), BIT(63) | i), PMU_OK);
	}
	for (u32 i = 0; i < 32; i++) {
		expect(FROM(i), ~0ull << i);
		expect(TO(i), 0x1234567890ull + i);
		expect(INFO(i), BIT(63) | i);
	}
	assert_int_equal(guest_wrmsr(&m, FROM(32), 0), PMU_UNKNOWN);
}

static void without_the_format_there_are_no_registers(void **state)
{
	u64 value;

	(void)state;
	assert_int_equal(host_wrmsr(&m, 0x345, PERF_CAP_FULL_WIDTH), PMU_OK);
	assert_int_equal(pmu_debugctl_legal(&m.pmu), 0);
	assert_int_not_equal(pmu_rdmsr(&m.pmu, LBR_TOS, false, &value), PMU_OK);
	assert_int_not_equal(pmu_wrmsr(&m.pmu, FROM(0), false, 1), PMU_OK);
}

static void a_filter_that_denies_branches_stops_recording(void **state)
{
	const u64 events[] = { 0xc4 };
	struct pmu_filter_args args = { .action = PMU_FILTER_DENY, .nevents = 1, .events = events };
	struct pmu_filter filter;

	(void)state;
	assert_int_equal(pmu_filter_make(&filter, &args, false), PMU_FILTER_OK);
	debugctl(DEBUGCTL_LBR);
	pmu_set_filter(&m.pmu, &filter);
	pmu_enter(&m.pmu);
	retire(BRANCH_JCC, 1, 2);
	expect(LBR_TOS, 0);
}

/* --- Arch LBR --- */

static void entry_0_is_the_youngest(void **state)
{
	(void)state;
	guest_wrmsr(&m, ARCH_CTL, ARCH_ALL);
	for (u32 i = 0; i < 40; i++)
		retire(BRANCH_RET, 0x1000 + i, 0x2000 + i);
	expect(ARCH_FROM(0), 0x1000 + 39);
	expect(ARCH_TO(31), 0x2000 + 8);
	expect(ARCH_INFO(0), 3 | LBR_INFO_CYCLES_VALID | 5ull << LBR_INFO_TYPE_SHIFT);
}

static void each_bit_of_ctl_enables_its_kind(void **state)
{
	static const struct {
		enum branch_kind kind;
		u8 bit, type;
	} rows[] = {
		{ BRANCH_JCC, 16, 0 },	    { BRANCH_REL_JMP, 17, 2 },	{ BRANCH_IND_JMP, 18, 1 },
		{ BRANCH_REL_CALL, 19, 4 }, { BRANCH_IND_CALL, 20, 3 }, { BRANCH_RET, 21, 5 },
		{ BRANCH_FAR, 22, 8 },
	};

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		guest_wrmsr(&m, ARCH_DEPTH, 32);
		guest_wrmsr(&m, ARCH_CTL, LBR_CTL_EN | LBR_CTL_USR | BIT(rows[i].bit));
		for (u32 kind = 0; kind < NBRANCHES; kind++)
			retire(kind, 0x100 + kind, 0x200);
		expect(ARCH_FROM(0), 0x100 + rows[i].kind);
		expect(ARCH_FROM(1), 0);
		assert_int_equal(host_rdmsr(&m, ARCH_INFO(0)) >> 56 & 0xf, rows[i].type);
	}
}

static void where_a_hidden_privilege_came_from_is_hidden(void **state)
{
	(void)state;
	guest_wrmsr(&m, ARCH_CTL, LBR_CTL_EN | LBR_CTL_USR | LBR_CTL_KINDS);
	retire_between(BRANCH_FAR, 0xf000, 0x10, RETIRE_OS, RETIRE_USR);
	expect(ARCH_FROM(0), ~0ull);
	expect(ARCH_TO(0), 0x10);
}

static void depths_are_those_of_cpuid_and_clear_the_stack(void **state)
{
	u32 regs[4];

	(void)state;
	pmu_cpuid(m.pmu.model, 0x1c, regs);
	guest_wrmsr(&m, ARCH_CTL, ARCH_ALL);
	for (u32 depth = 0; depth < 70; depth++) {
		bool legal =
			depth && depth % 8 == 0 && depth <= 64 && regs[0] >> (depth / 8 - 1) & 1;

		retire(BRANCH_JCC, 1, 2);
		assert_int_equal(guest_wrmsr(&m, ARCH_DEPTH, depth), legal ? PMU_OK : PMU_FAULT);
		if (legal) {
			expect(ARCH_DEPTH, depth);
			expect(ARCH_FROM(0), 0);
		}
	}
	guest_wrmsr(&m, ARCH_DEPTH, 8);
	for (u32 i = 0; i < 9; i++)
		retire(BRANCH_JCC, 0x10 + i, 2);
	expect(ARCH_FROM(7), 0x11);
	expect(ARCH_FROM(8), 0);
}

static void reserved_bits_of_ctl_fault(void **state)
{
	(void)state;
	for (u32 bit = 0; bit < 64; bit++)
		assert_int_equal(guest_wrmsr(&m, ARCH_CTL, BIT(bit)),
				 bit < 4 || (bit >= 16 && bit <= 22) ? PMU_OK : PMU_FAULT);
}

static void a_status_bit_freezes_and_thaws(void **state)
{
	(void)state;
	m.apart = true;
	guest_wrmsr(&m, ARCH_CTL, ARCH_ALL);
	debugctl(DEBUGCTL_FREEZE_LBRS);
	overflow_soon(EVENTSEL_INT);
	expect(STATUS, GLOBAL_STATUS_LBR_FRZ | 1);
	expect(ARCH_CTL, ARCH_ALL);
	retire(BRANCH_JCC, 1, 2);
	expect(ARCH_FROM(0), 0);
	assert_int_equal(guest_wrmsr(&m, OVF_CTRL, GLOBAL_STATUS_LBR_FRZ | 1), PMU_OK);
	retire(BRANCH_JCC, 1, 2);
	expect(ARCH_FROM(0), 1);
}

/* --- AMD --- */

static void amd_entries_are_valid_once_recorded(void **state)
{
	(void)state;
	expect(AMD_TO(0), 0);
	guest_wrmsr(&m, AMD_EXTN, DBG_EXTN_CFG_LBR);
	for (u32 i = 0; i < 17; i++)
		retire(BRANCH_RET, 0xffffffff80001000ull + i, 0x2000 + i);
	expect(AMD_FROM(0), 0x03ffffff80001010ull);
	expect(AMD_TO(0), BIT(63) | 0x2010);
	expect(AMD_TO(15), BIT(63) | 0x2001);
	m.branches.missed = 1;
	retire(BRANCH_JCC, 0x1000, 0x2000);
	m.branches.missed = 0;
	expect(AMD_FROM(0), BIT(63) | 0x1000);
	assert_int_equal(guest_wrmsr(&m, AMD_FROM(16), 0), PMU_UNKNOWN);
}

static void amd_filters_suppress(void **state)
{
	(void)state;
	guest_wrmsr(&m, AMD_EXTN, DBG_EXTN_CFG_LBR);
	for (u32 kind = 0; kind < NBRANCHES; kind++) {
		guest_wrmsr(&m, AMD_SELECT, BIT(LBR_SELECT_KINDS + kind));
		retire((kind + 1) % NBRANCHES, 0x20 + kind, 0x20);
		retire(kind, 0x10, 0x20);
		expect(AMD_FROM(0), 0x20 + kind);
	}
	guest_wrmsr(&m, AMD_SELECT, ~0ull);
	expect(AMD_SELECT, 0x1ff);
}

static void amd_freezes_by_its_status(void **state)
{
	(void)state;
	m.apart = true;
	guest_wrmsr(&m, AMD_EXTN, DBG_EXTN_CFG_LBR);
	debugctl(DEBUGCTL_FREEZE_LBRS);
	guest_wrmsr(&m, 0xc0010201, -2ull);
	guest_wrmsr(&m, 0xc0010200, COUNTING | EVENTSEL_INT | 0xc0);
	pmu_machine_run(&m, 4);
	expect(0xc0000300, GLOBAL_STATUS_LBR_FRZ | 1);
	retire(BRANCH_JCC, 1, 2);
	expect(AMD_TO(0), 0);
	guest_wrmsr(&m, 0xc0000302, ~0ull);
	retire(BRANCH_JCC, 1, 2);
	expect(AMD_TO(0), BIT(63) | 2);
}

/* --- state --- */

static void a_stack_survives_save_and_restore(void **state)
{
	static const enum model_set models[] = { MODEL_SKYLAKE, MODEL_SAPPHIRERAPIDS, MODEL_GENOA };
	static struct pmu_msr saved[PMU_MSRS], again[PMU_MSRS];

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(models); i++) {
		u32 n;

		pmu_machine_create_either(&m, models[i]);
		guest_wrmsr(&m, LBR_SELECT, 0);
		guest_wrmsr(&m, ARCH_CTL, ARCH_ALL);
		guest_wrmsr(&m, AMD_EXTN, DBG_EXTN_CFG_LBR);
		pmu_set_debugctl(&m.pmu, pmu_debugctl_legal(&m.pmu));
		pmu_enter(&m.pmu);
		for (u32 j = 0; j < 11; j++)
			retire(j % NBRANCHES, 0x1000 + j, 0x2000 + j);
		n = pmu_save(&m.pmu, saved);
		pmu_machine_create_either(&m, models[i]);
		assert_int_equal(pmu_restore(&m.pmu, saved, n), n);
		assert_int_equal(pmu_save(&m.pmu, again), n);
		assert_memory_equal(saved, again, n * sizeof(saved[0]));
		assert_true(n > 32);
	}
}

int main(void)
{
#define ON(setup, test) cmocka_unit_test_setup(test, setup)
	static const struct CMUnitTest tests[] = {
		ON(on_skylake, the_top_moves_and_wraps),
		ON(on_skylake, nothing_is_recorded_unless_enabled),
		ON(on_skylake, each_bit_of_select_suppresses_its_kind),
		ON(on_skylake, privileges_are_those_that_a_branch_ends_in),
		ON(on_skylake, a_call_stack_is_pushed_and_popped),
		ON(on_skylake, outside_call_stack_mode_a_call_of_the_next_instruction_is_a_call),
		ON(on_skylake, a_pmi_freezes_until_software_enables_again),
		ON(on_skylake, an_overflow_without_pmi_freezes_nothing),
		ON(on_skylake, registers_keep_what_is_written),
		ON(on_skylake, without_the_format_there_are_no_registers),
		ON(on_skylake, a_filter_that_denies_branches_stops_recording),
		ON(on_sapphirerapids, entry_0_is_the_youngest),
		ON(on_sapphirerapids, each_bit_of_ctl_enables_its_kind),
		ON(on_sapphirerapids, where_a_hidden_privilege_came_from_is_hidden),
		ON(on_sapphirerapids, depths_are_those_of_cpuid_and_clear_the_stack),
		ON(on_sapphirerapids, reserved_bits_of_ctl_fault),
		ON(on_sapphirerapids, a_status_bit_freezes_and_thaws),
		ON(on_genoa, amd_entries_are_valid_once_recorded),
		ON(on_genoa, amd_filters_suppress),
		ON(on_genoa, amd_freezes_by_its_status),
		ON(on_genoa, a_stack_survives_save_and_restore),
	};

	return pmu_machine_test_both(tests);
}
