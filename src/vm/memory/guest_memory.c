// SPDX-License-Identifier: MIT
/*
 * The hypervisor's own accesses to guest memory: see vm/memory/guest_memory.h. Reads on any thread;
 * writes on the vCPU's, or on one that holds its lock.
 */
#include "vm/memory/guest_memory.h"

#include "base/guarded.h"
#include "cpu/mmu/shared_code.h"
#include "mem/mem.h"

static u32 in_page(gpa_t gpa, u32 size)
{
	u32 left = PAGE_SIZE - (gpa & ~PAGE_MASK);

	return size < left ? size : left;
}

bool guest_read(const struct mem_map *map, gpa_t gpa, void *buf, u32 size)
{
	u8 *to = buf;

	for (u32 n; size; gpa += n, to += n, size -= n) {
		const struct mem_slot *slot = mem_find(map, gpa);

		n = in_page(gpa, size);
		if (!slot || !guarded_read(to, mem_hva(slot, gpa), n))
			return false;
	}
	return true;
}

bool guest_write(struct cpu *cpu, gpa_t gpa, const void *buf, u32 size)
{
	const u8 *from = buf;

	for (u32 n; size; gpa += n, from += n, size -= n) {
		const struct mem_slot *slot = mem_find(cpu->port.mem, gpa);

		n = in_page(gpa, size);
		if (!slot || (slot->flags & MEM_READONLY) ||
		    !guarded_write(mem_hva(slot, gpa), from, n))
			return false;
		mem_mark_dirty(slot, gpa);
		shared_written(cpu, gpa, n);
	}
	return true;
}
