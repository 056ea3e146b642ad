// SPDX-License-Identifier: MIT
/*
 * What a guest's cycles are for this code under static timing: the price of each instruction at its
 * address, and of the branch back of a loop (pipeline/price.c). The engine does the same with the
 * code of a page (engine/translate/price.c).
 */
#include <stdlib.h>

#include "cli/cost/cost.h"

#define PAGE 4096

struct pricing {
	const struct pipe_core *core;
	const struct cost_code *code;
	struct cost_block *block;
	struct pipe_work *work;
	struct pipe_block loop;
	struct pipe_need need[PIPE_INSNS];
	struct pipe_piece piece[PIPE_INSNS];
	s64 jump[PIPE_INSNS]; /* displacement of a direct jump, or 0 */
};

static bool decode(const struct pricing *p, const struct cost_insn *insn,
		   ZydisDecodedInstruction *in, ZydisDecodedOperand *ops)
{
	ZydisDecoder decoder;

	ZydisDecoderInit(&decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
	return ZYAN_SUCCESS(ZydisDecoderDecodeFull(&decoder, p->code->bytes + insn->offset,
						   insn->length, in, ops));
}

/* What is no instruction costs nothing and ends a segment. */
static void add_piece(struct pricing *p, u32 i)
{
	static const struct pipe_need nothing = { .branch = BRANCH_OTHER };
	const struct cost_insn *insn = &p->block->insn[i];
	ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction in;

	p->need[i] = nothing;
	p->jump[i] = 0;
	if (decode(p, insn, &in, ops)) {
		pipe_need(p->core, &in, ops, &p->need[i]);
		if (p->need[i].branch != BRANCH_NONE && in.raw.imm[0].is_relative &&
		    in.meta.category != ZYDIS_CATEGORY_CALL)
			p->jump[i] = in.raw.imm[0].value.s;
	}
	p->piece[i] = (struct pipe_piece){ .need = &p->need[i],
					   .at = (p->code->at + insn->offset) % PAGE,
					   .length = insn->length,
					   .jump = p->jump[i] };
}

static s32 loop_wait(struct pricing *p, u32 first, u32 last)
{
	u32 n = last - first + 1;

	if (n > PIPE_LOOP_INSNS)
		return 0;
	for (u32 i = 0; i < n && n <= PIPE_SHORT_LOOP; i++) {
		ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
		ZydisDecodedInstruction in;

		if (!decode(p, &p->block->insn[first + i], &in, ops) ||
		    !pipe_describe(p->core, &in, ops, &p->loop.insn[i]))
			return 0;
	}
	p->loop.at = p->code->at + p->block->insn[first].offset;
	return pipe_loop_wait(p->core, p->piece + first, n, &p->loop, p->work);
}

/* Of a jump back to an instruction of the same page. */
static s32 wait_of(struct pricing *p, u32 i)
{
	s64 to = p->block->insn[i].offset + p->block->insn[i].length + p->jump[i];
	u32 first = i + 1;

	while (p->jump[i] && first-- > 0)
		if (p->block->insn[first].offset == to)
			return (p->code->at + (u64)to) / PAGE ==
					       (p->code->at + p->block->insn[i].offset) / PAGE
				       ? loop_wait(p, first, i)
				       : 0;
	return 0;
}

bool cost_price(const struct pipe_core *core, const struct cost_code *code,
		struct cost_block *block, struct pipe_work *work)
{
	struct pricing *p = malloc(sizeof(*p));
	struct pipe_price price[PIPE_INSNS];

	if (!p)
		return false;
	p->core = core;
	p->code = code;
	p->block = block;
	p->work = work;
	for (u32 i = 0; i < block->count; i++)
		add_piece(p, i);
	pipe_price(core, p->piece, block->count, price);
	block->ticks = 0;
	for (u32 i = 0; i < block->count; i++) {
		block->insn[i].ticks = pipe_price_ticks(core, &price[i]) + (u32)wait_of(p, i);
		block->ticks += block->insn[i].ticks;
	}
	block->repeated_ticks = block->ticks;
	if (block->count && !block->block.loops)
		block->repeated_ticks += (u32)loop_wait(p, 0, block->count - 1);
	free(p);
	return true;
}
