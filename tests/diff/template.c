// SPDX-License-Identifier: MIT
/*
 * Instructions that mean something only in a setting: branches and their targets here; selectors in
 * template_segment.c, state areas in template_state.c, pointers in template_pointer.c, code that
 * changes itself in template_modify.c.
 */
#include "diff.h"

#include <string.h>

/* --- branches
 * -------------------------------------------------------------------------------------------------
 */

bool put_item(struct generator *g, enum family family, const u8 *bytes, u32 len, enum fix_kind fix,
	      u32 fix_at, u64 target)
{
	struct item *item = append_item(g, family, bytes, len);

	if (!item)
		return false;
	item->fix = fix;
	item->fix_at = fix_at + template_prefixes(g);
	item->target = target;
	return true;
}

static bool put_branch(struct generator *g, const u8 *bytes, u32 len, enum fix_kind fix, u64 target)
{
	return put_item(g, FAMILY_branch, bytes, len, fix, len - (fix == FIX_REL8 ? 1 : 4), target);
}

/* The item so many places after the next one. */
static u64 ahead(struct generator *g)
{
	u64 target = g->seq->n + 1 + rng_below(g->r, 4);

	if (g->branch_end < target)
		g->branch_end = target;
	return target;
}

static bool jcc(struct generator *g)
{
	u8 cc = rng_below(g->r, 16);

	if (rng_one_in(g->r, 2))
		return put_branch(g, (u8[]){ 0x70 | cc, 0 }, 2, FIX_REL8, ahead(g));
	return put_branch(g, (u8[]){ 0x0f, 0x80 | cc, 0, 0, 0, 0 }, 6, FIX_REL32, ahead(g));
}

static bool jmp(struct generator *g)
{
	if (rng_one_in(g->r, 2))
		return put_branch(g, (u8[]){ 0xeb, 0 }, 2, FIX_REL8, ahead(g));
	return put_branch(g, (u8[]){ 0xe9, 0, 0, 0, 0 }, 5, FIX_REL32, ahead(g));
}

static bool loop_forward(struct generator *g)
{
	u8 op = 0xe0 + rng_below(g->r, 4);

	if (rng_one_in(g->r, 4) && !g->mode->is32)
		return put_branch(g, (u8[]){ 0x67, op, 0 }, 3, FIX_REL8, ahead(g));
	return put_branch(g, (u8[]){ op, 0 }, 2, FIX_REL8, ahead(g));
}

static bool call_forward(struct generator *g)
{
	want_gpr(g, RSP, CLASS_POINTER);
	return put_branch(g, (u8[]){ 0xe8, 0, 0, 0, 0 }, 5, FIX_REL32, ahead(g));
}

/* call A; jmp B; A: …; ret; B: */
static bool call_and_return(struct generator *g)
{
	u32 body = rng_below(g->r, 3);
	u32 at = g->seq->n;

	if (at + 4 + body > SEQUENCE_MAX || at < g->branch_end)
		return false;
	put_branch(g, (u8[]){ 0xe8, 0, 0, 0, 0 }, 5, FIX_REL32, at + 2);
	put_branch(g, (u8[]){ 0xeb, 0 }, 2, FIX_REL8, 0);
	g->no_stack = true;
	for (u32 i = 0; i < body; i++)
		append_random(g, FAMILY_arith);
	g->no_stack = false;
	if (rng_one_in(g->r, 3))
		append_item(g, FAMILY_branch, (u8[]){ 0xc2, rng_below(g->r, 4) * 8, 0 }, 3);
	else
		append_item(g, FAMILY_branch, (u8[]){ 0xc3 }, 1);
	g->seq->items[at + 1].target = g->seq->n;
	return true;
}

/*
 * call A; jmp B; jmp B; A: sbb reg, reg; and $2, reg; add reg, [rsp]; ret; B:
 * It returns to either jump, as the carry flag says.
 */
static bool call_and_return_elsewhere(struct generator *g)
{
	u8 reg = rng_below(g->r, 8), wide = g->mode->is32 ? 0 : 0x48;
	u32 at = g->seq->n, skip = !wide;

	if (reg == RSP || g->seq->gpr_class[reg] != CLASS_ANY || at + 7 > SEQUENCE_MAX ||
	    at < g->branch_end || (g->seq->undefined & FL_CF))
		return false;
	want_gpr(g, RSP, CLASS_POINTER);
	put_branch(g, (u8[]){ 0xe8, 0, 0, 0, 0 }, 5, FIX_REL32, at + 3);
	put_branch(g, (u8[]){ 0xeb, 0 }, 2, FIX_REL8, at + 7);
	put_branch(g, (u8[]){ 0xeb, 0 }, 2, FIX_REL8, at + 7);
	append_item(g, FAMILY_branch, (u8[]){ wide, 0x19, 0xc0 | reg << 3 | reg } + skip, 3 - skip);
	append_item(g, FAMILY_branch, (u8[]){ 0x83, 0xe0 | reg, 2 }, 3);
	append_item(g, FAMILY_branch, (u8[]){ wide, 0x01, 0x04 | reg << 3, 0x24 } + skip, 4 - skip);
	return append_item(g, FAMILY_branch, (u8[]){ 0xc3 }, 1);
}

