// SPDX-License-Identifier: MIT
/*
 * From a form to bytes: random registers, an address that mostly lies in the sandbox, prefixes.
 * What follows the encoded part is random, too: the decoder takes from it what it needs for an
 * immediate.
 */
#include "diff.h"

#include <string.h>

static u32 pick_gpr(struct generator *g, enum register_class cls)
{
	u32 nregs = g->mode->is32 ? 8 : 16;

	for (u32 i = 0; i < 24; i++) {
		u32 reg = rng_below(g->r, nregs);
		bool already = g->seq->gpr_class[reg] == cls;

		if ((already || i >= 4) && want_gpr(g, reg, cls))
			return reg;
	}
	return RSP;
}

struct address {
	u8 mod, rm, sib;
	bool has_sib;
	u8 x, b;
	u8 v; /* EVEX.V': the fifth bit of a vector index */
	u8 disp_size;
	s32 disp;
	bool is_rip, is16;
	u64 target;
};

/* With EVEX one byte counts operands. */
static s32 pick_compressed(struct generator *g)
{
	return rng_one_in(g->r, 8) ? (s8)rng_next(g->r) : (s32)rng_below(g->r, 9) - 4;
}

static s32 pick_disp(struct generator *g, u32 size, u32 align)
{
	s32 disp = size == 1 ? (s8)rng_next(g->r) : (s32)rng_below(g->r, 0x400) - 0x200;

	return rng_one_in(g->r, 2) ? disp & -(s32)align : disp;
}

u64 pick_target(struct generator *g, u32 align)
{
	return data_origin(g->seq) + (rng_below(g->r, DATA_SIZE) & -align);
}

static void pick_address_absolute(struct generator *g, struct address *a, u32 align)
{
	a->disp_size = 4;
	a->target = pick_target(g, align);
	a->disp = (s32)a->target;
	a->rm = 5; /* RIP-relative in 64-bit mode */
	a->is_rip = !g->mode->is32;
	if (!g->mode->is32 && rng_one_in(g->r, 2)) {
		a->is_rip = false;
		a->has_sib = true;
		a->rm = 4;
		a->sib = 4 << 3 | 5;
	}
}

static void pick_address_scaled(struct generator *g, struct address *a, u32 index, u32 align)
{
	a->disp_size = 4;
	a->disp = (s32)pick_target(g, align);
	a->has_sib = true;
	a->rm = 4;
	a->sib = rng_below(g->r, 4) << 6 | (index & 7) << 3 | 5;
	a->x = index >> 3;
}

static void pick_address_based(struct generator *g, struct address *a, bool indexed, u32 index,
			       u32 align)
{
	static const u8 sizes[] = { 0, 1, 1, 4 };
	u32 base = pick_gpr(g, CLASS_POINTER);

	a->disp_size = sizes[rng_below(g->r, 4)];
	if (a->disp_size == 0 && (base & 7) == RBP)
		a->disp_size = 1;
	a->mod = a->disp_size == 0 ? 0 : a->disp_size == 1 ? 1 : 2;
	a->disp = a->disp_size ? pick_disp(g, a->disp_size, align) : 0;
	a->has_sib = indexed || (base & 7) == RSP;
	a->rm = a->has_sib ? 4 : base & 7;
	a->sib = (indexed ? rng_below(g->r, 4) << 6 | (index & 7) << 3 : 4 << 3) | (base & 7);
	a->x = indexed ? index >> 3 : 0;
	a->b = base >> 3;
}

/* The eight shapes of 16 bits (SDM 2A table 2-1). */
static void pick_address16(struct generator *g, struct address *a, u32 align)
{
	static const struct {
		u8 base, index;
	} shapes[8] = { { RBX, RSI }, { RBX, RDI }, { RBP, RSI }, { RBP, RDI },
			{ RSI, 0 },   { RDI, 0 },   { RBP, 0 },	  { RBX, 0 } };

	a->is16 = true;
	a->rm = rng_below(g->r, 8);
	a->mod = rng_below(g->r, 3);
	a->disp_size = a->mod;
	if (a->rm == 6 && a->mod == 0) {
		a->disp_size = 2;
		a->disp = (s32)pick_target(g, align);
		return;
	}
	want_gpr(g, shapes[a->rm].base, CLASS_POINTER);
	if (shapes[a->rm].index)
		want_gpr(g, shapes[a->rm].index, CLASS_SMALL);
	a->disp = a->disp_size ? pick_disp(g, a->disp_size, align) : 0;
}

