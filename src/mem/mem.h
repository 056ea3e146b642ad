/* SPDX-License-Identifier: MIT */
/*
 * Guest physical memory: the slots that the program registered, as an immutable sorted snapshot.
 *
 * A change builds a new snapshot, publishes it, and waits until no vCPU uses the old one (vm/). A
 * vCPU thread reads the snapshot its struct cpu points at, without locks. Dirty bitmaps and claims
 * belong to the slot, live as long as it and are shared between snapshots; vCPU threads change them
 * atomically. Their owner, which allocates and frees them, is vm/memory.
 */
#ifndef MEM_MEM_H
#define MEM_MEM_H

#include "base/types.h"

enum mem_flags {
	MEM_LOG_DIRTY = BIT(0), /* same values as KVM_MEM_* */
	MEM_READONLY = BIT(1),
};

struct mem_slot {
	u32 id; /* below MEM_MAX_IDS: there is one address space */
	u32 flags;
	gpa_t base;
	u64 npages;
	hva_t hva;
	u64 *dirty; /* one bit a page, NULL unless MEM_LOG_DIRTY; atomically set */
	/* One a page: processors that translated from it; cpu/mmu/shared_code.h. NULL:
	 * not shared */
	u16 *claims;
	u64 claims_id; /* unique number of the array */
	bool aliased;  /* another slot shows some of its host memory; kept by mem_map_with() */
};

#define MEM_MAX_IDS 32768

struct mem_map {
	u64 generation; /* differs between any two snapshots of a VM */
	u32 nslots;
	bool aliased;		   /* a slot is */
	u64 ids[MEM_MAX_IDS / 64]; /* bitmap of the ids in use */
	struct mem_slot slots[];   /* sorted by base, not overlapping */
};

/* The slot that holds a guest physical address, or NULL: MMIO. Any thread; no vector registers. */
const struct mem_slot *mem_find(const struct mem_map *map, gpa_t gpa);

static inline hva_t mem_hva(const struct mem_slot *slot, gpa_t gpa)
{
	return slot->hva + (gpa - slot->base);
}

/*
 * The other guest physical addresses of gpa's byte on the host, one a call: those in slots from
 * number *at on, which is 0 at first. False: there is no more. By host address: memory that the
 * program has mapped twice is two memories here. Any thread; no vector registers.
 */
bool mem_next_alias(const struct mem_map *map, const struct mem_slot *slot, gpa_t gpa, u32 *at,
		    gpa_t *alias);

static inline void mem_mark_dirty(const struct mem_slot *slot, gpa_t gpa)
{
	u64 page = (gpa - slot->base) >> PAGE_SHIFT;

	if (slot->dirty)
		__atomic_fetch_or(&slot->dirty[page / 64], BIT(page % 64), __ATOMIC_RELAXED);
}

/* The editor's side, under its lock. Each returns a new map, to be freed with free(), or NULL when
 * memory is short. */
struct mem_map *mem_map_empty(void);
/* Adds, or replaces by id. */
struct mem_map *mem_map_with(const struct mem_map *old, const struct mem_slot *slot);
struct mem_map *mem_map_without(const struct mem_map *old, u32 id);
const struct mem_slot *mem_find_id(const struct mem_map *map, u32 id);
bool mem_overlaps(const struct mem_map *map, u32 except_id, gpa_t base, u64 npages);

#endif
