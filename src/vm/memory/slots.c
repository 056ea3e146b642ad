// SPDX-License-Identifier: MIT
/*
 * Memory slots: KVM_SET_USER_MEMORY_REGION and its successor (api.rst 4.35, 4.140). A change builds
 * a new snapshot of the table, publishes it and waits until no vCPU reads the old one; a vCPU that
 * begins a section with another snapshot flushes its TLB. A slot's dirty bits stay, its claims of
 * code (cpu/mmu/shared_code.h) do not. Any thread outside of sections, under vm->slots_lock.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "vm/vm.h"

#define USER_ADDRESS_END 0x7ffffffff000ull
#define SLOT_MAX_PAGES	 ((1ull << 31) - 1)
#define PHYSICAL_END	 (1ull << 52) /* KVM: kvm_mmu_max_gfn(), with shadow paging */

/* The checks that need no table (KVM: __kvm_set_memory_region). */
static bool region_sane(const struct kvm_userspace_memory_region2 *r)
{
	u64 size = r->memory_size;

	if (r->flags & ~(u32)(KVM_MEM_LOG_DIRTY_PAGES | KVM_MEM_READONLY))
		return false;
	if ((size | r->guest_phys_addr | r->userspace_addr) & ~PAGE_MASK)
		return false;
	if (r->userspace_addr > USER_ADDRESS_END || size > USER_ADDRESS_END - r->userspace_addr)
		return false;
	if (r->slot >= VM_MAX_SLOTS) /* the upper half would be an address space: there is one */
		return false;
	return r->guest_phys_addr + size >= r->guest_phys_addr &&
	       size >> PAGE_SHIFT <= SLOT_MAX_PAGES;
}

static u64 *dirty_create(const struct vm *vm, u64 npages)
{
	u64 words = (npages + 63) / 64;
	u64 *dirty = calloc(words, sizeof(u64));

	if (dirty && vm->set.manual_dirty_log & KVM_DIRTY_LOG_INITIALLY_SET) {
		memset(dirty, 0xff, words * sizeof(u64));
		if (npages % 64)
			dirty[words - 1] = BIT(npages % 64) - 1;
	}
	return dirty;
}

static bool claims_create(struct mem_slot *slot)
{
	static u64 last_id;

	slot->claims = calloc(slot->npages, sizeof(*slot->claims));
	slot->claims_id = __atomic_add_fetch(&last_id, 1, __ATOMIC_RELAXED);
	return slot->claims;
}

/* Makes `map` the VM's table; when this returns, no vCPU uses the old one. Slots lock held. */
static void publish(struct vm *vm, struct mem_map *map)
{
	const struct mem_map *old = vm->mem;

	__atomic_store_n(&vm->mem, map, __ATOMIC_SEQ_CST);
	__atomic_store_n(&vm->nslots, map->nslots, __ATOMIC_RELAXED);
	vm_synchronize(vm);
	free((void *)old);
}

static int slot_delete(struct vm *vm, const struct mem_slot *old)
{
	u16 *claims = old->claims;
	u64 *dirty = old->dirty;
	struct mem_map *map = mem_map_without(vm->mem, old->id);

	if (!map)
		return -ENOMEM;
	publish(vm, map);
	free(dirty);
	free(claims);
	return 0;
}

/* old: what the slot was, NULL when it is new. */
static int slot_put(struct vm *vm, const struct mem_slot *old, struct mem_slot *slot)
{
	u64 *had = old ? old->dirty : NULL;
	u16 *claims = old ? old->claims : NULL;
	struct mem_map *map;

	if (!claims_create(slot))
		return -ENOMEM;
	if (slot->flags & MEM_LOG_DIRTY) {
		slot->dirty = had ? had : dirty_create(vm, slot->npages);
		if (!slot->dirty)
			goto free_claims;
	}
	map = mem_map_with(vm->mem, slot);
	if (!map)
		goto free_dirty;
	publish(vm, map);
	if (had != slot->dirty)
		free(had);
	free(claims);
	return 0;

free_dirty:
	if (slot->dirty != had)
		free(slot->dirty);
free_claims:
	free(slot->claims);
	return -ENOMEM;
}

static int slot_change(struct vm *vm, const struct kvm_userspace_memory_region2 *r)
{
	const struct mem_slot *old = mem_find_id(vm->mem, r->slot);
	struct mem_slot slot = {
		.id = r->slot,
		.flags = r->flags,
		.base = r->guest_phys_addr,
		.npages = r->memory_size >> PAGE_SHIFT,
		.hva = (hva_t)r->userspace_addr,
	};

	if (!slot.npages)
		return old ? slot_delete(vm, old) : -EINVAL;
	if (old) {
		if (slot.hva != old->hva || slot.npages != old->npages ||
		    (slot.flags ^ old->flags) & MEM_READONLY)
			return -EINVAL;
		if (slot.base == old->base && slot.flags == old->flags)
			return 0;
	}
	if (mem_overlaps(vm->mem, slot.id, slot.base, slot.npages))
		return -EEXIST;
	if (r->guest_phys_addr + r->memory_size > PHYSICAL_END)
		return -EINVAL;
	return slot_put(vm, old, &slot);
}

int vm_set_memory_region(struct vm *vm, const struct kvm_userspace_memory_region2 *region)
{
	int r;

	if (!region_sane(region))
		return -EINVAL;
	pthread_mutex_lock(&vm->slots_lock);
	r = slot_change(vm, region);
	pthread_mutex_unlock(&vm->slots_lock);
	return r;
}
