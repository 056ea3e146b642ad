// SPDX-License-Identifier: MIT
/*
 * Transfers between code segments in long mode: far jumps, calls and returns, call gates and IRET.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/event.h"
#include "cpu/mode.h"
#include "cpu/transfer/segment.h"
#include "unit/outcome.h"

#define TARGET 0x290000

struct place {
	u64 rip, rsp, rflags;
	u16 cs, ss;
	u8 cpl;
};

static struct place place_of(const struct cpu *cpu)
{
	return (struct place){
		.rip = cpu->rip,
		.rsp = cpu->regs[RSP],
		.rflags = cpu->rflags,
		.cs = cpu->seg[CS].sel,
		.ss = cpu->seg[SS].sel,
		.cpl = cpu->cpl,
	};
}

static void assert_same_place(struct place a, struct place b)
{
	assert_int_equal(a.rip, b.rip);
	assert_int_equal(a.rsp, b.rsp);
	assert_int_equal(a.rflags, b.rflags);
	assert_int_equal(a.cs, b.cs);
	assert_int_equal(a.ss, b.ss);
	assert_int_equal(a.cpl, b.cpl);
}

struct jump {
	enum where where;
	u16 sel;
	u64 offset;
	struct outcome outcome;
	u16 cs; /* after success */
};

static const struct jump jumps[] = {
	{ KERNEL64, SEL_KCODE64, TARGET, { -1, 0 }, SEL_KCODE64 },
	{ KERNEL64, SEL_KCODE32, TARGET, { -1, 0 }, SEL_KCODE32 },
	{ KERNEL32, SEL_KCODE64, TARGET, { -1, 0 }, SEL_KCODE64 },
	{ USER64, SEL_UCODE32 | 3, TARGET, { -1, 0 }, SEL_UCODE32 | 3 },
	{ USER64, SEL_UCODE32, TARGET, { -1, 0 }, SEL_UCODE32 | 3 }, /* RPL below CPL */
	{ USER64, SEL_CONFORMING, TARGET, { -1, 0 }, SEL_CONFORMING | 3 },
	{ KERNEL64, 0, TARGET, { VEC_GP, 0 }, 0 },
	{ KERNEL64, 3, TARGET, { VEC_GP, 0 }, 0 },
	{ KERNEL64, SEL_BEYOND, TARGET, { VEC_GP, SEL_BEYOND }, 0 },
	{ KERNEL64, SEL_KDATA, TARGET, { VEC_GP, SEL_KDATA }, 0 },
	{ KERNEL64, SEL_TSS, TARGET, { VEC_GP, SEL_TSS }, 0 },
	{ KERNEL64, SEL_UCODE64 | 3, TARGET, { VEC_GP, SEL_UCODE64 }, 0 },
	{ KERNEL64, SEL_KCODE64 | 3, TARGET, { VEC_GP, SEL_KCODE64 }, 0 },
	{ USER64, SEL_KCODE64 | 3, TARGET, { VEC_GP, SEL_KCODE64 }, 0 },
	{ KERNEL64, SEL_ABSENT_CODE, TARGET, { VEC_NP, SEL_ABSENT_CODE }, 0 },
	{ KERNEL64, SEL_CODE_MIXED, TARGET, { VEC_GP, SEL_CODE_MIXED }, 0 },
	{ KERNEL64, SEL_KCODE64, NONCANONICAL, { VEC_GP, 0 }, 0 },
	{ KERNEL64, SEL_GATE, 0, { -1, 0 }, SEL_KCODE64 },
	{ USER64,
	  SEL_GATE | 3,
	  0,
	  { VEC_GP, SEL_KCODE64 },
	  0 }, /* a jump cannot change privilege */
	{ USER64, SEL_GATE_KERNEL, 0, { VEC_GP, SEL_GATE_KERNEL }, 0 },
	{ KERNEL64, SEL_GATE_KERNEL | 1, 0, { VEC_GP, SEL_GATE_KERNEL }, 0 },
	{ KERNEL64, SEL_GATE_ABSENT, 0, { VEC_NP, SEL_GATE_ABSENT }, 0 },
};

