// SPDX-License-Identifier: MIT
/*
 * 4-level and 5-level page walks (SDM 3A 4.5) that only read: see vm/control/peek.h. Any thread.
 */
#include "vm/control/peek.h"

#include "vm/memory/guest_memory.h"
#include "x86/paging.h"

#define INDEX_BITS  9
#define LARGE_SHIFT 30 /* of the largest page */

u32 peek_levels(u64 cr4)
{
	return cr4 & CR4_LA57 ? 5 : 4;
}

static bool is_leaf(u64 entry, u32 shift)
{
	return shift == PAGE_SHIFT || (shift <= LARGE_SHIFT && (entry & PTE_PS));
}

static bool walk(const struct mem_map *map, u64 cr3, u32 levels, gva_t gva, gpa_t *gpa)
{
	u64 entry = cr3;
	u32 shift = PAGE_SHIFT + levels * INDEX_BITS;

	do {
		gpa_t table = entry & PTE_ADDR;
		u64 index;

		shift -= INDEX_BITS;
		index = gva >> shift & MASK(INDEX_BITS - 1, 0);
		if (!guest_read(map, table + index * sizeof(entry), &entry, sizeof(entry)) ||
		    !(entry & PTE_P))
			return false;
	} while (!is_leaf(entry, shift));
	*gpa = (entry & PTE_ADDR & ~MASK(shift - 1, 0)) | (gva & MASK(shift - 1, 0));
	return true;
}

bool peek_linear(const struct mem_map *map, u64 cr3, u32 levels, gva_t gva, void *buf, u32 size)
{
	u8 *to = buf;

	for (u32 n; size; gva += n, to += n, size -= n) {
		u32 left = PAGE_SIZE - (gva & ~PAGE_MASK);
		gpa_t gpa;

		n = size < left ? size : left;
		if (!walk(map, cr3, levels, gva, &gpa) || !guest_read(map, gpa, to, n))
			return false;
	}
	return true;
}