/* mov $target, reg; jmp *reg or call *reg */
static bool jump_register(struct generator *g)
{
	u8 reg = rng_below(g->r, 8);
	u8 op = rng_one_in(g->r, 2) ? 0xe0 : 0xd0;

	if (reg == RSP || g->seq->n + 2 > SEQUENCE_MAX || g->seq->n < g->branch_end ||
	    g->seq->modifies)
		return false;
	put_branch(g, (u8[]){ 0xb8 | reg, 0, 0, 0, 0 }, 5, FIX_ABS32,
		   g->seq->n + 2 + rng_below(g->r, 3));
	g->branch_end = g->seq->items[g->seq->n - 1].target;
	return append_item(g, FAMILY_branch, (u8[]){ 0xff, op | reg }, 2);
}

/* push $target; ret */
static bool push_and_return(struct generator *g)
{
	if (g->seq->n + 2 > SEQUENCE_MAX || g->seq->n < g->branch_end)
		return false;
	put_branch(g, (u8[]){ 0x68, 0, 0, 0, 0 }, 5, FIX_ABS32, g->seq->n + 2 + rng_below(g->r, 3));
	g->branch_end = g->seq->items[g->seq->n - 1].target;
	return append_item(g, FAMILY_branch, (u8[]){ 0xc3 }, 1);
}

/* mov $n, %ecx; body; loop body, or dec %ecx; jnz body */
static bool loop_back(struct generator *g)
{
	u32 body = 1 + rng_below(g->r, 3);
	bool dec = rng_one_in(g->r, 2);
	u32 first;

	if (g->seq->n + 3 + body > SEQUENCE_MAX || g->seq->undefined)
		return false;
	if (g->seq->gpr_class[RCX] == CLASS_POINTER || g->seq->n < g->branch_end)
		return false;
	g->seq->gpr_class[RCX] = CLASS_SMALL;
	append_item(g, FAMILY_branch, (u8[]){ 0xb9, 1 + rng_below(g->r, 6), 0, 0, 0 }, 5);
	first = g->seq->n;
	g->seq->items[first - 1].pinned = true;
	g->no_undefined = true;
	g->written[RCX] = false;
	for (u32 i = 0; i < body; i++) {
		append_random(g, rng_one_in(g->r, 2) ? FAMILY_logic : FAMILY_move);
		if (g->written[RCX])
			g->seq->n--; /* it changed the counter */
		g->written[RCX] = false;
	}
	g->no_undefined = false;
	if (dec)
		append_item(g, FAMILY_branch, (u8[]){ 0xff, 0xc9 }, 2);
	put_branch(g, (u8[]){ dec ? 0x75 : 0xe2, 0 }, 2, FIX_REL8, first);
	g->written[RCX] = true;
	return true;
}

/* Returns and jumps to wherever: they fault, mostly. A RET after a CALL goes back into the
 * sequence, where flags are taken to be defined. */
static bool jump_anywhere(struct generator *g)
{
	u8 reg = rng_below(g->r, 8), kind = rng_below(g->r, 4);

	if (g->written[reg] || (kind == 0 && g->seq->undefined))
		return false;
	g->done = true;
	g->branch_end = SEQUENCE_MAX;
	switch (kind) {
	case 0:
		return append_item(g, FAMILY_branch, (u8[]){ 0xc3 }, 1);
	case 1:
		return append_item(g, FAMILY_branch, (u8[]){ 0xff, 0xd0 | reg }, 2);
	case 2:
		return append_item(g, FAMILY_branch,
				   (u8[]){ 0xff, 0x20 | (reg == 4 || reg == 5 ? 0 : reg) }, 2);
	default:
		return append_item(g, FAMILY_branch, (u8[]){ 0xff, 0xe0 | reg }, 2);
	}
}

static bool append_branch(struct generator *g)
{
	static bool (*const kinds[])(struct generator *) = {
		jcc,
		jcc,
		jcc,
		jcc,
		jmp,
		loop_forward,
		call_forward,
		call_and_return,
		call_and_return,
		call_and_return_elsewhere,
		jump_register,
		push_and_return,
		loop_back,
		jump_anywhere,
	};
	u32 kind = rng_below(g->r, ARRAY_SIZE(kinds));

	if (kinds[kind] == jump_anywhere && !rng_one_in(g->r, 4))
		return false;
	return kinds[kind](g);
}

bool append_template(struct generator *g, enum family family)
{
	switch (family) {
	case FAMILY_branch:
		return append_branch(g);
	case FAMILY_segment:
		return append_segment(g);
	case FAMILY_pointer:
		return append_pointer(g);
	case FAMILY_modify:
		return append_modify(g);
	case FAMILY_xsave:
		return append_state(g);
	default:
		return false;
	}
}
