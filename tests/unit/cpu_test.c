// SPDX-License-Identifier: MIT
/*
 * struct cpu by itself: creation in numbers, reset, the mode word, segmentation, and vector state
 * going to the host's registers and back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "cpu/fpu.h"
#include "cpu/mode.h"
#include "unit/paged_cpu.h"
#include "x86/descriptor.h"

#define DATA  (TYPE_WRITABLE | SEG_S | SEG_P)
#define DATA4 (DATA | SEG_DB | SEG_G)
#define CODE  (TYPE_CODE | TYPE_WRITABLE | SEG_S | SEG_P)
#define NOCAN 0x800000000000ull

static void a_thousand_cpus_cost_little(void **state)
{
	static struct cpu *cpus[1024];
	unsigned char resident[8];

	(void)state;
	/* Huge pages, which some hosts give to all, are touched as a whole. */
	assert_int_equal(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0);
	for (u32 i = 0; i < ARRAY_SIZE(cpus); i++) {
		cpus[i] = cpu_create();
		assert_non_null(cpus[i]);
		assert_int_equal((uintptr_t)cpus[i] % 64, 0);
		cpu_priv(cpus[i])->code = code_create();
		assert_non_null(cpu_priv(cpus[i])->code);
	}
	/* The jump table is untouched, and so takes no memory. */
	assert_int_equal(mincore((void *)(((uintptr_t)cpu_priv(cpus[7])->jump + 4095) & PAGE_MASK),
				 8 * PAGE_SIZE, resident),
			 0);
	for (u32 i = 0; i < ARRAY_SIZE(resident); i++)
		assert_int_equal(resident[i] & 1, 0);
	for (u32 i = 0; i < ARRAY_SIZE(cpus); i++) {
		code_destroy(cpu_priv(cpus[i])->code);
		cpu_destroy(cpus[i]);
	}
	prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
}

static void a_cpu_starts_at_the_reset_vector(void **state)
{
	struct cpu *cpu = cpu_create();

	(void)state;
	for (u32 again = 0; again < 2; again++) {
		assert_int_equal(cpu->seg[CS].base + cpu->rip, 0xfffffff0);
		assert_int_equal(cpu->cr0, 0x60000010);
		assert_int_equal(cpu->rflags, 2);
		assert_int_equal(cpu->dr6, 0xffff0ff0);
		assert_int_equal(cpu->dr7, 0x400);
		assert_int_equal(cpu->xcr0, 1);
		assert_int_equal(cpu_priv(cpu)->mode, MODE_USER_OK | MODE_IOPL_OK | MODE_TSC);
		assert_int_equal(*(u32 *)(cpu->xsave + XSAVE_MXCSR), 0x1f80);
		cpu->cr0 = cpu->rip = cpu->rflags = cpu->dr6 = cpu->xcr0 = 0x155;
		cpu->cpl = 3;
		cpu_reset(cpu);
	}
	cpu_destroy(cpu);
}

/* --- segmentation --- */

enum { REAL, PROT, LONG }; /* LONG: 64-bit code */

