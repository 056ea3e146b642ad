// SPDX-License-Identifier: MIT
/*
 * The page walk (SDM 3A 4.3 to 4.8): 32-bit, PAE, 4-level and 5-level paging by one loop over a
 * description of the format. All entries are read first; then the rights are checked; then accessed
 * and dirty bits are set with compare-and-exchange, since other processors may change the entries
 * meanwhile: if one did, the walk starts again. Such a write marks the dirty log and is noted like
 * any store (shared_written()). mmu_tables() descends in the same way for the timing model, and
 * changes nothing. vCPU thread; general registers only.
 */
#include "cpu/mmu/priv.h"

#include "base/guarded.h"
#include "cpu/mmu/shared_code.h"
#include "cpu/event.h"
#include "x86/paging.h"

#define MAX_LEVELS TIMING_TABLES

struct paging {
	u8 top; /* level of the first table */
	u8 index_bits;
	u8 entry_size;
};

static const struct paging paging_32bit = { 2, 10, 4 };
static const struct paging paging_pae = { 2, 9, 8 }; /* below the PDPTEs, which are registers */
static const struct paging paging_4level = { 4, 9, 8 };
static const struct paging paging_5level = { 5, 9, 8 };

struct walker {
	struct cpu *cpu;
	gva_t gva;
	u32 access;
	bool quiet; /* no fault is raised, and no exit made */
	const struct paging *paging;
	u32 level;		   /* where the walk is; at its end the level of the leaf */
	u64 rights;		   /* PTE_U, PTE_W: set in all entries so far; PTE_NX: set in one */
	gpa_t gpa[MAX_LEVELS + 1]; /* by level: where the entry is, and what it was */
	u64 entry[MAX_LEVELS + 1];
};

enum step { STEP_ON, STEP_FAULT, STEP_EXIT, STEP_AGAIN };

enum guest_fault mmu_host_fault(struct cpu *cpu, gpa_t gpa)
{
	cpu->port.exit.reason = EXIT_HOST_FAULT;
	cpu->port.exit.gpa = gpa;
	return FAULT_EXIT;
}

static bool is_user(const struct walker *w)
{
	return w->cpu->cpl == 3 && !(w->access & ACCESS_SYSTEM);
}

/* SDM 3A 4.6.2: do protection keys forbid this access to the page that the walk has found? They are
 * about data on user pages, whatever the privilege of the access. */
static bool key_forbids(const struct walker *w, u32 access)
{
	const struct cpu *cpu = w->cpu;
	u32 key = PTE_KEY(w->entry[w->level]);

	if (!(cpu->cr4 & CR4_PKE) || !cpu_long_mode(cpu) || !(w->rights & PTE_U) ||
	    (access & ACCESS_FETCH))
		return false;
	if (cpu->pkru & PKRU_AD(key))
		return true;
	return (access & ACCESS_WRITE) && (cpu->pkru & PKRU_WD(key)) &&
	       (is_user(w) || (cpu->cr0 & CR0_WP));
}

/* The error code of SDM 3A 4.7; the caller supplies P, RSVD and PK. */
static enum step page_fault(struct walker *w, u32 error)
{
	const struct cpu *cpu = w->cpu;
	bool nx = (cpu->cr4 & CR4_PAE) && (cpu->efer & EFER_NX);

	if (w->quiet)
		return STEP_FAULT;
	if (w->access & ACCESS_WRITE)
		error |= PF_WRITE;
	if (is_user(w))
		error |= PF_USER;
	if ((w->access & ACCESS_FETCH) && (nx || (cpu->cr4 & CR4_SMEP)))
		error |= PF_FETCH;
	cpu_raise_pf(w->cpu, w->gva, error);
	return STEP_FAULT;
}

static gpa_t mask_a20(const struct cpu *cpu, gpa_t gpa)
{
	return unlikely(cpu->a20_masked) ? gpa & ~BIT(20) : gpa;
}

static u32 level_shift(const struct walker *w, u32 level)
{
	return PAGE_SHIFT + (level - 1) * w->paging->index_bits;
}

/* SDM 3A 4.3: with PSE-36, bits 39:32 of a 4M page's address are in bits 20:13 of its PDE. */
static u64 reserved_32bit(const struct walker *w, u64 entry)
{
	u32 address_bits = w->cpu->phys_bits < 40 ? w->cpu->phys_bits : 40;

	if (w->level != 2 || !(entry & PTE_PS) || !(w->cpu->cr4 & CR4_PSE))
		return 0;
	return MASK(21, address_bits > 32 ? address_bits - 19 : 13);
}

