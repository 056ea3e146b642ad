// SPDX-License-Identifier: MIT
/*
 * The rules of x86/vendor.def, each with one instruction of a program that shows it: what it does
 * on a model of either vendor, whatever the host is; and so does a model of one vendor that has
 * just this rule turned around.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/control.h"
#include "cpu/fpu.h"
#include "engine/engine.h"
#include "guest/machine.h"

#define ALL   (~0ull >> 1)
#define LEFT  IMAGE_HOLE /* no page there */
#define DATA  IMAGE_DATA
#define STACK IMAGE_USER_STACK
#define FAR   BIT(47) /* added to an address it is not canonical */
#define UPPER (5ull << 32)
#define PTE   7ull /* present, writable, user */

enum how { CODE64 = 0, CODE32 = 1, CHECKED = 2, STEPPED = 4 };

/* What is looked at, besides the vector. */
enum what { NOTHING, FAULT, CR2, MEMORY, REGISTER, FLAGS, RF, MXCSR, FSW, XMM3 };

struct outcome {
	u32 vector; /* VEC_UD: of the UD2 after it, it was executed */
	u64 value;
};

struct row {
	enum vendor_rule rule;
	const char *code;
	u32 size;
	u32 how;
	u64 rax, rcx, rsi, rdi;
	u32 limit; /* of DS; 0: none */
	enum what what;
	u64 where; /* address or register */
	struct outcome intel, amd;
};

#define INSN(bytes) (bytes), sizeof(bytes) - 1

