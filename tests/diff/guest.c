// SPDX-License-Identifier: MIT
/*
 * The engine's side: a long-mode guest that maps the sandbox at the same addresses for CPL 3. Every
 * vector has a handler "hlt; iretq" at CPL 0: HLT ends the run with the exception on the kernel
 * stack, and the next run writes a new frame there and goes on at the IRETQ. So the processor is
 * never reset between runs.
 */
#include "diff.h"

#include <cpuid.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/must.h"
#include "cpu/control.h"
#include "cpu/fpu.h"
#include "cpu/mmu/mmu.h"
#include "cpu/mode.h"
#include "cpu/transfer/segment.h"
#include "engine/engine.h"
#include "guest/kept_tests.h"
#include "vm/cpuid/cpuid.h"
#include "x86/descriptor.h"
#include "x86/paging.h"

#define KERNEL_BASE 0xffffffff80000000ull
#define KERNEL_HALF 0x7ffffffff000ull
#define SEL_KERNEL  0x10
#define SEL_TSS	    0x40
#define SEL_LDTR    0x50
#define LDT_OFFSET  0x400 /* on the page of the GDT */
#define TSS_OFFSET  0x800
#define RUN_LIMIT   10000000

/* Guest physical pages. Neighbours in the sandbox are no neighbours here. */
enum page {
	PAGE_PML4 = 1,
	PAGE_PDPT_LOW,
	PAGE_PD_LOW,
	PAGE_PT_CODE,
	PAGE_PT_DATA,
	PAGE_PDPT_HIGH,
	PAGE_PD_HIGH,
	PAGE_PT_KERNEL,
	PAGE_GDT, /* from here on mapped at KERNEL_BASE, in this order */
	PAGE_IDT,
	PAGE_HANDLERS,
	PAGE_STACK,
	PAGE_KERNEL_END,
	PAGE_CODE = 20, /* in steps of 3 */
	PAGE_DATA = 40, /* in steps of 5, modulo 11 */
	NPAGES = 64,
};

#define KERNEL_ADDR(page) (KERNEL_BASE + ((page) - PAGE_GDT) * PAGE_SIZE)
#define STACK_TOP	  KERNEL_ADDR(PAGE_STACK + 1)

static struct {
	u8 *ram;
	struct cpu *cpu;
	bool is_amd;
	bool keeps; /* guest_keep() */
	u32 runs;   /* of the sequence that was loaded last */
} guest;

static u8 *page_at(u32 page)
{
	return guest.ram + page * PAGE_SIZE;
}

static u32 data_page(u32 i)
{
	return PAGE_DATA + i * 5 % 11;
}

u8 *guest_data_page(u32 i)
{
	return page_at(data_page(i));
}

u8 *guest_code_page(u32 i)
{
	return page_at(PAGE_CODE + 3 * i);
}

/* --- building
 * ---------------------------------------------------------------------------------------------------
 */

static void put64(u32 page, u32 offset, u64 value)
{
	memcpy(page_at(page) + offset, &value, 8);
}

static void map_entry(u32 table, u64 address, u32 level, u32 page, u64 bits)
{
	put64(table, (address >> (12 + 9 * level) & 511) * 8, page * PAGE_SIZE | PTE_P | bits);
}

static void map_code(u64 bits)
{
	for (u32 i = 0; i < CODE_PAGES; i++)
		map_entry(PAGE_PT_CODE, CODE_BASE + i * PAGE_SIZE, 0, PAGE_CODE + 3 * i,
			  PTE_U | bits);
}

void guest_code_writable(bool writable)
{
	map_code(writable ? PTE_W : 0);
	tlb_flush(guest.cpu);
}

