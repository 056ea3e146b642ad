// SPDX-License-Identifier: MIT
/*
 * Macro-fusion: an instruction that sets flags and the conditional branch after it are one uop.
 * Pure.
 */
#include "pipeline/priv.h"

enum fusion { FUSES_NOTHING, FUSES_ZERO_SIGN, FUSES_CARRY_TOO, FUSES_ALL };

/* Which conditions an instruction fuses with (Intel 248966, macro-fusion; AMD 57647, branch
 * fusion). */
static enum fusion fusion_of(const struct pipe_core *core, const struct pipe_insn *insn)
{
	switch (insn->mnemonic) {
	case ZYDIS_MNEMONIC_CMP:
		return FUSES_CARRY_TOO;
	case ZYDIS_MNEMONIC_TEST:
		return FUSES_ALL;
	case ZYDIS_MNEMONIC_AND:
		return insn->store ? FUSES_NOTHING : FUSES_ALL;
	case ZYDIS_MNEMONIC_ADD:
	case ZYDIS_MNEMONIC_SUB:
		return insn->store ? FUSES_NOTHING : FUSES_CARRY_TOO;
	case ZYDIS_MNEMONIC_INC:
	case ZYDIS_MNEMONIC_DEC:
		return insn->store ? FUSES_NOTHING : FUSES_ZERO_SIGN;
	case ZYDIS_MNEMONIC_OR:
	case ZYDIS_MNEMONIC_XOR:
		return core->amd && !insn->store ? FUSES_ALL : FUSES_NOTHING;
	default:
		return FUSES_NOTHING;
	}
}

static enum fusion condition_of(u16 mnemonic)
{
	switch (mnemonic) {
	case ZYDIS_MNEMONIC_JZ:
	case ZYDIS_MNEMONIC_JNZ:
	case ZYDIS_MNEMONIC_JL:
	case ZYDIS_MNEMONIC_JNL:
	case ZYDIS_MNEMONIC_JLE:
	case ZYDIS_MNEMONIC_JNLE:
		return FUSES_ZERO_SIGN;
	case ZYDIS_MNEMONIC_JB:
	case ZYDIS_MNEMONIC_JNB:
	case ZYDIS_MNEMONIC_JBE:
	case ZYDIS_MNEMONIC_JNBE:
		return FUSES_CARRY_TOO;
	case ZYDIS_MNEMONIC_JS:
	case ZYDIS_MNEMONIC_JNS:
	case ZYDIS_MNEMONIC_JO:
	case ZYDIS_MNEMONIC_JNO:
	case ZYDIS_MNEMONIC_JP:
	case ZYDIS_MNEMONIC_JNP:
		return FUSES_ALL;
	default:
		return FUSES_NOTHING;
	}
}

static bool fuses(const struct pipe_core *core, const struct pipe_insn *insn,
		  const struct pipe_insn *branch)
{
	enum fusion condition = condition_of(branch->mnemonic);
	bool both = insn->load && insn->has_immediate;

	return condition != FUSES_NOTHING && fusion_of(core, insn) >= condition &&
	       !(both && !core->amd);
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
}