/* SDM 3A 4.4.2, 4.5.4. */
static u64 reserved_64bit(const struct walker *w, u64 entry)
{
	const struct cpu *cpu = w->cpu;
	u64 rsvd = cpu->phys_bits < 52 ? MASK(51, cpu->phys_bits) : 0;

	if (w->paging == &paging_pae)
		rsvd |= MASK(62, 52);
	if (!(cpu->efer & EFER_NX))
		rsvd |= PTE_NX;
	if (w->level >= 4)
		return rsvd | PTE_PS | (cpu_follows(cpu, RULE_GLOBAL_BIT_RESERVED) ? PTE_G : 0);
	if (w->level == 3 && !cpu_has(cpu, FEAT_PDPE1GB))
		return rsvd | PTE_PS;
	if (w->level > 1 && (entry & PTE_PS))
		rsvd |= LARGE_PAGE_RSVD(level_shift(w, w->level));
	return rsvd;
}

static u64 reserved(const struct walker *w, u64 entry)
{
	return w->paging->entry_size == 4 ? reserved_32bit(w, entry) : reserved_64bit(w, entry);
}

static bool is_leaf(const struct walker *w, u64 entry)
{
	if (w->level == 1)
		return true;
	if (!(entry & PTE_PS))
		return false;
	return w->paging->entry_size == 8 || (w->cpu->cr4 & CR4_PSE);
}

static gpa_t leaf_address(const struct walker *w)
{
	u64 entry = w->entry[w->level];
	u64 offset_mask = BIT(level_shift(w, w->level)) - 1;
	gpa_t page = entry & PTE_ADDR & ~offset_mask;

	if (w->paging->entry_size == 4 && w->level == 2)
		page |= (entry & MASK(20, 13)) << 19;
	return page | (w->gva & offset_mask);
}

/* Where the first table is. Chooses the format. */
static enum step start(struct walker *w, gpa_t *table)
{
	const struct cpu *cpu = w->cpu;

	w->rights = PTE_U | PTE_W;
	if (cpu_long_mode(cpu)) {
		w->paging = cpu->cr4 & CR4_LA57 ? &paging_5level : &paging_4level;
		*table = cpu->cr3 & PTE_ADDR;
	} else if (cpu->cr4 & CR4_PAE) {
		u64 pdpte = cpu->pdptr[w->gva >> 30 & 3];

		w->paging = &paging_pae;
		*table = pdpte & PTE_ADDR;
		if (!(pdpte & PTE_P))
			return page_fault(w, 0);
	} else {
		w->paging = &paging_32bit;
		*table = cpu->cr3 & MASK(31, 12);
	}
	w->level = w->paging->top;
	return STEP_ON;
}

/* KVM: a table outside RAM counts as not present. */
static enum step read_entry(struct walker *w, gpa_t table)
{
	u32 index = w->gva >> level_shift(w, w->level) & (BIT(w->paging->index_bits) - 1);
	gpa_t gpa = mask_a20(w->cpu, table + index * w->paging->entry_size);
	const struct mem_slot *slot = cpu_slot(w->cpu, gpa);

	w->gpa[w->level] = gpa;
	w->entry[w->level] = 0;
	if (!slot)
		return page_fault(w, 0);
	if (!guarded_read(&w->entry[w->level], mem_hva(slot, gpa), w->paging->entry_size)) {
		if (!w->quiet)
			mmu_host_fault(w->cpu, gpa);
		return STEP_EXIT;
	}
	return STEP_ON;
}

/* Down to the leaf. */
static enum step descend(struct walker *w)
{
	gpa_t table;
	enum step step = start(w, &table);

	for (; step == STEP_ON; w->level--) {
		u64 entry;

		step = read_entry(w, table);
		if (step != STEP_ON)
			break;
		entry = w->entry[w->level];
		if (!(entry & PTE_P))
			return page_fault(w, 0);
		if (entry & reserved(w, entry))
			return page_fault(w, PF_PRESENT | PF_RSVD);
		w->rights = (w->rights & (entry | PTE_NX)) | (entry & PTE_NX);
		if (is_leaf(w, entry))
			break;
		table = entry & PTE_ADDR;
	}
	return step;
}

/* SDM 3A 4.6.1. With EFER.NXE clear no walk ends with PTE_NX: the bit is reserved then. */
static bool user_allows(u64 rights, u32 access)
{
	if (!(rights & PTE_U))
		return false;
	if (access & ACCESS_FETCH)
		return !(rights & PTE_NX);
	return !(access & ACCESS_WRITE) || (rights & PTE_W);
}