/* Where offsets are small. */
static bool wants_address16(struct generator *g)
{
	return g->seq->ldt && (g->mode->is16 ? !rng_one_in(g->r, 4) : rng_one_in(g->r, 8));
}

static void pick_address(struct generator *g, struct address *a, bool vsib, bool evex, u32 align)
{
	u32 kind = rng_below(g->r, 8);
	bool indexed = vsib || kind < 3;
	u32 index = 0;

	memset(a, 0, sizeof(*a));
	if (!vsib && wants_address16(g)) {
		pick_address16(g, a, align);
		return;
	}
	if (vsib)
		index = rng_below(g->r, g->mode->is32 ? 8 : evex ? 32 : 16);
	else if (indexed)
		index = pick_gpr(g, CLASS_SMALL);
	if (!vsib && index == RSP)
		indexed = false;
	if (kind == 7 && !vsib)
		pick_address_absolute(g, a, align);
	else if (kind == 0 && indexed)
		pick_address_scaled(g, a, index, align);
	else
		pick_address_based(g, a, indexed, index, align);
	a->x &= 1;
	a->v = vsib ? index >> 4 : 0;
	if (evex && a->disp_size == 1)
		a->disp = pick_compressed(g);
}

static bool other_address_size(struct generator *g, const struct form *f, const struct address *a)
{
	if (f->has_modrm && f->modrm < 0xc0 && a->is16 != g->mode->is16)
		return true;
	return rng_one_in(g->r, g->seq->ldt	? 16
				: g->mode->is32 ? 200
						: 20) &&
	       !(f->has_modrm && g->seq->ldt);
}

static u32 put_prefixes(struct generator *g, const struct form *f, const struct address *a,
			bool memory, u8 *out)
{
	static const u8 segments[] = { 0x64, 0x65, 0x64, 0x65, 0x2e, 0x3e, 0x26, 0x36 };
	u32 n = 0;

	if (memory && rng_one_in(g->r, 12))
		out[n++] = segments[rng_below(g->r, 8)];
	if (memory && other_address_size(g, f, a))
		out[n++] = 0x67;
	if (f->is_vex || f->is_evex)
		return n;
	if (memory && f->family <= FAMILY_semaphore && rng_one_in(g->r, 3))
		out[n++] = 0xf0;
	if ((f->pp == 0xf3 || f->pp == 0xf2) && rng_one_in(g->r, 5))
		out[n++] = 0x66;
	if (f->pp)
		out[n++] = f->pp;
	return n;
}

static bool is_vsib(const struct form *f)
{
	return f->family == FAMILY_gather || f->family == FAMILY_evex_gather ||
	       f->family == FAMILY_evex_scatter;
}

static u32 put_vex(struct generator *g, const struct form *f, const struct address *a, u8 *out)
{
	u8 pp = f->pp == 0x66 ? 1 : f->pp == 0xf3 ? 2 : f->pp == 0xf2 ? 3 : 0;
	u8 r = g->mode->is32 ? 0 : rng_below(g->r, 2);
	u8 vvvv = rng_one_in(g->r, 3) ? 0 : rng_below(g->r, g->mode->is32 ? 8 : 16);
	u8 last = (~vvvv & 15) << 3 | f->l << 2 | pp;

	if (f->map == MAP_0F && !f->w && !a->x && !a->b && rng_one_in(g->r, 2)) {
		out[0] = 0xc5;
		out[1] = (!r) << 7 | last;
		return 2;
	}
	out[0] = 0xc4;
	out[1] = (!r) << 7 | (!a->x) << 6 | (!a->b) << 5 | f->map;
	out[2] = f->w << 7 | last;
	return 3;
}

