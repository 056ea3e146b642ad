// SPDX-License-Identifier: MIT
/*
 * Instructions that move pointers into the data pages from register to register, a known distance
 * along or to a constant, as compilers make them: what accesses through them have in common is what
 * the translator must get right.
 */
#include "diff.h"

#include <string.h>

enum {
	OP_GROUP1 = 0x83,
	OP_STORE = 0x89,
	OP_MOV = 0x8b,
	OP_LEA = 0x8d,
	OP_MOV_IMM = 0xb8,
	OP_GROUP5 = 0xff
};

/* A REX prefix for 64 bits, where there is one; returns its length. */
static u32 put_rex(const struct generator *g, u8 *out, u32 reg, u32 rm)
{
	if (g->mode->is32)
		return 0;
	*out = 0x48 | reg >> 3 << 2 | rm >> 3;
	return 1;
}

static u32 put_copy(struct generator *g, u8 *out, u32 to, u32 from)
{
	u32 n = put_rex(g, out, to, from);

	out[n++] = OP_MOV;
	out[n++] = 0xc0 | (to & 7) << 3 | (from & 7);
	return n;
}

static u32 put_lea(struct generator *g, u8 *out, u32 to, u32 from)
{
	u32 n = put_rex(g, out, to, from);

	out[n++] = OP_LEA;
	out[n++] = 0x40 | (to & 7) << 3 | (from & 7);
	if ((from & 7) == RSP)
		out[n++] = 0x24;
	out[n++] = rng_next(g->r);
	return n;
}

/* An opcode that is extended by the ModRM's middle. */
static u32 put_extended(struct generator *g, u8 *out, u8 opcode, u8 extension, u32 to)
{
	u32 n = put_rex(g, out, 0, to);

	out[n++] = opcode;
	out[n++] = 0xc0 | extension << 3 | (to & 7);
	return n;
}

static u32 put_add_or_sub(struct generator *g, u8 *out, u32 to, u32 unused)
{
	u32 n = put_extended(g, out, OP_GROUP1, rng_one_in(g->r, 2) ? 0 : 5, to);

	(void)unused;
	out[n++] = rng_next(g->r);
	return n;
}

static u32 put_inc_or_dec(struct generator *g, u8 *out, u32 to, u32 unused)
{
	(void)unused;
	return put_extended(g, out, OP_GROUP5, rng_below(g->r, 2), to);
}

/* Of 32 bits, and zero-extended; half of them near each other. */
static u32 put_constant(struct generator *g, u8 *out, u32 to, u32 unused)
{
	u32 n = 0, near = data_origin(g->seq) + PAGE_SIZE / 2 + rng_below(g->r, 0x100);
	u32 target = rng_one_in(g->r, 2) ? near : pick_target(g, 1);

	(void)unused;
	if (to >= 8)
		out[n++] = 0x41;
	out[n++] = OP_MOV_IMM | (to & 7);
	memcpy(out + n, &target, 4);
	return n + 4;
}

/* mov %reg, disp(%base) */
static bool append_store(struct generator *g, u32 base)
{
	u32 reg = rng_below(g->r, g->mode->is32 ? 8 : 16), n;
	u8 bytes[15];

	n = put_rex(g, bytes, reg, base);
	bytes[n++] = OP_STORE;
	bytes[n++] = 0x40 | (reg & 7) << 3 | (base & 7);
	if ((base & 7) == RSP)
		bytes[n++] = 0x24;
	bytes[n++] = rng_next(g->r);
	return append_item(g, FAMILY_pointer, bytes, n);
}

bool append_pointer(struct generator *g)
{
	static u32 (*const kinds[])(struct generator *, u8 *, u32, u32) = {
		put_copy, put_copy, put_lea, put_lea, put_add_or_sub, put_inc_or_dec, put_constant,
	};
	u32 kind = rng_below(g->r, ARRAY_SIZE(kinds)), nregs = g->mode->is32 ? 8 : 16;
	u32 to = rng_below(g->r, nregs), from = rng_below(g->r, nregs);
	u8 bytes[15];

	if (!want_gpr(g, to, CLASS_POINTER) || !want_gpr(g, from, CLASS_POINTER))
		return false;
	if (rng_one_in(g->r, 2))
		append_store(g, from);
	if (!append_item(g, FAMILY_pointer, bytes, kinds[kind](g, bytes, to, from)))
		return false;
	g->written[to] = false; /* it is a pointer still */
	return rng_one_in(g->r, 2) || append_store(g, to);
}
