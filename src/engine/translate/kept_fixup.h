/* SPDX-License-Identifier: MIT */
/*
 * Fixups of kept blocks (kept_block.c): a place in a block's code that is not the same in another
 * process, or for a page at another physical address, gets a neutral value when the block is kept,
 * and is filled in when it is recalled.
 */
#ifndef ENGINE_TRANSLATE_KEPT_FIXUP_H
#define ENGINE_TRANSLATE_KEPT_FIXUP_H

#include "engine/translate/trans.h"

/* What a fixup may lead to. */
struct fixup_bounds {
	u32 code_size, ncopies, nlinks;
};

/* Nothing of it lies outside. */
bool kept_fixup_sound(const struct fixup *f, const struct fixup_bounds *bounds);
/* In a copy of the block's code. */
void kept_fixup_neutralize(const struct trans *t, const struct fixup *f, u8 *code);
/* In the code of t->block, a copy of what was kept; its tables are made. */
void kept_fixup_fill_in(struct trans *t, const struct fixup *f);

/* --- lines of code: emit_observe.c --- */

#define PAGE_LINES (PAGE_SIZE / LINE_SIZE)

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