static const struct linear_row {
	u8 mode;
	enum seg seg;
	u64 base;
	u32 limit, attr;
	u64 offset;
	u32 size, access;
	int vector; /* -1: none */
	gva_t gva;
} linear_rows[] = {
	{ LONG, DS, 0x1000, 0, SEG_UNUSABLE, 0x123, 8, 0, -1, 0x123 },
	{ LONG, FS, 0x1000, 0, SEG_UNUSABLE, 0x123, 8, 0, -1, 0x1123 },
	{ LONG, GS, -0x1000ull, 0, 0, 0x123, 8, 0, -1, -0x1000ull + 0x123 },
	{ LONG, DS, 0, 0, 0, NOCAN, 1, 0, VEC_GP, 0 },
	{ LONG, SS, 0, 0, 0, NOCAN, 1, 0, VEC_SS, 0 },
	{ LONG, FS, NOCAN - 4, 0, 0, 4, 1, 0, VEC_GP, 0 },
	{ LONG, DS, 0, 0, 0, NOCAN - 8, 8, 0, -1, NOCAN - 8 },
	{ LONG, DS, 0, 0, 0, NOCAN - 7, 8, 0, VEC_GP, 0 },
	{ LONG, SS, 0, 0, 0, -NOCAN, 8, 0, -1, -NOCAN },
	{ LONG, SS, 0, 0, 0, -NOCAN - 1, 1, 0, VEC_SS, 0 },
	{ LONG, DS, 0, 0, 0, -4ull, 8, 0, -1, -4ull }, /* around the end of everything */
	{ PROT, DS, 0x1000, 0xfff, DATA, 0xff8, 8, 0, -1, 0x1ff8 },
	{ PROT, DS, 0x1000, 0xfff, DATA, 0xff9, 8, 0, VEC_GP, 0 },
	{ PROT, SS, 0x1000, 0xfff, DATA, 0xff9, 8, ACCESS_WRITE, VEC_SS, 0 },
	{ PROT, DS, 0x1000, 0xfff, DATA | SEG_UNUSABLE, 0, 1, 0, VEC_GP, 0 },
	{ PROT, DS, 0xfffff000, 0xffffffff, DATA4, 0x2000, 4, 0, -1, 0x1000 },
	{ PROT, DS, 0, 0xffffffff, DATA4, 0xfffffffe, 4, 0, -1, 0xfffffffe }, /* Intel */
	{ PROT, DS, 0, 0xfffffffe, DATA4, 0xfffffffc, 4, 0, VEC_GP, 0 },
	{ PROT, DS, 0, 0xfff, SEG_S | SEG_P, 0, 4, 0, -1, 0 },
	{ PROT, DS, 0, 0xfff, SEG_S | SEG_P, 0, 4, ACCESS_WRITE, VEC_GP, 0 },
	{ PROT, CS, 0, 0xfff, CODE, 0, 4, 0, -1, 0 },
	{ PROT, CS, 0, 0xfff, CODE, 0, 4, ACCESS_WRITE, VEC_GP, 0 },
	{ PROT, CS, 0, 0xfff, CODE & ~TYPE_WRITABLE, 0, 4, 0, VEC_GP, 0 },
	{ PROT, CS, 0, 0xfff, CODE & ~TYPE_WRITABLE, 0, 4, ACCESS_FETCH, -1, 0 },
	{ PROT, CS, 0, 0xfff, CODE, 0x1000, 1, ACCESS_FETCH, VEC_GP, 0 },
	/* Expand-down: above the limit, up to 64K or 4G. */
	{ PROT, DS, 0, 0xfff, DATA | TYPE_EXPAND_DOWN, 0xfff, 1, 0, VEC_GP, 0 },
	{ PROT, DS, 0, 0xfff, DATA | TYPE_EXPAND_DOWN, 0x1000, 1, 0, -1, 0x1000 },
	{ PROT, DS, 0, 0xfff, DATA | TYPE_EXPAND_DOWN, 0xfffc, 4, 0, -1, 0xfffc },
	{ PROT, DS, 0, 0xfff, DATA | TYPE_EXPAND_DOWN, 0xfffd, 4, 0, VEC_GP, 0 },
	{ PROT, SS, 0, 0xfff, DATA4 | TYPE_EXPAND_DOWN, 0xfffd, 4, 0, -1, 0xfffd },
	{ PROT, SS, 0, 0xffffffff, DATA4 | TYPE_EXPAND_DOWN, 0xfffd, 4, 0, VEC_SS, 0 },
	{ REAL, CS, 0xf0000, 0xffff, CODE, 4, 4, ACCESS_WRITE, -1, 0xf0004 },
	{ REAL, DS, 0xffff0, 0xffff, DATA, 0xffff, 1, 0, -1, 0x10ffef },
	{ REAL, DS, 0, 0xffff, DATA, 0xffff, 2, 0, VEC_GP, 0 },
	{ REAL, SS, 0, 0xffff, DATA, 0xffff, 2, 0, VEC_SS, 0 },
};

