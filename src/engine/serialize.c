// SPDX-License-Identifier: MIT
/*
 * The serializing instructions.
 */
#include "engine/serialize.h"

#include <Zydis/Zydis.h>

/* To a control register but CR8, or to a debug register. */
static bool writes_control(const struct operand *to)
{
	return to->kind == OPERAND_REG &&
	       ((to->cls == REG_CR && to->reg != 8) || to->cls == REG_DR);
}

enum serializing serializing(const struct insn *insn)
{
	switch (insn->mnemonic) {
	case ZYDIS_MNEMONIC_CPUID:
	case ZYDIS_MNEMONIC_INVD:
	case ZYDIS_MNEMONIC_LGDT:
	case ZYDIS_MNEMONIC_LIDT:
	case ZYDIS_MNEMONIC_LLDT:
	case ZYDIS_MNEMONIC_LTR:
	case ZYDIS_MNEMONIC_SERIALIZE:
	case ZYDIS_MNEMONIC_WBINVD:
		return SERIALIZING_RARELY;
	case ZYDIS_MNEMONIC_INVLPG:
	case ZYDIS_MNEMONIC_INVPCID:
	case ZYDIS_MNEMONIC_IRET:
	case ZYDIS_MNEMONIC_IRETD:
	case ZYDIS_MNEMONIC_IRETQ:
	case ZYDIS_MNEMONIC_WRMSR:
		return SERIALIZING_OFTEN;
	case ZYDIS_MNEMONIC_MOV:
		return writes_control(&insn->ops[0]) ? SERIALIZING_OFTEN : SERIALIZING_NOT;
	default:
		return SERIALIZING_NOT;
	}
}
