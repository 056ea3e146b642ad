// SPDX-License-Identifier: MIT
/*
 * Instructions that mean something only in a setting: branches and their targets, selectors, and the areas
 * that FXSAVE, XSAVE and FNSTENV write, whose instruction and data pointers are overwritten afterwards (SDM 1
 * 8.1.8: the processor may or may not keep them, and the engine runs the instruction at another address).
 */
#include "diff.h"

#include <string.h>

/* --- branches ------------------------------------------------------------------------------------------------- */

#define TO_THE_END SEQUENCE_MAX

static bool put(struct generator *g, enum family family, const u8 *bytes, u32 len, enum fix_kind fix,
		u32 fix_at, u64 target)
{
	struct item *item = append_item(g, family, bytes, len);

	if (!item)
		return false;
	item->fix = fix;
	item->fix_at = fix_at;
	item->target = target;
	return true;
}

static bool put_branch(struct generator *g, const u8 *bytes, u32 len, enum fix_kind fix, u64 target)
{
	return put(g, FAMILY_branch, bytes, len, fix, len - (fix == FIX_REL8 ? 1 : 4), target);
}

/* The item so many places behind the next one. */
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
	for (u32 i = 0; i < body; i++)
		append_random(g, FAMILY_arith);
	if (rng_one_in(g->r, 3))
		append_item(g, FAMILY_branch, (u8[]){ 0xc2, rng_below(g->r, 4) * 8, 0 }, 3);
	else
		append_item(g, FAMILY_branch, (u8[]){ 0xc3 }, 1);
	g->seq->items[at + 1].target = g->seq->n;
	return true;
}

/* mov $target, reg; jmp *reg or call *reg */
static bool jump_register(struct generator *g)
{
	u8 reg = rng_below(g->r, 8);
	u8 op = rng_one_in(g->r, 2) ? 0xe0 : 0xd0;

	if (reg == RSP || g->seq->n + 2 > SEQUENCE_MAX || g->seq->n < g->branch_end)
		return false;
	put_branch(g, (u8[]){ 0xb8 | reg, 0, 0, 0, 0 }, 5, FIX_ABS32, g->seq->n + 2 + rng_below(g->r, 3));
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

/* Returns and jumps to wherever: they fault, mostly. */
static bool jump_anywhere(struct generator *g)
{
	u8 reg = rng_below(g->r, 8);

	if (g->written[reg])
		return false;
	g->done = true;
	g->branch_end = SEQUENCE_MAX;
	switch (rng_below(g->r, 4)) {
	case 0:
		return append_item(g, FAMILY_branch, (u8[]){ 0xc3 }, 1);
	case 1:
		return append_item(g, FAMILY_branch, (u8[]){ 0xff, 0xd0 | reg }, 2);
	case 2:
		return append_item(g, FAMILY_branch, (u8[]){ 0xff, 0x20 | (reg == 4 || reg == 5 ? 0 : reg) }, 2);
	default:
		return append_item(g, FAMILY_branch, (u8[]){ 0xff, 0xe0 | reg }, 2);
	}
}

static bool append_branch(struct generator *g)
{
	static bool (*const kinds[])(struct generator *) = {
		jcc, jcc, jcc, jcc, jmp, loop_forward, call_forward, call_and_return, jump_register,
		push_and_return, loop_back, jump_anywhere,
	};
	u32 kind = rng_below(g->r, ARRAY_SIZE(kinds));

	if (kinds[kind] == jump_anywhere && !rng_one_in(g->r, 4))
		return false;
	return kinds[kind](g);
}

/* --- selectors -------------------------------------------------------------------------------------------------- */

static u16 pick_selector(struct generator *g, bool null_allowed)
{
	static const u16 selectors[] = { SEL_USER_DS, SEL_USER_DS, SEL_USER_DS, SEL_USER32, SEL_USER64, 0x28,
					 0x10,	      0x1b,	   0x18,	0x43,	    0xfff8,	0x2f };

	if (null_allowed && rng_one_in(g->r, 4))
		return rng_below(g->r, 4);
	if (rng_one_in(g->r, 4))
		return 0x80 | rng_next(g->r);
	return selectors[rng_below(g->r, ARRAY_SIZE(selectors))];
}

/* mov $selector, %eax; mov %eax, %sreg */
static bool move_to_segment(struct generator *g)
{
	static const u8 segments[] = { ES, SS, DS, FS, GS };
	u8 seg = segments[rng_below(g->r, 5)];
	u16 sel = pick_selector(g, seg != FS && seg != GS);

	append_item(g, FAMILY_segment, (u8[]){ 0xb8, sel, sel >> 8, 0, 0 }, 5);
	return append_item(g, FAMILY_segment, (u8[]){ 0x8e, 0xc0 | seg << 3 }, 2);
}

/* push $selector; pop %sreg. Another base makes FS and GS worth nothing to what follows, which is fine. */
static bool pop_segment(struct generator *g)
{
	u8 seg = rng_one_in(g->r, 2) ? FS : GS;
	u16 sel = pick_selector(g, false);

	append_item(g, FAMILY_segment, (u8[]){ 0x68, sel, sel >> 8, 0, 0 }, 5);
	return append_item(g, FAMILY_segment, (u8[]){ 0x0f, seg == FS ? 0xa1 : 0xa9 }, 2);
}

/* push $selector; push $end; retf: code behind may be of another mode, so this is the last thing. */
static bool far_return(struct generator *g)
{
	u16 sel = rng_one_in(g->r, 3) ? pick_selector(g, true) : rng_one_in(g->r, 2) ? SEL_USER64 : SEL_USER32;

	g->done = true;
	sel |= 3; /* on a return to another ring, which there is not, Zen reads the stack before it checks */
	append_item(g, FAMILY_segment, (u8[]){ 0x68, sel, sel >> 8, 0, 0 }, 5);
	put(g, FAMILY_segment, (u8[]){ 0x68, 0, 0, 0, 0 }, 5, FIX_ABS32, 1, TO_THE_END);
	if (g->mode->is32)
		return append_item(g, FAMILY_segment, (u8[]){ 0xcb }, 1);
	return append_item(g, FAMILY_segment, (u8[]){ 0x48, 0xcb }, 2);
}

/* push $ss; push %rsp; pushf; push $cs; push $end; iret */
static bool interrupt_return(struct generator *g)
{
	u16 sel = rng_one_in(g->r, 4) ? pick_selector(g, true) : rng_one_in(g->r, 2) ? SEL_USER64 : SEL_USER32;

	if (g->seq->undefined || g->mode->is32)
		return false;
	g->done = true;
	append_item(g, FAMILY_segment, (u8[]){ 0x6a, SEL_USER_DS }, 2);
	append_item(g, FAMILY_segment, (u8[]){ 0x54 }, 1);
	append_item(g, FAMILY_segment, (u8[]){ 0x9c }, 1);
	sel |= 3;
	append_item(g, FAMILY_segment, (u8[]){ 0x68, sel, sel >> 8, 0, 0 }, 5);
	put(g, FAMILY_segment, (u8[]){ 0x68, 0, 0, 0, 0 }, 5, FIX_ABS32, 1, TO_THE_END);
	return append_item(g, FAMILY_segment, (u8[]){ 0x48, 0xcf }, 2);
}

static bool append_segment(struct generator *g)
{
	if (g->seq->n + 6 > SEQUENCE_MAX || g->seq->n < g->branch_end)
		return false;
	switch (rng_below(g->r, 6)) {
	case 0:
		return far_return(g);
	case 1:
		return interrupt_return(g);
	case 2:
		return pop_segment(g);
	default:
		return move_to_segment(g);
	}
}

/* --- state areas --------------------------------------------------------------------------------------------------- */

/* opcode /reg at an absolute address. */
static bool put_area(struct generator *g, const u8 *opcode, u32 n, u8 reg, u64 target, s64 imm)
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
	return put(g, FAMILY_xsave, bytes, n + 4, g->mode->is32 ? FIX_NONE : FIX_RIP, disp_at, target);
}

