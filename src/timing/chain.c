// SPDX-License-Identifier: MIT
/*
 * Indices that are loaded. A pointer shows by its value that an address depends on it; an index
 * does not, since the array's address is missing: address = base + scale * index. But the base
 * stays the same from one access to the next. So whatever base would explain an access is
 * remembered, and one that explains accesses to several addresses is taken for an array: hash
 * chains, trees in arrays, offsets into a window. Small values are never taken for an index: an
 * array that they span fits into the first level.
 *
 * vCPU thread; general registers only.
 */
#include "timing/chain.h"

#define INDEX_LEAST 1024u
#define SCALES	    4u /* 1, 2, 4, 8 */
#define SEEN_ENOUGH 3u
#define SEEN_MOST   255u

static struct chain_base *place_of(struct chain *c, u64 base)
{
	return &c->base[base * 0x9e3779b97f4a7c15ull >> (64 - CHAIN_BITS)];
}

static bool explains(struct chain_base *b, u64 base, u64 address)
{
	if (b->base != base) {
		/* One that has proved itself stays for a while. */
		if (b->seen > 0) {
			b->seen--;
			return false;
		}
		*b = (struct chain_base){ .base = base, .address = address };
		return false;
	}
	if (b->address != address && b->seen < SEEN_MOST)
		b->seen++;
	b->address = address;
	return b->seen >= SEEN_ENOUGH;
}

bool chain_follows(struct chain *c, u64 address, u64 value)
{
	bool found = false;

	if (value < INDEX_LEAST)
		return false;
	for (u32 i = 0; i < SCALES; i++) {
		u64 base = address - (value << i);

		found |= explains(place_of(c, base), base, address);
	}
	return found;
}
