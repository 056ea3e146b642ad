// SPDX-License-Identifier: MIT
/*
 * Selectors: loads of segment registers and transfers between code segments. The selectors are
 * those of Linux, which the guest's GDT has, too; those of its own tables are kept away from.
 */
#include "diff.h"

#include "x86/descriptor.h"

#define TO_THE_END SEQUENCE_MAX

/* What else than a selector of the GDT may it be? */
enum { NULL_TOO = BIT(0), LOCAL_TOO = BIT(1) };

static u16 pick_selector(struct generator *g, u32 kinds)
{
	static const u16 selectors[] = { SEL_USER_DS, SEL_USER_DS, SEL_USER_DS, SEL_USER32,
					 SEL_USER64,  0x28,	   0x10,	0x1b,
					 0x18,	      0x43,	   0xfff8,	SEL_LDT(NLDT) };

	if ((kinds & NULL_TOO) && rng_one_in(g->r, 4))
		return rng_below(g->r, 4);
	if (rng_one_in(g->r, 4))
		return 0x80 | rng_next(g->r);
	if ((kinds & LOCAL_TOO) && native_has_ldt() && rng_one_in(g->r, 2))
		return SEL_LDT(rng_below(g->r, NLDT));
	return selectors[rng_below(g->r, ARRAY_SIZE(selectors))];
}

/*
 * Stacks of 64-bit code are flat: AMD's far CALL to a segment of another width pushes to the stack
 * as that has it (APM3 CALL), the engine, as Intel's, as the caller has it.
 */
static u32 kinds_for_stack(const struct generator *g)
{
	return NULL_TOO | (g->seq->ldt ? LOCAL_TOO : 0);
}

/* mov $selector, %eax; mov %eax, %sreg */
static bool move_to_segment(struct generator *g)
{
	static const u8 segments[] = { ES, SS, DS, FS, GS };
	u8 seg = segments[rng_below(g->r, 5)];
	u16 sel = pick_selector(g, seg == SS		    ? kinds_for_stack(g)
				   : seg != FS && seg != GS ? NULL_TOO | LOCAL_TOO
							    : LOCAL_TOO);

	append_item(g, FAMILY_segment, (u8[]){ 0xb8, sel, sel >> 8, 0, 0 }, 5);
	return append_item(g, FAMILY_segment, (u8[]){ 0x8e, 0xc0 | seg << 3 }, 2);
}

/* mov $selector, %eax; LAR, LSL, VERR or VERW of it, or of the same in memory */
static bool ask_about_selector(struct generator *g)
{
	static const u8 opcodes[][2] = { { 0x02, 0 }, { 0x03, 0 }, { 0x00, 4 }, { 0x00, 5 } };
	const u8 *opcode = opcodes[rng_below(g->r, ARRAY_SIZE(opcodes))];
	u8 reg = opcode[0] ? rng_below(g->r, 8) : opcode[1];
	u16 sel = pick_selector(g, NULL_TOO | LOCAL_TOO);

	if (opcode[0] && reg == RSP)
		reg = RBP;
	if (rng_one_in(g->r, 2)) {
		u64 at = pick_target(g, 2);

		put_absolute(g, FAMILY_segment, (u8[]){ 0xc7 }, 1, 0, at, sel);
		return put_absolute(g, FAMILY_segment, (u8[]){ 0x0f, opcode[0] }, 2, reg, at, -1);
	}
	append_item(g, FAMILY_segment, (u8[]){ 0xb8, sel, sel >> 8, 0, 0 }, 5);
	return append_item(g, FAMILY_segment, (u8[]){ 0x0f, opcode[0], 0xc0 | reg << 3 }, 3);
}

/* push $selector; pop %sreg. Another base makes FS and GS worth nothing to what follows, which is
 * fine. */
static bool pop_segment(struct generator *g)
{
	u8 seg = rng_one_in(g->r, 2) ? FS : GS;
	u16 sel = pick_selector(g, LOCAL_TOO);

	append_item(g, FAMILY_segment, (u8[]){ 0x68, sel, sel >> 8, 0, 0 }, 5);
	return append_item(g, FAMILY_segment, (u8[]){ 0x0f, seg == FS ? 0xa1 : 0xa9 }, 2);
}

/* push $selector; push $end; retf: code after may be of another mode, so this is the last
 * thing. */
