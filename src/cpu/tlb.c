// SPDX-License-Identifier: MIT
/*
 * The soft TLB: filling, flushing, protecting. The sets are independent: a page may be in all of
 * them, with different rights. Filled on the slow path of an access only, so an entry never grants
 * what no walk has granted. vCPU thread; general registers only.
 */
#include "cpu/priv.h"

#include "cpu/code.h"

static void drop(struct tlb_entry *entry, u32 index)
{
	entry->read = entry->write = tlb_none(index);
}

void tlb_flush(struct cpu *cpu)
{
	/* A tag of 0 has the right index bits in entry 0 alone. */
	bytes_fill(cpu->tlb, 0, sizeof(cpu->tlb));
	for (u32 set = 0; set < NTLBS; set++)
		drop(&cpu->tlb[set][0], 0);
	cpu->tlb_large = false;
	cpu_drop_jumps(cpu);
}

/* SDM 3A 4.10.4.1: INVLPG drops all of a large page, of which there may be many entries here. */
static void flush_large(struct cpu *cpu, gva_t gva)
{
	for (u32 set = 0; set < NTLBS; set++)
		for (u32 i = 0; i < TLB_SIZE; i++)
			if (cpu->tlb_shift[set][i] > PAGE_SHIFT &&
			    !((cpu->tlb[set][i].read ^ gva) >> cpu->tlb_shift[set][i]))
				drop(&cpu->tlb[set][i], i);
}

void tlb_flush_page(struct cpu *cpu, gva_t gva)
{
	u32 i = (gva >> PAGE_SHIFT) % TLB_SIZE;

	for (u32 set = 0; set < NTLBS; set++)
		drop(&cpu->tlb[set][i], i);
	if (cpu->tlb_large)
		flush_large(cpu, gva);
	cpu_drop_jumps(cpu);
}

void tlb_protect(struct cpu *cpu, gpa_t page)
{
	page &= PAGE_MASK;
	for (u32 set = 0; set < NTLBS; set++)
		for (u32 i = 0; i < TLB_SIZE; i++)
			if (cpu->tlb[set][i].gpa == page)
				cpu->tlb[set][i].write = tlb_none(i);
}

/* A write needs no notice: not for the dirty log, nor by the translator. */
static bool writes_unnoticed(const struct cpu *cpu, const struct translation *t)
{
	u64 page = (t->gpa - t->slot->base) >> PAGE_SHIFT;
	const u64 *dirty = t->slot->dirty;

	if (t->slot->flags & MEM_READONLY)
		return false;
	if (dirty && !(__atomic_load_n(&dirty[page / 64], __ATOMIC_RELAXED) & BIT(page % 64)))
		return false;
	return !cpu->code || !code_touches(cpu->code, t->gpa & PAGE_MASK, PAGE_SIZE);
}

static void fill(struct cpu *cpu, gva_t gva, u32 access, const struct walk *walk,
		 const struct translation *t)
{
	gva_t page = (cpu_long_mode(cpu) ? gva : (u32)gva) & PAGE_MASK;
	enum tlb_set set = tlb_set_of(cpu, access);
	u32 i = (page >> PAGE_SHIFT) % TLB_SIZE;
	struct tlb_entry *entry = &cpu->tlb[set][i];

	entry->read = page;
	entry->write = walk->writable && writes_unnoticed(cpu, t) ? page : tlb_none(i);
	entry->gpa = t->gpa & PAGE_MASK;
	entry->host = (u64)t->host & PAGE_MASK;
	cpu->tlb_shift[set][i] = walk->shift;
	if (walk->shift > PAGE_SHIFT)
		cpu->tlb_large = true;
}

static enum guest_fault translate(struct cpu *cpu, gva_t gva, u32 access, struct walk *walk,
				  struct translation *out)
{
	enum guest_fault fault = mmu_walk(cpu, gva, access, walk);

	if (fault)
		return fault;
	out->gpa = walk->gpa;
	out->slot = cpu_slot(cpu, walk->gpa);
	if (out->slot && (access & ACCESS_WRITE)) {
		if (out->slot->flags & MEM_READONLY)
			out->slot = NULL;
		else
			mem_mark_dirty(out->slot, out->gpa);
	}
	out->host = out->slot ? mem_hva(out->slot, out->gpa) : NULL;
	return FAULT_NONE;
}

enum guest_fault mmu_translate(struct cpu *cpu, gva_t gva, u32 access, struct translation *out)
{
	struct walk walk;

	return translate(cpu, gva, access, &walk, out);
}

enum guest_fault mmu_fill(struct cpu *cpu, gva_t gva, u32 access, struct translation *out)
{
	struct walk walk;
	enum guest_fault fault = translate(cpu, gva, access, &walk, out);

	/* The right to execute is not the right to read (SMAP does not apply to fetches). */
	if (!fault && out->slot && !(access & ACCESS_FETCH) && !watch_page(cpu, gva))
		fill(cpu, gva, access, &walk, out);
	return fault;
}
