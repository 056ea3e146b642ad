/* SPDX-License-Identifier: MIT */
/*
 * Flags that were not saved. Translated code does not save the arithmetic flags where the program
 * never reads them; but an exception there pushes them. A recipe says how to compute them from
 * registers that have not changed since: the operands of a CMP or TEST, or the result of an ADD and
 * what was added.
 */
#ifndef ENGINE_FLAG_RECIPE_H
#define ENGINE_FLAG_RECIPE_H

#include "base/types.h"

enum recipe_kind {
	RECIPE_NONE,
	RECIPE_COMPARE, /* the flags of a - b */
	RECIPE_ADDED,	/* a is the sum of something and b */
	RECIPE_TAKEN,	/* a is the difference of something and b */
	RECIPE_AND,	/* the flags of a & b */
};

struct recipe {
	u8 kind; /* enum recipe_kind */
	u8 size; /* in bytes */
	u8 a, b; /* guest registers; NO_REG: imm */
	s32 imm; /* sign-extended */
};

/* In the form of hot->aflags. */
u32 recipe_flags(const struct recipe *r, const u64 regs[16]);

#endif