static bool far_return(struct generator *g)
{
	u16 sel = rng_one_in(g->r, 3)	? pick_selector(g, NULL_TOO | LOCAL_TOO)
		  : rng_one_in(g->r, 2) ? SEL_USER64
					: SEL_USER32;

	g->done = true;
	/* On a return to another ring, which there is not, Zen reads the stack before it checks. */
	sel |= 3;
	append_item(g, FAMILY_segment, (u8[]){ 0x68, sel, sel >> 8, 0, 0 }, 5);
	put_item(g, FAMILY_segment, (u8[]){ 0x68, 0, 0, 0, 0 }, 5, FIX_ABS32, 1, TO_THE_END);
	if (g->mode->is32)
		return append_item(g, FAMILY_segment, (u8[]){ 0xcb }, 1);
	return append_item(g, FAMILY_segment, (u8[]){ 0x48, 0xcb }, 2);
}

/* push $ss; push %rsp; pushf; push $cs; push $end; iret */
static bool interrupt_return(struct generator *g)
{
	u16 sel = rng_one_in(g->r, 4)	? pick_selector(g, NULL_TOO | LOCAL_TOO)
		  : rng_one_in(g->r, 2) ? SEL_USER64
					: SEL_USER32;

	if (g->seq->undefined || g->mode->is32)
		return false;
	g->done = true;
	append_item(g, FAMILY_segment, (u8[]){ 0x6a, SEL_USER_DS }, 2);
	append_item(g, FAMILY_segment, (u8[]){ 0x54 }, 1);
	append_item(g, FAMILY_segment, (u8[]){ 0x9c }, 1);
	sel |= 3;
	append_item(g, FAMILY_segment, (u8[]){ 0x68, sel, sel >> 8, 0, 0 }, 5);
	put_item(g, FAMILY_segment, (u8[]){ 0x68, 0, 0, 0, 0 }, 5, FIX_ABS32, 1, TO_THE_END);
	return append_item(g, FAMILY_segment, (u8[]){ 0x48, 0xcf }, 2);
}

/* Stores a far pointer to the end, or to nothing in particular, for the next instruction. */
static u64 store_far_pointer(struct generator *g, u16 sel, bool to_end)
{
	u64 at = data_origin(g->seq) + rng_below(g->r, 3 * PAGE_SIZE);

	put_absolute(g, FAMILY_segment, (u8[]){ 0xc7 }, 1, 0, at + 4, sel);
	put_absolute(g, FAMILY_segment, (u8[]){ 0xc7 }, 1, 0, at, 0);
	if (to_end) {
		struct item *item = &g->seq->items[g->seq->n - 1];

		item->ends_with_end = true; /* the immediate is the address of the end */
	}
	return at;
}

/* jmp far [pointer] or call far [pointer]; calls to segments of another width: kinds_for_stack() */
static bool far_jump(struct generator *g)
{
	u16 sel = rng_one_in(g->r, 3)	? pick_selector(g, NULL_TOO | LOCAL_TOO)
		  : rng_one_in(g->r, 2) ? SEL_USER64
					: SEL_USER32;
	bool call = rng_one_in(g->r, 2) && (g->seq->ldt ? sel != SEL_USER64 : !(sel & SEL_TI));
	u64 at = store_far_pointer(g, sel, true);

	g->done = true;
	return put_absolute(g, FAMILY_segment, (u8[]){ 0xff }, 1, call ? 3 : 5, at, -1);
}

/* LSS, LFS, LGS; LDS and LES outside 64-bit code */
static bool load_far_pointer(struct generator *g)
{
	static const u8 opcodes[] = { 0xb2, 0xb4, 0xb5 };
	u8 reg = rng_below(g->r, 8), opcode = opcodes[rng_below(g->r, 3)];
	u32 kinds = opcode == 0xb2 ? kinds_for_stack(g) & LOCAL_TOO : LOCAL_TOO;
	u64 at = store_far_pointer(g, pick_selector(g, kinds), false);

	if (reg == RSP)
		reg = RAX;
	if (g->mode->is32 && rng_one_in(g->r, 2))
		return put_absolute(g, FAMILY_segment, (u8[]){ 0xc4 + rng_below(g->r, 2) }, 1, reg,
				    at, -1);
	return put_absolute(g, FAMILY_segment, (u8[]){ 0x0f, opcode }, 2, reg, at, -1);
}

bool append_segment(struct generator *g)
{
	if (g->seq->n + 6 > SEQUENCE_MAX || g->seq->n < g->branch_end)
		return false;
	switch (rng_below(g->r, 12)) {
	case 0:
		return far_return(g);
	case 1:
		return interrupt_return(g);
	case 2:
		return pop_segment(g);
	case 3:
		return far_jump(g);
	case 4:
	case 5:
		return load_far_pointer(g);
	case 6:
	case 7:
		return ask_about_selector(g);
	default:
		return move_to_segment(g);
	}
}
