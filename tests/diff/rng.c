// SPDX-License-Identifier: MIT
/*
 * Random numbers for the differential test: SplitMix64, and values at which arithmetic goes wrong.
 */
#include "diff.h"

#include <string.h>

struct rng rng_for(u64 seed, u64 stream)
{
	struct rng r = { seed ^ stream * 0xd1342543de82ef95ull };

	rng_next(&r);
	return r;
}

u64 rng_next(struct rng *r)
{
	u64 z = r->s += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

u32 rng_below(struct rng *r, u32 n)
{
	return (u32)(rng_next(r) >> 32) * (u64)n >> 32;
}

bool rng_one_in(struct rng *r, u32 n)
{
	return rng_below(r, n) == 0;
}

u64 rng_value(struct rng *r)
{
	u64 v = rng_next(r);

	switch (rng_below(r, 8)) {
	case 0:
		return 0;
	case 1:
		return BIT(v % 64) - (v >> 8) % 3 + 1; /* around a power of two */
	case 2:
		return v % 256;
	case 3:
		return ~(v % 256);
	case 4:
		return (u32)v;
	case 5:
		return (u64)(s64)(s32)v;
	default:
		return v;
	}
}

void rng_fill(struct rng *r, void *buf, size_t size)
{
	u8 *p = buf;

	for (size_t i = 0; i < size; i += 8) {
		u64 v = rng_value(r);

		memcpy(p + i, &v, size - i < 8 ? size - i : 8);
	}
}

/* Exponent and sign patterns of single and double precision at which something special happens. */
static u64 float_value(struct rng *r)
{
	static const u32 single[] = { 0x00000000, 0x80000000, 0x3f800000, 0xbf800000, 0x7f800000,
				      0xff800000, 0x7fc00000, 0x7fa00001, 0x00000001, 0x007fffff,
				      0x00800000, 0x7f7fffff, 0x4f000000, 0x5f000000, 0x40490fdb };
	static const u64 twice[] = { 0x0000000000000000, 0x8000000000000000, 0x3ff0000000000000,
				     0xbff0000000000000, 0x7ff0000000000000, 0xfff0000000000000,
				     0x7ff8000000000000, 0x7ff4000000000001, 0x0000000000000001,
				     0x000fffffffffffff, 0x0010000000000000, 0x7fefffffffffffff,
				     0x41e0000000000000, 0x43e0000000000000, 0x400921fb54442d18 };
	u64 v = rng_next(r);

	switch (rng_below(r, 6)) {
	case 0:
		return single[rng_below(r, ARRAY_SIZE(single))] |
		       (u64)single[rng_below(r, ARRAY_SIZE(single))] << 32;
	case 1:
		return twice[rng_below(r, ARRAY_SIZE(twice))];
	case 2: /* doubles of moderate size */
		return (v & ~MASK(62, 52)) | (0x3ffull - 16 + v % 32) << 52;
	case 3: /* singles of moderate size */
		return (v & ~(MASK(62, 55) | MASK(30, 23))) | (0x7full - 8 + v % 16) << 55 |
		       (0x7full - 8 + (v >> 4) % 16) << 23;
	case 4: /* numbers that integers convert to and from */
		return rng_value(r);
	default:
		return v;
	}
}

void rng_floats(struct rng *r, void *buf, size_t size)
{
	u8 *p = buf;

	for (size_t i = 0; i < size; i += 8) {
		u64 v = float_value(r);

		memcpy(p + i, &v, size - i < 8 ? size - i : 8);
	}
}
