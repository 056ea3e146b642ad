// SPDX-License-Identifier: MIT
/*
 * Memory for the caches that several processors share: zero pages until an event that needs the
 * timing model is counted. Before the first run and after the last; libc is allowed.
 */
#include <errno.h>
#include <sys/mman.h>

#include "base/must.h"
#include "timing/coherence.h"

static size_t bytes_of(const struct model *model)
{
	const struct model_cache *last = &model->cache[CACHE_L3];
	size_t sets = (size_t)last->kbytes * 1024 / LINE_SIZE / last->ways;

	return COHERENCE_SETS * COHERENCE_WAYS * sizeof(struct coherence_entry) +
	       sets * (LAST_PLACES * sizeof(u32) + sizeof(u64) + sizeof(u8));
}

int coherence_create(struct coherence *c, const struct model *model)
{
	size_t size = bytes_of(model);
	void *none = NULL, *memory;

	if (__atomic_load_n(&c->memory, __ATOMIC_ACQUIRE))
		return 0;
	memory = mmap(NULL, size, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return -ENOMEM;
	if (!__atomic_compare_exchange_n(&c->memory, &none, memory, false, __ATOMIC_ACQ_REL,
					 __ATOMIC_ACQUIRE))
		munmap(memory, size); /* another processor was faster */
	else
		c->size = size;
	return 0;
}

void coherence_destroy(struct coherence *c)
{
	if (c->memory)
		munmap(c->memory, c->size);
	c->memory = NULL;
}
