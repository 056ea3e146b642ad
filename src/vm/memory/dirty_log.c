// SPDX-License-Identifier: MIT
/*
 * The dirty log: KVM_GET_DIRTY_LOG, which also clears unless the program took that over, and
 * KVM_CLEAR_DIRTY_LOG (api.rst 4.8, 4.117, 7.28). Any thread outside of sections, under
 * vm->slots_lock: it waits for all vCPUs to leave theirs (vm_synchronize()).
 *
 * A vCPU marks a page when it first writes it and then writes through its TLB without asking. So
 * bits are cleared first, then every TLB is flushed, and only then does the program learn of them:
 * a write in between belongs to a page that is reported now, and a later one marks the page again.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/guarded.h"
#include "vm/vm.h"

static int find_logged(struct vm *vm, u32 id, const struct mem_slot **out)
{
	if (id >= VM_MAX_SLOTS)
		return -EINVAL;
	*out = mem_find_id(vm->mem, id);
	return *out && (*out)->dirty ? 0 : -ENOENT;
}

static void flush_tlbs(struct vm *vm)
{
	vm_kick_all(vm, REQUEST_TLB_FLUSH);
	vm_synchronize(vm);
}

/* Moves the bits to `copy`; true if there were any. */
static bool take_bits(const struct mem_slot *slot, u64 *copy, u64 words)
{
	u64 any = 0;

	for (u64 i = 0; i < words; i++) {
		if (READ_ONCE(slot->dirty[i]))
			copy[i] = __atomic_exchange_n(&slot->dirty[i], 0, __ATOMIC_SEQ_CST);
		any |= copy[i];
	}
	return any;
}

static int get_and_clear(struct vm *vm, const struct mem_slot *slot, void *user)
{
	u64 words = (slot->npages + 63) / 64;
	u64 *copy = calloc(words, sizeof(u64));
	int r;

	if (!copy)
		return -ENOMEM;
	if (take_bits(slot, copy, words))
		flush_tlbs(vm);
	r = guarded_write(user, copy, words * sizeof(u64)) ? 0 : -EFAULT;
	free(copy);
	return r;
}

int vm_get_dirty_log(struct vm *vm, const struct kvm_dirty_log *log)
{
	const struct mem_slot *slot;
	int r;

	pthread_mutex_lock(&vm->slots_lock);
	r = find_logged(vm, log->slot, &slot);
	if (r)
		goto unlock;
	if (!vm->set.manual_dirty_log)
		r = get_and_clear(vm, slot, log->dirty_bitmap);
	else if (!guarded_write(log->dirty_bitmap, slot->dirty,
				(slot->npages + 63) / 64 * sizeof(u64)))
		r = -EFAULT;
unlock:
	pthread_mutex_unlock(&vm->slots_lock);
	return r;
}

/* Clears the bits set in mask, from the word that holds page `first` on; true if any was set. */
static bool clear_bits(const struct mem_slot *slot, u64 first, const u64 *mask, u64 words)
{
	u64 any = 0;

	for (u64 i = 0; i < words; i++)
		if (mask[i])
			any |= mask[i] & __atomic_fetch_and(&slot->dirty[first / 64 + i], ~mask[i],
							    __ATOMIC_SEQ_CST);
	return any;
}

static int clear_log(struct vm *vm, const struct kvm_clear_dirty_log *log)
{
	u64 words = ((u64)log->num_pages + 63) / 64;
	const struct mem_slot *slot;
	u64 *mask, rest;
	int r;

	if (log->slot >= VM_MAX_SLOTS || log->first_page & 63)
		return -EINVAL;
	r = find_logged(vm, log->slot, &slot);
	if (r)
		return r;
	if (log->first_page > slot->npages)
		return -EINVAL;
	rest = slot->npages - log->first_page;
	if (log->num_pages > rest || (log->num_pages < rest && log->num_pages & 63))
		return -EINVAL;
	mask = calloc(words + 1, sizeof(u64));
	if (!mask)
		return -ENOMEM;
	if (!guarded_read(mask, log->dirty_bitmap, words * sizeof(u64)))
		r = -EFAULT;
	else if (clear_bits(slot, log->first_page, mask, words))
		flush_tlbs(vm);
	free(mask);
	return r;
}

int vm_clear_dirty_log(struct vm *vm, const struct kvm_clear_dirty_log *log)
{
	int r;

	pthread_mutex_lock(&vm->slots_lock);
	r = clear_log(vm, log);
	pthread_mutex_unlock(&vm->slots_lock);
	return r;
}
