/* SPDX-License-Identifier: MIT */
/*
 * Working memory of engine/translate/price.c: one for each engine, since it is too large for a
 * stack.
 */
#ifndef ENGINE_PRICE_H
#define ENGINE_PRICE_H

#include "engine/insn.h"
#include "pipeline/pipeline.h"

/* After a block, if straight-line code goes on there. */
#define PRICE_INSNS (PIPE_STRETCH + (PIPE_STRAIGHT + 1) * PIPE_LINE)

#define PRICED_LOOPS 256
#define PRICED_BYTES 160

/* A loop that was priced; all 0: none. */
struct priced_loop {
	s32 wait;
	u32 mode;
	u16 at, size; /* in its page, in bytes */
	u8 bytes[PRICED_BYTES];
};

struct pricing {
	const struct pipe_core *core;
	/* The instruction that was decoded last. */
	struct insn insn;
	ZydisDecodedInstruction zi;
	ZydisDecodedOperand zops[ZYDIS_MAX_OPERAND_COUNT];
	/* A loop, or a block and the instructions after it; of a block only the latter have a
	 * need here. */
	struct pipe_need need[PIPE_LOOP_INSNS];
	struct pipe_piece piece[PIPE_LOOP_INSNS];
	struct pipe_price price[PIPE_LOOP_INSNS];
	struct pipe_block loop;
	struct pipe_work *work;
	struct priced_loop kept[PRICED_LOOPS];
};

/* Bytes to allocate, filled with 0; then the core that prices are for. */
size_t price_memory_size(void);
void price_init(struct pricing *pricing, enum model_set set);

#endif
