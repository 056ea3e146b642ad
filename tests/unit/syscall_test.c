// SPDX-License-Identifier: MIT
/*
 * The fast system calls of both vendors, in long mode.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cpu/event.h"
#include "cpu/mode.h"
#include "cpu/transfer/segment.h"
#include "unit/outcome.h"

#define TARGET 0x290000

static void prepare_syscall(struct paged_cpu *p, enum where where, bool amd)
{
	struct cpu *cpu = p->cpu;

	tables_enter(p, where);
	cpu->is_amd = amd;
	cpu->efer |= EFER_SCE;
	cpu->star = (u64)SEL_KCODE64 << 32 | (u64)SEL_UCODE32 << 48;
	cpu->lstar = 0xffffffff81000000;
	cpu->cstar = 0xffffffff82000000;
	cpu->sfmask = FL_TF | FL_IF | FL_AC;
	cpu->sysenter_cs = SEL_KCODE64;
	cpu->sysenter_eip = 0xffffffff83000000;
	cpu->sysenter_esp = RSP0;
}

static void syscall_enters_the_kernel(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	for (int amd = 0; amd < 2; amd++) {
		prepare_syscall(p, USER64, amd);
		cpu->rflags |= FL_TF | FL_CF | FL_RF;
		assert_int_equal(cpu_syscall(cpu, CODE + 2), FAULT_NONE);
		assert_int_equal(cpu->rip, cpu->lstar);
		assert_int_equal(cpu->regs[RCX], CODE + 2);
		assert_int_equal(cpu->regs[R11], FL_FIX1 | FL_IF | FL_TF | FL_CF);
		assert_int_equal(cpu->rflags, FL_FIX1 | FL_CF);
		assert_int_equal(cpu->seg[CS].sel, SEL_KCODE64);
		assert_int_equal(cpu->seg[CS].attr, 0xa09b);
		assert_int_equal(cpu->seg[SS].sel, SEL_KDATA);
		assert_int_equal(cpu->seg[SS].attr, 0xc093);
		assert_int_equal(cpu->cpl, 0);
		assert_int_equal(cpu->regs[RSP], USER_STACK);
		cpu_finish_instruction(cpu, true);
		assert_int_equal(cpu->port.event.kind, EVENT_NONE); /* the mask covers TF */
	}
}

/* SDM 2B SYSCALL, APM3: they are taken off the selector of CS alone. */
static void syscall_keeps_the_low_bits_of_star_in_ss(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	prepare_syscall(p, USER64, false);
	cpu->star |= 3ull << 32;
	assert_int_equal(cpu_syscall(cpu, CODE + 2), FAULT_NONE);
	assert_int_equal(cpu->seg[CS].sel, SEL_KCODE64);
	assert_int_equal(cpu->seg[SS].sel, SEL_KDATA | 3);
	assert_int_equal(cpu->cpl, 0);
}

static void syscall_of_compatibility_mode_is_amds(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	prepare_syscall(p, USER32, true);
	assert_int_equal(cpu_syscall(cpu, CODE + 2), FAULT_NONE);
	assert_int_equal(cpu->rip, cpu->cstar);
	assert_true(cpu->seg[CS].attr & SEG_L);
	prepare_syscall(p, USER32, false);
	assert_outcome(outcome_of(cpu, cpu_syscall(cpu, CODE + 2)), RAISES(VEC_UD, 0));
	prepare_syscall(p, USER64, false);
	cpu->efer &= ~EFER_SCE;
	assert_outcome(outcome_of(cpu, cpu_syscall(cpu, CODE + 2)), RAISES(VEC_UD, 0));
}

static void sysret_returns_to_either_mode(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	for (int amd = 0; amd < 2; amd++) {
		prepare_syscall(p, KERNEL64, amd);
		cpu->regs[RCX] = 0x1200000000 + TARGET;
		cpu->regs[R11] = ~0ull;
		assert_int_equal(cpu_sysret(cpu, 8), FAULT_NONE);
		assert_int_equal(cpu->rip, 0x1200000000 + TARGET);
		assert_int_equal(cpu->rflags, 0x3c7fd7);
		assert_int_equal(cpu->seg[CS].sel, SEL_UCODE64 | 3);
		assert_int_equal(cpu->seg[CS].attr, 0xa0fb);
		assert_int_equal(cpu->seg[SS].sel, SEL_UDATA | 3);
		assert_int_equal(cpu->cpl, 3);
		cpu_finish_instruction(cpu, false);
		assert_int_equal(cpu->port.event.vector,
				 VEC_DB); /* TF set by SYSRET traps at once */

		prepare_syscall(p, KERNEL64, amd);
		assert_int_equal(cpu_sysret(cpu, 4), FAULT_NONE);
		assert_int_equal(cpu->rip, TARGET);
		assert_int_equal(cpu->seg[CS].sel, SEL_UCODE32 | 3);
		assert_int_equal(cpu->seg[CS].attr, 0xc0fb);
		cpu_priv(cpu)->begun = 0;
	}
}