static void far_jumps_raise_what_the_manual_says(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	for (u32 i = 0; i < ARRAY_SIZE(jumps); i++) {
		const struct jump *row = &jumps[i];
		struct place before, after;

		print_message("row %u: selector %x\n", i, row->sel);
		tables_enter(p, row->where);
		before = place_of(cpu);
		assert_outcome(outcome_of(cpu, cpu_far_jump(cpu, row->sel, row->offset, 8, 0)),
			       row->outcome);
		after = place_of(cpu);
		if (row->outcome.vector >= 0) {
			assert_same_place(before, after);
			continue;
		}
		assert_int_equal(after.rip, row->offset ? row->offset : HANDLER(0));
		assert_int_equal(after.cs, row->cs);
		assert_int_equal(after.cpl, before.cpl);
	}
}

static void a_far_jump_to_compatibility_mode_truncates_and_checks_the_limit(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	assert_int_equal(cpu_far_jump(cpu, SEL_KCODE32, 0x1200000000 + TARGET, 8, 0), FAULT_NONE);
	assert_int_equal(cpu->rip, TARGET);
	assert_true(cpu_priv(cpu)->mode & MODE_CODE32);
	tables_descriptor(p, SEL_KCODE32, 0, 0xffff, 0xa | SEG_S | SEG_P | SEG_DB);
	tables_enter(p, KERNEL64);
	assert_outcome(outcome_of(cpu, cpu_far_jump(cpu, SEL_KCODE32, 0x10000, 8, 0)),
		       RAISES(VEC_GP, 0));
}

static void a_far_call_and_return_come_back(void **state)
{
	static const u8 sizes[] = { 2, 4, 8 };
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	for (u32 i = 0; i < ARRAY_SIZE(sizes); i++) {
		u8 size = sizes[i];

		tables_enter(p, KERNEL64);
		assert_int_equal(cpu_far_call(cpu, SEL_KCODE64, 0x1000, size, 0x1234), FAULT_NONE);
		assert_int_equal(cpu->rip, 0x1000);
		assert_int_equal(cpu->regs[RSP], KERNEL_STACK - 2 * size);
		assert_int_equal(cpu_far_return(cpu, size, 16), FAULT_NONE);
		assert_int_equal(cpu->rip, 0x1234);
		assert_int_equal(cpu->seg[CS].sel, SEL_KCODE64);
		assert_int_equal(cpu->regs[RSP], KERNEL_STACK + 16);
	}
}

static void a_call_gate_enters_the_kernel_and_a_far_return_leaves_it(void **state)
{
	static const enum where from[] = { USER64, USER32 };
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	for (u32 i = 0; i < ARRAY_SIZE(from); i++) {
		u16 cs;

		tables_enter(p, from[i]);
		cs = cpu->seg[CS].sel;
		assert_int_equal(cpu_far_call(cpu, SEL_GATE | 3, 0, 4, CODE + 7), FAULT_NONE);
		assert_in_kernel(cpu, HANDLER(0));
		assert_int_equal(cpu->regs[RSP], RSP0 - 32);
		assert_int_equal(tables_word(p, RSP0 - 8), SEL_UDATA | 3);
		assert_int_equal(tables_word(p, RSP0 - 16), USER_STACK);
		assert_int_equal(tables_word(p, RSP0 - 24), cs);
		assert_int_equal(tables_word(p, RSP0 - 32), CODE + 7);

		assert_int_equal(cpu_load_seg(cpu, DS, SEL_KDATA), FAULT_NONE);
		assert_int_equal(cpu_far_return(cpu, 8, 0), FAULT_NONE);
		assert_int_equal(cpu->cpl, 3);
		assert_int_equal(cpu->rip, CODE + 7);
		assert_int_equal(cpu->seg[CS].sel, cs);
		assert_int_equal(cpu->seg[SS].sel, SEL_UDATA | 3);
		assert_int_equal(cpu->regs[RSP], USER_STACK);
		assert_int_equal(cpu->seg[DS].sel, 0); /* the kernel's */
		assert_int_equal(cpu->seg[ES].sel, SEL_UDATA | 3);
	}
}

