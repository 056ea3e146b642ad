// SPDX-License-Identifier: MIT
/*
 * Guest physical memory: building and searching snapshots of the slot table. Searching runs on vCPU
 * threads while guest vector state is live and uses general registers only; building allocates, on
 * the thread that changes the slots.
 */
#include "mem/mem.h"

#include <stdlib.h>

#include "base/bytes.h"
#include "base/must.h"

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

bool mem_next_alias(const struct mem_map *map, const struct mem_slot *slot, gpa_t gpa, u32 *at,
		    gpa_t *alias)
{
	const hva_t host = mem_hva(slot, gpa);

	while (slot->aliased && *at < map->nslots) {
		const struct mem_slot *s = &map->slots[(*at)++];
		u64 offset = (u64)host - (u64)s->hva;

		if (s != slot && offset < s->npages << PAGE_SHIFT) {
			*alias = s->base + offset;
			return true;
		}
	}
	return false;
}

const struct mem_slot *mem_find_id(const struct mem_map *map, u32 id)
{
	if (id >= MEM_MAX_IDS || !(map->ids[id / 64] >> (id % 64) & 1))
		return NULL;
	for (u32 i = 0; i < map->nslots; i++)
		if (map->slots[i].id == id)
			return &map->slots[i];
	return NULL;
}

/* How many slots begin below an address. */
static u32 count_below(const struct mem_map *map, gpa_t base)
{
	u32 lo = 0, hi = map->nslots;

	while (lo < hi) {
		u32 mid = (lo + hi) / 2;

		if (map->slots[mid].base < base)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static bool overlaps(const struct mem_slot *s, gpa_t base, u64 npages)
{
	return base < s->base + (s->npages << PAGE_SHIFT) &&
	       s->base < base + (npages << PAGE_SHIFT);
}

/* Slots do not overlap each other, so the one that begins below and the next two say it all. */
bool mem_overlaps(const struct mem_map *map, u32 except_id, gpa_t base, u64 npages)
{
	u32 below = count_below(map, base);

	for (u32 i = below ? below - 1 : 0; i < map->nslots && i < below + 2; i++)
		if (map->slots[i].id != except_id && overlaps(&map->slots[i], base, npages))
			return true;
	return false;
}

/* Do both show some of the same host memory? */
static bool share_host(const struct mem_slot *a, const struct mem_slot *b)
{
	return a->hva < b->hva + (b->npages << PAGE_SHIFT) &&
	       b->hva < a->hva + (a->npages << PAGE_SHIFT);
}

/* Marks a slot of the map that was not in it, and those that it shares host memory with. */
static void alias_new(struct mem_map *map, struct mem_slot *new)
{
	new->aliased = false;
	for (u32 i = 0; i < map->nslots; i++) {
		struct mem_slot *s = &map->slots[i];

		if (s != new && share_host(s, new))
			s->aliased = new->aliased = map->aliased = true;
	}
}

static bool shares_with_any(const struct mem_map *map, const struct mem_slot *slot)
{
	for (u32 i = 0; i < map->nslots; i++)
		if (&map->slots[i] != slot && share_host(&map->slots[i], slot))
			return true;
	return false;
}

/* The map was marked with a slot that is no longer in it. */
static void alias_gone(struct mem_map *map, const struct mem_slot *gone)
{
	if (!gone->aliased)
		return;
	map->aliased = false;
	for (u32 i = 0; i < map->nslots; i++) {
		struct mem_slot *s = &map->slots[i];

		if (share_host(s, gone))
			s->aliased = shares_with_any(map, s);
		map->aliased |= s->aliased;
	}
}

/*
 * Room for at least nslots, rounded up: a program that adds slots one by one (some add 32764) then
 * gets the same few sizes of memory again and again.
 */
static struct mem_map *map_alloc(u32 nslots)
{
	static u64 generation;
	struct mem_map *map;
	u64 room = 8;

	while (room < nslots)
		room *= 2;
	map = malloc(sizeof(*map) + room * sizeof(map->slots[0]));
	if (!map)
		return NULL;
	map->generation = __atomic_add_fetch(&generation, 1, __ATOMIC_RELAXED);
	map->nslots = 0;
	map->aliased = false;
	bytes_fill(map->ids, 0, sizeof(map->ids));
	return map;
}

struct mem_map *mem_map_empty(void)
{
	return map_alloc(0);
}

static void append(struct mem_map *map, const struct mem_slot *slots, u32 n)
{
	bytes_copy(&map->slots[map->nslots], slots, n * sizeof(*slots));
	map->nslots += n;
}

struct mem_map *mem_map_with(const struct mem_map *old, const struct mem_slot *slot)
{
	struct mem_map *map, *rest = NULL;
	u32 below;

	must(slot->id < MEM_MAX_IDS);
	if (mem_find_id(old, slot->id)) {
		rest = mem_map_without(old, slot->id);
		if (!rest)
			return NULL;
		old = rest;
	}
	map = map_alloc(old->nslots + 1);
	if (map) {
		below = count_below(old, slot->base);
		append(map, old->slots, below);
		append(map, slot, 1);
		append(map, old->slots + below, old->nslots - below);
		map->aliased = old->aliased;
		alias_new(map, &map->slots[below]);
		bytes_copy(map->ids, old->ids, sizeof(map->ids));
		map->ids[slot->id / 64] |= BIT(slot->id % 64);
	}
	free(rest);
	return map;
}

struct mem_map *mem_map_without(const struct mem_map *old, u32 id)
{
	const struct mem_slot *gone = mem_find_id(old, id);
	u32 at = gone ? gone - old->slots : old->nslots;
	struct mem_map *map = map_alloc(old->nslots);

	if (!map)
		return NULL;
	append(map, old->slots, at);
	map->aliased = old->aliased;
	bytes_copy(map->ids, old->ids, sizeof(map->ids));
	if (gone) {
		append(map, gone + 1, old->nslots - at - 1);
		alias_gone(map, gone);
		map->ids[id / 64] &= ~BIT(id % 64);
	}
	return map;
}
