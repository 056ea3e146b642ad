// SPDX-License-Identifier: MIT
/*
 * Code that is not flat, here in real mode: segments with bases and limits, and operands of 16
 * bits. What such code does at CPL 3 is compared with the native CPU (tests/diff); these are its
 * borders, and what needs an interrupt.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include <string.h>

#include "cpu/control.h"
#include "engine/engine.h"
#include "guest/machine.h"

#define ALL	  (~0ull >> 1)
#define SEG_CODE  0x1000
#define SEG_OTHER 0x2000
#define HANDLERS  0x3000 /* a HLT for each vector, at its number */
#define STACK_TOP 0x8000

static u8 *at(struct machine *m, u16 seg, u32 offset)
{
	return m->ram + seg * 16 + offset;
}

static void set_segment(struct segment *s, u16 sel, u32 attr)
{
	*s = (struct segment){
		.sel = sel, .base = sel * 16, .limit = 0xffff, .attr = attr | SEG_S | SEG_P
	};
}

/* Real mode, IP at the code, all other segments at 0; exceptions end in HLT. */
static void real_start(struct machine *m, u32 ip, const void *code, size_t size)
{
	struct cpu *cpu = m->cpu;

	machine_load(m, "", 0);
	for (u32 i = 0; i < 256; i++) {
		const u16 vector[2] = { i, HANDLERS };

		memcpy(m->ram + 4 * i, vector, sizeof(vector));
		*at(m, HANDLERS, i) = 0xf4;
	}
	memcpy(at(m, SEG_CODE, ip), code, size);
	for (u32 i = 0; i < NSEGS; i++)
		set_segment(&cpu->seg[i], 0, 3);
	set_segment(&cpu->seg[CS], SEG_CODE, 11);
	cpu->idtr = (struct descriptor_table){ 0, 0x3ff };
	cpu->cr0 = CR0_ET;
	cpu->cr4 = CR4_OSFXSR;
	cpu->efer = cpu->xcr0 = 0;
	cpu->rip = ip;
	cpu->regs[RSP] = STACK_TOP;
	cpu_state_changed(cpu);
}

static const u16 *frame(const struct machine *m)
{
	return (const u16 *)(m->ram + (u16)m->cpu->regs[RSP]);
}

static void assert_ended_with(struct machine *m, u32 vector, u32 ip)
{
	assert_int_equal(m->cpu->seg[CS].sel, HANDLERS);
	assert_int_equal(m->cpu->rip, vector + 1);
	assert_int_equal(m->cpu->regs[RSP], STACK_TOP - 6);
	assert_int_equal(frame(m)[0], ip);
	assert_int_equal(frame(m)[1], SEG_CODE);
}

/* The code that is known at an offset is that of another segment. */
static void an_exception_goes_to_its_own_segment(void **state)
{
	struct machine *m = *state;
	const u16 handler[2] = { 0x200, SEG_OTHER };

	real_start(m, 0x100, "\xe8\xfd\x00\xf6\xf3", 5); /* CALL 200h; DIV BL */
	memcpy(at(m, SEG_CODE, 0x200), "\x41\xc3", 2);	 /* INC CX; RET */
	memcpy(at(m, SEG_OTHER, 0x200), "\xf4", 1);
	memcpy(m->ram, handler, sizeof(handler));
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	assert_int_equal(m->cpu->seg[CS].sel, SEG_OTHER);
	assert_int_equal(m->cpu->regs[RCX], 1);
	assert_int_equal(frame(m)[0], 0x103);
}

#define BEYOND 0x12345 /* in EAX, and on the stack */

