// SPDX-License-Identifier: MIT
/*
 * Memory operands under an opmask (SDM 2A 2.7.6, 2.8). In line they are like any other: if the page
 * of all of it may be accessed, the host executes the instruction with its mask. Only the slow path
 * has to know which elements that is: slow_masked.c.
 */
#include "engine/translate/trans.h"

static const ZydisDecodedOperand *memory_of(const struct trans *t)
{
	for (u32 i = 0; i < t->zi->operand_count_visible; i++)
		if (t->zops[i].type == ZYDIS_OPERAND_TYPE_MEMORY)
			return &t->zops[i];
	return NULL;
}

/* Not the classes NF of SDM 2A 2.8, nor what Zydis has in a wrong one. */
static bool suppresses_faults(const struct trans *t)
{
	if (insn_facts(&t->insn)->mask_keeps_faults)
		return false;
	switch (t->zi->meta.exception_class) {
	case ZYDIS_EXCEPTION_CLASS_E1NF:
	case ZYDIS_EXCEPTION_CLASS_E2NF:
	case ZYDIS_EXCEPTION_CLASS_E3NF:
	case ZYDIS_EXCEPTION_CLASS_E4NF:
	case ZYDIS_EXCEPTION_CLASS_E5NF:
	case ZYDIS_EXCEPTION_CLASS_E6NF:
	case ZYDIS_EXCEPTION_CLASS_E9NF:
	case ZYDIS_EXCEPTION_CLASS_E10NF:
	case ZYDIS_EXCEPTION_CLASS_E11NF:
		return false;
	default:
		return true;
	}
}

/* Of a broadcast each element of the result has a bit; else each of those in memory. */
static u32 mask_bits(const struct trans *t, const ZydisDecodedOperand *mem)
{
	u32 result = t->zops[0].element_size;

	if (!t->zi->avx.broadcast.mode)
		return mem->element_count;
	return t->zi->avx.vector_length / (result > mem->element_size ? result : mem->element_size);
}

u32 trans_mask_shape(const struct trans *t)
{
	const ZydisDecodedOperand *mem = memory_of(t);
	bool suppresses = suppresses_faults(t), packed;

	if (!t->insn.mask || !mem ||
	    (!suppresses && !(mem->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE)))
		return 0;
	packed = t->zi->meta.category == ZYDIS_CATEGORY_COMPRESS ||
		 t->zi->meta.category == ZYDIS_CATEGORY_EXPAND;
	return mem->element_size / 8 | mask_bits(t, mem) << SHAPE_BITS_SHIFT |
	       (u32)mem->element_count << SHAPE_ELEMENTS_SHIFT | (packed ? SHAPE_PACKED : 0) |
	       (suppresses ? 0 : SHAPE_WHOLE);
}

void emit_mask(struct trans *t, const struct native *n)
{
	if (!n->shape)
		return;
	emit_insn(&t->e, &(struct enc){ .vex = true,
					.w = cpu_has(t->cpu, FEAT_AVX512BW),
					.map = MAP_0F,
					.opcode = 0x91, /* KMOVQ; KMOVW where masks have 16 bits */
					.reg = n->x.mask,
					.is_mem = true,
					.ea = ea_base(RSP, SPILL(SPILL_MASK)) });
	emit_mov_mem_imm(&t->e, true, ea_base(RSP, SPILL(SPILL_SHAPE)), (s32)n->shape);
}