static const struct row rows[] = {
	/* CALL RAX */
	{ RULE_CALL_PUSHES_FIRST, INSN("\xff\xd0"), CODE64, .rax = FAR, .what = MEMORY,
	  .where = STACK - 8, .intel = { VEC_GP, IMAGE_CODE + 2 }, .amd = { VEC_GP, ~0ull } },
	/* PAUSE, or XCHG R8, RAX */
	{ RULE_PAUSE_IGNORES_REX, INSN("\xf3\x49\x90"), CODE64, .rax = 1, .what = REGISTER,
	  .where = R8, .intel = { VEC_UD, 0 }, .amd = { VEC_UD, 1 } },
	/* the same between MOV [RAX], RCX and MOV [RAX + 8], RCX, which are checked together */
	{ RULE_PAUSE_IGNORES_REX, INSN("\x48\x89\x08\xf3\x49\x90\x48\x89\x48\x08"), CODE64,
	  .rax = STACK - 16, .rcx = 1, .what = MEMORY, .where = STACK - 8, .intel = { VEC_UD, 1 },
	  .amd = { VEC_UD, ~0ull } },
	/* PREFETCH EAX; VPINSRD XMM0, XMM0, EAX, 0 */
	{ RULE_PREFETCH_REGISTER_UD, INSN("\x0f\x0d\xc0"), CODE64, .what = FAULT,
	  .intel = { VEC_UD, IMAGE_CODE + 3 }, .amd = { VEC_UD, IMAGE_CODE } },
	{ RULE_VEX_W_UD, INSN("\xc4\xe3\xf9\x22\xc0\x00"), CODE32, .what = FAULT,
	  .intel = { VEC_UD, IMAGE_CODE + 6 }, .amd = { VEC_UD, IMAGE_CODE } },
	/* MOVSXD CX, [RAX] */
	{ RULE_MOVSXD_WORD, INSN("\x66\x63\x08"), CODE64, .rax = LEFT - 2,
	  .intel = { .vector = VEC_UD }, .amd = { .vector = VEC_PF } },
	/* PUSH ES */
	{ RULE_PUSH_SEGMENT_WORD, INSN("\x06"), CODE32, .what = MEMORY, .where = STACK - 8,
	  .intel = { VEC_UD, 0xffff0000ffffffff | (u64)IMAGE_UDS << 32 },
	  .amd = { VEC_UD, 0xffffffff | (u64)IMAGE_UDS << 32 } },
	/* MOV EAX, [EAX]: two bytes at the end, two at the start */
	{ RULE_ACCESS_WRAPS_4G, INSN("\x8b\x00"), CODE32, .rax = 0xfffffffe, .what = REGISTER,
	  .where = RAX, .intel = { VEC_UD, 0x44332211 }, .amd = { VEC_GP, 0xfffffffe } },
	/* BOUND ECX, [EAX], ECX being too small: the upper bound is not there, or outside of DS */
	{ RULE_BOUND_LOWER_FIRST, INSN("\x62\x08"), CODE32, .rax = LEFT - 4, .rcx = 0xffffffff,
	  .intel = { .vector = VEC_BR }, .amd = { .vector = VEC_PF } },
	{ RULE_BOUND_LOWER_FIRST, INSN("\x62\x08"), CODE32, .rax = DATA, .rcx = 0xffffffff,
	  .limit = DATA + 6, .intel = { .vector = VEC_BR }, .amd = { .vector = VEC_GP } },
	{ RULE_BOUND_LOWER_FIRST, INSN("\x66\x62\x08"), CODE32, .rax = DATA, .rcx = 0xffff,
	  .limit = DATA + 2, .intel = { .vector = VEC_BR }, .amd = { .vector = VEC_GP } },
	/* LES ECX, [EAX]; JMP FAR [EAX]: the offset is not there, the selector outside of DS */
	{ RULE_OPERAND_IN_PARTS, INSN("\xc4\x08"), CODE32, .rax = LEFT, .limit = LEFT + 3,
	  .intel = { .vector = VEC_PF }, .amd = { .vector = VEC_GP } },
	{ RULE_OPERAND_IN_PARTS, INSN("\xff\x28"), CODE32, .rax = LEFT, .limit = LEFT + 3,
	  .intel = { .vector = VEC_PF }, .amd = { .vector = VEC_GP } },
	/* BOUND ECX, [DI]; LES ECX, [DI]: the second part is at 0, or is code at 10000 */
	{ RULE_OPERAND_IN_PARTS, INSN("\x67\x62\x0d"), CODE32, .rcx = 0x5000, .rdi = 0xfffc,
	  .intel = { .vector = VEC_BR }, .amd = { .vector = VEC_UD } },
	{ RULE_OPERAND_IN_PARTS, INSN("\x67\xc4\x0d"), CODE32, .rdi = 0xfffe,
	  .intel = { .vector = VEC_UD }, .amd = { .vector = VEC_GP } },
	/* REP MOVSB with 32-bit addresses, none of them */
	{ RULE_REP_TRUNCATES, INSN("\x67\xf3\xa4"), CODE64, .rcx = UPPER, .rsi = UPPER | DATA,
	  .rdi = UPPER | DATA, .what = REGISTER, .where = RSI, .intel = { VEC_UD, DATA },
	  .amd = { VEC_UD, UPPER | DATA } },
	{ RULE_REP_TRUNCATES, INSN("\x67\xf3\xae"), CODE64, .rcx = UPPER, .what = REGISTER,
	  .where = RCX, .intel = { VEC_UD, 0 }, .amd = { VEC_UD, UPPER } },
	/* REPNE SCASB, which clears CF, up to the hole */
	{ RULE_REP_KEEPS_FLAGS, INSN("\xf2\xae"), CODE64, .rax = 1, .rcx = 5, .rdi = LEFT - 2,
	  .what = FLAGS, .intel = { VEC_PF, FL_CF }, .amd = { VEC_PF, 0 } },
	/* REPE CMPSB, both in the hole */
	{ RULE_REP_CMPSB_SOURCE_FIRST, INSN("\xf3\xa6"), CODE64, .rcx = 5, .rsi = LEFT + 8,
	  .rdi = LEFT + 16, .what = CR2, .intel = { VEC_PF, LEFT + 16 },
	  .amd = { VEC_PF, LEFT + 8 } },
	/* REP STOSB */
	{ RULE_REP_STEP_CLEARS_RF, INSN("\xf3\xaa"), STEPPED, .rcx = 5, .rdi = DATA, .what = RF,
	  .intel = { VEC_DB, FL_RF }, .amd = { VEC_DB, 0 } },
	/* MOVUPS XMM0, [RAX]; VMOVUPS YMM0, [RAX]; VCVTPH2PS XMM0, [RAX] */
	{ RULE_VECTORS_CHECK_ALIGNMENT, INSN("\x0f\x10\x00"), CHECKED, .rax = DATA + 8,
	  .intel = { .vector = VEC_UD }, .amd = { .vector = VEC_AC } },
	{ RULE_VECTORS_CHECK_ALIGNMENT, INSN("\xc5\xfc\x10\x00"), CHECKED, .rax = DATA + 8,
	  .intel = { .vector = VEC_UD }, .amd = { .vector = VEC_AC } },
	{ RULE_VECTORS_CHECK_ALIGNMENT, INSN("\xc4\xe2\x79\x13\x00"), CHECKED, .rax = DATA + 4,
	  .intel = { .vector = VEC_UD }, .amd = { .vector = VEC_AC } },
	/* MOV RDX, [RAX]; MOV [RAX], DX; JMP [RAX] */
	{ RULE_ALIGNMENT_BEFORE_SPAN, INSN("\x48\x8b\x10"), CHECKED, .rax = BIT(47) - 4,
	  .intel = { .vector = VEC_AC }, .amd = { .vector = VEC_GP } },
	{ RULE_ALIGNMENT_BEFORE_SPAN, INSN("\x66\x89\x10"), CHECKED, .rax = BIT(47) - 1,
	  .intel = { .vector = VEC_AC }, .amd = { .vector = VEC_GP } },
	{ RULE_ALIGNMENT_BEFORE_SPAN, INSN("\xff\x20"), CHECKED, .rax = BIT(47) - 1,
	  .intel = { .vector = VEC_AC }, .amd = { .vector = VEC_GP } },
	/* SHA1NEXTE XMM0, [RAX]: in a page, across two, in the hole */
	{ RULE_SHA_ANY_ALIGNMENT, INSN("\x0f\x38\xc8\x00"), CODE64, .rax = DATA + 1,
	  .intel = { .vector = VEC_GP }, .amd = { .vector = VEC_UD } },
	{ RULE_SHA_ANY_ALIGNMENT, INSN("\x0f\x38\xc8\x00"), CODE64, .rax = DATA + PAGE_SIZE - 8,
	  .intel = { .vector = VEC_GP }, .amd = { .vector = VEC_UD } },
	{ RULE_SHA_ANY_ALIGNMENT, INSN("\x0f\x38\xc8\x00"), CODE64, .rax = LEFT + 1,
	  .intel = { .vector = VEC_GP }, .amd = { .vector = VEC_PF } },
	/* MASKMOVDQU XMM0, XMM4, which selects nothing */
	{ RULE_MASKMOV_HALVES, INSN("\x66\x0f\xf7\xc4"), CODE64, .rdi = LEFT, .what = CR2,
	  .intel = { VEC_PF, LEFT + 8 }, .amd = { VEC_PF, LEFT } },
	/* VPMASKMOVD [RAX], XMM3, XMM0 */
	{ RULE_VMASKMOV_AS_ONE, INSN("\xc4\xe2\x61\x8e\x00"), CODE64, .rax = LEFT - 8, .what = CR2,
	  .intel = { VEC_PF, LEFT + 7 }, .amd = { VEC_PF, LEFT } },
	/* VMOVDQU32 [RAX]{K1}, XMM0 */
	{ RULE_VMASKMOV_AS_ONE, INSN("\x62\xf1\x7e\x09\x7f\x00"), CODE64, .rax = LEFT - 8,
	  .what = CR2, .intel = { VEC_PF, LEFT + 7 }, .amd = { VEC_PF, LEFT } },
	/* VMOVDQU32 ZMM0, [RAX] */
	{ RULE_VECTORS_CHECK_ALIGNMENT, INSN("\x62\xf1\x7e\x48\x6f\x00"), CHECKED, .rax = DATA + 8,
	  .intel = { .vector = VEC_UD }, .amd = { .vector = VEC_AC } },
	/* VPGATHERDD XMM0, [RAX + XMM4], XMM3 */
	{ RULE_GATHER_WIDENS_MASK, INSN("\xc4\xe2\x61\x90\x04\x20"), CODE64, .rax = LEFT,
	  .what = XMM3, .intel = { VEC_PF, ~0ull }, .amd = { VEC_PF, 0x8000000080000000 } },
	/* MOVQ [RAX], MM0 */
	{ RULE_MMX_STORE_CLEARS_TOP, INSN("\x0f\x7f\x00"), CODE64, .rax = LEFT, .what = FSW,
	  .intel = { VEC_PF, 0 }, .amd = { VEC_PF, 3 << 11 } },
	/* FSTP of 80 bits */
	{ RULE_X87_STORE_IN_PARTS, INSN("\xdb\x38"), CODE64, .rax = LEFT - 8, .what = MEMORY,
	  .where = LEFT - 8, .intel = { VEC_PF, BIT(63) }, .amd = { VEC_PF, 0 } },
	/* FISTP of 16 bits, which 2^16 does not fit into */
	{ RULE_X87_STORE_EXCEPTION_FIRST, INSN("\xdf\x18"), CODE64, .rax = LEFT,
	  .intel = { .vector = VEC_UD }, .amd = { .vector = VEC_PF } },
	/* VCVTPS2PH [RAX], XMM0, 0: inexact */
	{ RULE_CVTPS2PH_EXCEPTION_FIRST, INSN("\xc4\xe3\x79\x1d\x00\x00"), CODE64, .rax = LEFT,
	  .what = MXCSR, .intel = { VEC_PF, 0x1fa0 }, .amd = { VEC_PF, 0x1f80 } },
	/* XSAVE [RDI] of no component: its header is on the page after the hole */
	{ RULE_XSAVE_SKIPS_LEGACY, INSN("\x0f\xae\x27"), CODE64, .rdi = LEFT + PAGE_SIZE - 512,
	  .intel = { .vector = VEC_UD }, .amd = { .vector = VEC_PF } },
	/* MOV RAX, GS:[RAX] */
	{ RULE_OFFSETS_CANONICAL, INSN("\x65\x48\x8b\x00"), CODE64, .rax = DATA + FAR,
	  .intel = { .vector = VEC_UD }, .amd = { .vector = VEC_GP } },
};