static void check_linear(const struct linear_row *row)
{
	struct cpu *cpu = cpu_create();
	enum guest_fault fault;
	gva_t gva = 0;

	cpu->cr0 = row->mode == REAL ? 0 : CR0_PE;
	if (row->mode == LONG) {
		cpu->efer = EFER_LMA;
		cpu->seg[CS].attr |= SEG_L;
	}
	cpu->seg[row->seg].base = row->base;
	cpu->seg[row->seg].limit = row->limit;
	if (row->mode != LONG || row->seg != CS)
		cpu->seg[row->seg].attr = row->attr;
	fault = cpu_linear(cpu, row->seg, row->offset, row->size, row->access, &gva);
	if ((fault == FAULT_NONE) != (row->vector < 0))
		print_error("row %td\n", row - linear_rows);
	assert_int_equal(fault, row->vector < 0 ? FAULT_NONE : FAULT_RAISED);
	if (fault) {
		assert_int_equal(cpu->port.event.vector, row->vector);
		assert_int_equal(cpu->port.event.error, 0);
	} else {
		assert_int_equal(gva, row->gva);
	}
	cpu_destroy(cpu);
}

static void segments_check_by_the_table(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(linear_rows); i++)
		check_linear(&linear_rows[i]);
}

static void five_levels_widen_the_addresses(void **state)
{
	struct cpu *cpu = cpu_create();

	(void)state;
	assert_false(cpu_canonical(cpu, NOCAN));
	assert_true(cpu_canonical(cpu, NOCAN - 1) && cpu_canonical(cpu, -NOCAN));
	cpu->cr4 = CR4_LA57;
	assert_true(cpu_canonical(cpu, NOCAN) && cpu_canonical(cpu, BIT(56) - 1));
	assert_false(cpu_canonical(cpu, BIT(56)));
	cpu_destroy(cpu);
}

/* --- the mode word --- */

static void the_mode_word_follows_the_registers(void **state)
{
	struct paged_cpu p;

	(void)state;
	paged_cpu_init(&p, FORMAT_4LEVEL);
	assert_int_equal(cpu_priv(p.cpu)->mode, MODE_CODE64 | MODE_FLAT | MODE_LONG | MODE_PROT |
							MODE_USER_OK | MODE_IOPL_OK | MODE_TSC);
	p.cpu->cr4 |= CR4_SMAP | CR4_OSFXSR | CR4_OSXSAVE;
	p.cpu->xcr0 = 7;
	p.cpu->cr0 |= CR0_TS | CR0_AM;
	cpu_update_mode(p.cpu);
	assert_int_equal(cpu_priv(p.cpu)->mode, MODE_CODE64 | MODE_FLAT | MODE_LONG | MODE_PROT |
							MODE_IOPL_OK | MODE_TSC | MODE_SSE |
							MODE_AVX | MODE_FPU_TS);
	assert_int_equal(cpu_tlb_set(cpu_priv(p.cpu)->mode), TLB_KERNEL);
	p.cpu->rflags |= FL_AC;
	cpu_update_mode(p.cpu);
	assert_int_equal(cpu_tlb_set(cpu_priv(p.cpu)->mode), TLB_KERNEL_AC);
	assert_false(cpu_priv(p.cpu)->mode & MODE_ALIGN);
	p.cpu->cpl = 3;
	cpu_update_mode(p.cpu);
	assert_int_equal(cpu_tlb_set(cpu_priv(p.cpu)->mode), TLB_USER);
	assert_true(cpu_priv(p.cpu)->mode & MODE_ALIGN);
	assert_false(cpu_priv(p.cpu)->mode & (MODE_IOPL_OK | MODE_USER_OK));
	p.cpu->rflags |= FL_IOPL | FL_TF;
	cpu_update_mode(p.cpu);
	assert_true((cpu_priv(p.cpu)->mode & MODE_IOPL_OK) && (cpu_priv(p.cpu)->mode & MODE_STEP));
	paged_cpu_free(&p);
}

