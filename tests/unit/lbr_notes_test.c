// SPDX-License-Identifier: MIT
/*
 * What translated code notes of branches, without a guest: how notes become records.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "unit/lbr_machine.h"

#define COUNT_SHIFT 24

/* A block that continues after a conditional branch and a JMP, and ends in a RET; paths to each. */
static struct {
	struct branch_site through[2];
	struct branch_path whole, first, jmp, ret, last;
} meta = {
	.through = { { .from = 0x1000,
		       .to = 0x2000,
		       .kind = BRANCH_JCC,
		       .ticks_after = 4 * TICKS_PER_CYCLE,
		       .index = 1,
		       .outcome = 1 },
		     { .from = 0x2004,
		       .to = 0x2010,
		       .kind = BRANCH_REL_JMP,
		       .ticks_after = 1 * TICKS_PER_CYCLE,
		       .index = 3,
		       .outcome = BRANCH_UNNOTED } },
	.whole = { .n = 2 },
	.first = { .n = 1 },
	.jmp = { .ends = true,
		 .last = { .from = 0x1000,
			   .to = 0x2000,
			   .kind = BRANCH_REL_JMP,
			   .outcome = BRANCH_UNNOTED } },
	.ret = { .ends = true,
		 .last = { .from = 0x2010,
			   .kind = BRANCH_RET,
			   .indirect = true,
			   .outcome = BRANCH_UNNOTED } },
	.last = { .n = 2,
		  .ends = true,
		  .last = { .from = 0x2010,
			    .kind = BRANCH_RET,
			    .indirect = true,
			    .outcome = BRANCH_UNNOTED } },
};

#define PATH(name) offsetof(__typeof__(meta), name)

static struct branch_log branch_log;

static s64 count_at(u32 i)
{
	return (s64) - ((1000 - 10 * (u64)i) << COUNT_SHIFT);
}

/* The i-th of a run in which each takes ten instructions and twelve cycles. */
static void note(u32 i, u32 path, u64 to)
{
	const struct branch_path *p = (const void *)((const u8 *)&meta + path);

	branch_log.note[branch_next_note(&branch_log)] = (struct branch_note){
		.path = path, .count = count_at(i), .ticks = 12 * TICKS_PER_CYCLE * i, .to = to
	};
	branch_log.at += branch_step(p->n + p->ends);
}

static void note_miss(u32 i, u64 from)
{
	struct branch_verdict *verdict = &branch_log.verdict[branch_next_note(&branch_log)];

	verdict->missed_count = count_at(i);
	verdict->missed_from = from;
	branch_log.missed = true;
}

static void settle_notes(void)
{
	m.branches.ticks_from = 1000;
	branch_settle(&m.branches, &branch_log, (const u8 *)&meta, 48);
	assert_false(branch_noted(&branch_log));
}

static u64 arch_info(u64 cycles, u64 type)
{
	return LBR_INFO_CYCLES_VALID | type << LBR_INFO_TYPE_SHIFT | cycles;
}

/* Near branches stay at their privilege: that of the kernel need not be recorded. */
static void notes_become_records(void **state)
{
	(void)state;
	guest_wrmsr(&m, ARCH_CTL, ARCH_ALL & ~LBR_CTL_OS);
	pmu_enter(&m.pmu);
	note(1, PATH(jmp), 0);
	note_miss(2, 0x2010);
	note(2, PATH(ret), 0x1ff0);
	note(3, PATH(ret), 1ull << 60); /* faults */
	settle_notes();
	expect(ARCH_FROM(0), 0x2010);
	expect(ARCH_TO(0), 0x1ff0);
	expect(ARCH_INFO(0), LBR_INFO_MISPREDICTED | arch_info(12, 5));
	expect(ARCH_FROM(1), 0x1000);
	expect(ARCH_TO(1), 0x2000);
	expect(ARCH_FROM(2), 0);
}

