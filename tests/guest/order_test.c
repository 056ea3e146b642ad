// SPDX-License-Identifier: MIT
/*
 * Instructions that could fault in more than one way: which fault it is. Program code of 32 bits,
 * whose data segment ends early.
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

static const struct {
	u8 code[6];
	u32 limit; /* of DS */
	u32 vector;
} rows[] = {
	/* BOUND EAX, [hole]: the first bound is read before the second is found to be outside. */
	{ { 0x62, 0x05, 0x00, 0x00, HOLE_HIGH, 0x00 }, IMAGE_HOLE + 3, VEC_PF },
	{ { 0x62, 0x05, 0x00, 0x00, HOLE_HIGH, 0x00 }, IMAGE_HOLE + 2, VEC_GP },
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

static void the_first_of_several_faults_is_raised(void **state)
{
	struct machine *m = *state;

	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		machine_load(m, rows[i].code, sizeof(rows[i].code));
		*(u64 *)(m->ram + IMAGE_PT + (IMAGE_HOLE >> PAGE_SHIFT) * 8) = 0;
		user_code32(m->cpu, rows[i].limit);
		assert_int_equal(machine_run(m, ALL), EXIT_HLT);
		assert_int_equal(m->cpu->rip & ~(u64)(IMAGE_STUB_SIZE - 1),
				 IMAGE_STUBS + rows[i].vector * IMAGE_STUB_SIZE);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_first_of_several_faults_is_raised),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
