// SPDX-License-Identifier: MIT
/*
 * The XSAVE family: headers, alignment and what is initial. AVX-512's components and PKRU: where
 * each vendor's standard format and the compacted one have them, what is left out, what 32-bit code
 * does not reach; and the registers that instructions find in the image of the state. All but what
 * goes through the host's registers runs on any host.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/mode.h"
#include "engine/sys/fpu_image.h"
#include "unit/sys_cpu.h"

#define XSAVE	 0x48, 0x0f, 0xae, 0x27 /* xsave64 [rdi] */
#define XSAVEOPT 0x48, 0x0f, 0xae, 0x37
#define XSAVEC	 0x48, 0x0f, 0xc7, 0x27
#define XRSTOR	 0x48, 0x0f, 0xae, 0x2f
#define XRSTORS	 0x48, 0x0f, 0xc7, 0x1f
#define FXSAVE	 0x48, 0x0f, 0xae, 0x07
#define FXRSTOR	 0x48, 0x0f, 0xae, 0x0f
#define XGETBV	 0x0f, 0x01, 0xd0
#define XSAVE32	 0x0f, 0xae, 0x27 /* xsave [edi] */

#define ALL	     (XCR0_X87 | XCR0_SSE | XCR0_AVX | XCR0_AVX512)
#define COMPACT	     BIT(63)
#define AREA(offset) (*(u64 *)ram(0, offset))
#define UNTOUCHED    0x7777777777777777ull

#define XSTATE_BV (*(u64 *)(cpu->xsave + XSAVE_XSTATE_BV))

/* --- headers, alignment and what is initial --- */

static void ask_components(u64 mask)
{
	cpu->regs[RDI] = AT(0, 0);
	cpu->regs[RAX] = (u32)mask;
	cpu->regs[RDX] = mask >> 32;
}

static void xsave_and_xrstor_are_inverse(void **state)
{
	(void)state;
	set_ymm(3, 0x1111, 0x2222);
	ask_components(-1ull);
	AREA(XSAVE_XSTATE_BV) = BIT(62);
	assert_int_equal(EXECUTE(XSAVE), SYS_NEXT);
	assert_int_equal(AREA(XSAVE_XSTATE_BV), BIT(62) | XCR0_SSE | XCR0_AVX);
	assert_int_equal(AREA(XSAVE_XMM0 + 48), 0x1111);
	assert_int_equal(AREA(XSAVE_YMM0_HIGH + 48), 0x2222);
	set_ymm(3, 5, 6);
	AREA(XSAVE_XSTATE_BV) &= ~BIT(62);
	assert_int_equal(EXECUTE(XRSTOR), SYS_NEXT);
	assert_int_equal(*(u64 *)(cpu->xsave + XSAVE_XMM0 + 48), 0x1111);
	assert_int_equal(*(u64 *)(cpu->xsave + XSAVE_YMM0_HIGH + 48), 0x2222);
}

static void xrstor_refuses_bad_headers(void **state)
{
	static const struct {
		u32 at;
		u64 bits;
	} bad[] = {
		{ XSAVE_XSTATE_BV, BIT(9) },	  /* not in XCR0 */
		{ XSAVE_XCOMP_BV, 1 },		  /* not compacted, not 0 */
		{ XSAVE_XCOMP_BV + 8, 1 },	  /* reserved */
		{ XSAVE_MXCSR, 0xffff0000 },	  /* reserved in MXCSR */
		{ XSAVE_XCOMP_BV, BIT(63) | 32 }, /* compacted with a component not in XCR0 */
	};

	(void)state;
	ask_components(-1ull);
	for (u32 i = 0; i < ARRAY_SIZE(bad); i++) {
		memset(ram(0, 0), 0, XSAVE_END);
		AREA(bad[i].at) = bad[i].bits;
		assert_raised(EXECUTE(XRSTOR), VEC_GP);
		assert_int_equal(cpu->port.event.error, 0);
	}
	memset(ram(0, 0), 0, XSAVE_END);
	AREA(XSAVE_XCOMP_BV + 16) = 1; /* reserved, but only the compacted form looks */
	assert_int_equal(EXECUTE(XRSTOR), SYS_NEXT);
	AREA(XSAVE_XCOMP_BV) = BIT(63);
	assert_raised(EXECUTE(XRSTOR), VEC_GP);
	AREA(XSAVE_XCOMP_BV + 16) = 0;
	AREA(XSAVE_XSTATE_BV) = XCR0_SSE; /* not part of the format */
	assert_raised(EXECUTE(XRSTOR), VEC_GP);
	memset(ram(0, 0), 0, XSAVE_END);
	assert_raised(EXECUTE(XRSTORS), VEC_GP); /* only the compacted form */
}