/* Rules that other tests have: debug exceptions, the page walk, SYSCALL and its kin. */
static const enum vendor_rule elsewhere[] = {
	RULE_SS_BLOCKS_BREAKPOINTS, /* guest/debug_test.c */
	RULE_GLOBAL_BIT_RESERVED,   /* unit/mmu_test.c */
	RULE_SYSCALL_ANYWHERE,	    /* unit/transfer_test.c */
	RULE_SYSRET_CHECKS_RIP,	    RULE_SYSRET_KEEPS_SS, RULE_SYSENTER_NOT_LONG,
};

static void set_user_code(struct cpu *cpu, u32 how)
{
	for (u32 i = 0; i < NSEGS; i++) {
		cpu->seg[i].sel = i != CS ? IMAGE_UDS : how & CODE32 ? IMAGE_UCS32 : IMAGE_UCS;
		cpu->seg[i].attr |= SEG_DPL;
	}
	if (how & CODE32)
		cpu->seg[CS].attr = (cpu->seg[CS].attr & ~(u32)SEG_L) | SEG_DB;
	cpu->seg[GS].base = -FAR;
	cpu->cpl = 3;
	cpu->cr0 |= CR0_AM;
	cpu->rflags |= FL_CF | (how & CHECKED ? FL_AC : 0) | (how & STEPPED ? FL_TF : 0);
	cpu->regs[RSP] = STACK;
}