static void a_way_through_a_block_is_all_its_branches(void **state)
{
	(void)state;
	guest_wrmsr(&m, ARCH_CTL, ARCH_ALL);
	note(1, PATH(jmp), 0);
	branch_log.verdict[1].predicted[1] = false;
	note(2, PATH(last), 0x3000);
	branch_log.verdict[2].predicted[1] = true;
	note(3, PATH(first), 0);
	settle_notes();
	expect(ARCH_FROM(0), 0x1000);
	expect(ARCH_INFO(0), arch_info(12 - 4, 0));
	expect(ARCH_FROM(1), 0x2010);
	expect(ARCH_TO(1), 0x3000);
	expect(ARCH_INFO(1), arch_info(1, 5));
	expect(ARCH_FROM(2), 0x2004);
	expect(ARCH_TO(2), 0x2010);
	expect(ARCH_INFO(2), arch_info(3, 2));
	expect(ARCH_FROM(3), 0x1000);
	expect(ARCH_INFO(3), LBR_INFO_MISPREDICTED | arch_info(12 - 4, 0));
	expect(ARCH_FROM(4), 0x1000);
	expect(ARCH_FROM(5), 0);
}

/* An exception in its middle: only what came before. */
static void a_part_of_a_way_is_the_branches_before(void **state)
{
	static const u8 branches[] = { 0, 0, 1, 1, 2, 2 };

	(void)state;
	for (u32 upto = 1; upto < ARRAY_SIZE(branches); upto++) {
		const struct branch_note part = { .path = PATH(whole),
						  .upto = upto,
						  .count = count_at(1) };

		guest_wrmsr(&m, LBR_TOS, 0);
		debugctl(DEBUGCTL_LBR);
		branch_note_part(&branch_log, (const u8 *)&meta, &part);
		assert_int_equal(branch_noted(&branch_log), branches[upto] > 0);
		settle_notes();
		expect(LBR_TOS, branches[upto]);
	}
	expect(FROM(1), 0x1000);
	expect(FROM(2), 0x2004);
}

static void a_miss_is_not_that_of_a_later_run(void **state)
{
	(void)state;
	debugctl(DEBUGCTL_LBR);
	note_miss(1, 0x2010); /* of a branch that is not recorded */
	settle_notes();
	note(1, PATH(ret), 0x3000);
	settle_notes();
	expect(FROM(1), 0x2010);
	assert_false(host_rdmsr(&m, INFO(1)) & LBR_INFO_MISPREDICTED);
}

static void notes_that_run_over_move_the_top(void **state)
{
	(void)state;
	debugctl(DEBUGCTL_LBR);
	for (u32 i = 0; i < 71; i++)
		note(i, i == 70 ? PATH(ret) : PATH(jmp), 0x3000);
	settle_notes();
	expect(LBR_TOS, 71 % 32);
	expect(FROM(71 % 32), 0x2010);
	expect(TO(71 % 32), 0x3000);
	expect(INFO(71 % 32), 12);
	for (u32 i = 1; i < 32; i++) {
		expect(FROM((71 - i) % 32), 0x1000);
		expect(INFO((71 - i) % 32), 12);
	}
}

/* The oldest record is in the middle of a way, which is the third's time apart from what was
 * before. */
static void ways_that_run_over_move_the_top_by_their_branches(void **state)
{
	u32 top = 100 * 3 % 32;

	(void)state;
	debugctl(DEBUGCTL_LBR);
	for (u32 i = 0; i < 100; i++) {
		branch_log.verdict[branch_next_note(&branch_log)].predicted[1] = true;
		note(i, PATH(last), 0x3000);
	}
	settle_notes();
	expect(LBR_TOS, top);
	for (u32 i = 0; i < 32; i++) {
		static const u64 from[] = { 0x2010, 0x2004, 0x1000 }, cycles[] = { 1, 3, 8 };

		expect(FROM((top - i) % 32), from[i % 3]);
		expect(INFO((top - i) % 32), cycles[i % 3]);
	}
}

int main(void)
{
#define ON(setup, test) cmocka_unit_test_setup(test, setup)
	static const struct CMUnitTest tests[] = {
		ON(on_sapphirerapids, notes_become_records),
		ON(on_sapphirerapids, a_way_through_a_block_is_all_its_branches),
		ON(on_skylake, a_part_of_a_way_is_the_branches_before),
		ON(on_skylake, a_miss_is_not_that_of_a_later_run),
		ON(on_skylake, notes_that_run_over_move_the_top),
		ON(on_skylake, ways_that_run_over_move_the_top_by_their_branches),
	};

	return pmu_machine_test_both(tests);
}