static void xsave_areas_are_aligned(void **state)
{
	(void)state;
	ask_components(-1ull);
	cpu->regs[RDI] += 32;
	assert_raised(EXECUTE(XSAVE), VEC_GP);
	assert_int_equal(EXECUTE(FXSAVE), SYS_NEXT);
	cpu->regs[RDI] += 8;
	assert_raised(EXECUTE(FXSAVE), VEC_GP);
	cpu->cr0 |= CR0_TS;
	assert_raised(EXECUTE(XSAVE), VEC_NM);
	cpu->cr4 &= ~CR4_OSXSAVE;
	assert_int_equal(EXECUTE(XSAVE), SYS_UNKNOWN);
}

static void compaction_leaves_out_what_is_initial(void **state)
{
	(void)state;
	memset(ram(0, 0), 0x77, XSAVE_END);
	set_ymm(0, 0, 9);
	ask_components(XCR0_X87 | XCR0_SSE | XCR0_AVX);
	assert_int_equal(EXECUTE(XSAVEC), SYS_NEXT);
	assert_int_equal(AREA(XSAVE_XSTATE_BV), XCR0_AVX);
	assert_int_equal(AREA(XSAVE_XCOMP_BV), BIT(63) | 7);
	assert_int_equal(AREA(0), 0x7777777777777777);
	assert_int_equal(AREA(XSAVE_YMM0_HIGH), 9);
	*(u32 *)(cpu->xsave + XSAVE_MXCSR) = 0x1f00;
	assert_int_equal(EXECUTE(XSAVEC), SYS_NEXT);
	assert_int_equal(AREA(XSAVE_XSTATE_BV), XCR0_SSE | XCR0_AVX);
	assert_int_equal((u32)AREA(XSAVE_MXCSR), 0x1f00);
}

static void restoring_nothing_initialises(void **state)
{
	(void)state;
	set_ymm(2, 3, 4);
	memset(ram(0, 0), 0, XSAVE_END);
	AREA(XSAVE_MXCSR) = 0x1f80;
	ask_components(XCR0_AVX);
	assert_int_equal(EXECUTE(XRSTOR), SYS_NEXT);
	assert_int_equal(*(u64 *)(cpu->xsave + XSAVE_XMM0 + 32), 3);
	assert_int_equal(*(u64 *)(cpu->xsave + XSAVE_YMM0_HIGH + 32), 0);
	ask_components(XCR0_SSE);
	assert_int_equal(EXECUTE(XRSTOR), SYS_NEXT);
	assert_int_equal(*(u64 *)(cpu->xsave + XSAVE_XMM0 + 32), 0);
}

static void fxrstor_checks_mxcsr(void **state)
{
	(void)state;
	ask_components(0);
	assert_int_equal(EXECUTE(FXSAVE), SYS_NEXT);
	assert_int_equal(*(u16 *)ram(0, 0), 0x37f);
	AREA(XSAVE_XMM0) = 42;
	assert_int_equal(EXECUTE(FXRSTOR), SYS_NEXT);
	assert_int_equal(*(u64 *)(cpu->xsave + XSAVE_XMM0), 42);
	AREA(XSAVE_MXCSR) = BIT(31);
	assert_raised(EXECUTE(FXRSTOR), VEC_GP);
}

/* --- AVX-512 and PKRU --- */

static int setup(void **state)
{
	sys_cpu_setup(state);
	cpu->xcr0 = ALL;
	memset(ram(0, 0), 0x77, PAGE_SIZE);
	AREA(XSAVE_XSTATE_BV) = 0;
	cpu->regs[RDI] = AT(0, 0);
	cpu->regs[RAX] = ALL;
	return 0;
}

static void needs_host(void)
{
	if (cpu_priv(cpu)->host_fpu.features & XCR0_AVX512)
		return;
	print_message("the host has no AVX-512\n");
	skip();
}