static void a_jump_through_a_gate_checks_privilege_before_presence(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	tables_enter(p, USER64);
	tables_call_gate(p, SEL_GATE, SEL_ABSENT_CODE);
	assert_outcome(outcome_of(cpu, cpu_far_jump(cpu, SEL_GATE | 3, 0, 4, 0)),
		       RAISES(VEC_GP, SEL_ABSENT_CODE));
	assert_outcome(outcome_of(cpu, cpu_far_call(cpu, SEL_GATE | 3, 0, 4, 0)),
		       RAISES(VEC_NP, SEL_ABSENT_CODE));
	tables_call_gate(p, SEL_GATE, SEL_KCODE32); /* a 64-bit gate to 32-bit code */
	assert_outcome(outcome_of(cpu, cpu_far_call(cpu, SEL_GATE | 3, 0, 4, 0)),
		       RAISES(VEC_GP, SEL_KCODE32));
	tables_call_gate(p, SEL_GATE, 0);
	assert_outcome(outcome_of(cpu, cpu_far_call(cpu, SEL_GATE | 3, 0, 4, 0)),
		       RAISES(VEC_GP, 0));
}

static void a_call_gate_checks_the_tss_and_the_new_stack(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	tables_enter(p, USER64);
	tables_set_word(p, TSS + TSS64_RSP(0), NONCANONICAL);
	assert_outcome(outcome_of(cpu, cpu_far_call(cpu, SEL_GATE | 3, 0, 4, 0)),
		       RAISES(VEC_SS, 0));
	cpu->tr.limit = TSS64_RSP(0) + 6;
	assert_outcome(outcome_of(cpu, cpu_far_call(cpu, SEL_GATE | 3, 0, 4, 0)),
		       RAISES(VEC_TS, SEL_TSS));
	assert_int_equal(cpu->cpl, 3);
}

static void a_far_call_checks_its_stack_before_its_target(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	cpu->regs[RSP] = NONCANONICAL;
	assert_outcome(outcome_of(cpu, cpu_far_call(cpu, SEL_KCODE64, NONCANONICAL, 8, 0)),
		       RAISES(VEC_SS, 0));
	cpu->regs[RSP] = UNMAPPED; /* a page fault only comes with the push */
	assert_outcome(outcome_of(cpu, cpu_far_call(cpu, SEL_KCODE64, NONCANONICAL, 8, 0)),
		       RAISES(VEC_GP, 0));
}

struct ret {
	enum where where;
	u64 rip;
	u16 cs;
	u64 rsp;
	u16 ss;
	struct outcome outcome;
};

/* Frames for IRETQ, and what it makes of them. */
static const struct ret rets[] = {
	{ KERNEL64, TARGET, SEL_KCODE64, 0x305000, SEL_KDATA, { -1, 0 } },
	{ KERNEL64, TARGET, SEL_KCODE64, 0x305000, 0, { -1, 0 } },
	{ KERNEL64, TARGET, SEL_KCODE32, 0x305000, SEL_KDATA, { -1, 0 } },
	{ KERNEL64, TARGET, SEL_UCODE64 | 3, 0x305000, SEL_UDATA | 3, { -1, 0 } },
	{ KERNEL64, TARGET, SEL_UCODE32 | 3, 0x305000, SEL_UDATA | 3, { -1, 0 } },
	{ KERNEL64, TARGET, SEL_CODE_RING1 | 1, 0x305000, SEL_DATA_RING1 | 1, { -1, 0 } },
	{ KERNEL64, TARGET, SEL_CODE_RING1 | 1, 0x305000, 1, { -1, 0 } },
	{ KERNEL64, TARGET, SEL_CONFORMING | 3, 0x305000, SEL_UDATA | 3, { -1, 0 } },
	{ USER64, TARGET, SEL_UCODE32 | 3, 0x305000, SEL_UDATA | 3, { -1, 0 } },
	{ KERNEL64, TARGET, 0, 0, 0, { VEC_GP, 0 } },
	{ KERNEL64, TARGET, SEL_BEYOND, 0, 0, { VEC_GP, SEL_BEYOND } },
	{ KERNEL64, TARGET, SEL_KDATA, 0, 0, { VEC_GP, SEL_KDATA } },
	{ KERNEL64, TARGET, SEL_UCODE64, 0, 0, { VEC_GP, SEL_UCODE64 } },
	{ KERNEL64, TARGET, SEL_KCODE64 | 3, 0, 0, { VEC_GP, SEL_KCODE64 } },
	{ USER64, TARGET, SEL_KCODE64, 0, 0, { VEC_GP, SEL_KCODE64 } },
	{ KERNEL64, TARGET, SEL_ABSENT_CODE, 0, 0, { VEC_NP, SEL_ABSENT_CODE } },
	{ KERNEL64, TARGET, SEL_CODE_MIXED, 0, 0, { VEC_GP, SEL_CODE_MIXED } },
	{ KERNEL64, NONCANONICAL, SEL_KCODE64, 0, 0, { VEC_GP, 0 } },
	{ KERNEL64, NONCANONICAL, SEL_UCODE64 | 3, 0, SEL_UDATA | 3, { VEC_GP, 0 } },
	{ KERNEL64, TARGET, SEL_KCODE32, 0, 0, { VEC_GP, 0 } },
	{ KERNEL64, TARGET, SEL_KCODE64, 0, 3, { VEC_GP, 0 } },
	{ KERNEL64, TARGET, SEL_UCODE64 | 3, 0, 3, { VEC_GP, 0 } },
	{ KERNEL64, TARGET, SEL_UCODE32 | 3, 0, 0, { VEC_GP, 0 } },
	{ KERNEL64, TARGET, SEL_UCODE64 | 3, 0, SEL_BEYOND | 3, { VEC_GP, SEL_BEYOND } },
	{ KERNEL64, TARGET, SEL_UCODE64 | 3, 0, SEL_UDATA, { VEC_GP, SEL_UDATA } },
	{ KERNEL64, TARGET, SEL_UCODE64 | 3, 0, SEL_KDATA | 3, { VEC_GP, SEL_KDATA } },
	{ KERNEL64, TARGET, SEL_KCODE64, 0, SEL_READONLY, { VEC_GP, SEL_READONLY } },
	{ KERNEL64, TARGET, SEL_KCODE64, 0, SEL_ABSENT_DATA, { VEC_SS, SEL_ABSENT_DATA } },
};

