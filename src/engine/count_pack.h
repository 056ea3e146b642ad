/* SPDX-License-Identifier: MIT */
/*
 * Packed counts. Classes to which an instruction adds at most one are counted in fields of a few
 * words, so that a block adds one constant for four classes. A field starts `distance` below its
 * guard bit, the uppermost, or as far below as it has room, so that the bit sets when the trip
 * point is reached or the field is full: a word ANDed with priv->guards is not 0 then.
 */
#ifndef ENGINE_COUNT_PACK_H
#define ENGINE_COUNT_PACK_H

#include "cpu/mode.h"

/* What a block may take back that it added before the field was restarted. */
#define PACK_ROOM 128

/* With these widths the counts of two classes lie in the lower 32 bits of a word: a block that
 * counts no others adds a short constant. */
#define PACK_BITS_MOST	22
#define PACK_BITS_LEAST 15

_Static_assert(PACK_FIELDS *PACK_BITS_LEAST <= 64 && 3 * 20 <= 64, "a word");

/* The width of a field: with fewer classes fields are wider and fill up later. */
static inline u32 pack_bits(retire_wanted set)
{
	set &= set - 1;
	set &= set - 1;
	if (!set)
		return PACK_BITS_MOST;
	return set & (set - 1) ? PACK_BITS_LEAST : 20;
}

static inline u64 pack_guard(u32 bits)
{
	return BIT(bits - 1);
}

static inline u32 pack_shift(u32 bits, u32 number)
{
	return bits * (number % PACK_FIELDS);
}

/* Of a class, by its number among those of the set. */
static inline s64 pack_field(const u64 *words, u32 bits, u32 number)
{
	return words[number / PACK_FIELDS] >> pack_shift(bits, number) & (BIT(bits) - 1);
}

/* Adds n for each of these classes that the set has. */
static inline void pack_add(u64 *words, retire_wanted set, retire_wanted classes, s64 n)
{
	u32 bits = pack_bits(set), number = 0;

	for (classes &= set; classes; set &= set - 1, number++) {
		retire_wanted class = set & -set;

		if (classes & class)
			words[number / PACK_FIELDS] += (u64)n << pack_shift(bits, number);
		classes &= ~class;
	}
}

#endif
