// SPDX-License-Identifier: MIT
/*
 * What a device has written before it interrupts: see vm/irq/written.h.
 *
 * A page that a processor has translated from is claimed in its slot (cpu/mmu/shared_code.h). Here
 * the device has written, and the claims are looked at; a processor claims and then compares the
 * page once more, when it next looks for changes and so before it takes this interrupt
 * (cache_check_shared()). One of both sees the other: code that was read before the device wrote is
 * found.
 *
 * The thread that takes signals of irqfds, or a vCPU that does it in its place.
 */
#include "vm/irq/written.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/inherited.h"
#include "base/log.h"
#include "base/memfile.h"
#include "base/written.h"
#include "vm/vm.h"

void written_environment(struct vm *vm)
{
	int fd;

	if (!inherited_take("VPMU_WRITTEN", &fd, 1))
		return;
	vm->written.ring = memfile_map(fd, sizeof(*vm->written.ring));
	if (vm->written.ring)
		vm->written.seen = __atomic_load_n(&vm->written.ring->next, __ATOMIC_ACQUIRE);
	else
		log_warn("VPMU_WRITTEN cannot be mapped");
}

void written_destroy(struct vm *vm)
{
	if (vm->written.ring)
		munmap((void *)vm->written.ring, sizeof(*vm->written.ring));
}

static bool claimed_in(const struct mem_slot *slot, gpa_t gpa)
{
	return !slot->claims ||
	       __atomic_load_n(&slot->claims[(gpa - slot->base) >> PAGE_SHIFT], __ATOMIC_SEQ_CST);
}

/* At this address, or at another one of the same host memory. */
static bool claimed(const struct mem_map *map, gpa_t gpa)
{
	const struct mem_slot *slot = mem_find(map, gpa);
	bool found = slot && claimed_in(slot, gpa);
	gpa_t alias;
	u32 at = 0;

	while (slot && !found && mem_next_alias(map, slot, gpa, &at, &alias))
		found = claimed_in(mem_find(map, alias), alias);
	return found;
}

static bool any_claimed(const struct mem_map *map, u64 range)
{
	u64 more = range & ~PAGE_MASK;

	for (u64 i = 0; i <= more; i++)
		if (claimed(map, (range & PAGE_MASK) + i * PAGE_SIZE))
			return true;
	return false;
}

/* May ranges since `seen` be overwritten? That of `next` is stored before `next` is. */
static bool overrun(u64 seen, u64 next)
{
	return next - seen >= WRITTEN_RANGES;
}

/* From `seen` up to `next`. Ranges that were overwritten meanwhile are not known. */
static bool ring_has_code(const struct vm *vm, u64 seen, u64 next)
{
	const struct written *ring = vm->written.ring;
	bool found = false;

	if (overrun(seen, next))
		return true;
	for (u64 i = seen; i != next && !found; i++) {
		u64 range = __atomic_load_n(&ring->range[i % WRITTEN_RANGES], __ATOMIC_RELAXED);

		found = range == WRITTEN_ALL || any_claimed(vm->mem, range);
	}
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return found || overrun(seen, __atomic_load_n(&ring->next, __ATOMIC_SEQ_CST));
}

/* Slots stay while their lock is held. One that changes them waits for vCPUs, of which this thread
 * may be one: it waits for neither. */
static bool wrote_code(struct vm *vm)
{
	u64 next = __atomic_load_n(&vm->written.ring->next, __ATOMIC_SEQ_CST);
	bool found = true;

	if (!pthread_mutex_trylock(&vm->slots_lock)) {
		found = ring_has_code(vm, vm->written.seen, next);
		pthread_mutex_unlock(&vm->slots_lock);
	}
	vm->written.seen = next;
	return found;
}

void written_signalled(struct vm *vm, u64 signals)
{
	if (!vm->written.ring || !written_told(signals) || wrote_code(vm))
		shared_outside(&vm->code);
}
