// SPDX-License-Identifier: MIT
/*
 * Control, debug and extended control registers: which writes fault, and what the others do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/control.h"
#include "cpu/mode.h"
#include "unit/guest_tables.h"

#define CR0_BASE (CR0_PE | CR0_ET | CR0_WP | CR0_PG)

/* Protected mode without paging, ready to enable long mode. */
static void leave_long_mode(struct cpu *cpu)
{
	cpu->cr0 = CR0_PE | CR0_ET;
	cpu->cr4 = CR4_PAE;
	cpu->efer = EFER_LME;
	cpu->seg[CS].attr &= ~SEG_L;
	cpu->seg[CS].attr |= SEG_DB;
	cpu_update_mode(cpu);
}

static void assert_refused(struct cpu *cpu, enum guest_fault fault)
{
	assert_int_equal(fault, FAULT_RAISED);
	assert_int_equal(cpu->port.event.vector, VEC_GP);
	assert_int_equal(cpu->port.event.error, 0);
}

static void cr0_refuses_impossible_combinations(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	assert_refused(cpu, cpu_write_cr0(cpu, CR0_BASE | BIT(32)));
	assert_refused(cpu, cpu_write_cr0(cpu, CR0_BASE | CR0_NW));
	assert_refused(cpu, cpu_write_cr0(cpu, CR0_PG | CR0_ET));
	assert_refused(cpu, cpu_write_cr0(cpu, CR0_PE | CR0_ET)); /* PG off in 64-bit code */
	assert_int_equal(cpu->cr0, CR0_BASE);
	assert_int_equal(cpu_write_cr0(cpu, CR0_BASE | CR0_TS | BIT(20)), FAULT_NONE);
	assert_int_equal(cpu->cr0, CR0_BASE | CR0_TS); /* reserved bits are ignored */
	assert_true(cpu_priv(cpu)->mode & MODE_FPU_TS);
	assert_int_equal(cpu_write_cr0(cpu, CR0_BASE & ~CR0_ET), FAULT_NONE);
	assert_int_equal(cpu->cr0, CR0_BASE); /* ET is fixed */
}

static void paging_turns_long_mode_on_and_off(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	leave_long_mode(cpu);
	cpu->cr4 = 0;
	assert_refused(cpu, cpu_write_cr0(cpu, CR0_BASE)); /* no PAE */
	cpu->cr4 = CR4_PAE;
	cpu->seg[CS].attr |= SEG_L;
	assert_refused(cpu, cpu_write_cr0(cpu, CR0_BASE)); /* CS.L */
	cpu->seg[CS].attr &= ~SEG_L;
	assert_int_equal(cpu_write_cr0(cpu, CR0_BASE), FAULT_NONE);
	assert_true(cpu->efer & EFER_LMA);
	assert_true(cpu_priv(cpu)->mode & MODE_LONG);
	cpu->cr4 |= CR4_PCIDE;
	assert_refused(cpu, cpu_write_cr0(cpu, CR0_PE | CR0_ET));
	cpu->cr4 &= ~CR4_PCIDE;
	assert_int_equal(cpu_write_cr0(cpu, CR0_PE | CR0_ET), FAULT_NONE);
	assert_false(cpu->efer & EFER_LMA);
}

static void pae_paging_loads_and_checks_its_pdptes(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	leave_long_mode(cpu);
	cpu->efer = 0;
	cpu->cr3 = 0x500020;
	tables_set_word(p, 0x500020, 0x600000 | PTE_P);
	tables_set_word(p, 0x500028, PTE_W | PTE_P); /* a reserved bit */
	assert_refused(cpu, cpu_write_cr0(cpu, CR0_BASE));
	assert_int_equal(cpu->cr0, CR0_PE | CR0_ET);
	tables_set_word(p, 0x500028, PTE_W); /* not present: never looked at */
	assert_int_equal(cpu_write_cr0(cpu, CR0_BASE), FAULT_NONE);
	assert_int_equal(cpu->pdptr[0], 0x600000 | PTE_P);
	assert_refused(cpu, cpu_write_cr3(cpu, MMIO_BASE));
	tables_set_word(p, 0x500020, 0x700000 | PTE_P);
	assert_int_equal(cpu_write_cr3(cpu, 0x500020), FAULT_NONE);
	assert_int_equal(cpu->pdptr[0], 0x700000 | PTE_P);
}

/* Entries that serve an address of their place. */
static u32 tlb_entries(struct cpu *cpu)
{
	u32 n = 0;

	for (u32 set = 0; set < NTLBS; set++)
		for (u32 i = 0; i < TLB_SIZE; i++)
			n += (cpu_priv(cpu)->tlb[set][i].read >> PAGE_SHIFT & (TLB_SIZE - 1)) == i;
	return n;
}

