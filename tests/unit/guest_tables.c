// SPDX-License-Identifier: MIT
/*
 * The tables of a small long-mode kernel in guest memory.
 */
#include "unit/guest_tables.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/mode.h"

#define CODE_ATTR (0xa | SEG_S | SEG_P | SEG_G)
#define DATA_ATTR (0x2 | SEG_S | SEG_P | SEG_G | SEG_DB)
#define RING(n)	  ((u32)(n) << SEG_DPL_SHIFT)

struct row {
	u16 sel;
	u32 attr;
};

static const struct row rows[] = {
	{ SEL_KCODE64, CODE_ATTR | SEG_L },
	{ SEL_KDATA, DATA_ATTR },
	{ SEL_UCODE32, CODE_ATTR | SEG_DB | RING(3) },
	{ SEL_UDATA, DATA_ATTR | RING(3) },
	{ SEL_UCODE64, CODE_ATTR | SEG_L | RING(3) },
	{ SEL_KCODE32, CODE_ATTR | SEG_DB },
	{ SEL_CONFORMING, CODE_ATTR | SEG_L | TYPE_CONFORMING },
	{ SEL_ABSENT_DATA, DATA_ATTR & ~SEG_P },
	{ SEL_READONLY, DATA_ATTR & ~TYPE_WRITABLE },
	{ SEL_EXECONLY, (CODE_ATTR | SEG_L) & ~TYPE_WRITABLE },
	{ SEL_ABSENT_CODE, (CODE_ATTR | SEG_L) & ~SEG_P },
	{ SEL_STACK16, (DATA_ATTR & ~SEG_DB) | RING(3) },
	{ SEL_CODE_MIXED, CODE_ATTR | SEG_L | SEG_DB },
	{ SEL_CODE_RING1, CODE_ATTR | SEG_L | RING(1) },
	{ SEL_DATA_RING1, DATA_ATTR | RING(1) },
};

u64 tables_word(const struct paged_cpu *p, gpa_t at)
{
	u64 value;

	memcpy(&value, p->ram + at, 8);
	return value;
}

void tables_set_word(struct paged_cpu *p, gpa_t at, u64 value)
{
	memcpy(p->ram + at, &value, 8);
}

void tables_descriptor(struct paged_cpu *p, u16 sel, u64 base, u32 limit, u32 attr)
{
	gpa_t table = sel & SEL_TI ? LDT : GDT;
	u64 lo = (limit & 0xffff) | (limit & 0xf0000ull) << 32 | (base & 0xffffff) << 16 |
		 (base & 0xff000000) << 32 | (u64)attr << 40;

	tables_set_word(p, table + (sel & SEL_INDEX), lo);
	if (!(attr & SEG_S))
		tables_set_word(p, table + (sel & SEL_INDEX) + 8, base >> 32);
}

static void store_gate(struct paged_cpu *p, gpa_t at, u64 offset, u16 sel, u32 attr, u32 ist)
{
	tables_set_word(p, at,
			(offset & 0xffff) | (u64)sel << 16 | (u64)ist << 32 | (u64)attr << 40 |
				(offset & 0xffff0000) << 32);
	tables_set_word(p, at + 8, offset >> 32);
}

void tables_gate(struct paged_cpu *p, u8 vector, u64 offset, u16 sel, u32 attr, u32 ist)
{
	store_gate(p, IDT + vector * 16, offset, sel, attr, ist);
}

void tables_call_gate(struct paged_cpu *p, u16 sel, u16 target)
{
	store_gate(p, GDT + sel, HANDLER(0), target, TYPE_CALL_GATE | SEG_P | RING(3), 0);
}

static void build_gdt(struct paged_cpu *p)
{
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++)
		tables_descriptor(p, rows[i].sel, 0, 0xfffff, rows[i].attr);
	tables_descriptor(p, SEL_TSS, TSS, 0x67, TYPE_TSS | SEG_P);
	tables_descriptor(p, SEL_TSS_BUSY, TSS, 0x67, TYPE_TSS_BUSY | SEG_P);
	tables_descriptor(p, SEL_TSS_FAR, NONCANONICAL, 0x67, TYPE_TSS | SEG_P);
	tables_descriptor(p, SEL_LDT, LDT, LDT_LIMIT, TYPE_LDT | SEG_P);
	tables_descriptor(p, SEL_LDT_ABSENT, LDT, LDT_LIMIT, TYPE_LDT);
	tables_descriptor(p, SEL_IN_LDT, 0x12345000, 0xfffff, DATA_ATTR | RING(3));
	tables_call_gate(p, SEL_GATE, SEL_KCODE64);
	store_gate(p, GDT + SEL_GATE_KERNEL, HANDLER(0), SEL_KCODE64, TYPE_CALL_GATE | SEG_P, 0);
	store_gate(p, GDT + SEL_GATE_ABSENT, HANDLER(0), SEL_KCODE64, TYPE_CALL_GATE | RING(3), 0);
}

