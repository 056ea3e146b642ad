// SPDX-License-Identifier: MIT
/*
 * The front end. Code comes from the uop cache unless it is too dense for it, has a length-changing
 * prefix or a branch that Skylake must not keep; then every instruction goes through predecoder and
 * decoders again. Pure.
 */
#include "pipeline/priv.h"

/* The predecoder finds the ends of instructions in one block of bytes a cycle. */
static u32 predecode(struct pipe_front *front, const struct pipe_core *core,
		     const struct pipe_insn *insn)
{
	u64 block;

	front->at += insn->length;
	block = (front->at - 1) / core->fetch;
	if (block != front->block) {
		front->predecode_cycle += block - front->block;
		front->block = block;
		front->in_block = 0;
	}
	if (front->in_block == core->predecode) {
		front->predecode_cycle++;
		front->in_block = 0;
	}
	front->in_block++;
	if (insn->lcp)
		front->predecode_cycle += core->lcp;
	return front->predecode_cycle;
}

/* The entries that a line of the uop cache has when it begins with this instruction, up to the end
 * of a loop. */
static u32 line_entries(const struct pipe_core *core, const struct pipe_block *block, u32 index,
			u64 at)
{
	u64 window = at / core->window;
	u32 entries = 0;

	for (u32 n = 0; n < core->line; n++) {
		const struct pipe_insn *insn = &block->insn[index];
		u32 more = insn->decoded + insn->wide;

		if (at / core->window != window || (entries && entries + more > core->line))
			break;
		entries += more;
		at += insn->length;
		index = index + 1 == block->count ? 0 : index + 1;
		if (!index && block->loops)
			break;
	}
	return entries;
}

/*
 * The uop cache delivers whole lines. A line has uops of one window of code only; an instruction
 * belongs to the window in which it begins, and to one line.
 */
u32 pipe_fetch_cached(struct pipe_front *front, const struct pipe_core *core,
		      const struct pipe_block *block, u32 index)
{
	const struct pipe_insn *insn = &block->insn[index];
	u32 entries = insn->decoded + insn->wide; /* none: it is fused to the one before it */

	if (entries && !front->in_block) {
		front->in_block = line_entries(core, block, index, front->at);
		if (++front->predecode_cycle > core->lines ||
		    front->in_cycle + front->in_block > core->cached) {
			front->decode++;
			front->in_cycle = 0;
			front->predecode_cycle = 1;
		}
		front->in_cycle += front->in_block;
	}
	front->at += insn->length;
	front->in_block -= entries;
	return front->decode;
}

/* Only the first decoder takes instructions of several uops. */
u32 pipe_decode(struct pipe_front *front, const struct pipe_core *core,
		const struct pipe_insn *insn)
{
	u32 found = predecode(front, core, insn);

	if (found > front->decode) {
		front->decode = found;
		front->in_cycle = 0;
	}
	if (front->in_cycle && (front->in_cycle == core->decoders || insn->decoded > 1)) {
		front->decode++;
		front->in_cycle = 0;
	}
	front->in_cycle++;
	return front->decode;
}

/* A taken branch: both go on at its target, in another cycle. */
void pipe_jump(struct pipe_front *front, const struct pipe_core *core, u64 at)
{
	front->at = at;
	front->block = at / core->fetch;
	front->in_block = 0;
	front->in_cycle = core->cached;
	front->predecode_cycle = front->decode + 1;
}

/* Erratum SKX102: a branch, with what is fused to it, that crosses or ends at a 32-byte boundary is
 * not kept. */
static bool has_bad_branch(const struct pipe_insn *insns, u32 count, u64 at)
{
	for (u32 i = 0; i < count; i++) {
		u64 begin = at;

		at += insns[i].length;
		if (insns[i].idiom != IDIOM_BRANCH)
			continue;
		if (i && insns[i - 1].fuses_next)
			begin -= insns[i - 1].length;
		if (begin / 32 != at / 32)
			return true;
	}
	return false;
}

/* Instructions with a length-changing prefix were measured to come from the decoders mostly. */
bool pipe_is_uncacheable(const struct pipe_core *core, const struct pipe_insn *insns, u32 count,
			 u64 at)
{
	u32 uops = 0, bytes = 0;
	bool lcp = false;

	for (u32 i = 0; i < count; i++) {
		uops += insns[i].decoded;
		bytes += insns[i].length;
		lcp |= insns[i].lcp && core->lcp;
	}
	return lcp || uops * core->window > bytes * core->kept ||
	       (core->jcc_erratum && has_bad_branch(insns, count, at));
}