static void cr3_checks_its_width_and_drops_the_tlb(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;
	struct translation t;
	u64 cr3 = cpu->cr3;

	cpu->phys_bits = 40;
	assert_refused(cpu, cpu_write_cr3(cpu, BIT(40)));
	assert_refused(cpu, cpu_write_cr3(cpu, cr3 | BIT(63)));
	assert_int_equal(mmu_fill(cpu, CODE, ACCESS_READ, &t), FAULT_NONE);
	assert_int_equal(tlb_entries(cpu), 1);
	assert_int_equal(cpu_write_cr3(cpu, cr3), FAULT_NONE);
	assert_int_equal(tlb_entries(cpu), 0);
	cpu->cr4 |= CR4_PCIDE;
	assert_int_equal(cpu_write_cr3(cpu, cr3 | 5 | BIT(63)), FAULT_NONE);
	assert_int_equal(cpu->cr3, cr3 | 5);
}

static void cr4_refuses_what_is_reserved_or_out_of_place(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	assert_refused(cpu, cpu_write_cr4(cpu, CR4_PAE | BIT(14)));
	assert_refused(cpu, cpu_write_cr4(cpu, CR4_PAE | BIT(40)));
	assert_refused(cpu, cpu_write_cr4(cpu, 0)); /* long mode needs PAE */
	cpu->cr4_allowed |= CR4_LA57;
	assert_refused(cpu, cpu_write_cr4(cpu, CR4_PAE | CR4_LA57));
	cpu->cr3 |= 1;
	assert_refused(cpu, cpu_write_cr4(cpu, CR4_PAE | CR4_PCIDE));
	cpu->cr3 &= ~0xfffull;
	assert_int_equal(cpu_write_cr4(cpu, CR4_PAE | CR4_PCIDE), FAULT_NONE);
	cpu->cr3 |= 1;
	assert_int_equal(cpu_write_cr4(cpu, CR4_PAE | CR4_PCIDE | CR4_OSFXSR), FAULT_NONE);
	assert_true(cpu_priv(cpu)->mode & MODE_SSE);

	leave_long_mode(cpu);
	cpu->cr3 = 0x1000;
	assert_refused(cpu, cpu_write_cr4(cpu, CR4_PAE | CR4_PCIDE));
	assert_int_equal(cpu_write_cr4(cpu, CR4_PAE | CR4_LA57), FAULT_NONE);
}

static void efer_keeps_lma_and_refuses_lme_under_paging(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	assert_refused(cpu, cpu_write_efer(cpu, EFER_LME | BIT(1)));
	assert_refused(cpu, cpu_write_efer(cpu, EFER_LME | EFER_SVME));
	assert_refused(cpu, cpu_write_efer(cpu, EFER_LMA));
	assert_int_equal(cpu_write_efer(cpu, EFER_LME | EFER_NX), FAULT_NONE);
	assert_int_equal(cpu->efer, EFER_LME | EFER_LMA | EFER_NX);
	leave_long_mode(cpu);
	assert_int_equal(cpu_write_efer(cpu, EFER_LMA | EFER_SCE), FAULT_NONE);
	assert_int_equal(cpu->efer, EFER_SCE);
}

static void xcr0_needs_x87_and_sse_before_avx(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	assert_refused(cpu, cpu_write_xcr(cpu, 1, XCR0_X87));
	assert_refused(cpu, cpu_write_xcr(cpu, 0, 0));
	assert_refused(cpu, cpu_write_xcr(cpu, 0, XCR0_SSE));
	assert_refused(cpu, cpu_write_xcr(cpu, 0, XCR0_X87 | XCR0_AVX));
	assert_refused(cpu, cpu_write_xcr(cpu, 0, XCR0_X87 | BIT(3)));
	cpu->cr4 |= CR4_OSXSAVE;
	assert_int_equal(cpu_write_xcr(cpu, 0, XCR0_X87 | XCR0_SSE | XCR0_AVX), FAULT_NONE);
	assert_true(cpu_priv(cpu)->mode & MODE_AVX);
}

