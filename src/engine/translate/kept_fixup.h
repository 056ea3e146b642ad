/* SPDX-License-Identifier: MIT */
/*
 * Fixups of kept blocks (kept_block.c): a place in a block's code that is not the same in another
 * process, or for a page at another physical address, gets a neutral value when the block is kept,
 * and is filled in when it is recalled. A kept block has a table of the places, those of each kind
 * side by side; if a fixup has an index, that is its neutral value.
 */
#ifndef ENGINE_TRANSLATE_KEPT_FIXUP_H
#define ENGINE_TRANSLATE_KEPT_FIXUP_H

#include "engine/translate/trans.h"

/* How many there are, and of each kind. */
struct kept_fixups {
	u16 all, n[NFIXUP_KINDS];
};

/* A copy of the code of t->block, which kept_fixup_neutralize() and kept_fixup_fill_in() change. */
struct kept_code {
	u8 *bytes;
	u32 size;
};

void kept_fixup_count(const struct fixups *fixups, struct kept_fixups *counts);
/* Sets the places of all. */
void kept_fixup_neutralize(const struct trans *t, struct kept_code code, u16 *places);
/* False: one of them leads out of the code or of the block's tables, which are made; or the
 * numbers of all kinds are not those of all. */
bool kept_fixup_fill_in(const struct trans *t, struct kept_code code,
			const struct kept_fixups *counts, const u16 *places);

/* What the next block's head counts executions by: a displacement at this place, in the writable
 * view, which an immediate of a byte follows. */
static inline u32 heat_displacement(const struct engine *eng, const u8 *at)
{
	return (u8 *)&eng->until_hot[eng->nblocks] - (exec_view(eng, at) + 5);
}

/* --- lines of code: emit_observe.c --- */

/* Which line of its page it is. */
static inline u32 kept_fixup_line(gpa_t physical)
{
	return (physical & ~PAGE_MASK) >> LINE_SHIFT;
}

/* Where the buffer of a line is, from the struct cpu. */
static inline s32 kept_fixup_line_buffer(gpa_t physical)
{
	return PRIV(timing) + (s32)offsetof(struct timing, code_line) +
	       8 * (s32)timing_place(physical);
}

/* Are the keys of all lines of the page immediates of 32 bits, which are sign-extended? If not,
 * code that shows lines has another form. */
static inline bool kept_fixup_lines_fit(gpa_t gpa)
{
	return timing_code_key(gpa | ~PAGE_MASK) <= 0x7fffffff;
}

#endif