static bool supervisor_allows(const struct cpu *cpu, u64 rights, u32 access)
{
	if (access & ACCESS_FETCH)
		return !(rights & PTE_NX) && !((rights & PTE_U) && (cpu->cr4 & CR4_SMEP));
	if ((rights & PTE_U) && (cpu->cr4 & CR4_SMAP) &&
	    (!(cpu->rflags & FL_AC) || (access & ACCESS_SYSTEM)))
		return false;
	return !(access & ACCESS_WRITE) || (rights & PTE_W) || !(cpu->cr0 & CR0_WP);
}

static bool allows(const struct walker *w, u32 access)
{
	if (key_forbids(w, access))
		return false;
	return is_user(w) ? user_allows(w->rights, access)
			  : supervisor_allows(w->cpu, w->rights, access);
}

static bool exchange(const struct walker *w, hva_t host, u64 old, u64 new, bool *done)
{
	u32 old32 = old;

	if (w->paging->entry_size == 4)
		return guarded_cmpxchg32((u32 *)host, &old32, new, done);
	return guarded_cmpxchg64((u64 *)host, &old, new, done);
}

/* KVM: tables in read-only slots keep their accessed and dirty bits as they are. */
static enum step set_bits(struct walker *w, u32 level, u64 bits)
{
	struct cpu *cpu = w->cpu;
	gpa_t gpa = w->gpa[level];
	u64 entry = w->entry[level];
	const struct mem_slot *slot;
	bool done;

	if ((entry & bits) == bits)
		return STEP_ON;
	slot = cpu_slot(cpu, gpa);
	if (slot->flags & MEM_READONLY)
		return STEP_ON;
	if (!exchange(w, mem_hva(slot, gpa), entry, entry | bits, &done)) {
		mmu_host_fault(cpu, gpa);
		return STEP_EXIT;
	}
	if (!done)
		return STEP_AGAIN;
	w->entry[level] |= bits;
	mem_mark_dirty(slot, gpa);
	shared_written(cpu, gpa, w->paging->entry_size);
	return STEP_ON;
}

/* SDM 3A 4.8. */
static enum step set_accessed(struct walker *w)
{
	enum step step = STEP_ON;

	for (u32 level = w->paging->top; level > w->level && step == STEP_ON; level--)
		step = set_bits(w, level, PTE_A);
	if (step == STEP_ON)
		step = set_bits(w, w->level, PTE_A | (w->access & ACCESS_WRITE ? PTE_D : 0));
	return step;
}

static enum step walk_once(struct walker *w)
{
	enum step step = descend(w);

	if (step != STEP_ON)
		return step;
	if (!allows(w, w->access))
		return page_fault(w, PF_PRESENT | (key_forbids(w, w->access) ? PF_PK : 0));
	return set_accessed(w);
}

enum guest_fault mmu_walk(struct cpu *cpu, gva_t gva, u32 access, struct walk *out)
{
	struct walker w;
	enum step step;

	w.cpu = cpu;
	w.gva = cpu_long_mode(cpu) ? gva : (u32)gva;
	w.access = access;
	w.quiet = false;
	if (!(cpu->cr0 & CR0_PG)) {
		out->gpa = mask_a20(cpu, w.gva);
		out->shift = PAGE_SHIFT;
		out->writable = out->global = true;
		return FAULT_NONE;
	}
	do
		step = walk_once(&w);
	while (step == STEP_AGAIN);
	if (step != STEP_ON)
		return step == STEP_FAULT ? FAULT_RAISED : FAULT_EXIT;
	out->gpa = mask_a20(cpu, leaf_address(&w));
	out->shift = level_shift(&w, w.level);
	out->global = (w.entry[w.level] & PTE_G) && (cpu->cr4 & CR4_PGE);
	out->writable = (access & ACCESS_WRITE) ||
			((w.entry[w.level] & PTE_D) && allows(&w, ACCESS_WRITE | access));
	return FAULT_NONE;
}

u32 mmu_tables(void *owner, gva_t gva, struct timing_table *out)
{
	struct cpu *cpu = owner;
	struct walker w = { .cpu = cpu, .gva = cpu_long_mode(cpu) ? gva : (u32)gva, .quiet = true };
	u32 n = 0;

	if (!(cpu->cr0 & CR0_PG) || descend(&w) != STEP_ON)
		return 0;
	for (u32 level = w.paging->top; level >= w.level; level--)
		out[n++] = (struct timing_table){ .entry = w.gpa[level],
						  .shift = level_shift(&w, level),
						  .above = level - 1 };
	return n;
}
