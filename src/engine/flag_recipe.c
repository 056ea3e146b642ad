// SPDX-License-Identifier: MIT
/*
 * Flags from operands (SDM 1 3.4.3.1, and the instructions' own pages). vCPU thread, signal
 * handlers included; general registers only.
 */
#include "engine/flag_recipe.h"

#include "engine/insn.h"

/* LAHF's byte: bit 1 is always set. */
#define LAHF_ALWAYS 2u

static u64 value(const struct recipe *r, u8 reg, const u64 regs[16])
{
	u64 v = reg == NO_REG ? (u64)(s64)r->imm : regs[reg];

	return v & (~0ull >> (64 - 8 * r->size));
}

/* left op right gave result, all cut to the size. */
static u32 flags_of(u64 left, u64 right, u64 result, u32 size, bool subtract)
{
	u32 top = 8 * size - 1;
	u64 carry = subtract ? left < right : result < left;
	u64 overflow = (subtract ? (left ^ right) & (left ^ result)
				 : (left ^ result) & (right ^ result)) >>
			       top &
		       1;
	u64 adjust = (left ^ right ^ result) >> 4 & 1;
	u64 low = carry * FL_CF | !__builtin_parity(result & 0xff) * FL_PF | adjust * FL_AF |
		  !result * FL_ZF | (result >> top & 1) * FL_SF;

	return (u32)(low | LAHF_ALWAYS) << 8 | overflow;
}

u32 recipe_flags(const struct recipe *r, const u64 regs[16])
{
	u64 mask = ~0ull >> (64 - 8 * r->size);
	u64 a = value(r, r->a, regs), b = value(r, r->b, regs);

	switch (r->kind) {
	case RECIPE_COMPARE:
		return flags_of(a, b, (a - b) & mask, r->size, true);
	case RECIPE_ADDED:
		return flags_of((a - b) & mask, b, a, r->size, false);
	case RECIPE_TAKEN:
		return flags_of((a + b) & mask, b, a, r->size, true);
	default: /* logic: no carry, no overflow, no adjust */
		return flags_of(a & b, 0, a & b, r->size, false);
	}
}