/* XMM0: floats with too many bits; XMM3, K1: masks of all; XMM4: zeros. ST0: 2^16, at TOP 3. */
static void set_vectors(struct cpu *cpu)
{
	static const u32 inexact = 0x3f800001, mask = 0x80000000;
	static const u8 number[10] = { [7] = 0x80, 0x0f, 0x40 };
	const u16 fcw = 0x37e, fsw = 3 << 11; /* invalid operations are not masked */

	for (u32 i = 0; i < 16; i += 4) {
		memcpy(cpu->xsave + XSAVE_XMM0 + i, &inexact, 4);
		memcpy(cpu->xsave + XSAVE_XMM0 + 3 * 16 + i, &mask, 4);
	}
	memcpy(cpu->xsave + XSAVE_ST0, number, sizeof(number));
	memcpy(cpu->xsave + XSAVE_FCW, &fcw, 2);
	memcpy(cpu->xsave + XSAVE_FSW, &fsw, 2);
	cpu->xsave[XSAVE_FTW] = 0xff;
	if (cpu->xcr0 & XCR0_OPMASK) {
		fpu_make_present(cpu, XCR0_OPMASK);
		cpu->xsave[XSAVE_OPMASK + 8] = 0xf;
	}
}

/* The last page below 4G, and the first. */
static void map_ends(u8 *ram)
{
	static const u8 first[2] = { 0x33, 0x44 }, last[2] = { 0x11, 0x22 };
	u64 pd = DATA + PAGE_SIZE, pt = pd + PAGE_SIZE, page = pt + PAGE_SIZE;

	((u64 *)(ram + IMAGE_PDPT))[3] = pd | PTE;
	((u64 *)(ram + pd))[511] = pt | PTE;
	((u64 *)(ram + pt))[511] = page | PTE;
	*image_pte(ram, 0) = (page + PAGE_SIZE) | PTE;
	memcpy(ram + page + PAGE_SIZE - 2, last, 2);
	memcpy(ram + page + PAGE_SIZE, first, 2);
}