/* A random bit where it means a register that exists, 1 (which is 0) elsewhere. */
static u8 inverted_bit(struct generator *g)
{
	return g->mode->is32 || rng_one_in(g->r, 2);
}

/* SDM 2A 2.7.1. Of a register in ModRM.rm X is the fifth bit. */
static u32 put_evex(struct generator *g, const struct form *f, const struct address *a, u8 *out)
{
	u8 pp = f->pp == 0x66 ? 1 : f->pp == 0xf3 ? 2 : f->pp == 0xf2 ? 3 : 0;
	bool memory = f->modrm < 0xc0, vsib = memory && is_vsib(f);
	u8 vvvv = rng_one_in(g->r, 3) ? 0 : rng_below(g->r, g->mode->is32 ? 8 : 32);
	u8 mask = rng_one_in(g->r, 4) ? 0 : rng_below(g->r, 8);
	bool zeroing = mask && rng_one_in(g->r, 3);
	u8 x = memory ? !a->x : inverted_bit(g);
	u8 v = vsib ? !a->v : !(vvvv >> 4);

	if (vsib)
		vvvv = 0;
	out[0] = 0x62;
	out[1] = inverted_bit(g) << 7 | x << 6 | (!a->b) << 5 | inverted_bit(g) << 4 | f->map;
	out[2] = f->w << 7 | (~vvvv & 15) << 3 | 4 | pp;
	out[3] = zeroing << 7 | f->l << 5 | f->b << 4 | v << 3 | mask;
	return 4;
}

static u32 put_legacy(struct generator *g, const struct form *f, const struct address *a, u8 *out)
{
	u8 rex = 0x40 | f->w << 3 | rng_below(g->r, 2) << 2 | a->x << 1 | a->b;
	u32 n = 0;

	/* Half the time without, for AH to BH. */
	if (!g->mode->is32 && (f->w || a->x || a->b || rng_one_in(g->r, 2)))
		out[n++] = rex;
	if (f->map)
		out[n++] = 0x0f;
	if (f->map >= MAP_0F38)
		out[n++] = f->map == MAP_0F38 ? 0x38 : 0x3a;
	return n;
}

static u32 put_prefix(struct generator *g, const struct form *f, const struct address *a, u8 *out)
{
	if (f->is_evex)
		return put_evex(g, f, a, out);
	return f->is_vex ? put_vex(g, f, a, out) : put_legacy(g, f, a, out);
}

/* Returns where in the bytes the displacement is. */
static u32 put_modrm(const struct form *f, const struct address *a, u8 *out, u32 *n)
{
	u32 disp_at;

	if (f->modrm >= 0xc0) {
		out[(*n)++] = f->is_evex ? (f->modrm & ~7) | a->rm : f->modrm;
		return 0;
	}
	out[(*n)++] = a->mod << 6 | (f->modrm & 0x38) | a->rm;
	if (a->has_sib)
		out[(*n)++] = a->sib;
	disp_at = *n;
	memcpy(out + *n, &a->disp, a->disp_size);
	*n += a->disp_size;
	return disp_at;
}

void encode_form(struct generator *g, const struct form *f, struct candidate *c)
{
	bool memory = !f->has_modrm || f->modrm < 0xc0;
	u32 align = f->is_evex ? 64 : f->family >= FAMILY_x87 ? 16 : 4;
	struct address a = { 0 };
	u32 n, disp_at;

	if (f->has_modrm && memory)
		pick_address(g, &a, is_vsib(f), f->is_evex, align);
	else if (!g->mode->is32)
		a.b = rng_below(g->r, 2);
	if (f->is_evex && f->modrm >= 0xc0)
		a.rm = rng_below(g->r, 8);
	rng_fill(g->r, c->bytes, sizeof(c->bytes));
	n = put_prefixes(g, f, &a, memory, c->bytes);
	n += put_prefix(g, f, &a, c->bytes + n);
	c->bytes[n++] = f->opcode;
	disp_at = f->has_modrm ? put_modrm(f, &a, c->bytes, &n) : 0;
	c->rip_at = a.is_rip ? disp_at : 0;
	c->target = a.target;
}