void tables_init(struct paged_cpu *p)
{
	struct cpu *cpu;

	paged_cpu_init(p, FORMAT_4LEVEL);
	for (gpa_t at = 0; at < RAM_SIZE; at += 2ull << 20)
		paged_cpu_map(p, at, at, 2, PTE_P | PTE_W | PTE_U, PTE_P | PTE_W | PTE_U);
	build_gdt(p);
	for (u32 v = 0; v < 256; v++)
		tables_gate(p, v, HANDLER(v), SEL_KCODE64, TYPE_INT_GATE | SEG_P | RING(3), 0);
	tables_set_word(p, TSS + TSS64_RSP(0), RSP0);
	tables_set_word(p, TSS + TSS64_RSP(1), RSP0 - 0x1000);
	tables_set_word(p, TSS + TSS64_IST(1), IST1);
	tables_set_word(p, TSS + TSS64_IST(2), UNMAPPED);
	tables_set_word(p, TSS + TSS64_IST(3), NONCANONICAL);
	cpu = p->cpu;
	cpu->gdtr = (struct descriptor_table){ GDT, GDT_LIMIT };
	cpu->idtr = (struct descriptor_table){ IDT, 0xfff };
	cpu->ldtr = (struct segment){ LDT, LDT_LIMIT, TYPE_LDT | SEG_P, SEL_LDT };
	cpu->tr = (struct segment){ TSS, 0x67, TYPE_TSS_BUSY | SEG_P, SEL_TSS };
	cpu->features[FEAT_LA57 / 64] &= ~BIT(FEAT_LA57 % 64);
	cpu->cr4_allowed = ~(u64)(CR4_LA57 | BIT(14) | BIT(31)) & 0xffffffff;
	cpu->efer_allowed = EFER_SCE | EFER_LME | EFER_LMA | EFER_NX;
	cpu->xcr0_allowed = XCR0_X87 | XCR0_SSE | XCR0_AVX;
	tables_enter(p, KERNEL64);
}

static void set_segment(struct paged_cpu *p, enum seg seg, u16 sel)
{
	u64 lo = tables_word(p, GDT + (sel & SEL_INDEX));

	p->cpu->seg[seg] = (struct segment){
		.limit = descriptor_limit(lo),
		.attr = descriptor_attr(lo) | TYPE_ACCESSED,
		.sel = sel,
	};
}

void tables_enter(struct paged_cpu *p, enum where where)
{
	static const struct {
		u16 cs, ss;
		u64 rsp;
	} places[] = {
		[KERNEL64] = { SEL_KCODE64, SEL_KDATA, KERNEL_STACK },
		[KERNEL32] = { SEL_KCODE32, SEL_KDATA, KERNEL_STACK },
		[USER64] = { SEL_UCODE64 | 3, SEL_UDATA | 3, USER_STACK },
		[USER32] = { SEL_UCODE32 | 3, SEL_UDATA | 3, USER_STACK },
		[RING1] = { SEL_CODE_RING1 | 1, SEL_DATA_RING1 | 1, USER_STACK },
	};
	static const enum seg data[] = { DS, ES, FS, GS };
	struct cpu *cpu = p->cpu;

	set_segment(p, CS, places[where].cs);
	set_segment(p, SS, places[where].ss);
	for (u32 i = 0; i < ARRAY_SIZE(data); i++)
		set_segment(p, data[i], places[where].ss);
	cpu->cpl = places[where].cs & SEL_RPL;
	cpu->regs[RSP] = places[where].rsp;
	cpu->rip = CODE;
	cpu->rflags = FL_FIX1 | FL_IF;
	cpu->port.event.kind = EVENT_NONE;
	cpu_update_mode(cpu);
}

struct outcome outcome_of(const struct cpu *cpu, enum guest_fault fault)
{
	if (fault == FAULT_NONE)
		return OK;
	if (fault == FAULT_EXIT)
		return RAISES(-2, cpu->port.exit.reason);
	return RAISES(cpu->port.event.vector,
		      cpu->port.event.has_error ? cpu->port.event.error : 0);
}

int tables_setup(void **state)
{
	static struct paged_cpu p;

	tables_init(&p);
	*state = &p;
	return 0;
}

int tables_teardown(void **state)
{
	paged_cpu_free(*state);
	return 0;
}

void assert_in_kernel(const struct cpu *cpu, u64 rip)
{
	assert_int_equal(cpu->cpl, 0);
	assert_int_equal(cpu->rip, rip);
	assert_int_equal(cpu->seg[CS].sel, SEL_KCODE64);
	assert_int_equal(cpu->seg[SS].sel, 0);
}