static void push_iret_frame(struct paged_cpu *p, const struct ret *row, u64 flags)
{
	const u64 frame[5] = { row->rip, row->cs, flags, row->rsp, row->ss };

	p->cpu->regs[RSP] = KERNEL_STACK - 40;
	memcpy(p->ram + KERNEL_STACK - 40, frame, sizeof(frame));
}

static void iret_raises_what_the_manual_says(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	for (u32 i = 0; i < ARRAY_SIZE(rets); i++) {
		const struct ret *row = &rets[i];
		struct place before, after;

		print_message("row %u: cs %x ss %x\n", i, row->cs, row->ss);
		tables_enter(p, row->where);
		push_iret_frame(p, row, FL_FIX1 | FL_ZF);
		cpu->nmi_masked = true;
		before = place_of(cpu);
		assert_outcome(outcome_of(cpu, cpu_iret(cpu, 8, 0)), row->outcome);
		after = place_of(cpu);
		assert_false(cpu->nmi_masked);
		if (row->outcome.vector >= 0) {
			assert_same_place(before, after);
			continue;
		}
		assert_int_equal(after.rip, row->rip);
		assert_int_equal(after.rsp, row->rsp);
		assert_int_equal(after.cs, row->cs);
		assert_int_equal(after.ss, row->ss);
		assert_int_equal(after.cpl, row->cs & 3);
	}
}

/* SDM 2B RET, IRET: what the outer level may not use becomes selector 0, and so does every null
 * selector; the latter's base, which is FS's or GS's own in 64-bit mode, stays. */
