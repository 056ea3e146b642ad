// SPDX-License-Identifier: MIT
/*
 * Random bytes as guest code: see garbage.h.
 */
#include "fuzz/garbage.h"

#include "guest/image.h"

/* First bytes that lead to whole instructions: prefixes, escapes, system and string
 * instructions. */
static const u8 lead[] = { 0x0f, 0x0f, 0x0f, 0x48, 0x48, 0x4c, 0x66, 0xf0, 0xf2, 0xf3, 0xc5, 0xc4,
			   0x62, 0x8e, 0x8c, 0xff, 0xf7, 0xf6, 0xa4, 0xa5, 0xaa, 0xab, 0xa6, 0xae,
			   0x6c, 0x6e, 0xe4, 0xec, 0xcd, 0xcf, 0xcb, 0xca, 0xc8, 0xc9, 0x9c, 0x9d,
			   0xfa, 0xfb, 0xd9, 0xdd, 0x8b, 0x89, 0x87, 0x01, 0x31, 0x83, 0x81, 0xc1,
			   0xd3, 0x75, 0x74, 0xeb, 0xe8, 0xc3, 0xe2, 0x64, 0x65 };

static u8 leaning_byte(struct rng *r)
{
	switch (rng_below(r, 4)) {
	case 0:
		return lead[rng_below(r, ARRAY_SIZE(lead))];
	case 1:
		return (u8)rng_below(r, 0x40); /* ModRM without displacement, small numbers */
	default:
		return (u8)rng_next(r);
	}
}

void garbage_fill(struct rng *r, u8 *code)
{
	bool leaning = rng_one_in(r, 2);

	for (u32 i = 0; i < GARBAGE_SIZE; i++)
		code[i] = leaning ? leaning_byte(r) : (u8)rng_next(r);
}

u64 garbage_register(struct rng *r)
{
	switch (rng_below(r, 5)) {
	case 0:
		return IMAGE_DATA + rng_below(r, 0x10000);
	case 1:
		return IMAGE_CODE + rng_below(r, GARBAGE_SIZE);
	case 2:
		return IMAGE_MMIO + rng_below(r, 0x1000);
	case 3:
		return rng_below(r,
				 (u32)IMAGE_DATA); /* descriptor and page tables, the hole at 0 */
	default:
		return rng_value(r);
	}
}
