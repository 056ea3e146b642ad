// SPDX-License-Identifier: MIT
/*
 * Which instructions serialize (SDM 3A 8.3), and how often they occur: facts of insn.def. Pure.
 */
#include "engine/runtime/serialize.h"

/* To a control register but CR8, or to a debug register. */
static bool writes_control(const struct operand *to)
{
	return to->kind == OPERAND_REG &&
	       ((to->cls == REG_CR && to->reg != 8) || to->cls == REG_DR);
}

enum insn_serializing serializing(const struct insn *insn)
{
	enum insn_serializing how = insn_facts(insn)->serializing;

	if (how == SERIALIZING_BY_TARGET)
		return writes_control(&insn->ops[0]) ? SERIALIZING_OFTEN : SERIALIZING_NOT;
	return how;
}
