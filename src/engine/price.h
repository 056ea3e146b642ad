/* SPDX-License-Identifier: MIT */
/*
 * Working memory of engine/translate/price.c: one for each engine, since it is too large for a
 * stack.
 */
#ifndef ENGINE_PRICE_H
#define ENGINE_PRICE_H

#include "engine/insn.h"
#include "pipeline/pipeline.h"

#define PRICE_INSNS PIPE_LOOP_INSNS /* also enough for the rest of a block's last line */

struct pricing {
	const struct pipe_core *core;
	/* The instruction that was decoded last. */
	struct insn insn;
	ZydisDecodedInstruction zi;
	ZydisDecodedOperand zops[ZYDIS_MAX_OPERAND_COUNT];
	/* A loop, or the instructions after a block. */
	struct pipe_need need[PRICE_INSNS];
	struct pipe_piece piece[PRICE_INSNS];
	struct pipe_block loop;
	struct pipe_work *work;
};

/* Bytes to allocate, filled with 0; then the core that prices are for. */
size_t price_memory_size(void);
void price_init(struct pricing *pricing, enum model_set set);

#endif