static void prepare(struct machine *m, const struct row *row)
{
	u8 code[16 + 2];
	struct cpu *cpu = m->cpu;

	memcpy(code, row->code, row->size);
	memcpy(code + row->size, "\x0f\x0b", 2); /* UD2 */
	machine_load(m, code, row->size + 2);
	*image_pte(m->ram, LEFT) = 0;
	map_ends(m->ram);
	memset(m->ram + STACK - 8, 0xff, 8);
	set_user_code(cpu, row->how);
	if (row->limit)
		cpu->seg[DS].limit = row->limit;
	set_vectors(cpu);
	cpu->regs[RAX] = row->rax;
	cpu->regs[RCX] = row->rcx;
	cpu->regs[RSI] = row->rsi;
	cpu->regs[RDI] = row->rdi;
	cpu_state_changed(cpu);
}

/* By the exception: SS, RSP, flags, CS, RIP. */
static u64 pushed(const struct machine *m, u32 n)
{
	return *(const u64 *)(m->ram + IMAGE_INT_STACK - n * 8);
}

static u64 look(const struct machine *m, const struct row *row)
{
	const struct cpu *cpu = m->cpu;

	switch (row->what) {
	case FAULT:
		return pushed(m, 5);
	case CR2:
		return cpu->cr2;
	case MEMORY:
		return *(const u64 *)(m->ram + row->where);
	case REGISTER:
		return cpu->regs[row->where];
	case FLAGS:
		return pushed(m, 3) & FL_CF;
	case RF:
		return pushed(m, 3) & FL_RF;
	case MXCSR:
		return *(const u32 *)(cpu->xsave + XSAVE_MXCSR);
	case FSW:
		return *(const u16 *)(cpu->xsave + XSAVE_FSW);
	case XMM3:
		return *(const u64 *)(cpu->xsave + XSAVE_XMM0 + 3 * 16);
	default:
		return 0;
	}
}

static void expect(struct machine *m, const struct row *row, const struct outcome *outcome)
{
	prepare(m, row);
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	assert_int_equal((m->cpu->rip - IMAGE_STUBS) / IMAGE_STUB_SIZE, outcome->vector);
	assert_int_equal(look(m, row), outcome->value);
}

/* In 32-bit code 62 is BOUND, which every host has. */
static bool host_can(const struct machine *m, const struct row *row)
{
	if ((u8)row->code[0] == 0x62 && !(row->how & CODE32))
		return (m->cpu->xcr0 & XCR0_AVX512) && cpu_has(m->cpu, FEAT_AVX512VL);
	return row->rule != RULE_SHA_ANY_ALIGNMENT || cpu_has(m->cpu, FEAT_SHA);
}

static void each_rule_is_followed_by_one_vendor(void **state)
{
	struct machine *m = *state;

	machine_load(m, "\xf4", 1); /* for the features */
	for (u32 i = 0; i < 4 * ARRAY_SIZE(rows); i++) {
		const struct row *row = &rows[i / 4];
		bool turned = i & 1;

		if (!host_can(m, row)) {
			if (i % 4 == 0)
				print_message("row %u: this host lacks its instruction\n", i / 4);
			continue;
		}
		m->cpu->is_amd = i & 2;
		m->cpu->port.foreign_rules = turned ? BIT(row->rule) : 0;
		expect(m, row, m->cpu->is_amd != turned ? &row->amd : &row->intel);
	}
	m->cpu->is_amd = false;
	m->cpu->port.foreign_rules = 0;
}

/* Of REPE CMPSB: Zen 3 does not follow Zen 4. */
static void a_model_may_differ_from_its_vendor(void **state)
{
	struct machine *m = *state;
	u64 exceptions = vendor_exceptions(model_find("milan"));

	assert_int_equal(exceptions, BIT(RULE_REP_CMPSB_SOURCE_FIRST));
	assert_int_equal(vendor_exceptions(model_find("genoa")), 0);
	m->cpu->is_amd = true;
	m->cpu->port.foreign_rules = exceptions;
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].rule == RULE_REP_CMPSB_SOURCE_FIRST)
			expect(m, &rows[i], &rows[i].intel);
	m->cpu->is_amd = false;
	m->cpu->port.foreign_rules = 0;
}

static bool has_row(enum vendor_rule rule)
{
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].rule == rule)
			return true;
	for (u32 i = 0; i < ARRAY_SIZE(elsewhere); i++)
		if (elsewhere[i] == rule)
			return true;
	return false;
}

static void no_rule_is_without_a_test(void **state)
{
	(void)state;
	for (u32 rule = 0; rule < NRULES; rule++)
		assert_true(has_row(rule));
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++)
		assert_true(rows[i].intel.vector != rows[i].amd.vector ||
			    rows[i].intel.value != rows[i].amd.value);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_rule_is_followed_by_one_vendor),
		cmocka_unit_test(a_model_may_differ_from_its_vendor),
		cmocka_unit_test(no_rule_is_without_a_test),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
