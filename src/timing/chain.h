/* SPDX-License-Identifier: MIT */
/*
 * Which loads compute their addresses from what another one has loaded: chain.c.
 *
 * All zeroes is the state that knows of none.
 */
#ifndef TIMING_CHAIN_H
#define TIMING_CHAIN_H

#include "base/types.h"

#define CHAIN_BITS 9 /* log2 of the arrays remembered */

/* A constant that an address and a scaled value differed by: its hash, but for the bits that say
 * where it is; and how often it was seen, with another address each time. */
struct chain_base {
	u64 hash_seen;
	u64 address; /* the last one that it was seen with */
};

struct chain {
	struct chain_base base[1u << CHAIN_BITS];
};

#define INDEX_LEAST 1024u /* smaller values are no index */

bool chain_learn(struct chain *c, u64 address, u64 value); /* for chain_follows() */

/* A load of `address` missed, soon after one that loaded `value`: is the value an index that the
 * address was computed from? Learns. */
static inline bool chain_follows(struct chain *c, u64 address, u64 value)
{
	return value >= INDEX_LEAST && chain_learn(c, address, value);
}

#endif