static void sysret_differs_by_vendor(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	prepare_syscall(p, KERNEL64, false);
	cpu->regs[RCX] = NONCANONICAL;
	assert_outcome(outcome_of(cpu, cpu_sysret(cpu, 8)), RAISES(VEC_GP, 0));
	assert_int_equal(cpu->cpl, 0);
	cpu->seg[SS].attr = SEG_UNUSABLE;
	cpu->regs[RCX] = TARGET;
	assert_int_equal(cpu_sysret(cpu, 8), FAULT_NONE);
	assert_int_equal(cpu->seg[SS].attr, 0xc0f3);

	prepare_syscall(p, KERNEL64, true);
	cpu->regs[RCX] = NONCANONICAL;
	cpu->seg[SS].attr = SEG_UNUSABLE;
	assert_int_equal(cpu_sysret(cpu, 8), FAULT_NONE);
	assert_int_equal(cpu->rip, NONCANONICAL);
	assert_int_equal(cpu->cpl, 3);
	assert_true(cpu->seg[SS].attr & SEG_UNUSABLE);

	prepare_syscall(p, USER64, true);
	assert_outcome(outcome_of(cpu, cpu_sysret(cpu, 8)), RAISES(VEC_GP, 0));
	prepare_syscall(p, KERNEL32, false);
	assert_outcome(outcome_of(cpu, cpu_sysret(cpu, 4)), RAISES(VEC_UD, 0));
}

static void sysenter_is_intels_in_long_mode(void **state)
{
	static const enum where from[] = { USER64, USER32 };
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	for (u32 i = 0; i < ARRAY_SIZE(from); i++) {
		prepare_syscall(p, from[i], false);
		assert_int_equal(cpu_sysenter(cpu), FAULT_NONE);
		assert_int_equal(cpu->rip, cpu->sysenter_eip);
		assert_int_equal(cpu->regs[RSP], RSP0);
		assert_int_equal(cpu->seg[CS].sel, SEL_KCODE64);
		assert_int_equal(cpu->seg[SS].sel, SEL_KDATA);
		assert_int_equal(cpu->rflags, FL_FIX1);
		assert_true(cpu_priv(cpu)->mode & MODE_CODE64);
		prepare_syscall(p, from[i], true);
		assert_outcome(outcome_of(cpu, cpu_sysenter(cpu)), RAISES(VEC_UD, 0));
	}
	prepare_syscall(p, USER64, false);
	cpu->sysenter_cs = 3;
	assert_outcome(outcome_of(cpu, cpu_sysenter(cpu)), RAISES(VEC_GP, 0));
}

static void sysexit_returns_to_either_mode(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	prepare_syscall(p, KERNEL64, false);
	cpu->regs[RDX] = 0x1200000000 + TARGET;
	cpu->regs[RCX] = 0x1200000000 + USER_STACK;
	assert_int_equal(cpu_sysexit(cpu, 4), FAULT_NONE);
	assert_int_equal(cpu->rip, TARGET);
	assert_int_equal(cpu->regs[RSP], USER_STACK);
	assert_int_equal(cpu->seg[CS].sel, (SEL_KCODE64 + 16) | 3);
	assert_int_equal(cpu->seg[SS].sel, (SEL_KCODE64 + 24) | 3);
	assert_true(cpu_priv(cpu)->mode & MODE_CODE32);

	prepare_syscall(p, KERNEL64, false);
	cpu->regs[RCX] = 0x1200000000 + USER_STACK;
	assert_int_equal(cpu_sysexit(cpu, 8), FAULT_NONE);
	assert_int_equal(cpu->rip, 0x1200000000 + TARGET);
	assert_int_equal(cpu->seg[CS].sel, (SEL_KCODE64 + 32) | 3);
	assert_int_equal(cpu->seg[SS].sel, (SEL_KCODE64 + 40) | 3);
	assert_outcome(outcome_of(cpu, cpu_sysexit(cpu, 8)), RAISES(VEC_GP, 0)); /* at CPL 3 */

	prepare_syscall(p, KERNEL64, false);
	cpu->regs[RCX] = NONCANONICAL;
	assert_outcome(outcome_of(cpu, cpu_sysexit(cpu, 8)), RAISES(VEC_GP, 0));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, tables_setup, tables_teardown)
	const struct CMUnitTest tests[] = {
		TEST(syscall_enters_the_kernel),
		TEST(syscall_keeps_the_low_bits_of_star_in_ss),
		TEST(syscall_of_compatibility_mode_is_amds),
		TEST(sysret_returns_to_either_mode),
		TEST(sysret_differs_by_vendor),
		TEST(sysenter_is_intels_in_long_mode),
		TEST(sysexit_returns_to_either_mode),
	};

	paged_cpu_catch_faults();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
