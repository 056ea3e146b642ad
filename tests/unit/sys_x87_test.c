// SPDX-License-Identifier: MIT
/*
 * FNSTENV, FLDENV, FNSAVE and FRSTOR against the host's x87: the same state in both, all but the
 * pointers compared.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/fpu.h"
#include "cpu/mode.h"
#include "unit/sys_cpu.h"

/* All with the operand at [rdi] */
#define FLDENV	  0xd9, 0x27
#define FNSTENV	  0xd9, 0x37
#define FRSTOR	  0xdd, 0x27
#define FNSAVE	  0xdd, 0x37
#define FNSTENV16 0x66, 0xd9, 0x37
#define FRSTOR16  0x66, 0xdd, 0x27
#define FNSAVE16  0x66, 0xdd, 0x37

#define FSW_ES BIT(7)

struct environment {
	u32 fcw, fsw, ftw, fip, fcs, fdp, fds;
};

struct image {
	struct environment env;
	u8 st[8][10];
};

struct image16 {
	u16 fcw, fsw, ftw, pointers[4];
	u8 st[8][10];
};

struct fxsave {
	u16 fcw, fsw, ftw, fop;
	u64 fip, fdp;
	u32 mxcsr, mxcsr_mask;
	u8 st[8][16];
	u8 rest[512 - 160];
} __attribute__((aligned(16)));

/* The kinds of value that tags tell apart, and more than one of each. */
static const u8 values[][10] = {
	{ 0 },
	{ [9] = 0x80 },							/* -0 */
	{ [7] = 0x80, [8] = 0xff, [9] = 0x3f },				/* 1 */
	{ 0x35, 0xc2, 0x68, 0x21, 0xa2, 0xda, 0x0f, 0xc9, 0x00, 0x40 }, /* pi */
	{ [0] = 1 },							/* denormal */
	{ [7] = 0x80 },							/* pseudo-denormal */
	{ [7] = 0x40, [8] = 1 },					/* unnormal */
	{ [7] = 0x80, [8] = 0xff, [9] = 0x7f },				/* infinity */
	{ [7] = 0xc0, [8] = 0xff, [9] = 0xff },				/* the default NaN */
};

static u32 next_random(u32 *seed)
{
	*seed = *seed * 1664525 + 1013904223;
	return *seed >> 8;
}

/* Exceptions stay masked: these states are loaded into the host's x87, too. */
static void random_state(u32 *seed, struct image *out)
{
	memset(out, 0, sizeof(*out));
	out->env.fcw = next_random(seed) | 0x3f;
	out->env.fsw = next_random(seed);
	out->env.ftw = next_random(seed);
	for (u32 i = 0; i < 8; i++)
		memcpy(out->st[i], values[next_random(seed) % ARRAY_SIZE(values)], 10);
}

static void native_restore(const struct image *image, struct fxsave *fx)
{
	__asm__ volatile("frstor %1; fxsave64 %0; fninit" : "=m"(*fx) : "m"(*image));
	fx->fop = 0;
	fx->fip = fx->fdp = 0;
}

static void set_state(const struct fxsave *fx)
{
	memcpy(cpu->xsave, fx, XSAVE_MXCSR);
	memcpy(cpu->xsave + XSAVE_ST0, fx->st, sizeof(fx->st));
	*(u64 *)(cpu->xsave + XSAVE_XSTATE_BV) |= XCR0_X87;
}

static void assert_state(const struct fxsave *fx)
{
	assert_memory_equal(cpu->xsave, fx, XSAVE_MXCSR);
	assert_memory_equal(cpu->xsave + XSAVE_ST0, fx->st, sizeof(fx->st));
}

static void restored_state_is_what_the_processor_makes_of_it(void **state)
{
	u32 seed = 1;

	(void)state;
	cpu->regs[RDI] = AT(0, 0);
	for (u32 i = 0; i < 200; i++) {
		struct image image;
		struct fxsave fx;

		random_state(&seed, &image);
		native_restore(&image, &fx);
		memcpy(ram(0, 0), &image, sizeof(image));
		assert_int_equal(EXECUTE(FRSTOR), SYS_NEXT);
		assert_state(&fx);
	}
}

static void saved_state_is_what_the_processor_saves(void **state)
{
	u32 seed = 2;

	(void)state;
	cpu->regs[RDI] = AT(0, 0);
	for (u32 i = 0; i < 200; i++) {
		struct image image, native;
		struct fxsave fx, after;

		random_state(&seed, &image);
		native_restore(&image, &fx);
		__asm__ volatile("frstor %2; fnsave %0; fxsave64 %1; fninit"
				 : "=m"(native), "=m"(after)
				 : "m"(image));
		set_state(&fx);
		assert_int_equal(EXECUTE(FNSAVE), SYS_NEXT);
		assert_memory_equal(ram(0, 0), &native, sizeof(native));
		after.fop = 0;
		after.fip = after.fdp = 0;
		assert_state(&after);
	}
}