/* K1, ZMM2 and ZMM19: one register of each component. */
static void set_registers(void)
{
	u8 bytes[VECTOR_MAX];

	sys_fpu_image(cpu);
	sys_opmask_write(cpu, 1, 0x1111);
	memset(bytes, 0x22, sizeof(bytes));
	sys_vector_write(cpu, 2, bytes);
	memset(bytes, 0x33, sizeof(bytes));
	sys_vector_write(cpu, 19, bytes);
}

static void assert_registers(void)
{
	u8 bytes[VECTOR_MAX], expected[VECTOR_MAX];

	assert_int_equal(sys_opmask_read(cpu, 1), 0x1111);
	memset(expected, 0x22, sizeof(expected));
	sys_vector_read(cpu, 2, bytes);
	assert_memory_equal(bytes, expected, sizeof(bytes));
	memset(expected, 0x33, sizeof(expected));
	sys_vector_read(cpu, 19, bytes);
	assert_memory_equal(bytes, expected, sizeof(bytes));
}

static void assert_area(u32 opmask, u32 zmm_hi256, u32 hi16_zmm)
{
	assert_int_equal(AREA(opmask + 8), 0x1111);
	assert_int_equal(AREA(zmm_hi256 + 2 * 32), 0x2222222222222222);
	assert_int_equal(AREA(hi16_zmm + 3 * 64), 0x3333333333333333);
}

/* SDM 1 13.4.3: 1088, 1152 and 1664 on every Intel processor. */
static void the_standard_format_of_intel_has_a_gap(void **state)
{
	(void)state;
	set_registers();
	assert_int_equal(EXECUTE(XSAVE), SYS_NEXT);
	assert_area(1088, 1152, 1664);
	assert_int_equal(AREA(832), UNTOUCHED);
	assert_int_equal(AREA(2688), UNTOUCHED);
	assert_int_equal(AREA(XSAVE_XSTATE_BV), ALL & ~XCR0_X87);
}

static void the_standard_format_of_amd_is_packed(void **state)
{
	(void)state;
	xstate_standard(&cpu->xstate, true, ALL);
	set_registers();
	assert_int_equal(EXECUTE(XSAVE), SYS_NEXT);
	assert_area(832, 896, 1408);
	assert_int_equal(AREA(2432), UNTOUCHED);
}

static void compaction_packs_what_is_asked_for(void **state)
{
	(void)state;
	set_registers();
	cpu->regs[RAX] = XCR0_OPMASK | XCR0_HI16_ZMM;
	assert_int_equal(EXECUTE(XSAVEC), SYS_NEXT);
	assert_int_equal(AREA(XSAVE_XSTATE_BV), XCR0_OPMASK | XCR0_HI16_ZMM);
	assert_int_equal(AREA(XSAVE_XCOMP_BV), COMPACT | XCR0_OPMASK | XCR0_HI16_ZMM);
	assert_int_equal(AREA(576 + 8), 0x1111);
	assert_int_equal(AREA(576 + 64 + 3 * 64), 0x3333333333333333);
	assert_int_equal(AREA(576 + 64 + 1024), UNTOUCHED);
}

static void what_is_initial_is_zero_or_left_out(void **state)
{
	(void)state;
	sys_fpu_image(cpu);
	sys_opmask_write(cpu, 1, 0x1111);
	memset(cpu->xsave + XSAVE_ZMM16, 0x99, 1024); /* not in XSTATE_BV: means nothing */
	assert_int_equal(EXECUTE(XSAVEOPT), SYS_NEXT);
	assert_int_equal(AREA(XSAVE_XSTATE_BV), XCR0_OPMASK);
	assert_int_equal(AREA(1664), UNTOUCHED);
	assert_int_equal(EXECUTE(XSAVE), SYS_NEXT);
	assert_int_equal(AREA(XSAVE_XSTATE_BV), XCR0_OPMASK);
	assert_int_equal(AREA(1664), 0);
	assert_int_equal(XSTATE_BV & XCR0_AVX512, XCR0_OPMASK);
	cpu->regs[RCX] = 1;
	assert_int_equal(EXECUTE(XGETBV), SYS_NEXT);
	assert_int_equal(cpu->regs[RAX], XCR0_OPMASK);
}