static void flat_means_flat_and_usable(void **state)
{
	struct paged_cpu p;

	(void)state;
	paged_cpu_init(&p, FORMAT_NONE);
	for (u32 seg = 0; seg < NSEGS; seg++) {
		p.cpu->seg[seg].base = 0;
		p.cpu->seg[seg].limit = 0xffffffff;
		p.cpu->seg[seg].attr = seg == CS ? CODE | SEG_DB : DATA4;
	}
	cpu_update_mode(p.cpu);
	assert_int_equal(cpu_priv(p.cpu)->mode & (MODE_FLAT | MODE_CODE32 | MODE_STACK32),
			 MODE_FLAT | MODE_CODE32 | MODE_STACK32);
	p.cpu->seg[ES].attr |= SEG_UNUSABLE;
	cpu_update_mode(p.cpu);
	assert_false(cpu_priv(p.cpu)->mode & MODE_FLAT);
	p.cpu->seg[ES].attr = DATA4 & ~TYPE_WRITABLE;
	cpu_update_mode(p.cpu);
	assert_false(cpu_priv(p.cpu)->mode & MODE_FLAT);
	paged_cpu_free(&p);
}

/* --- vector state --- */

static void vector_state_goes_round(void **state)
{
	struct cpu *cpu = cpu_create();
	struct cpu_priv *priv = cpu_priv(cpu);
	u8 before[XSAVE_END];
	u32 host_mxcsr, mxcsr;
	u16 host_fcw, fcw;

	(void)state;
	for (u32 i = 0; i < 128; i++)
		cpu->xsave[XSAVE_XMM0 + i] = cpu->xsave[XSAVE_YMM0_HIGH + i] = i + 1;
	memset(cpu->xsave + XSAVE_ST0, 0x3f, 10);
	*(u16 *)(cpu->xsave + XSAVE_FCW) = 0x27f;
	cpu->xsave[4] = 0x80; /* FTW: ST0 is R7 when TOP is 7 */
	*(u16 *)(cpu->xsave + 2) = 7 << 11;
	*(u32 *)(cpu->xsave + XSAVE_MXCSR) = 0x9fc0;
	cpu->xsave[XSAVE_XSTATE_BV] = 7 & priv->host_fpu.features;
	memcpy(before, cpu->xsave, sizeof(before));
	__asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(host_mxcsr), "=m"(host_fcw));
	fpu_load(cpu);
	__asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
	/* general registers only: memset() would change what is live */
	bytes_fill(cpu->xsave + XSAVE_ST0, 0, XSAVE_XSTATE_BV - XSAVE_ST0);
	fpu_load(cpu); /* live: does nothing */
	fpu_save(cpu);
	assert_int_equal(mxcsr, 0x9fc0);
	assert_memory_equal(cpu->xsave + XSAVE_XMM0, before + XSAVE_XMM0, 256);
	if (priv->host_fpu.features & XCR0_AVX)
		assert_memory_equal(cpu->xsave + XSAVE_YMM0_HIGH, before + XSAVE_YMM0_HIGH, 256);
	assert_memory_equal(cpu->xsave + XSAVE_ST0, before + XSAVE_ST0, 10);
	assert_memory_equal(cpu->xsave, before, 5);
	__asm__ volatile("stmxcsr %0; fnstcw %1" : "=m"(mxcsr), "=m"(fcw));
	assert_int_equal(mxcsr, host_mxcsr);
	assert_int_equal(fcw, host_fcw);
	cpu_destroy(cpu);
}

#define XSTATE_BV(cpu) (*(u64 *)((cpu)->xsave + XSAVE_XSTATE_BV))

static bool has_avx512(const struct cpu *cpu)
{
	if (cpu_priv(cpu)->host_fpu.features & XCR0_AVX512)
		return true;
	print_message("the host has no AVX-512\n");
	return false;
}

