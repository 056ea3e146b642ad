// SPDX-License-Identifier: MIT
/*
 * Macro-fusion: an instruction that sets flags and the conditional branch after it are one uop.
 * Pure.
 */
#include "pipeline/priv.h"

/* Not memory with an immediate, on Intel. */
enum pipe_fusion pipe_fusion_of(const struct pipe_core *core, const struct pipe_insn *insn)
{
	const struct pipe_facts *facts = pipe_facts_of(insn->mnemonic);
	bool both = insn->load && insn->has_immediate;

	if (insn->store || ((facts->fuses_on_amd || both) && !core->amd))
		return FUSES_NOTHING;
	return facts->fuses;
}

static bool fuses(const struct pipe_core *core, const struct pipe_insn *insn,
		  const struct pipe_insn *branch)
{
	enum pipe_fusion condition = pipe_facts_of(branch->mnemonic)->condition;

	return condition != FUSES_NOTHING && pipe_fusion_of(core, insn) >= condition;
}

/* Zen 4: a NOP shares the slot of the instruction before it, unless another one does. */
static void fuse_nops(struct pipe_block *block)
{
	for (u32 i = 1; i < block->count; i++) {
		struct pipe_insn *insn = &block->insn[i];

		if (insn->idiom == IDIOM_NOP && insn[-1].slots)
			insn->slots = insn->decoded = 0;
	}
}

/* The pair is one uop, where the branch would be; the branch itself is nothing more. */
void pipe_fuse(const struct pipe_core *core, struct pipe_block *block)
{
	for (u32 i = 0; i + 1 < block->count; i++) {
		struct pipe_insn *insn = &block->insn[i], *branch = insn + 1;

		if (!fuses(core, insn, branch))
			continue;
		insn->fuses_next = true;
		insn->idiom = IDIOM_NONE;
		insn->uop[0].ports = branch->uop[0].ports;
		branch->uops = branch->slots = branch->decoded = 0;
	}
	if (core->fuses_nops)
		fuse_nops(block);
}