static const struct {
	const char *name;
	u32 ip;
	const char *code;
	u32 size;
} leaving[] = {
	{ "jmp rel32", 0x100, "\x66\xe9\x00\x00\x01\x00", 6 },
	{ "jmp eax", 0x100, "\x66\xff\xe0", 3 },
	{ "jc rel32", 0x100, "\x66\x0f\x82\x00\x00\x01\x00", 7 },
	{ "loop", 0xfff0, "\x66\x67\xe2\x70", 4 },
	{ "loop, cx", 0xfff0, "\x66\xe2\x70", 3 },
	{ "loope", 0xfff0, "\x66\xe1\x70", 3 },
	{ "jcxz", 0xfff0, "\x66\x67\xe3\x70", 4 },
	{ "call rel32", 0x100, "\x66\xe8\x00\x00\x01\x00", 6 },
	{ "call eax", 0x100, "\x66\xff\xd0", 3 },
	{ "ret", 0x100, "\x66\xc3", 2 },
	{ "ret 8", 0x100, "\x66\xc2\x08\x00", 4 },
	{ "tail beyond the limit", 0xffff, "\x0f\x0b", 2 },
};

static void leave_the_segment(struct machine *m, u32 i, u64 budget)
{
	const u32 target = BEYOND;
	u32 counter = strcmp(leaving[i].name, "jcxz") ? 0x20003 : 0;
	struct cpu *cpu = m->cpu;

	real_start(m, leaving[i].ip, leaving[i].code, leaving[i].size);
	memcpy(m->ram + STACK_TOP, &target, sizeof(target));
	cpu->regs[RAX] = BEYOND;
	cpu->regs[RCX] = counter;
	cpu->rflags |= FL_CF | FL_ZF;
	while (machine_run(m, budget) == EXIT_BUDGET)
		;
	assert_ended_with(m, VEC_GP, leaving[i].ip);
	assert_int_equal(cpu->regs[RCX], counter);
	assert_int_equal(frame(m)[2] & (FL_CF | FL_ZF), FL_CF | FL_ZF);
	assert_int_equal(machine_retired(m), 1); /* HLT */
}

static void a_branch_beyond_the_limit_faults_in_its_place(void **state)
{
	for (u32 i = 0; i < ARRAY_SIZE(leaving); i++) {
		leave_the_segment(*state, i, ALL);
		leave_the_segment(*state, i, 1);
	}
}

/* Two of 66 0F 82 that are not taken, and the end of the segment after them. */
static void the_end_of_a_segment_faults_behind_it(void **state)
{
	static const u8 code[] = { 0x66, 0x0f, 0x82, 0, 0, 1, 0, 0x66, 0x0f, 0x82, 0, 0, 1, 0 };
	struct machine *m = *state;

	real_start(m, 0x10000 - sizeof(code), code, sizeof(code));
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	assert_ended_with(m, VEC_GP, 0); /* 10000h, cut */
	assert_int_equal(machine_retired(m), 3);
}

/* Code that was translated in a long segment is executed in a short one. */
static void the_limit_is_the_segments_own(void **state)
{
	static const u8 code[] = { 0x41, 0x41, 0xeb, 2, 0x41, 0x41, 0x41, 0xf4 };
	struct machine *m = *state;

	real_start(m, 0x100, code, sizeof(code));
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	assert_int_equal(m->cpu->regs[RCX], 3);
	for (u32 limit = 0x107; limit >= 0x100; limit--) {
		struct cpu *cpu = m->cpu;

		set_segment(&cpu->seg[CS], SEG_CODE, 11);
		cpu->seg[CS].limit = limit;
		cpu->rip = 0x100;
		cpu->regs[RCX] = 0;
		cpu->regs[RSP] = STACK_TOP;
		cpu_state_changed(cpu);
		assert_int_equal(machine_run(m, ALL), EXIT_HLT);
		if (limit == 0x107)
			assert_int_equal(cpu->seg[CS].sel, SEG_CODE);
		else if (limit == 0x106)
			assert_ended_with(m, VEC_GP, 0x107);
		else if (limit >= 0x102)
			assert_ended_with(m, VEC_GP, 0x102); /* JMP 106h, or its tail */
		else
			assert_ended_with(m, VEC_GP, limit + 1);
	}
}

/* Loading takes 24 bits of a base with a 16-bit operand size, storing has all of it: SDM 2B SGDT.
 */