static void build_paging(void)
{
	map_entry(PAGE_PML4, CODE_BASE, 3, PAGE_PDPT_LOW, PTE_W | PTE_U);
	map_entry(PAGE_PDPT_LOW, CODE_BASE, 2, PAGE_PD_LOW, PTE_W | PTE_U);
	map_entry(PAGE_PD_LOW, CODE_BASE, 1, PAGE_PT_CODE, PTE_W | PTE_U);
	map_entry(PAGE_PD_LOW, DATA_BASE, 1, PAGE_PT_DATA, PTE_W | PTE_U);
	map_code(0);
	for (u32 i = 0; i < DATA_PAGES; i++)
		map_entry(PAGE_PT_DATA, DATA_BASE + i * PAGE_SIZE, 0, data_page(i),
			  PTE_U | PTE_NX | (i == DATA_READONLY ? 0 : PTE_W));
	map_entry(PAGE_PML4, HIGH_ALIAS, 3, PAGE_PDPT_LOW, PTE_W | PTE_U);
	map_entry(PAGE_PML4, KERNEL_BASE, 3, PAGE_PDPT_HIGH, PTE_W);
	map_entry(PAGE_PDPT_HIGH, KERNEL_BASE, 2, PAGE_PD_HIGH, PTE_W);
	map_entry(PAGE_PD_HIGH, KERNEL_BASE, 1, PAGE_PT_KERNEL, PTE_W);
	for (u32 page = PAGE_GDT; page < PAGE_KERNEL_END; page++)
		map_entry(PAGE_PT_KERNEL, KERNEL_ADDR(page), 0, page, PTE_W | PTE_G);
}

/* As Linux has it, as far as programs can tell. */
static void build_gdt(void)
{
	static const u64 gdt[] = { 0,
				   0x00cf9b000000ffff,	 /* 08 kernel, 32-bit */
				   0x00af9b000000ffff,	 /* 10 kernel code */
				   0x00cf93000000ffff,	 /* 18 kernel data */
				   0x00cffb000000ffff,	 /* 20 user, 32-bit */
				   0x00cff3000000ffff,	 /* 28 user data */
				   0x00affb000000ffff }; /* 30 user code */
	u64 tss = KERNEL_ADDR(PAGE_GDT) + TSS_OFFSET;

	memcpy(page_at(PAGE_GDT), gdt, sizeof(gdt));
	put64(PAGE_GDT, SEL_TSS,
	      0x67 | (tss & 0xffffff) << 16 | 0x8bull << 40 | (tss >> 24 & 0xff) << 56);
	put64(PAGE_GDT, SEL_TSS + 8, tss >> 32);
	for (u32 i = 0; i < NLDT; i++)
		put64(PAGE_GDT, LDT_OFFSET + 8 * i, ldt_descriptor(i));
	put64(PAGE_GDT, TSS_OFFSET + TSS64_RSP(0), STACK_TOP);
	memset(page_at(PAGE_GDT) + TSS_OFFSET + 0x66, 0xff, 2); /* no I/O bitmap */
}

static void build_idt(void)
{
	for (u32 i = 0; i < 256; i++) {
		u64 handler = KERNEL_ADDR(PAGE_HANDLERS) + 16 * i;
		u64 dpl = i == VEC_BP || i == VEC_OF ? 3 : 0;
		u64 type = SEG_P | dpl << SEG_DPL_SHIFT | TYPE_INT_GATE;

		put64(PAGE_IDT, 16 * i,
		      (handler & 0xffff) | SEL_KERNEL << 16 | type << 40 |
			      (handler >> 16 & 0xffff) << 48);
		put64(PAGE_IDT, 16 * i + 8, handler >> 32);
		memcpy(page_at(PAGE_HANDLERS) + 16 * i, "\xf4\x48\xcf", 3);
	}
}

/* Asked once: CPUID takes long in a VM. */
bool host_is_amd(void)
{
	static u32 vendor;
	u32 eax, ecx, edx;

	if (!vendor)
		__cpuid(0, eax, vendor, ecx, edx);
	return vendor == signature_AMD_ebx;
}