static void the_old_layout_has_words(void **state)
{
	u32 seed = 3;

	(void)state;
	cpu->regs[RDI] = AT(0, 0);
	for (u32 i = 0; i < 50; i++) {
		struct image image;
		struct image16 native;
		struct fxsave fx;

		random_state(&seed, &image);
		native_restore(&image, &fx);
		__asm__ volatile("frstor %1; data16 fnsave %0" : "=m"(native) : "m"(image));
		set_state(&fx);
		assert_int_equal(EXECUTE(FNSAVE16), SYS_NEXT);
		assert_memory_equal(ram(0, 0), &native, sizeof(native));
		assert_int_equal(EXECUTE(FRSTOR16), SYS_NEXT);
		assert_state(&fx);
	}
	memset(ram(0, 0), 0xee, 32);
	assert_int_equal(EXECUTE(FNSTENV16), SYS_NEXT);
	assert_int_equal(*ram(0, 14), 0xee);
}

static void environments_leave_the_registers_where_they_are(void **state)
{
	u32 seed = 4;

	(void)state;
	cpu->regs[RDI] = AT(0, 0);
	for (u32 i = 0; i < 50; i++) {
		struct image image, other;
		struct fxsave fx, after;

		random_state(&seed, &image);
		random_state(&seed, &other);
		native_restore(&image, &fx);
		__asm__ volatile("frstor %1; fldenv %2; fxsave64 %0; fninit"
				 : "=m"(after)
				 : "m"(image), "m"(other.env));
		after.fop = 0;
		after.fip = after.fdp = 0;
		set_state(&fx);
		memcpy(ram(0, 0), &other.env, sizeof(other.env));
		assert_int_equal(EXECUTE(FLDENV), SYS_NEXT);
		assert_state(&after);
	}
}

static u16 *word(u32 at)
{
	return (u16 *)(cpu->xsave + at);
}

/* Zero divide, flagged and unmasked */
static void set_pending(void)
{
	*word(XSAVE_FCW) = 0x37b;
	*word(XSAVE_FSW) = 0x8084;
	*(u64 *)(cpu->xsave + XSAVE_XSTATE_BV) |= XCR0_X87;
	cpu->regs[RDI] = AT(0, 0);
}

static void loading_waits_and_storing_does_not(void **state)
{
	(void)state;
	set_pending();
	assert_raised(EXECUTE(FLDENV), VEC_MF);
	assert_raised(EXECUTE(FRSTOR), VEC_MF);
	assert_int_equal(EXECUTE(FNSTENV), SYS_NEXT);
	assert_int_equal(*(u16 *)ram(0, 0), 0x37b);
	assert_int_equal(*(u16 *)ram(0, 4), 0x8084);
	assert_int_equal(*word(XSAVE_FCW), 0x37f);
	assert_int_equal(*word(XSAVE_FSW), 4); /* masked now: nothing is pending */
	assert_int_equal(EXECUTE(FLDENV), SYS_NEXT);
	assert_int_equal(*word(XSAVE_FSW), 0x8084);
}

static void a_fault_comes_behind_a_pending_exception_and_changes_nothing(void **state)
{
	(void)state;
	set_pending();
	cpu->regs[RDI] = AT(HOLE, -20);
	assert_raised(EXECUTE(FRSTOR), VEC_MF);
	assert_raised(EXECUTE(FNSAVE), VEC_PF);
	assert_raised(EXECUTE(FNSTENV), VEC_PF);
	assert_int_equal(cpu->port.event.payload, AT(HOLE, 0));
	assert_int_equal(*word(XSAVE_FCW), 0x37b);
	assert_int_equal(*word(XSAVE_FSW), 0x8084);
}

static void alignment_is_that_of_the_operand_size(void **state)
{
	(void)state;
	cpu->cr0 |= CR0_AM;
	cpu->rflags |= FL_AC;
	to_user_mode();
	cpu->regs[RDI] = AT(0, 2);
	assert_raised(EXECUTE(FNSAVE), VEC_AC);
	assert_int_equal(EXECUTE(FNSAVE16), SYS_NEXT);
	cpu->regs[RDI] = AT(0, 4);
	assert_int_equal(EXECUTE(FNSAVE), SYS_NEXT);
	cpu->regs[RDI] = AT(HOLE, 1);
	assert_raised(EXECUTE(FNSTENV), VEC_AC);
}

/* SDM 1 figure 8-11: other fields are words there. Only what is stored depends on the mode. */
static void real_mode_has_its_own_layout(void **state)
{
	static const u32 expected[7] = { 0xffff037f, 0xffff0000, 0xffffffff, 0xffff0000,
					 0,	     0xffff0000, 0 };

	(void)state;
	cpu_priv(cpu)->mode &= ~(u32)MODE_PROT;
	cpu->regs[RDI] = AT(0, 0);
	assert_int_equal(EXECUTE(FNSTENV), SYS_NEXT);
	assert_memory_equal(ram(0, 0), expected, sizeof(expected));
}

#define T(name) cmocka_unit_test_setup_teardown(name, sys_cpu_setup, sys_cpu_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(restored_state_is_what_the_processor_makes_of_it),
		T(saved_state_is_what_the_processor_saves),
		T(the_old_layout_has_words),
		T(environments_leave_the_registers_where_they_are),
		T(loading_waits_and_storing_does_not),
		T(a_fault_comes_behind_a_pending_exception_and_changes_nothing),
		T(alignment_is_that_of_the_operand_size),
		T(real_mode_has_its_own_layout),
	};

	paged_cpu_catch_faults();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
