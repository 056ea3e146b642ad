// SPDX-License-Identifier: MIT
/*
 * Counting more than instructions and branches: what each instruction weighs, and the code that
 * adds a block's weights to the tallies. A block that counts jumps from its head to that code,
 * which lies behind it, and back: only then is it known what the block contains. Blocks that count
 * nothing have none of this.
 */
#include <string.h>

#include "engine/trans.h"

#define NEAR_TAKEN (RETIRE_BIT(RETIRE_TAKEN) | RETIRE_BIT(RETIRE_NEAR_TAKEN))
#define FAR_TAKEN  (RETIRE_BIT(RETIRE_TAKEN) | RETIRE_BIT(RETIRE_FAR))

static retire_wanted branch_classes(const struct trans *t)
{
	retire_wanted indirect =
		t->insn.ops[0].kind != OPERAND_IMM ? RETIRE_BIT(RETIRE_INDIRECT) : 0;

	if (!t->insn.is_branch)
		return 0;
	if (t->insn.far)
		return FAR_TAKEN;
	switch (t->zi.meta.category) {
	case ZYDIS_CATEGORY_COND_BR:
		return RETIRE_BIT(RETIRE_CONDITIONAL);
	case ZYDIS_CATEGORY_CALL:
		return RETIRE_BIT(RETIRE_CALLS) | NEAR_TAKEN | indirect;
	case ZYDIS_CATEGORY_RET: /* IRET is one of them */
		return t->zi.mnemonic == ZYDIS_MNEMONIC_RET
			       ? RETIRE_BIT(RETIRE_RETURNS) | NEAR_TAKEN
			       : FAR_TAKEN;
	case ZYDIS_CATEGORY_UNCOND_BR:
		return NEAR_TAKEN | indirect;
	default:
		return FAR_TAKEN;
	}
}

/* Hidden operands included: the stack, strings. LEA, NOP and PREFETCH name memory without accessing
 * it. */
static retire_wanted memory_classes(const struct trans *t)
{
	bool load = false, store = false;

	switch (t->zi.meta.category) {
	case ZYDIS_CATEGORY_NOP:
	case ZYDIS_CATEGORY_WIDENOP:
	case ZYDIS_CATEGORY_PREFETCH:
		return 0;
	default:
		break;
	}
	for (u32 i = 0; i < t->zi.operand_count; i++) {
		const ZydisDecodedOperand *op = &t->zops[i];

		if (op->type != ZYDIS_OPERAND_TYPE_MEMORY || op->mem.type == ZYDIS_MEMOP_TYPE_AGEN)
			continue;
		load |= !!(op->actions & ZYDIS_OPERAND_ACTION_MASK_READ);
		store |= !!(op->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE);
	}
	return (load ? RETIRE_BIT(RETIRE_LOADS) : 0) | (store ? RETIRE_BIT(RETIRE_STORES) : 0) |
	       (load && store ? RETIRE_BIT(RETIRE_LOAD_STORES) : 0) |
	       (load || store ? RETIRE_BIT(RETIRE_ACCESSES) : 0);
}

/* The static model of docs/model.md: what an instruction costs, whatever came before it. */
static u8 static_cycles(const struct trans *t)
{
	switch (t->zi.mnemonic) {
	case ZYDIS_MNEMONIC_DIV:
	case ZYDIS_MNEMONIC_IDIV:
		return 16;
	case ZYDIS_MNEMONIC_MUL:
	case ZYDIS_MNEMONIC_IMUL:
		return 3;
	default:
		break;
	}
	switch (t->zi.meta.category) {
	case ZYDIS_CATEGORY_X87_ALU:
	case ZYDIS_CATEGORY_STRINGOP:
	case ZYDIS_CATEGORY_SEMAPHORE:
		return 4;
	case ZYDIS_CATEGORY_INTERRUPT:
	case ZYDIS_CATEGORY_SYSCALL:
	case ZYDIS_CATEGORY_SYSRET:
	case ZYDIS_CATEGORY_SYSTEM:
		return 16;
	default:
		return 1;
	}
}

void count_weigh(struct trans *t)
{
	t->insn.weight = (struct weight){ .classes = branch_classes(t) | memory_classes(t),
					  .cycles = static_cycles(t) };
	t->weights[t->index] = t->insn.weight;
}

static void add_to_class(struct trans *t, enum retire_class class, u32 n)
{
	u32 privilege = t->mode & MODE_CPL ? RETIRE_USR : RETIRE_OS;
	s32 at = CPU(tally) + 8 * (2 * (s32) class + (s32)privilege);

	if (n)
		emit_group1_mem(&t->e, true, GROUP_ADD, ea_base(RSP, at), n);
}

void count_taken(struct trans *t)
{
	if (!(t->mode & MODE_COUNT_BRANCHES))
		return;
	add_to_class(t, RETIRE_TAKEN, 1);
	add_to_class(t, RETIRE_NEAR_TAKEN, 1);
	add_to_class(t, RETIRE_COND_TAKEN, 1);
}

void count_not_taken(struct trans *t)
{
	if (t->mode & MODE_COUNT_BRANCHES)
		add_to_class(t, RETIRE_NOT_TAKEN, 1);
}

static u32 class_total(const struct trans *t, enum retire_class class)
{
	u32 total = 0;

	for (u32 i = 0; i < t->block->ninsns; i++)
		total += t->weights[i].classes >> class & 1;
	return total;
}

static void add_cycles(struct trans *t)
{
	u32 total = 0;

	for (u32 i = 0; i < t->block->ninsns; i++)
		total += t->weights[i].cycles;
	add_to_class(t, RETIRE_CYCLES, total);
	add_to_class(t, RETIRE_REF_CYCLES, total);
	add_to_class(t, RETIRE_STALLS, total - t->block->ninsns);
}

void count_begin_block(struct trans *t)
{
	t->count_from = NULL;
	if (!mode_counts(t->mode))
		return;
	t->count_from = emit_jmp(&t->e);
	t->count_back = t->e.p;
}

bool count_end_block(struct trans *t)
{
	retire_wanted counted = mode_counts(t->mode);
	u32 size = t->block->ninsns * sizeof(struct weight);

	if (!counted)
		return true;
	emit_patch(&t->e, t->count_from, t->e.p);
	for (retire_wanted left = counted & ~COUNT_CYCLES; left; left &= left - 1)
		add_to_class(t, __builtin_ctzll(left), class_total(t, __builtin_ctzll(left)));
	if (counted & COUNT_CYCLES)
		add_cycles(t);
	emit_patch(&t->e, emit_jmp(&t->e), t->count_back);
	t->block->weights = cache_alloc(t->eng, size);
	if (t->block->weights)
		memcpy(t->block->weights, t->weights, size);
	return t->block->weights;
}
