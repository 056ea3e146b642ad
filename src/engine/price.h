/* SPDX-License-Identifier: MIT */
/*
 * What engine/translate/emit_price.c works with: one for each engine, since it is too large for a
 * stack.
 */
#ifndef ENGINE_PRICE_H
#define ENGINE_PRICE_H

#include "engine/insn.h"
#include "pipeline/pipeline.h"

/* An instruction that is priced, of a block or around it. */
struct piece {
	const struct pipe_need *need;
	u32 at; /* in its page */
	u8 len;
	bool branch;
};

#define PRICE_INSNS 64 /* of a loop, or beyond a block: no line has more */

struct pricing {
	const struct pipe_core *core;
	/* The instruction that was decoded last. */
	struct insn insn;
	ZydisDecodedInstruction zi;
	ZydisDecodedOperand zops[ZYDIS_MAX_OPERAND_COUNT];
	struct pipe_need ahead[PRICE_INSNS];
	struct piece pieces[PRICE_INSNS];
	struct pipe_block loop;
	struct pipe_work *work;
};

/* Of one that is all 0: what it takes, and whose core it is about. */
size_t pricing_size(void);
void pricing_begin(struct pricing *pricing, enum model_set set);

#endif