static void returns_to_an_outer_level_clear_data_segments(void **state)
{
	static const struct {
		u16 before, to_ring1, to_user;
	} rows[] = {
		{ SEL_KDATA, 0, 0 },
		{ SEL_READONLY, 0, 0 },
		{ SEL_KCODE32, 0, 0 },
		{ SEL_CONFORMING, SEL_CONFORMING, SEL_CONFORMING },
		{ SEL_DATA_RING1 | 1, SEL_DATA_RING1 | 1, 0 },
		{ SEL_UDATA | 3, SEL_UDATA | 3, SEL_UDATA | 3 },
		{ SEL_UDATA, SEL_UDATA, SEL_UDATA },
		{ SEL_UCODE64 | 3, SEL_UCODE64 | 3, SEL_UCODE64 | 3 },
		{ 0, 0, 0 },
		{ 1, 0, 0 },
		{ 3, 0, 0 },
	};
	static const enum seg data[] = { ES, DS, FS, GS };
	static const struct ret outer[] = {
		{ KERNEL64, TARGET, SEL_CODE_RING1 | 1, USER_STACK, SEL_DATA_RING1 | 1, { -1, 0 } },
		{ KERNEL64, TARGET, SEL_UCODE64 | 3, USER_STACK, SEL_UDATA | 3, { -1, 0 } },
		{ KERNEL64, TARGET, SEL_UCODE32 | 3, USER_STACK, SEL_UDATA | 3, { -1, 0 } },
	};
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	for (u32 i = 0; i < ARRAY_SIZE(rows) * ARRAY_SIZE(outer) * 2; i++) {
		u32 row = i % ARRAY_SIZE(rows), to = i / ARRAY_SIZE(rows) % ARRAY_SIZE(outer);
		bool iret = i / ARRAY_SIZE(rows) / ARRAY_SIZE(outer);
		bool null = rows[row].before < 4;
		const struct ret *frame = &outer[to];

		print_message("%s to %x with %x\n", iret ? "iret" : "ret", frame->cs,
			      rows[row].before);
		tables_enter(p, KERNEL64);
		for (u32 n = 0; n < ARRAY_SIZE(data); n++)
			assert_int_equal(cpu_load_seg(cpu, data[n], rows[row].before), FAULT_NONE);
		cpu->seg[FS].base = null ? 0x12345 : cpu->seg[FS].base;
		if (iret) {
			push_iret_frame(p, frame, FL_FIX1);
			assert_int_equal(cpu_iret(cpu, 8, 0), FAULT_NONE);
		} else {
			const u64 words[] = { frame->rip, frame->cs, frame->rsp, frame->ss };

			cpu->regs[RSP] = KERNEL_STACK - sizeof(words);
			memcpy(p->ram + KERNEL_STACK - sizeof(words), words, sizeof(words));
			assert_int_equal(cpu_far_return(cpu, 8, 0), FAULT_NONE);
		}
		for (u32 n = 0; n < ARRAY_SIZE(data); n++)
			assert_int_equal(cpu->seg[data[n]].sel,
					 to ? rows[row].to_user : rows[row].to_ring1);
		if (null)
			assert_int_equal(cpu->seg[FS].base, 0x12345);
	}
}

struct flags_row {
	enum where where;
	u64 before, image;
	u8 opsize;
	u64 after;
};

#define ALL_FLAGS                                                                              \
	(FL_ARITH | FL_TF | FL_IF | FL_DF | FL_IOPL | FL_NT | FL_RF | FL_AC | FL_ID | FL_VIF | \
	 FL_VIP)

static const struct flags_row flags_rows[] = {
	{ KERNEL64, 0, ~0ull, 8, ALL_FLAGS },
	{ KERNEL64, 0, ~0ull, 2, FL_ARITH | FL_TF | FL_IF | FL_DF | FL_IOPL | FL_NT },
	{ KERNEL64, ALL_FLAGS & ~FL_NT, 0, 8, 0 },
	{ USER64, 0, ~0ull, 8, FL_ARITH | FL_TF | FL_DF | FL_NT | FL_RF | FL_AC | FL_ID },
	{ USER64, FL_IOPL, ~0ull, 8,
	  FL_ARITH | FL_TF | FL_IF | FL_DF | FL_IOPL | FL_NT | FL_RF | FL_AC | FL_ID },
	{ USER64, FL_IF, 0, 8, FL_IF },
};

static void iret_changes_the_flags_its_privilege_may_change(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	for (u32 i = 0; i < ARRAY_SIZE(flags_rows); i++) {
		const struct flags_row *row = &flags_rows[i];
		bool kernel = row->where == KERNEL64;
		u16 cs = kernel ? SEL_KCODE64 : SEL_UCODE64 | 3,
		    ss = kernel ? SEL_KDATA : SEL_UDATA | 3;
		const u64 frame[5] = { 0x1000, cs, row->image, 0x2000, ss };

		print_message("row %u\n", i);
		tables_enter(p, row->where);
		cpu->rflags = row->before | FL_FIX1;
		cpu->regs[RSP] = KERNEL_STACK - 40;
		for (u32 n = 0; n < 5; n++)
			memcpy(p->ram + KERNEL_STACK - 40 + n * row->opsize, &frame[n],
			       row->opsize);
		assert_int_equal(cpu_iret(cpu, row->opsize, 0), FAULT_NONE);
		assert_int_equal(cpu->rflags, row->after | FL_FIX1);
	}
}

