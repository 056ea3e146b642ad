// SPDX-License-Identifier: MIT
/*
 * Instructions that could fault in more than one way, or on processors of one vendor only: which
 * fault it is.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "cpu/control.h"
#include "engine/engine.h"
#include "guest/machine.h"
#include "x86/paging.h"

#define ALL	  (~0ull >> 1)
#define HOLE_HIGH ((IMAGE_HOLE >> 16) & 0xff)

/* Program code of 32 bits, whose data segment ends early. */
static const struct {
	u8 code[6];
	u32 limit; /* of DS */
	u32 vector;
} rows[] = {
	/* BOUND EAX, [hole]: the first bound is read before the second is found to be outside. */
	{ { 0x62, 0x05, 0x00, 0x00, HOLE_HIGH, 0x00 }, IMAGE_HOLE + 3, VEC_PF },
	{ { 0x62, 0x05, 0x00, 0x00, HOLE_HIGH, 0x00 }, IMAGE_HOLE + 2, VEC_GP },
	/* LES EAX and JMP FAR, [hole + 2] and [hole + 4]: a far pointer is aligned as its
	 * offset is. */
	{ { 0xc4, 0x05, 0x02, 0x00, HOLE_HIGH, 0x00 }, IMAGE_HOLE + 0xfff, VEC_AC },
	{ { 0xc4, 0x05, 0x04, 0x00, HOLE_HIGH, 0x00 }, IMAGE_HOLE + 0xfff, VEC_PF },
	{ { 0xff, 0x2d, 0x02, 0x00, HOLE_HIGH, 0x00 }, IMAGE_HOLE + 0xfff, VEC_AC },
	{ { 0xff, 0x2d, 0x04, 0x00, HOLE_HIGH, 0x00 }, IMAGE_HOLE + 0xfff, VEC_PF },
	/* FBLD [hole + 1]: it is misaligned before its page is looked for, if within the limit. */
	{ { 0xdf, 0x25, 0x01, 0x00, HOLE_HIGH, 0x00 }, IMAGE_HOLE + 0xfff, VEC_AC },
	{ { 0xdf, 0x25, 0x01, 0x00, HOLE_HIGH, 0x00 }, IMAGE_HOLE + 9, VEC_AC },
	{ { 0xdf, 0x25, 0x01, 0x00, HOLE_HIGH, 0x00 }, IMAGE_HOLE + 7, VEC_GP },
	/* The same, aligned: of its two parts the first is not there, the second outside. */
	{ { 0xdf, 0x25, 0x00, 0x00, HOLE_HIGH, 0x00 }, IMAGE_HOLE + 8, VEC_PF },
};

static void user_code32(struct cpu *cpu, u32 limit)
{
	for (u32 i = 0; i < NSEGS; i++) {
		cpu->seg[i].sel = i == CS ? IMAGE_UCS32 : IMAGE_UDS;
		cpu->seg[i].attr |= SEG_DPL;
	}
	cpu->seg[CS].attr = (cpu->seg[CS].attr & ~(u32)SEG_L) | SEG_DB;
	cpu->seg[DS].limit = limit;
	cpu->cpl = 3;
	cpu->cr0 |= CR0_AM;
	cpu->rflags |= FL_AC;
	cpu->regs[RSP] = IMAGE_USER_STACK;
	cpu_state_changed(cpu);
}

static u32 vector_of_stub(const struct cpu *cpu)
{
	return (cpu->rip - IMAGE_STUBS) / IMAGE_STUB_SIZE;
}

static void the_first_of_several_faults_is_raised(void **state)
{
	struct machine *m = *state;

	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		machine_load(m, rows[i].code, sizeof(rows[i].code));
		*(u64 *)(m->ram + IMAGE_PT + (IMAGE_HOLE >> PAGE_SHIFT) * 8) = 0;
		user_code32(m->cpu, rows[i].limit);
		assert_int_equal(machine_run(m, ALL), EXIT_HLT);
		assert_int_equal(vector_of_stub(m->cpu), rows[i].vector);
	}
}