/* SDM 1 13.3: all three components or none, and never without AVX. */
static void xcr0_takes_avx512_as_a_whole(void **state)
{
	const u64 avx = XCR0_X87 | XCR0_SSE | XCR0_AVX;
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	assert_refused(cpu, cpu_write_xcr(cpu, 0, avx | XCR0_AVX512)); /* CPUID has none */
	cpu->xcr0_allowed = avx | XCR0_AVX512;
	for (u64 part = XCR0_OPMASK; part < XCR0_AVX512; part += XCR0_OPMASK)
		assert_refused(cpu, cpu_write_xcr(cpu, 0, avx | part));
	assert_refused(cpu, cpu_write_xcr(cpu, 0, XCR0_X87 | XCR0_AVX512));
	assert_refused(cpu, cpu_write_xcr(cpu, 0, XCR0_X87 | XCR0_SSE | XCR0_AVX512));
	assert_int_equal(cpu_write_xcr(cpu, 0, avx | XCR0_AVX512), FAULT_NONE);
	assert_true(cpu_avx512(cpu));
	assert_int_equal(cpu_write_xcr(cpu, 0, avx), FAULT_NONE);
	assert_false(cpu_avx512(cpu));
}

static void debug_registers_have_fixed_bits_and_aliases(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;
	u64 value;

	assert_int_equal(cpu_write_dr(cpu, 0, ~0ull), FAULT_NONE);
	assert_int_equal(cpu->dr[0], ~0ull);
	assert_refused(cpu, cpu_write_dr(cpu, 6, BIT(32)));
	assert_refused(cpu, cpu_write_dr(cpu, 7, BIT(32)));
	assert_int_equal(cpu_write_dr(cpu, 6, 0xffffffff), FAULT_NONE);
	assert_int_equal(cpu->dr6, 0xffffefff);
	assert_int_equal(cpu_write_dr(cpu, 4, 0), FAULT_NONE);
	assert_int_equal(cpu->dr6, DR6_FIXED1);
	assert_int_equal(cpu_write_dr(cpu, 5, 0xd000), FAULT_NONE);
	assert_int_equal(cpu_read_dr(cpu, 7, &value), FAULT_NONE);
	assert_int_equal(value, DR7_FIXED1);
	cpu->cr4 |= CR4_DE;
	assert_int_equal(cpu_read_dr(cpu, 4, &value), FAULT_RAISED);
	assert_int_equal(cpu->port.event.vector, VEC_UD);
	assert_int_equal(cpu_write_dr(cpu, 5, 0), FAULT_RAISED);
}

static void arming_breakpoints_is_noticed(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;
	struct cpu_priv *priv = cpu_priv(cpu);

	assert_int_equal(cpu_write_dr(cpu, 0, CODE), FAULT_NONE);
	assert_int_equal(cpu_write_dr(cpu, 7, 1), FAULT_NONE); /* fetch */
	assert_true(priv->mode & MODE_STEP);
	assert_false(priv->watch_active);
	assert_int_equal(cpu_write_dr(cpu, 7, 1 | 1 << 16), FAULT_NONE); /* write */
	assert_true(priv->watch_active);
}

static void states_no_processor_has_are_recognized(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;
	const u64 efer = EFER_LME | EFER_LMA;

	assert_true(cpu_cr_valid(cpu, CR0_BASE, 0x1000, CR4_PAE, efer));
	assert_true(cpu_cr_valid(cpu, CR0_ET, 0, 0, 0));
	assert_true(cpu_cr_valid(cpu, CR0_PE | CR0_ET, 0, 0, EFER_LME));
	assert_false(cpu_cr_valid(cpu, CR0_BASE, 0x1000, 0, efer));
	assert_false(cpu_cr_valid(cpu, CR0_BASE, 0x1000, CR4_PAE, EFER_LME));
	assert_false(cpu_cr_valid(cpu, CR0_PE, 0x1000, CR4_PAE, efer));
	assert_false(cpu_cr_valid(cpu, CR0_BASE, BIT(52), CR4_PAE, efer));
	assert_false(cpu_cr_valid(cpu, CR0_BASE | CR0_NW, 0x1000, CR4_PAE, efer));
	assert_false(cpu_cr_valid(cpu, CR0_PG, 0x1000, 0, 0));
	assert_false(cpu_cr_valid(cpu, CR0_BASE, 0x1000, CR4_PAE | BIT(14), efer));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, tables_setup, tables_teardown)
	const struct CMUnitTest tests[] = {
		TEST(cr0_refuses_impossible_combinations),
		TEST(paging_turns_long_mode_on_and_off),
		TEST(pae_paging_loads_and_checks_its_pdptes),
		TEST(cr3_checks_its_width_and_drops_the_tlb),
		TEST(cr4_refuses_what_is_reserved_or_out_of_place),
		TEST(efer_keeps_lma_and_refuses_lme_under_paging),
		TEST(xcr0_needs_x87_and_sse_before_avx),
		TEST(xcr0_takes_avx512_as_a_whole),
		TEST(debug_registers_have_fixed_bits_and_aliases),
		TEST(arming_breakpoints_is_noticed),
		TEST(states_no_processor_has_are_recognized),
	};

	paged_cpu_catch_faults();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
