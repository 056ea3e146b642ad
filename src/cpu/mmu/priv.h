/* SPDX-License-Identifier: MIT */
/*
 * What the files of the soft MMU share among themselves. vCPU thread; general registers only.
 */
#ifndef CPU_MMU_PRIV_H
#define CPU_MMU_PRIV_H

#include "cpu/mmu/tlb.h"

/* One linear address as the page tables have it, for one kind of access. */
struct walk {
	gpa_t gpa;
	u8 shift;      /* log2 of the page's size */
	bool writable; /* this privilege may write here, and the dirty bit is set */
	bool global;   /* it stays when CR3 is written */
};

/* The page walk: rights checked, accessed and dirty bits set. Raises #PF; knows no slots but those
 * of the tables. */
enum guest_fault mmu_walk(struct cpu *cpu, gva_t gva, u32 access, struct walk *out);

/* Ends the instruction because the program's memory for gpa cannot be accessed on the host. */
enum guest_fault mmu_host_fault(struct cpu *cpu, gpa_t gpa);

/* Does an armed data breakpoint lie on the page of gva? */
bool watch_page(const struct cpu *cpu, gva_t gva);

/* The set of the TLB that serves this access. */
static inline enum tlb_set tlb_set_of(const struct cpu *cpu, u32 access)
{
	bool implicit = access & ACCESS_SYSTEM;

	if (!implicit && cpu->cpl == 3)
		return TLB_USER;
	if (!(cpu->cr4 & CR4_SMAP) || (!implicit && (cpu->rflags & FL_AC)))
		return TLB_KERNEL_AC;
	return TLB_KERNEL;
}

static inline struct tlb_entry *tlb_entry_of(struct cpu *cpu, gva_t gva, u32 access)
{
	return &cpu_priv(cpu)->tlb[tlb_set_of(cpu, access)][(gva >> PAGE_SHIFT) % TLB_SIZE];
}

/* mem_find(), faster when it is the same slot again, which it nearly always is. */
static inline const struct mem_slot *cpu_slot(struct cpu *cpu, gpa_t gpa)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	const struct mem_slot *slot = priv->last_slot;

	if (priv->last_generation == cpu->port.mem->generation && slot &&
	    gpa - slot->base < slot->npages << PAGE_SHIFT)
		return slot;
	slot = mem_find(cpu->port.mem, gpa);
	priv->last_generation = cpu->port.mem->generation;
	priv->last_slot = slot;
	return slot;
}

/* mem_next_alias() of an address that need not be in a slot. Few machines have aliases at all. */
static inline bool cpu_next_alias(struct cpu *cpu, gpa_t gpa, u32 *at, gpa_t *alias)
{
	const struct mem_slot *slot;

	if (likely(!cpu->port.mem->aliased))
		return false;
	slot = cpu_slot(cpu, gpa);
	return slot && mem_next_alias(cpu->port.mem, slot, gpa, at, alias);
}

#endif