#define FAR	  BIT(47) /* added to an address it is not canonical */
#define CODE_SIZE 8

/* MOV RAX, [RCX]; MOV RAX, GS:[RBX or RSI]; HLT. The first access has the page in the TLB. */
static const struct {
	u8 code[CODE_SIZE];
	u8 reg;
	bool is_amd;
} far_rows[] = {
	{ { 0x48, 0x8b, 0x01, 0x65, 0x48, 0x8b, 0x03, 0xf4 }, RBX, false },
	{ { 0x48, 0x8b, 0x01, 0x65, 0x48, 0x8b, 0x06, 0xf4 }, RSI, true },
};

static void only_amd_wants_canonical_offsets(void **state)
{
	struct machine *m = *state;
	bool was_amd = m->cpu->is_amd;

	for (u32 i = 0; i < ARRAY_SIZE(far_rows); i++) {
		machine_load(m, far_rows[i].code, CODE_SIZE);
		*(u64 *)(m->ram + IMAGE_DATA) = 0x1234;
		m->cpu->is_amd = far_rows[i].is_amd;
		m->cpu->seg[GS].base = -FAR;
		m->cpu->regs[RCX] = IMAGE_DATA + 8;
		m->cpu->regs[far_rows[i].reg] = IMAGE_DATA + FAR;
		assert_int_equal(machine_run(m, ALL), EXIT_HLT);
		if (far_rows[i].is_amd) {
			assert_int_equal(vector_of_stub(m->cpu), VEC_GP);
		} else {
			assert_int_equal(m->cpu->rip, IMAGE_CODE + CODE_SIZE);
			assert_int_equal(m->cpu->regs[RAX], 0x1234);
		}
	}
	m->cpu->is_amd = was_amd;
}

/*
 * Instructions that Zydis knows and every processor that is modelled raises #UD for, and HLT: those
 * of Knights Corner, whose opcodes are those of JZ, JNZ and PREFETCH; transactions, which the host
 * may have; 3DNow!
 */
static const u8 other_processors[][8] = {
	{ 0xc5, 0xf8, 0x84, 0x00, 0x00, 0x00, 0x00, 0xf4 }, /* JKZD K0, to the HLT */
	{ 0xc5, 0xf8, 0x85, 0x00, 0x00, 0x00, 0x00, 0xf4 }, /* JKNZD */
	{ 0xc5, 0xf8, 0x18, 0x0c, 0x24, 0xf4 },		    /* VPREFETCH0 [RSP] */
	{ 0xc5, 0xf8, 0x18, 0x04, 0x24, 0xf4 },		    /* VPREFETCHNTA [RSP] */
	{ 0xc7, 0xf8, 0x00, 0x00, 0x00, 0x00, 0xf4 },	    /* XBEGIN, to the HLT */
	{ 0xc6, 0xf8, 0x00, 0xf4 },			    /* XABORT */
	{ 0x0f, 0x01, 0xd5, 0xf4 },			    /* XEND */
	{ 0x0f, 0x01, 0xd6, 0xf4 },			    /* XTEST */
	{ 0x0f, 0x0e, 0xf4 },				    /* FEMMS */
	{ 0x0f, 0x0f, 0xc0, 0x9e, 0xf4 },		    /* PFADD MM0, MM0 */
};

static void instructions_of_other_processors_are_undefined(void **state)
{
	struct machine *m = *state;

	for (u32 i = 0; i < ARRAY_SIZE(other_processors); i++) {
		machine_load(m, other_processors[i], sizeof(other_processors[i]));
		assert_int_equal(machine_run(m, ALL), EXIT_HLT);
		assert_int_equal(vector_of_stub(m->cpu), VEC_UD);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_of_several_faults_is_raised),
		cmocka_unit_test(only_amd_wants_canonical_offsets),
		cmocka_unit_test(instructions_of_other_processors_are_undefined),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