/* Newer than the models: what it does otherwise is not compared. */
bool host_is_zen5(void)
{
	static u32 family;
	u32 eax, ebx, ecx, edx;

	if (!family) {
		__cpuid(1, eax, ebx, ecx, edx);
		family = (eax >> 8 & 0xf) + (eax >> 20 & 0xff);
	}
	return host_is_amd() && family >= FAMILY_ZEN5;
}

static void set_segment(struct segment *s, u16 sel, u32 attr)
{
	*s = (struct segment){ .sel = sel, .limit = 0xffffffff, .attr = attr };
}

static void build_cpu(struct cpu *cpu)
{
	const u32 data = 3 | SEG_S | SEG_P | SEG_DB | SEG_G;

	for (u32 f = 0; f < NFEATURES; f++)
		if (f != FEAT_VMX && f != FEAT_SVM && host_has(f))
			cpu->features[f / 64] |= BIT(f % 64);
	cpu->is_amd = guest.is_amd;
	cpu->phys_bits = 40;
	cpu->cr4_allowed = ~0ull;
	cpu->efer_allowed = EFER_SCE | EFER_LME | EFER_LMA | EFER_NX;
	cpu->xcr0_allowed =
		XCR0_X87 | XCR0_SSE | XCR0_AVX | (native_has_avx512() ? XCR0_AVX512 : 0);
	cpu->cr0 = CR0_PE | CR0_MP | CR0_ET | CR0_NE | CR0_WP | CR0_AM | CR0_PG;
	cpu->cr3 = PAGE_PML4 * PAGE_SIZE;
	cpu->cr4 = CR4_PAE | CR4_PGE | CR4_DE | CR4_OSFXSR | CR4_OSXMMEXCPT | CR4_FSGSBASE |
		   CR4_OSXSAVE | CR4_UMIP | CR4_SMEP | CR4_SMAP;
	cpu->efer = cpu->efer_allowed;
	cpu->xcr0 = cpu->xcr0_allowed;
	for (u32 i = 0; i < NSEGS; i++)
		set_segment(&cpu->seg[i], 0, SEG_UNUSABLE);
	set_segment(&cpu->seg[CS], SEL_KERNEL, 0xb | SEG_S | SEG_P | SEG_L | SEG_G);
	set_segment(&cpu->seg[SS], 0x18, data);
	cpu->ldtr = (struct segment){ .sel = SEL_LDTR,
				      .base = KERNEL_ADDR(PAGE_GDT) + LDT_OFFSET,
				      .limit = NLDT * 8 - 1,
				      .attr = TYPE_LDT | SEG_P };
	cpu->tr = (struct segment){ .sel = SEL_TSS,
				    .base = KERNEL_ADDR(PAGE_GDT) + TSS_OFFSET,
				    .limit = 0x67,
				    .attr = TYPE_TSS_BUSY | SEG_P };
	cpu->gdtr = (struct descriptor_table){ KERNEL_ADDR(PAGE_GDT), 127 };
	cpu->idtr = (struct descriptor_table){ KERNEL_ADDR(PAGE_IDT), 4095 };
	cpu_state_changed(cpu);
}

void guest_count(u64 index)
{
	static const retire_wanted sets[] = { ~(retire_wanted)0,
					      COUNT_BRANCHES | COUNT_MEMORY,
					      OBSERVED_IN_BRANCHES,
					      OBSERVED_IN_MEMORY,
					      COUNT_CYCLES | RETIRE_BIT(RETIRE_CONDITIONAL),
					      RETIRE_BIT(RETIRE_CYCLES),
					      RETIRE_BIT(RETIRE_CYCLES) | OBSERVED_IN_BRANCHES };
	bool full = index / ARRAY_SIZE(sets) % 2;

	if (full != guest.cpu->port.full_timing) /* which no processor changes: not in its mode */
		engine_forget(guest.cpu);
	guest.cpu->port.full_timing = full;
	guest.cpu->port.wanted = sets[index % ARRAY_SIZE(sets)];
}