static void overwrite(struct generator *g, u64 target, u32 size)
{
	for (u32 i = 0; i < size; i += 4)
		if (put_area(g, (u8[]){ 0xc7 }, 1, 0, target + i, rng_below(g->r, 1000)))
			g->seq->items[g->seq->n - 1].pinned = true;
}

/* May something have set TF? A trap behind the store would show what is to be overwritten. */
static bool may_trap(const struct generator *g)
{
	for (u32 i = 0; i < g->seq->n; i++)
		switch (g->seq->items[i].mnemonic) {
		case ZYDIS_MNEMONIC_POPF:
		case ZYDIS_MNEMONIC_POPFD:
		case ZYDIS_MNEMONIC_POPFQ:
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
	u32 offset = rng_below(g->r, PAGE_SIZE / 64) * 64 + (rng_one_in(g->r, 12) ? rng_below(g->r, 64) : 0);

	return DATA_BASE + page * PAGE_SIZE + offset;
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
		put_area(g, (u8[]){ 0x0f, 0xae }, 2, 0, area, -1);
	else
		put_area(g, (u8[]){ 0x48, 0x0f, 0xae }, 3, 0, area, -1);
	overwrite(g, area + 4, 20);
	between(g);
	if (rng_one_in(g->r, 2))
		put_area(g, (u8[]){ 0x0f, 0xae }, 2, 1, area, -1);
	return true;
}

static bool xsave(struct generator *g, u64 area)
{
	static const struct {
		u8 opcode, reg;
		enum feature feature;
	} kinds[] = {
		{ 0xae, 4, FEAT_XSAVE },
		{ 0xc7, 4, FEAT_XSAVEC },
	};
	u32 kind = rng_below(g->r, 2);
	u32 mask = rng_below(g->r, 8);

	if (!host_has(kinds[kind].feature))
		return false;
	set_mask(g, mask);
	put_area(g, (u8[]){ 0x0f, kinds[kind].opcode }, 2, kinds[kind].reg, area, -1);
	if (mask & 1)
		overwrite(g, area + 4, 20);
	between(g);
	set_mask(g, rng_below(g->r, 8));
	if (rng_one_in(g->r, 2))
		put_area(g, (u8[]){ 0x0f, 0xae }, 2, 5, area, -1);
	return true;
}

static bool environment(struct generator *g, u64 area)
{
	bool all = rng_one_in(g->r, 2);

	put_area(g, (u8[]){ all ? 0xdd : 0xd9 }, 1, 6, area, -1);
	overwrite(g, area + 12, 16);
	between(g);
	if (rng_one_in(g->r, 2))
		put_area(g, (u8[]){ all ? 0xdd : 0xd9 }, 1, 4, area, -1);
	return true;
}

static bool append_xsave(struct generator *g)
{
	u64 area = pick_area(g);

	if (g->seq->n + 16 > SEQUENCE_MAX || g->seq->n < g->branch_end || may_trap(g))
		return false;
	switch (rng_below(g->r, 3)) {
	case 0:
		return fxsave(g, area);
	case 1:
		return xsave(g, area);
	default:
		return environment(g, area);
	}
}

bool append_template(struct generator *g, enum family family)
{
	switch (family) {
	case FAMILY_branch:
		return append_branch(g);
	case FAMILY_segment:
		return append_segment(g);
	case FAMILY_xsave:
		return append_xsave(g);
	default:
		return false;
	}
}