static void iret_with_nt_set_faults_in_long_mode(void **state)
{
	struct paged_cpu *p = *state;

	p->cpu->rflags |= FL_NT;
	push_iret_frame(p, &rets[0], FL_FIX1);
	assert_outcome(outcome_of(p->cpu, cpu_iret(p->cpu, 8, 0)), RAISES(VEC_GP, 0));
}

static void rf_that_iret_loads_outlives_the_iret(void **state)
{
	struct paged_cpu *p = *state;

	push_iret_frame(p, &rets[0], FL_FIX1 | FL_RF);
	assert_int_equal(cpu_iret(p->cpu, 8, 0), FAULT_NONE);
	cpu_finish_instruction(p->cpu, false);
	assert_true(p->cpu->rflags & FL_RF);
	cpu_finish_instruction(p->cpu, false);
	assert_false(p->cpu->rflags & FL_RF);
}

static void a_return_to_a_16_bit_stack_loads_sp_only(void **state)
{
	static const struct ret row = { KERNEL64,   TARGET,	     SEL_UCODE32 | 3,
					0x12345678, SEL_STACK16 | 3, { -1, 0 } };
	struct paged_cpu *p = *state;

	push_iret_frame(p, &row, FL_FIX1);
	assert_int_equal(cpu_iret(p->cpu, 8, 0), FAULT_NONE);
	assert_int_equal(p->cpu->regs[RSP], ((KERNEL_STACK - 40) & ~0xffffull) | 0x5678);
}

static void compatibility_mode_pops_the_stack_only_when_privilege_changes(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;
	const u32 frame[5] = { TARGET, SEL_KCODE32, FL_FIX1, 0x305000, SEL_UDATA | 3 };

	tables_enter(p, KERNEL32);
	cpu->regs[RSP] = KERNEL_STACK - 20;
	memcpy(p->ram + KERNEL_STACK - 20, frame, sizeof(frame));
	assert_int_equal(cpu_iret(cpu, 4, 0), FAULT_NONE);
	assert_int_equal(cpu->regs[RSP], KERNEL_STACK - 8);
	assert_int_equal(cpu->seg[SS].sel, SEL_KDATA);

	tables_enter(p, KERNEL32);
	cpu->regs[RSP] = KERNEL_STACK - 20;
	tables_set_word(p, KERNEL_STACK - 16, (SEL_UCODE32 | 3) | (u64)FL_FIX1 << 32);
	assert_int_equal(cpu_iret(cpu, 4, 0), FAULT_NONE);
	assert_int_equal(cpu->regs[RSP], 0x305000);
	assert_int_equal(cpu->seg[SS].sel, SEL_UDATA | 3);
	assert_int_equal(cpu->cpl, 3);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, tables_setup, tables_teardown)
	const struct CMUnitTest tests[] = {
		TEST(far_jumps_raise_what_the_manual_says),
		TEST(a_far_jump_to_compatibility_mode_truncates_and_checks_the_limit),
		TEST(a_far_call_and_return_come_back),
		TEST(a_call_gate_enters_the_kernel_and_a_far_return_leaves_it),
		TEST(a_jump_through_a_gate_checks_privilege_before_presence),
		TEST(a_call_gate_checks_the_tss_and_the_new_stack),
		TEST(a_far_call_checks_its_stack_before_its_target),
		TEST(iret_raises_what_the_manual_says),
		TEST(returns_to_an_outer_level_clear_data_segments),
		TEST(iret_changes_the_flags_its_privilege_may_change),
		TEST(iret_with_nt_set_faults_in_long_mode),
		TEST(rf_that_iret_loads_outlives_the_iret),
		TEST(a_return_to_a_16_bit_stack_loads_sp_only),
		TEST(compatibility_mode_pops_the_stack_only_when_privilege_changes),
	};

	paged_cpu_catch_faults();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