/* In the host's registers each piece is where an instruction finds it. */
static void avx512_state_goes_round(void **state)
{
	struct cpu *cpu = cpu_create();
	u8 before[XSAVE_END], zmm5[64], zmm17[64];
	u64 k3;

	(void)state;
	if (!has_avx512(cpu)) {
		cpu_destroy(cpu);
		skip();
	}
	for (u32 i = XSAVE_YMM0_HIGH; i < XSAVE_END; i++)
		cpu->xsave[i] = i * 7 + (i >> 8);
	XSTATE_BV(cpu) = cpu_priv(cpu)->host_fpu.features;
	memcpy(before, cpu->xsave, sizeof(before));
	fpu_load(cpu);
	__asm__ volatile("vmovdqu64 %%zmm5, %0; vmovdqu64 %%zmm17, %1; kmovq %%k3, %2"
			 : "=m"(zmm5), "=m"(zmm17), "=m"(k3));
	bytes_fill(cpu->xsave + XSAVE_YMM0_HIGH, 0, XSAVE_END - XSAVE_YMM0_HIGH);
	fpu_save(cpu);
	assert_memory_equal(cpu->xsave + XSAVE_YMM0_HIGH, before + XSAVE_YMM0_HIGH,
			    XSAVE_END - XSAVE_YMM0_HIGH);
	assert_memory_equal(zmm5 + 32, before + XSAVE_ZMM0_HIGH + 32 * 5, 32);
	assert_memory_equal(zmm17, before + XSAVE_ZMM16 + 64, 64);
	assert_memory_equal(&k3, before + XSAVE_OPMASK + 24, 8);
	cpu_destroy(cpu);
}

/* Nor does anything of the last guest stay in registers. */
static void what_is_initial_stays_out_of_the_image(void **state)
{
	struct cpu *cpu = cpu_create();
	struct cpu_priv *priv = cpu_priv(cpu);
	u64 zmm20[8], k1;

	(void)state;
	if (!has_avx512(cpu)) {
		cpu_destroy(cpu);
		skip();
	}
	memset(cpu->xsave + XSAVE_OPMASK, 0x55, XSAVE_END - XSAVE_OPMASK);
	XSTATE_BV(cpu) = priv->host_fpu.features;
	fpu_load(cpu);
	fpu_save(cpu);
	assert_int_equal(XSTATE_BV(cpu), priv->host_fpu.features);
	XSTATE_BV(cpu) &= ~XCR0_AVX512;
	fpu_load(cpu);
	__asm__ volatile("vmovdqu64 %%zmm20, %0; kmovq %%k1, %1" : "=m"(zmm20), "=m"(k1));
	fpu_save(cpu);
	assert_int_equal(zmm20[0] | zmm20[7] | k1, 0);
	assert_int_equal(XSTATE_BV(cpu) & XCR0_AVX512, 0);
	fpu_make_present(cpu, XCR0_OPMASK);
	assert_int_equal(*(u64 *)(cpu->xsave + XSAVE_OPMASK), 0);
	assert_int_equal(XSTATE_BV(cpu) & XCR0_AVX512, XCR0_OPMASK);
	cpu_destroy(cpu);
}

static void any_image_can_be_loaded(void **state)
{
	struct cpu *cpu = cpu_create();
	struct cpu_priv *priv = cpu_priv(cpu);

	(void)state;
	memset(cpu->xsave, 0xff, sizeof(cpu->xsave));
	fpu_load(cpu);
	fpu_save(cpu);
	assert_int_equal(*(u32 *)(cpu->xsave + XSAVE_MXCSR), priv->host_fpu.mxcsr_mask);
	assert_int_equal(*(u64 *)(cpu->xsave + XSAVE_XCOMP_BV),
			 priv->host_fpu.compacts ? BIT(63) | priv->host_fpu.features : 0);
	cpu_destroy(cpu);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thousand_cpus_cost_little),
		cmocka_unit_test(a_cpu_starts_at_the_reset_vector),
		cmocka_unit_test(segments_check_by_the_table),
		cmocka_unit_test(five_levels_widen_the_addresses),
		cmocka_unit_test(the_mode_word_follows_the_registers),
		cmocka_unit_test(flat_means_flat_and_usable),
		cmocka_unit_test(vector_state_goes_round),
		cmocka_unit_test(avx512_state_goes_round),
		cmocka_unit_test(what_is_initial_stays_out_of_the_image),
		cmocka_unit_test(any_image_can_be_loaded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