static void a_zero_written_is_initial(void **state)
{
	static const u8 zeros[VECTOR_MAX];

	(void)state;
	sys_fpu_image(cpu);
	sys_vector_write(cpu, 2, zeros);
	sys_vector_write(cpu, 19, zeros);
	assert_int_equal(XSTATE_BV & XCR0_AVX512, 0);
	set_registers();
	sys_vector_write(cpu, 2, zeros);
	sys_vector_write(cpu, 19, zeros);
	sys_opmask_write(cpu, 1, 0);
	assert_int_equal(sys_fpu_in_use(cpu), 0);
}

static void the_components_come_back(void **state)
{
	(void)state;
	needs_host();
	for (u32 i = 0; i < 4; i++) {
		bool compact = i & 1, is_amd = i & 2;

		xstate_standard(&cpu->xstate, is_amd, ALL);
		memset(ram(0, XSAVE_XSTATE_BV), 0, 64);
		set_registers();
		cpu->regs[RAX] = ALL;
		assert_int_equal(compact ? EXECUTE(XSAVEC) : EXECUTE(XSAVE), SYS_NEXT);
		XSTATE_BV &= ~XCR0_AVX512;
		assert_int_equal(EXECUTE(XRSTOR), SYS_NEXT);
		assert_registers();
		AREA(XSAVE_XSTATE_BV) &= ~XCR0_AVX512; /* initialises what is asked for */
		cpu->regs[RAX] = XCR0_OPMASK;
		assert_int_equal(EXECUTE(XRSTOR), SYS_NEXT);
		assert_int_equal(sys_opmask_read(cpu, 1), 0);
		assert_int_equal(sys_fpu_in_use(cpu) & XCR0_AVX512, XCR0_ZMM_HI256 | XCR0_HI16_ZMM);
	}
}

static void headers_name_only_what_xcr0_has(void **state)
{
	(void)state;
	memset(ram(0, 0), 0, PAGE_SIZE);
	cpu->xcr0 = ALL & ~XCR0_AVX512;
	cpu->regs[RAX] = ALL & ~XCR0_AVX512;
	AREA(XSAVE_XSTATE_BV) = XCR0_OPMASK;
	assert_raised(EXECUTE(XRSTOR), VEC_GP);
	AREA(XSAVE_XSTATE_BV) = 0;
	AREA(XSAVE_XCOMP_BV) = COMPACT | XCR0_HI16_ZMM;
	assert_raised(EXECUTE(XRSTOR), VEC_GP);
}

static void an_area_that_ends_in_nothing_faults_there(void **state)
{
	(void)state;
	cpu->regs[RDI] = AT(HOLE, -2048);
	assert_raised(EXECUTE(XSAVE), VEC_PF);
	assert_int_equal(cpu->port.event.payload, AT(HOLE, 0));
	memset(ram(NPAGES - 1, 2048), 0, 2048);
	*(u64 *)ram(NPAGES - 1, 2048 + XSAVE_XSTATE_BV) = XCR0_OPMASK | XCR0_HI16_ZMM;
	set_registers();
	assert_raised(EXECUTE(XRSTOR), VEC_PF);
	assert_registers(); /* a restore that faults changes nothing */
}

#define RDPKRU 0x0f, 0x01, 0xee
#define WRPKRU 0x0f, 0x01, 0xef

static void set_pkru(u32 value)
{
	cpu->regs[RAX] = value;
	cpu->regs[RCX] = cpu->regs[RDX] = 0;
	assert_int_equal(EXECUTE(WRPKRU), SYS_NEXT);
}

static void pkru_is_read_and_written_once_enabled(void **state)
{
	(void)state;
	cpu->regs[RCX] = cpu->regs[RDX] = 0;
	assert_int_equal(EXECUTE(RDPKRU), SYS_UNKNOWN);
	assert_int_equal(EXECUTE(WRPKRU), SYS_UNKNOWN);
	cpu->cr4 |= CR4_PKE;
	cpu->regs[RAX] = 0xffffffff12345678;
	assert_int_equal(EXECUTE(WRPKRU), SYS_NEXT);
	cpu->regs[RDX] = ~0ull;
	assert_raised(EXECUTE(WRPKRU), VEC_GP);
	assert_int_equal(EXECUTE(RDPKRU), SYS_NEXT);
	assert_int_equal(cpu->regs[RAX], 0x12345678);
	assert_int_equal(cpu->regs[RDX], 0);
	cpu->regs[RCX] = BIT(32); /* 32 bits of it count */
	assert_int_equal(EXECUTE(RDPKRU), SYS_NEXT);
	cpu->regs[RCX] = 1;
	assert_raised(EXECUTE(RDPKRU), VEC_GP);
	assert_raised(EXECUTE(WRPKRU), VEC_GP);
}

