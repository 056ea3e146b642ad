// SPDX-License-Identifier: MIT
/*
 * What an IBS sample tells of a branch, for each instruction of a user program that changes
 * privilege and code size, under SMEP and SMAP.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/control.h"
#include "engine/engine.h"
#include "guest/machine.h"

#define KERNEL "0x1000" /* from the program's start: the page at IMAGE_CODE + 0x1000 */
#define NINSNS 24	/* that retire, up to the first of the last loop */
#define PERIOD 0x1000
#define BOUND  1000 /* instructions that a run may take */

/* Labels bN are branches, gN where they go; b3 is not taken. */
GUEST_CODE(walk, "b1: jmp g1\n"
		 "ud2\n"
		 "g1: lea g2(%rip), %rax\n"
		 "b2: jmp *%rax\n"
		 "ud2\n"
		 "g2: xor %eax, %eax\n"
		 "b3: jnz g1\n"
		 "b4: call g4\n"
		 "g5: nop\n"
		 "b6: syscall\n"
		 "g7: pushq $0x1b\n"
		 "lea g8(%rip), %rax\n"
		 "push %rax\n"
		 "b8: lretq\n"
		 ".code32\n"
		 "g8: nop\n"
		 "b9: ljmp *(%esp)\n" /* the far pointer is below */
		 ".code64\n"
		 "g9: nop\n"
		 "b10: int $0x20\n"
		 "g11: nop\n"
		 "b12: jmp b12\n"
		 "g4: nop\n"
		 "b5: ret\n"
		 ".org walk_start + " KERNEL "\n"
		 "k0: nop\n"
		 "b7: sysretq\n"
		 "k1: nop\n"
		 "b11: iretq\n");

#pragma GCC visibility push(hidden)
extern const u8 b1[], b2[], b3[], b4[], b5[], b6[], b7[], b8[], b9[], b10[], b11[], b12[];
extern const u8 g1[], g2[], g4[], g5[], g7[], g8[], g9[], g11[], k0[], k1[];
#pragma GCC visibility pop

#define AT(label) (IMAGE_CODE + (u64)(label - walk_start))

static const struct path_branch {
	const u8 *from, *to; /* to NULL: not taken */
	bool is_return;
	bool predicted; /* the timing model predicts branches of this kind */
} branches[] = {
	{ .from = b1, .to = g1 },
	{ .from = b2, .to = g2, .predicted = true },
	{ .from = b3, .predicted = true },
	{ .from = b4, .to = g4 },
	{ .from = b5, .to = g5, .is_return = true, .predicted = true },
	{ .from = b6, .to = k0 },
	{ .from = b7, .to = g7 },
	{ .from = b8, .to = g8, .is_return = true },
	{ .from = b9, .to = g9 },
	{ .from = b10, .to = k1 },
	{ .from = b11, .to = g11 },
	{ .from = b12, .to = b12 },
};

static const struct path_branch *branch_at(u64 rip)
{
	for (u32 i = 0; i < ARRAY_SIZE(branches); i++)
		if (AT(branches[i].from) == rip)
			return &branches[i];
	return NULL;
}

/* User pages are the program's and its stack's. */
static void protect_kernel(u8 *ram)
{
	for (u64 page = PAGE_SIZE; page < 0x200000; page += PAGE_SIZE)
		if (page != IMAGE_CODE && page != IMAGE_USER_STACK - PAGE_SIZE)
			*image_pte(ram, page) &= ~4ull;
}

static void enter_user_mode(struct cpu *cpu)
{
	cpu->seg[CS].sel = IMAGE_UCS;
	cpu->seg[CS].attr |= 3 << SEG_DPL_SHIFT;
	cpu->seg[SS].sel = IMAGE_UDS;
	cpu->seg[SS].attr |= 3 << SEG_DPL_SHIFT;
	cpu->cpl = 3;
	cpu->regs[RSP] = IMAGE_USER_STACK - 0x100;
	cpu->cr4 |= CR4_SMEP | CR4_SMAP;
	cpu->lstar = AT(k0);
	cpu_state_changed(cpu);
}

static void load(struct machine *m)
{
	const struct {
		u32 offset;
		u16 sel;
	} pointer = { AT(g9), IMAGE_UCS };

	machine_load(m, walk_start, (size_t)(walk_end - walk_start));
	image_gate(m->ram, 0x20, AT(k1), 3);
	memcpy(m->ram + IMAGE_USER_STACK - 0x100, &pointer, sizeof(pointer));
	protect_kernel(m->ram);
	enter_user_mode(m->cpu);
	engine_attach_pmu(m->cpu, pmu_model_of(MODEL_MILAN));
}

static void check_sample(const struct hwpmu *pmu)
{
	u64 data = hwpmu_read_ibs(pmu, IBS_OP_DATA), rip = hwpmu_read_ibs(pmu, IBS_OP_RIP);
	const struct path_branch *branch = branch_at(rip);
	bool taken = branch && branch->to;

	if (!!(data & IBS_DATA_BRANCH) != !!branch || !!(data & IBS_DATA_TAKEN) != taken)
		fail_msg("at %#lx: data %#lx", (unsigned long)rip, (unsigned long)data);
	assert_int_equal(!!(data & IBS_DATA_RETURN), branch && branch->is_return);
	if (!branch || !branch->predicted)
		assert_false(data & IBS_DATA_MISPREDICTED);
	assert_int_equal(hwpmu_read_ibs(pmu, IBS_BRANCH_TARGET), taken ? AT(branch->to) : 0);
}

/* Of the instruction that retires as number n. */
static u64 sample(struct machine *m, u64 n)
{
	struct hwpmu *pmu = &m->cpu->pmu;

	load(m);
	hwpmu_write_ibs(pmu, IBS_OP_CTL,
			IBS_OP_EN | IBS_OP_COUNTS_OPS | PERIOD >> 4 |
				(PERIOD - n) << IBS_OP_CNT_AT);
	assert_int_equal(machine_run(m, BOUND), EXIT_PMI);
	assert_true(hwpmu_take_ibs(pmu));
	assert_true(hwpmu_read_ibs(pmu, IBS_OP_CTL) & IBS_OP_VAL);
	check_sample(pmu);
	return hwpmu_read_ibs(pmu, IBS_OP_RIP);
}

static void a_sample_tells_whether_and_where_a_branch_went(void **state)
{
	u64 found = 0;

	for (u64 n = 1; n <= NINSNS; n++)
		found += !!branch_at(sample(*state, n));
	assert_int_equal(found, ARRAY_SIZE(branches));
}

static int set_up(void **state)
{
	static struct machine machine;

	machine_create_model(&machine, "milan");
	*state = &machine;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sample_tells_whether_and_where_a_branch_went),
	};

	return cmocka_run_group_tests(tests, set_up, machine_tear_down);
}
