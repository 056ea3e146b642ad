// SPDX-License-Identifier: MIT
/*
 * Counting more than instructions and branches: what each instruction weighs, and the code that
 * adds a block's weights to the tallies, at its head. What they are is known at the end, and filled
 * in. Blocks that count nothing have none of this.
 */
#include <string.h>

#include "engine/trans.h"

#define NEAR_TAKEN (RETIRE_BIT(RETIRE_TAKEN) | RETIRE_BIT(RETIRE_NEAR_TAKEN))
#define FAR_TAKEN  (RETIRE_BIT(RETIRE_TAKEN) | RETIRE_BIT(RETIRE_FAR))

#define MISSED (RETIRE_BIT(RETIRE_BRANCH_MISSES) | RETIRE_BIT(RETIRE_COND_MISSES))
#define MISSED_TAKEN \
	(MISSED | RETIRE_BIT(RETIRE_TAKEN_MISSES) | RETIRE_BIT(RETIRE_COND_TAKEN_MISSES))
#define MISSED_NOT_TAKEN (MISSED | RETIRE_BIT(RETIRE_NOT_TAKEN_MISSES))

static retire_wanted branch_classes(const struct trans *t)
{
	retire_wanted indirect =
		t->insn.ops[0].kind != OPERAND_IMM ? RETIRE_BIT(RETIRE_INDIRECT) : 0;

	if (!t->insn.is_branch)
		return 0;
	if (t->insn.far)
		return FAR_TAKEN;
	switch (t->zi->meta.category) {
	case ZYDIS_CATEGORY_COND_BR:
		return RETIRE_BIT(RETIRE_CONDITIONAL);
	case ZYDIS_CATEGORY_CALL:
		return RETIRE_BIT(RETIRE_CALLS) | NEAR_TAKEN | indirect;
	case ZYDIS_CATEGORY_RET: /* IRET is one of them */
		return t->insn.mnemonic == ZYDIS_MNEMONIC_RET
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

	switch (t->zi->meta.category) {
	case ZYDIS_CATEGORY_NOP:
	case ZYDIS_CATEGORY_WIDENOP:
	case ZYDIS_CATEGORY_PREFETCH:
		return 0;
	default:
		break;
	}
	for (u32 i = 0; i < t->zi->operand_count; i++) {
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
	switch (t->insn.mnemonic) {
	case ZYDIS_MNEMONIC_DIV:
	case ZYDIS_MNEMONIC_IDIV:
		return 16;
	case ZYDIS_MNEMONIC_MUL:
	case ZYDIS_MNEMONIC_IMUL:
		return 3;
	default:
		break;
	}
	switch (t->zi->meta.category) {
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
	if (t->insn.is_branch)
		t->insn.weight.classes |= RETIRE_BIT(RETIRE_BRANCHES);
}

static struct ea live(enum retire_class class)
{
	return ea_base(RSP, CPU(live) + 8 * (s32) class);
}

void emit_last_rip(struct trans *t, u64 rip)
{
	emit_mov_imm(&t->e, S0, rip);
	emit_rm(&t->e, true, OP_MOV_STORE, S0, ea_base(RSP, CPU(last_rip)));
}

void count_reached(struct trans *t, u64 rip)
{
	emit_last_rip(t, rip);
	emit_insn(&t->e, &(struct enc){ .lock = true,
					.opcode = 0x81,
					.reg = 1, /* OR */
					.is_mem = true,
					.ea = ea_base(RSP, CPU(attention)),
					.imm = ATTENTION_ENGINE,
					.imm_len = 4 });
}

/* On one way out of a block. */
static void add_at_end(struct trans *t, enum retire_class class)
{
	u8 *below;

	emit_group1_mem(&t->e, true, GROUP_ADD, live(class), 1);
	below = emit_jcc(&t->e, CC_S);
	count_reached(t, t->rip);
	emit_patch(&t->e, below, t->e.p);
}

retire_wanted count_way(bool taken)
{
	return taken ? NEAR_TAKEN | RETIRE_BIT(RETIRE_COND_TAKEN) : RETIRE_BIT(RETIRE_NOT_TAKEN);
}

bool count_ways(const struct trans *t)
{
	return cpu_counts(t->cpu, t->mode) & (count_way(true) | count_way(false));
}

void count_went(struct trans *t, bool taken)
{
	for (retire_wanted left = cpu_counts(t->cpu, t->mode) & count_way(taken); left; left &= left - 1)
		add_at_end(t, __builtin_ctzll(left));
}

void count_went_not(struct trans *t, bool taken)
{
	for (retire_wanted left = cpu_counts(t->cpu, t->mode) & count_way(taken); left; left &= left - 1)
		emit_group1_mem(&t->e, true, GROUP_SUB, live(__builtin_ctzll(left)), 1);
}

/* Of the instructions from this one on. */
static u32 class_total(const struct trans *t, enum retire_class class, u32 from)
{
	u32 total = 0;

	for (u32 i = from; i < t->block->ninsns; i++)
		total += weight_of(&t->weights[i], class);
	return total;
}

void count_give_back(struct trans *t, u32 index)
{
	u64 given = (u64)(t->block->ninsns - index) << COUNT_SHIFT;

	for (u32 i = index; i < t->block->ninsns; i++)
		given += !!(t->places[i].flags & PLACE_BRANCH);
	for (retire_wanted left = cpu_counts(t->cpu, t->mode); left; left &= left - 1) {
		enum retire_class class = __builtin_ctzll(left);
		u32 total = class_total(t, class, index);

		if (total)
			emit_group1_mem(&t->e, true, GROUP_SUB, live(class), total);
	}
	emit_rm(&t->e, true, OP_LEA, COUNTDOWN, ea_base(COUNTDOWN, -(s32)given));
}

/* These have just been added to, the last one last. A jump that is taken if one has reached its
 * trip: the sign of all, ANDed, is 0 then. */
static u8 *if_reached(struct trans *t, retire_wanted added)
{
	bool several = added & (added - 1);
	u8 opcode = OP_MOV_LOAD;

	for (; several && added; added &= added - 1, opcode = OP_AND)
		emit_rm(&t->e, true, opcode, S1, live(__builtin_ctzll(added)));
	return emit_jcc(&t->e, CC_NS);
}

u8 *count_missed(struct trans *t, bool taken)
{
	retire_wanted missed = cpu_counts(t->cpu, t->mode) & (taken ? MISSED_TAKEN : MISSED_NOT_TAKEN);

	for (retire_wanted left = missed; left; left &= left - 1)
		emit_group1_mem(&t->e, true, GROUP_ADD, live(__builtin_ctzll(left)), 1);
	return missed ? if_reached(t, missed) : NULL;
}

/* Of the block as far as it is known by now: it may turn out to be shorter. */
static bool counts(const struct trans *t, enum retire_class class)
{
	for (u32 i = 0; i < t->nscan; i++)
		if (t->scan[i].vector < 0 && weight_of(&t->scan[i].insn.weight, class))
			return true;
	return false;
}

/* Adds to a class what will be known at the end. */
static void add_total(struct trans *t, enum retire_class class)
{
	emit_insn(&t->e, &(struct enc){ .w = true,
					.opcode = 0x81,
					.reg = GROUP_ADD,
					.is_mem = true,
					.ea = live(class),
					.imm_len = 4 });
	t->added[t->nadded++] = (struct added){ class, t->e.p - 4 };
}

void count_begin_block(struct trans *t)
{
	retire_wanted added = 0;

	t->trip_from = NULL;
	t->nadded = 0;
	for (retire_wanted left = cpu_counts(t->cpu, t->mode); left; left &= left - 1) {
		enum retire_class class = __builtin_ctzll(left);

		if (!counts(t, class))
			continue;
		add_total(t, class);
		added |= RETIRE_BIT(class);
	}
	if (added && !(t->mode & MODE_STEP))
		t->trip_from = if_reached(t, added);
}

static bool keep_weights(struct trans *t)
{
	u32 size = t->block->ninsns * sizeof(struct weight);

	t->block->weights = cache_alloc(t->eng, size);
	if (t->block->weights)
		memcpy(t->block->weights, t->weights, size);
	return t->block->weights;
}

/* One at a time there is no way around a trip: it is reached, and the run ends. */
bool count_end_block(struct trans *t)
{
	if (!t->nadded || t->e.full)
		return true;
	for (u32 i = 0; i < t->nadded; i++)
		*(u32_unaligned *)t->added[i].imm = class_total(t, t->added[i].class, 0);
	if (t->trip_from) {
		emit_patch(&t->e, t->trip_from, t->e.p);
		block_leave_with(t, t->eng->leave_with[LEAVE_TRIP], t->block);
	}
	return keep_weights(t);
}