static void pkru_is_the_last_component(void **state)
{
	const u64 pkru = XCR0_X87 | XCR0_PKRU;

	(void)state;
	cpu->xcr0 = pkru;
	cpu->cr4 |= CR4_PKE;
	set_pkru(0x55555554);
	cpu->regs[RAX] = pkru;
	assert_int_equal(EXECUTE(XSAVE), SYS_NEXT);
	assert_int_equal(AREA(2688), 0x55555554);
	assert_int_equal(AREA(XSAVE_XSTATE_BV), XCR0_PKRU);
	xstate_standard(&cpu->xstate, true, pkru | XCR0_AVX); /* as milan has it */
	assert_int_equal(EXECUTE(XSAVE), SYS_NEXT);
	assert_int_equal(AREA(832), 0x55555554);
	assert_int_equal(EXECUTE(XSAVEC), SYS_NEXT);
	assert_int_equal(AREA(576), 0x55555554);
	AREA(576) = 0xdddddddd00000004;
	memset(ram(0, XSAVE_XCOMP_BV + 8), 0, 48);
	AREA(XSAVE_MXCSR) = 0x1f80;
	assert_int_equal(EXECUTE(XRSTOR), SYS_NEXT);
	assert_int_equal(cpu->pkru, 4);
	AREA(XSAVE_XSTATE_BV) = 0;
	assert_int_equal(EXECUTE(XRSTOR), SYS_NEXT);
	assert_int_equal(cpu->pkru, 0);
}

/* SDM 1 13.5.3, 13.5.6: 8 of the registers, and none of ZMM16 to ZMM31. */
static void code_of_32_bits_reaches_8_registers(void **state)
{
	u8 bytes[VECTOR_MAX];

	(void)state;
	set_registers();
	memset(bytes, 0x44, sizeof(bytes));
	sys_vector_write(cpu, 9, bytes);
	cpu->seg[CS].attr = (cpu->seg[CS].attr & ~SEG_L) | SEG_DB;
	cpu->seg[DS] = (struct segment){ .limit = ~0u, .attr = 3 | SEG_S | SEG_P | SEG_DB | SEG_G };
	cpu_update_mode(cpu);
	assert_int_equal(EXECUTE(XSAVE32), SYS_NEXT);
	assert_int_equal(AREA(1152 + 2 * 32), 0x2222222222222222);
	assert_int_equal(AREA(1152 + 9 * 32), UNTOUCHED);
	assert_int_equal(AREA(1664 + 3 * 64), UNTOUCHED);
	assert_int_equal(AREA(XSAVE_XSTATE_BV) & XCR0_AVX512, XCR0_OPMASK | XCR0_ZMM_HI256);
}

#define PLAIN(name) cmocka_unit_test_setup_teardown(name, sys_cpu_setup, sys_cpu_teardown)
#define T(name)	    cmocka_unit_test_setup_teardown(name, setup, sys_cpu_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		PLAIN(xsave_and_xrstor_are_inverse),
		PLAIN(xrstor_refuses_bad_headers),
		PLAIN(xsave_areas_are_aligned),
		PLAIN(compaction_leaves_out_what_is_initial),
		PLAIN(restoring_nothing_initialises),
		PLAIN(fxrstor_checks_mxcsr),
		T(the_standard_format_of_intel_has_a_gap),
		T(the_standard_format_of_amd_is_packed),
		T(compaction_packs_what_is_asked_for),
		T(what_is_initial_is_zero_or_left_out),
		T(a_zero_written_is_initial),
		T(the_components_come_back),
		T(headers_name_only_what_xcr0_has),
		T(an_area_that_ends_in_nothing_faults_there),
		T(code_of_32_bits_reaches_8_registers),
		T(pkru_is_read_and_written_once_enabled),
		T(pkru_is_the_last_component),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