static void sgdt_stores_a_whole_base(void **state)
{
	static const u8 code[] = { 0x0f, 0x01, 0x06, 0x00, 0x60, 0xf4 }; /* SGDT [6000h]; HLT */
	struct machine *m = *state;

	real_start(m, 0x100, code, sizeof(code));
	m->cpu->gdtr = (struct descriptor_table){ 0x12345678, 0x7f };
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	assert_memory_equal(m->ram + 0x6000, "\x7f\0\x78\x56\x34\x12", 6);
}

#define LIMITS 20000

static u64 run_at(struct machine *m, u32 ip, u32 limit)
{
	struct cpu *cpu = m->cpu;

	set_segment(&cpu->seg[CS], SEG_CODE, 11);
	cpu->seg[CS].limit = limit;
	cpu->rip = ip;
	cpu->regs[RCX] = 0;
	cpu_state_changed(cpu);
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	assert_int_equal(cpu->seg[CS].sel, SEG_CODE);
	return cpu->regs[RCX];
}

/*
 * Code of one address has a block for each limit. What is made from a line is dropped with it, and
 * at once: user code with an LDT must not have its processor search for minutes.
 */
static void a_line_with_a_block_for_each_limit_is_written(void **state)
{
	enum { SHORT = 0x121, LONG = 0x12c, WRITE = 0x200 };
	struct machine *m = *state;
	u8 code[0x110];

	memset(code, 0x90, sizeof(code));
	memcpy(code + SHORT - 0x100, "\x41\xf4", 2);			 /* INC CX; HLT */
	memcpy(code + 0x144 - 0x100, "\x41\xf4", 2);			 /* in the next line */
	memcpy(code + WRITE - 0x100, "\x2e\xc6\x06\x42\x01\x41\xf4", 7); /* an INC CX more */
	real_start(m, 0x100, code, sizeof(code));
	for (u32 i = 0; i < LIMITS; i++)
		assert_int_equal(run_at(m, LONG, 0x1000 + i), 1);
	for (u32 i = 0; i < LIMITS; i++)
		assert_int_equal(run_at(m, SHORT, 0x1000 + LIMITS + i), 1);
	run_at(m, WRITE, 0xffff);
	for (u32 i = 0; i < LIMITS; i++) {
		assert_int_equal(run_at(m, LONG, 0x1000 + i), 2);
		assert_int_equal(run_at(m, SHORT, 0x1000 + LIMITS + i), 1);
	}
}

static void what_has_no_operand_size_gets_none(void **state)
{
	static const u8 code[] = { 0x0f, 0x77,			 /* EMMS */
				   0x0f, 0xae, 0xe8,		 /* LFENCE */
				   0x0f, 0xae, 0xf0,		 /* MFENCE */
				   0x0f, 0xae, 0xf8,		 /* SFENCE */
				   0x0f, 0xae, 0x1e, 0x00, 0x60, /* STMXCSR [6000h] */
				   0x0f, 0xae, 0x16, 0x00, 0x60, /* LDMXCSR [6000h] */
				   0x0f, 0xae, 0x3e, 0x00, 0x60, /* CLFLUSH [6000h] */
				   0x0f, 0xc3, 0x06, 0x04, 0x60, /* MOVNTI [6004h], EAX */
				   0xf4 };
	struct machine *m = *state;

	real_start(m, 0x100, code, sizeof(code));
	m->cpu->regs[RAX] = 0x12345678;
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	assert_int_equal(m->cpu->seg[CS].sel, SEG_CODE);
	assert_int_equal(*(u32 *)(m->ram + 0x6000), 0x1f80);
	assert_int_equal(*(u32 *)(m->ram + 0x6004), 0x12345678);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_exception_goes_to_its_own_segment),
		cmocka_unit_test(a_branch_beyond_the_limit_faults_in_its_place),
		cmocka_unit_test(the_end_of_a_segment_faults_behind_it),
		cmocka_unit_test(the_limit_is_the_segments_own),
		cmocka_unit_test(sgdt_stores_a_whole_base),
		cmocka_unit_test(a_line_with_a_block_for_each_limit_is_written),
		cmocka_unit_test(what_has_no_operand_size_gets_none),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
