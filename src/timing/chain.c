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

#define SCALES	    4u /* 1, 2, 4, 8 */
#define SEEN_ENOUGH 3u
#define SEEN_MOST   255u
#define SEEN	    255ull /* the lowest bits of hash_seen */
#define EMPTY_NOT   BIT(8)
#define FACTOR	    0x9e3779b97f4a7c15ull /* odd: no two constants have one hash */

_Static_assert(CHAIN_BITS == 9, "room for what is seen");

/* What a place has of a hash. Empty places are all zeroes, and seem to have 0, which is its own
 * hash and belongs to the first of them: no other may look like it. */
static u64 kept_of(u64 hash)
{
	u64 kept = hash << CHAIN_BITS;

	return kept || !hash ? kept : EMPTY_NOT;
}

static bool explains(struct chain *c, u64 hash, u64 address)
{
	struct chain_base *b = &c->base[hash >> (64 - CHAIN_BITS)];
	u64 kept = kept_of(hash), seen = b->hash_seen & SEEN;

	if (likely((b->hash_seen ^ seen) != kept)) {
		/* One that has proved itself stays for a while. */
		if (seen)
			b->hash_seen--;
		else
			*b = (struct chain_base){ .hash_seen = kept, .address = address };
		return false;
	}
	seen += b->address != address && seen < SEEN_MOST;
	*b = (struct chain_base){ .hash_seen = kept | seen, .address = address };
	return seen >= SEEN_ENOUGH;
}

/* Of address - value * scale the hash is the difference of the hashes. */
bool chain_learn(struct chain *c, u64 address, u64 value)
{
	u64 whole = address * FACTOR, part = value * FACTOR;
	bool found = false;

	for (u32 i = 0; i < SCALES; i++)
		found |= explains(c, whole - (part << i), address);
	return found;
}
