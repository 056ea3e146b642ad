// SPDX-License-Identifier: MIT
/*
 * Code that changes itself: a store into an instruction that comes soon, in a straight line or at
 * every turn of a loop. The new bytes are an instruction of the same length.
 */
#include "diff.h"

#include <string.h>

/* What is changed: the instruction, and the byte of it. */
struct victim {
	u8 bytes[2], len, at;
};

/* inc or dec of a register of 8 bits */
static u8 change_of_modrm(struct rng *r)
{
	return (rng_one_in(r, 2) ? 0xc0 : 0xc8) | rng_below(r, 4);
}

static u8 change_of_immediate(struct rng *r)
{
	return rng_next(r);
}

/* NOP, CMC, CLC, STC, CWDE */
static u8 change_of_nop(struct rng *r)
{
	static const u8 opcodes[] = { 0x90, 0xf5, 0xf8, 0xf9, 0x98 };

	return opcodes[rng_below(r, ARRAY_SIZE(opcodes))];
}

static u8 change_of_condition(struct rng *r)
{
	return 0x70 | rng_below(r, 16);
}

static const struct {
	struct victim victim;
	u8 (*change)(struct rng *r);
	bool branches;
} kinds[] = {
	{ { { 0xfe, 0xc0 }, 2, 1 }, change_of_modrm, false },
	{ { { 0xb3, 0x11 }, 2, 1 }, change_of_immediate, false }, /* mov $, %bl */
	{ { { 0x04, 0x11 }, 2, 1 }, change_of_immediate, false }, /* add $, %al */
	{ { { 0x90 }, 1, 0 }, change_of_nop, false },
	{ { { 0x74, 0x00 }, 2, 0 }, change_of_condition, true },
};

/* mov, or xor, of an immediate byte into byte `at` of an item */
static bool put_change(struct generator *g, bool flip, u8 value, u64 item, u32 at)
{
	const u8 bytes[] = { flip ? 0x80 : 0xc6, flip ? 0x35 : 0x05, 0, 0, 0, 0, value };

	if (!put_item(g, FAMILY_modify, bytes, sizeof(bytes), g->mode->is32 ? FIX_ABS32 : FIX_REL32,
		      2, item))
		return false;
	g->seq->items[g->seq->n - 1].fix_add = at;
	g->seq->items[g->seq->n - 1].pinned = true; /* what it changes must not move */
	return true;
}

static void put_victim(struct generator *g, u32 kind)
{
	const struct victim *v = &kinds[kind].victim;
	u64 behind = g->seq->n + 2;

	if (kinds[kind].branches)
		put_item(g, FAMILY_modify, v->bytes, v->len, FIX_REL8, 1, behind);
	else
		append_item(g, FAMILY_modify, v->bytes, v->len);
	g->seq->items[g->seq->n - 1].pinned = true;
	if (kinds[kind].branches && g->branch_end < behind)
		g->branch_end = behind;
}

/* The change, perhaps something else, and what is changed. */
static bool change_once(struct generator *g)
{
	u32 kind = rng_below(g->r, ARRAY_SIZE(kinds));
	u32 at = g->seq->n;

	if (!put_change(g, false, kinds[kind].change(g->r), 0, kinds[kind].victim.at))
		return false;
	if (rng_one_in(g->r, 2))
		append_random(g, FAMILY_move);
	g->seq->items[at].target = g->seq->n;
	put_victim(g, kind);
	return true;
}

/* mov $n, %ecx; 1: the victim, changed by what it differs in from another; dec %ecx; jnz 1b */
static bool change_in_loop(struct generator *g)
{
	u32 kind = rng_below(g->r, ARRAY_SIZE(kinds) - 1); /* not the one that leaves the loop */
	const struct victim *v = &kinds[kind].victim;
	u8 flip = v->bytes[v->at] ^ kinds[kind].change(g->r);
	bool before = rng_one_in(g->r, 2);
	u32 first;

	if (g->seq->gpr_class[RCX] == CLASS_POINTER || g->seq->gpr_class[RAX] == CLASS_POINTER)
		return false;
	if (v->at == 1 && v->bytes[0] == 0xfe && (flip & 7))
		return false; /* the counter is none of its registers */
	append_item(g, FAMILY_modify, (u8[]){ 0xb9, 1 + rng_below(g->r, 80), 0, 0, 0 }, 5)->pinned =
		true;
	first = g->seq->n;
	if (before)
		put_change(g, true, flip, first + 1, v->at);
	put_victim(g, kind);
	if (!before)
		put_change(g, true, flip, first, v->at);
	append_item(g, FAMILY_modify, (u8[]){ 0xff, 0xc9 }, 2)->pinned = true;
	return put_item(g, FAMILY_modify, (u8[]){ 0x75, 0 }, 2, FIX_REL8, 1, first);
}

/*
 * May a register hold an address of code by now? A repeated string instruction that overwrites
 * itself goes on until it is interrupted, and when CLZERO is noticed is not compared.
 */
static bool points_to_code(const struct generator *g)
{
	for (u32 i = 0; i < g->seq->n; i++)
		if (g->seq->items[i].family == FAMILY_branch && g->seq->items[i].fix == FIX_ABS32)
			return true;
	return false;
}

bool append_modify(struct generator *g)
{
	if (points_to_code(g) || g->seq->n + 6 > SEQUENCE_MAX || g->seq->n < g->branch_end ||
	    g->seq->undefined || g->seq->ldt)
		return false;
	g->seq->modifies = true;
	return rng_one_in(g->r, 2) ? change_once(g) : change_in_loop(g);
}
