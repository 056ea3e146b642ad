// SPDX-License-Identifier: MIT
/*
 * The areas that FXSAVE, XSAVE and FNSTENV write and their opposites read. The instruction and data
 * pointers in them are overwritten afterwards (SDM 1 8.1.8: the processor may or may not keep them,
 * and the engine runs the instruction at another address).
 */
#include "diff.h"

#include <string.h>

/* opcode /reg at an absolute address. */
bool put_absolute(struct generator *g, enum family family, const u8 *opcode, u32 n, u8 reg,
		  u64 target, s64 imm)
{
	u8 bytes[15] = { 0 };
	u32 disp_at;

	memcpy(bytes, opcode, n);
	bytes[n++] = reg << 3 | 5;
	disp_at = n;
	memcpy(bytes + n, &target, 4);
	n += 4;
	if (imm >= 0)
		memcpy(bytes + n, &imm, 4);
	return put_item(g, family, bytes, n + 4, g->mode->is32 ? FIX_NONE : FIX_RIP, disp_at,
			target);
}

static void overwrite(struct generator *g, u64 target, u32 size)
{
	for (u32 i = 0; i < size; i += 4)
		if (put_absolute(g, FAMILY_xsave, (u8[]){ 0xc7 }, 1, 0, target + i,
				 rng_below(g->r, 1000)))
			g->seq->items[g->seq->n - 1].pinned = true;
}

/*
 * May something have set TF? A trap after the store would show what is to be overwritten. Or have
 * components been made initial? When they are in use again without having changed is up to the
 * processor (SDM 1 13.6).
 */
static bool unsuitable(const struct generator *g)
{
	for (u32 i = 0; i < g->seq->n; i++)
		switch (g->seq->items[i].mnemonic) {
		case ZYDIS_MNEMONIC_POPF:
		case ZYDIS_MNEMONIC_POPFD:
		case ZYDIS_MNEMONIC_POPFQ:
		case ZYDIS_MNEMONIC_VZEROALL:
		case ZYDIS_MNEMONIC_VZEROUPPER:
		case ZYDIS_MNEMONIC_XRSTOR:
			return true;
		}
	return false;
}

/* The host's XCR0 has more components than the guest's: they must not be asked for. */
static void set_mask(struct generator *g, u32 mask)
{
	append_item(g, FAMILY_xsave, (u8[]){ 0xb8, mask, 0, 0, 0 }, 5)->pinned = true;
	append_item(g, FAMILY_xsave, (u8[]){ 0xba, 0, 0, 0, 0 }, 5)->pinned = true;
}

/* The area is mostly where it fits; sometimes it starts before a page that cannot be written. */
static u64 pick_area(struct generator *g)
{
	u32 page = rng_one_in(g->r, 6) ? 1 + rng_below(g->r, DATA_PAGES - 1) : rng_below(g->r, 3);
	u32 offset = rng_below(g->r, PAGE_SIZE / 64) * 64 +
		     (rng_one_in(g->r, 12) ? rng_below(g->r, 64) : 0);

	return data_origin(g->seq) + page * PAGE_SIZE + offset;
}

static void between(struct generator *g)
{
	static const u8 families[] = { FAMILY_x87, FAMILY_sse2, FAMILY_avx, FAMILY_mmx };

	if (rng_one_in(g->r, 2))
		append_random(g, families[rng_below(g->r, 4)]);
}

static bool fxsave(struct generator *g, u64 area)
{
	u8 rex = rng_one_in(g->r, 2);

	if (g->mode->is32 || !rex)
		put_absolute(g, FAMILY_xsave, (u8[]){ 0x0f, 0xae }, 2, 0, area, -1);
	else
		put_absolute(g, FAMILY_xsave, (u8[]){ 0x48, 0x0f, 0xae }, 3, 0, area, -1);
	overwrite(g, area + 4, 20);
	between(g);
	if (rng_one_in(g->r, 2))
		put_absolute(g, FAMILY_xsave, (u8[]){ 0x0f, 0xae }, 2, 1, area, -1);
	return true;
}

/* XSTATE_BV, of which XSAVE keeps what it is not asked for: no components that only the host
 * knows. */
static void put_header(struct generator *g, u64 area)
{
	u64 at = area + XSAVE_HEADER;

	if (put_absolute(g, FAMILY_xsave, (u8[]){ 0xc7 }, 1, 0, at, rng_below(g->r, 8)))
		g->seq->items[g->seq->n - 1].pinned = true;
	if (put_absolute(g, FAMILY_xsave, (u8[]){ 0xc7 }, 1, 0, at + 4, 0))
		g->seq->items[g->seq->n - 1].pinned = true;
}

static bool xsave(struct generator *g, u64 area)
{
	static const struct {
		u8 opcode, reg;
		enum feature feature;
	} kinds[] = {
		{ 0xae, 4, FEAT_XSAVE },
		{ 0xc7, 4, FEAT_XSAVEC },
		{ 0xae, 6, FEAT_XSAVEOPT },
	};
	u32 kind = rng_below(g->r, ARRAY_SIZE(kinds));
	u32 mask = rng_below(g->r, 8);

	if (!host_has(kinds[kind].feature))
		return false;
	put_header(g, area);
	set_mask(g, mask);
	put_absolute(g, FAMILY_xsave, (u8[]){ 0x0f, kinds[kind].opcode }, 2, kinds[kind].reg, area,
		     -1);
	if (mask & 1)
		overwrite(g, area + 4, 20);
	between(g);
	set_mask(g, rng_below(g->r, 8));
	if (rng_one_in(g->r, 2))
		put_absolute(g, FAMILY_xsave, (u8[]){ 0x0f, 0xae }, 2, 5, area, -1);
	return true;
}

/* XCR0, or what of it is in use, without the components that only the host has. */
static bool xgetbv(struct generator *g)
{
	u8 which = rng_one_in(g->r, 4) ? rng_next(g->r) : rng_below(g->r, 2);
	u32 first = g->seq->n;

	if (which == 1 && !host_has(FEAT_XGETBV1))
		return false;
	append_item(g, FAMILY_xsave, (u8[]){ 0xb9, which, 0, 0, 0 }, 5);
	append_item(g, FAMILY_xsave, (u8[]){ 0x0f, 0x01, 0xd0 }, 3);
	append_item(g, FAMILY_xsave, (u8[]){ 0x83, 0xe0, 7 }, 3);
	append_item(g, FAMILY_xsave, (u8[]){ 0xba, 0, 0, 0, 0 }, 5);
	for (u32 i = first; i < g->seq->n; i++)
		g->seq->items[i].pinned = true;
	return true;
}

static bool environment(struct generator *g, u64 area)
{
	bool all = rng_one_in(g->r, 2);

	put_absolute(g, FAMILY_xsave, (u8[]){ all ? 0xdd : 0xd9 }, 1, 6, area, -1);
	overwrite(g, area + 12, 16);
	between(g);
	if (rng_one_in(g->r, 2))
		put_absolute(g, FAMILY_xsave, (u8[]){ all ? 0xdd : 0xd9 }, 1, 4, area, -1);
	return true;
}

bool append_state(struct generator *g)
{
	u64 area = pick_area(g);

	if (g->seq->n + 18 > SEQUENCE_MAX || g->seq->n < g->branch_end || unsuitable(g))
		return false;
	if (g->mode->is16) /* the others have no operand size prefix */
		return environment(g, area);
	switch (rng_below(g->r, 4)) {
	case 0:
		return xgetbv(g);
	case 3:
		return fxsave(g, area);
	case 1:
		return xsave(g, area);
	default:
		return environment(g, area);
	}
}