void guest_init(bool is_amd)
{
	struct mem_slot slot = { .npages = NPAGES };
	struct mem_map *empty = mem_map_empty();

	guest.ram = mmap(NULL, NPAGES * PAGE_SIZE, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	guest.cpu = cpu_create();
	must(guest.ram != MAP_FAILED && guest.cpu && empty);
	guest.is_amd = is_amd;
	slot.hva = guest.ram;
	guest.cpu->port.mem = mem_map_with(empty, &slot);
	guest.cpu->port.model = is_amd == host_is_amd() ? cpuid_model(NULL)
				: is_amd		? model_find("genoa")
							: model_find("icelake");
	must(guest.cpu->port.mem && engine_create(guest.cpu) == 0);
	engine_set_hot_after(guest.cpu, GUEST_HOT_AFTER);
	free(empty);
	build_paging();
	build_gdt();
	build_idt();
	build_cpu(guest.cpu);
	guest_turn_rules(0);
}

/* --- running
 * ------------------------------------------------------------------------------------------------------
 */

bool guest_signal(int sig, void *info, void *ucontext)
{
	return guest.cpu && engine_signal(sig, info, ucontext);
}

/* Behind the processor's back, as another CPU would: it has to notice by itself. */
void guest_load(const u8 *code, u32 size, u64 address)
{
	guest.runs = 0;
	for (u32 i = 0; i < CODE_PAGES; i++)
		memset(page_at(PAGE_CODE + 3 * i), CODE_FILL, PAGE_SIZE);
	for (u32 i = 0; i < size; i++) {
		u64 offset = (u32)address + i - CODE_BASE;

		if (offset < CODE_PAGES * PAGE_SIZE)
			page_at(PAGE_CODE + 3 * (offset / PAGE_SIZE))[offset % PAGE_SIZE] = code[i];
	}
}

void guest_forget(void)
{
	engine_forget(guest.cpu);
}

bool guest_is_foreign(void)
{
	return guest.is_amd != host_is_amd();
}

u64 guest_rules_unlike_host(void)
{
	return RULES_ALL ^ vendor_exceptions(guest.cpu->port.model) ^
	       vendor_exceptions(cpuid_model(NULL));
}

void guest_turn_rules(u64 rules)
{
	guest.cpu->port.foreign_rules = vendor_exceptions(guest.cpu->port.model) ^ rules;
	engine_forget(guest.cpu);
}

static u64 *stack_slot(u32 words_from_top)
{
	return (u64 *)(page_at(PAGE_STACK) + PAGE_SIZE) - words_from_top;
}

static void set_data_segment(struct cpu *cpu, enum seg seg, u16 sel, u64 base)
{
	struct segment *s = &cpu->seg[seg];

	if (s->sel == sel && s->base == base)
		return;
	if (sel & SEL_TI) {
		must(cpu_load_seg(cpu, seg, sel) == FAULT_NONE);
		return;
	}
	set_segment(s, sel,
		    sel ? 3 | SEG_S | 3u << SEG_DPL_SHIFT | SEG_P | SEG_DB | SEG_G : SEG_UNUSABLE);
	s->base = base;
}

static void load_state(struct cpu *cpu, const struct state *in)
{
	const u64 frame[] = { in->rip, in->sel[CS], in->rflags, in->gpr[RSP], in->sel[SS] };

	memcpy(cpu->regs, in->gpr, sizeof(cpu->regs));
	memcpy(stack_slot(5), frame, sizeof(frame));
	cpu->regs[RSP] = STACK_TOP - sizeof(frame);
	cpu->rip = KERNEL_ADDR(PAGE_HANDLERS) + 1;
	set_data_segment(cpu, DS, in->sel[DS], 0);
	set_data_segment(cpu, ES, in->sel[ES], 0);
	set_data_segment(cpu, FS, in->sel[FS], in->fs_base);
	set_data_segment(cpu, GS, in->sel[GS], in->gs_base);
	must(!cpu_priv(cpu)->fpu_live);
	memcpy(cpu->xsave, in->xsave, STATE_XSAVE);
	if (!native_has_avx512())
		return;
	fpu_make_present(cpu, XCR0_AVX512);
	memcpy(cpu->xsave + XSAVE_OPMASK, in->mask, sizeof(in->mask));
	memcpy(cpu->xsave + XSAVE_ZMM0_HIGH, in->zmm_high, sizeof(in->zmm_high));
	memcpy(cpu->xsave + XSAVE_ZMM16, in->zmm16, sizeof(in->zmm16));
}

static void store_state(struct cpu *cpu, struct outcome *out)
{
	bool has_error = cpu->regs[RSP] == STACK_TOP - 6 * 8;
	struct state *s = &out->state;

	out->vector = (cpu->rip - KERNEL_ADDR(PAGE_HANDLERS)) / 16;
	out->error = has_error ? *stack_slot(6) : 0;
	out->cr2 = cpu->cr2;
	memcpy(s->gpr, cpu->regs, sizeof(s->gpr));
	s->rip = *stack_slot(5);
	s->rflags = *stack_slot(3);
	s->gpr[RSP] = *stack_slot(2);
	s->fs_base = cpu->seg[FS].base;
	s->gs_base = cpu->seg[GS].base;
	for (u32 i = 0; i < NSEGS; i++)
		s->sel[i] = cpu->seg[i].sel;
	s->sel[CS] = *stack_slot(4);
	s->sel[SS] = *stack_slot(1);
	memcpy(s->xsave, cpu->xsave, STATE_XSAVE);
	if (!(s->xsave[XSAVE_HEADER] & 4))
		memset(s->xsave + XSAVE_YMM, 0, 256);
	if (!native_has_avx512())
		return;
	fpu_fill_initial(cpu, XCR0_AVX512);
	memcpy(s->mask, cpu->xsave + XSAVE_OPMASK, sizeof(s->mask));
	memcpy(s->zmm_high, cpu->xsave + XSAVE_ZMM0_HIGH, sizeof(s->zmm_high));
	memcpy(s->zmm16, cpu->xsave + XSAVE_ZMM16, sizeof(s->zmm16));
}

/* All later runs of the sequence are on translations that were kept: of cold code, then of hot. */
static void recall_sometimes(void)
{
	guest.runs++;
	if (guest.runs != 3 && guest.runs != GUEST_HOT_AFTER + 12)
		return;
	kept_in_memory_merge(NULL);
	engine_forget(guest.cpu);
}

void guest_keep(void)
{
	guest.keeps = true;
	guest.cpu->port.kept = kept_in_memory();
}

u64 guest_recalled(void)
{
	return guest.keeps ? kept_in_memory()->news->hits : 0;
}

void guest_run(const struct state *in, u64 budget, struct outcome *out)
{
	struct cpu *cpu = guest.cpu;
	u64 before = cpu->port.tally.instructions[RETIRE_USR];
	u64 branches = cpu->port.tally.branches[RETIRE_USR];
	enum exit_reason reason;

	memset(out, 0, sizeof(*out));
	if (guest.keeps)
		recall_sometimes();
	load_state(cpu, in);
	do
		reason = engine_run(cpu, budget);
	while (reason == EXIT_BUDGET &&
	       cpu->port.tally.instructions[RETIRE_USR] - before < RUN_LIMIT);
	out->retired = cpu->port.tally.instructions[RETIRE_USR] - before;
	out->branches = cpu->port.tally.branches[RETIRE_USR] - branches;
	if (reason != EXIT_HLT) {
		out->ran_away = true;
		out->vector = reason;
		cpu_reset(cpu);
		build_cpu(cpu);
		return;
	}
	store_state(cpu, out);
	if (out->vector == VEC_PF && out->cr2 >= KERNEL_HALF)
		out->error |= PF_PRESENT; /* as native.c does */
}
