// SPDX-License-Identifier: MIT
/*
 * Guest physical memory: building and searching snapshots of the slot table. Searching runs on vCPU
 * threads while guest vector state is live and uses general registers only.
 */
#include "mem/mem.h"

#include <stdlib.h>

const struct mem_slot *mem_find(const struct mem_map *map, gpa_t gpa)
{
	u32 lo = 0, hi = map->nslots;

	while (lo < hi) {
		u32 mid = (lo + hi) / 2;
		const struct mem_slot *s = &map->slots[mid];

		if (gpa < s->base)
			hi = mid;
		else if (gpa - s->base >= s->npages << PAGE_SHIFT)
			lo = mid + 1;
		else
			return s;
	}
	return NULL;
}

const struct mem_slot *mem_find_id(const struct mem_map *map, u32 id)
{
	for (u32 i = 0; i < map->nslots; i++)
		if (map->slots[i].id == id)
			return &map->slots[i];
	return NULL;
}

bool mem_overlaps(const struct mem_map *map, u32 except_id, gpa_t base, u64 npages)
{
	for (u32 i = 0; i < map->nslots; i++) {
		const struct mem_slot *s = &map->slots[i];

		/* The address spaces (upper half of the id) do not see each other. */
		if (s->id == except_id || s->id >> 16 != except_id >> 16)
			continue;
		if (base < s->base + (s->npages << PAGE_SHIFT) &&
		    s->base < base + (npages << PAGE_SHIFT))
			return true;
	}
	return false;
}

static struct mem_map *map_alloc(u32 nslots)
{
	static u64 generation;
	struct mem_map *map = malloc(sizeof(*map) + nslots * sizeof(map->slots[0]));

	if (!map)
		return NULL;
	map->generation = __atomic_add_fetch(&generation, 1, __ATOMIC_RELAXED);
	map->nslots = 0;
	return map;
}

struct mem_map *mem_map_empty(void)
{
	return map_alloc(0);
}

struct mem_map *mem_map_with(const struct mem_map *old, const struct mem_slot *slot)
{
	struct mem_map *map = map_alloc(old->nslots + 1);
	bool placed = false;

	if (!map)
		return NULL;
	for (u32 i = 0; i < old->nslots; i++) {
		if (old->slots[i].id == slot->id)
			continue;
		if (!placed && slot->base < old->slots[i].base) {
			map->slots[map->nslots++] = *slot;
			placed = true;
		}
		map->slots[map->nslots++] = old->slots[i];
	}
	if (!placed)
		map->slots[map->nslots++] = *slot;
	return map;
}

struct mem_map *mem_map_without(const struct mem_map *old, u32 id)
{
	struct mem_map *map = map_alloc(old->nslots);

	if (!map)
		return NULL;
	for (u32 i = 0; i < old->nslots; i++)
		if (old->slots[i].id != id)
			map->slots[map->nslots++] = old->slots[i];
	return map;
}
