// SPDX-License-Identifier: MIT
/*
 * Emits counting of more than instructions and branches: the weight of each instruction, and code
 * at a block's head that adds the weights of all its instructions (count.c). The constants are
 * known only once the block is complete, and are filled in then. Blocks that count no classes have
 * none of this. Also how translated code ends a run by itself: emit_last_rip() and
 * emit_call_attention(). Runs while translating.
 */
#include "base/bytes.h"
#include "engine/count_pack.h"
#include "engine/translate/trans.h"

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
	switch (t->zi->meta.category) {
	case ZYDIS_CATEGORY_COND_BR:
		return RETIRE_BIT(RETIRE_CONDITIONAL);
	case ZYDIS_CATEGORY_CALL:
		return RETIRE_BIT(RETIRE_CALLS) | NEAR_TAKEN | indirect;
	case ZYDIS_CATEGORY_RET: /* IRET is one of them */
		return t->insn.id == INSN_RET ? RETIRE_BIT(RETIRE_RETURNS) | NEAR_TAKEN : FAR_TAKEN;
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

void trans_count_weigh(struct trans *t)
{
	t->insn.weight = (struct weight){ .classes = branch_classes(t) | memory_classes(t) };
	if (t->insn.is_branch)
		t->insn.weight.classes |= RETIRE_BIT(RETIRE_BRANCHES);
}

static struct ea live(enum retire_class class)
{
	return ea_base(RSP, PRIV(live) + 8 * (s32) class);
}

void emit_last_rip(struct trans *t, u64 rip)
{
	emit_mov_imm(&t->e, S0, rip);
	emit_rm(&t->e, true, OP_MOV_STORE, S0, ea_base(RSP, CPU(port.last_rip)));
}

void emit_call_attention(struct trans *t)
{
	emit_insn(&t->e, &(struct enc){ .lock = true,
					.opcode = 0x80,
					.reg = GROUP_OR,
					.is_mem = true,
					.ea = ea_base(RSP, CPU(attention)),
					.imm = ATTENTION_ENGINE | ATTENTION_CALL,
					.imm_len = 1 });
}

/* The instruction at hand completed and reached a trip: no further block begins. */
static void trip_reached(struct trans *t)
{
	emit_last_rip(t, t->rip);
	emit_call_attention(t);
}

retire_wanted trans_count_direction(bool taken)
{
	return taken ? NEAR_TAKEN | RETIRE_BIT(RETIRE_COND_TAKEN) : RETIRE_BIT(RETIRE_NOT_TAKEN);
}

struct weight trans_count_weight(const struct scan *s)
{
	struct weight weight = s->insn.weight;

	if ((weight.classes & RETIRE_BIT(RETIRE_CONDITIONAL)) && !s->continues)
		weight.classes |= trans_count_direction(true) | trans_count_direction(false);
	return weight;
}

static retire_wanted packs(const struct trans *t)
{
	return t->counts ? cpu_packs(t->cpu, t->mode) : 0;
}

/* The classes that count in priv->live[]. */
static retire_wanted lives(const struct trans *t)
{
	return t->counts ? cpu_counts(t->cpu, t->mode) & ~packs(t) : 0;
}

static struct ea packed(u32 word)
{
	return ea_base(RSP, PRIV(packed) + 8 * (s32)word);
}

static void watch(struct trans *t, u8 reg)
{
	emit_rm(&t->e, true, OP_TEST, reg, ea_base(RSP, PRIV(guards)));
}

static void add_packed(struct trans *t, u32 word, u64 n)
{
	if ((s64)n == (s32)n) {
		emit_group1_mem(&t->e, true, GROUP_ADD, packed(word), (s32)n);
		return;
	}
	emit_mov_imm(&t->e, S0, n);
	emit_rm(&t->e, true, OP_ADD_STORE, S0, packed(word));
}

static void add_all_packed(struct trans *t, const u64 *n)
{
	for (u32 i = 0; i < PACK_WORDS; i++)
		if (n[i])
			add_packed(t, i, n[i]);
}

bool trans_count_needs_fix(const struct trans *t, bool taken)
{
	return packs(t) & trans_count_direction(!taken);
}

void emit_count_fix_direction(struct trans *t, bool taken)
{
	u64 n[PACK_WORDS] = { 0 };

	if (!packs(t))
		return;
	pack_add(n, packs(t), trans_count_direction(!taken), -1);
	add_all_packed(t, n);
}

/* Total weight of the instructions from this one on. */
static u32 class_total(const struct trans *t, enum retire_class class, u32 from)
{
	u32 total = 0;

	for (u32 i = from; i < t->block->ninsns; i++)
		total += weight_of(&t->weights[i], class);
	return total;
}

/* Refunds all that is not in priv->packed[]. */
static void give_back(struct trans *t, u32 index)
{
	u64 given = (u64)(t->block->ninsns - index) << COUNT_SHIFT;

	for (u32 i = index; i < t->block->ninsns; i++)
		given += !!(t->places[i].flags & PLACE_BRANCH);
	for (retire_wanted left = lives(t); left; left &= left - 1) {
		enum retire_class class = retire_first(left);
		u32 total = class_total(t, class, index);

		if (total)
			emit_group1_mem(&t->e, true, GROUP_SUB, live(class), total);
	}
	emit_rm(&t->e, true, OP_LEA, COUNTDOWN, ea_base(COUNTDOWN, -(s32)given));
}

static void packed_from(const struct trans *t, u32 index, u64 *n)
{
	for (u32 i = index; i < t->block->ninsns; i++)
		pack_add(n, packs(t), t->weights[i].classes, -1);
}

void emit_count_give_back(struct trans *t, u32 index)
{
	u64 n[PACK_WORDS] = { 0 };

	if (packs(t)) {
		packed_from(t, index, n);
		add_all_packed(t, n);
	}
	give_back(t, index);
}

/* Does the side exit add to a class that the rest of the block, which is refunded, has not been
 * charged for? */
static bool adds_more(const struct trans *t, u32 index, bool taken)
{
	for (retire_wanted left = packs(t) & trans_count_direction(taken); left; left &= left - 1)
		if (!class_total(t, retire_first(left), index + 1))
			return true;
	return false;
}

void emit_count_leave(struct trans *t, u32 index, bool taken)
{
	u64 n[PACK_WORDS] = { 0 };
	u8 *below;

	give_back(t, index + 1);
	if (!packs(t))
		return;
	packed_from(t, index + 1, n);
	pack_add(n, packs(t), trans_count_direction(!taken), -1);
	pack_add(n, packs(t), trans_count_direction(taken), 1);
	add_all_packed(t, n);
	if (!adds_more(t, index, taken))
		return;
	for (u32 i = 0; i < PACK_WORDS; i++) {
		if (!n[i])
			continue;
		emit_rm(&t->e, true, OP_MOV_LOAD, S0, packed(i));
		watch(t, S0);
		below = emit_jcc(&t->e, CC_E);
		trip_reached(t);
		emit_patch(&t->e, below, t->e.p);
	}
}

/* These classes were just added to, in ascending order. Emits a jump that is taken if one has
 * reached its trip: then the sign bits, ANDed, are 0. */
static u8 *if_reached(struct trans *t, retire_wanted added)
{
	bool several = added & (added - 1);
	u8 opcode = OP_MOV_LOAD;

	for (; several && added; added &= added - 1, opcode = OP_AND)
		emit_rm(&t->e, true, opcode, S1, live(retire_first(added)));
	return emit_jcc(&t->e, CC_NS);
}

/* Those of these classes of time that the instruction adds to. */
static retire_wanted time_classes(const struct weight *weight, retire_wanted counted)
{
	retire_wanted classes = 0;

	for (retire_wanted left = counted; left; left &= left - 1)
		if (weight_of(weight, retire_first(left)))
			classes |= left & -left;
	return classes;
}

/* Classes that the block, as scanned, adds to; it may turn out to be shorter. */
static retire_wanted present(const struct trans *t)
{
	retire_wanted classes = 0, counted = cpu_counts(t->cpu, t->mode);

	for (u32 i = 0; counted && i < t->nscan; i++) {
		struct weight weight = trans_count_weight(&t->scan[i]);

		if (t->scan[i].vector < 0)
			classes |= weight.classes | time_classes(&weight, counted & COUNT_CYCLES);
	}
	return classes & counted;
}

static bool watches(const struct trans *t)
{
	return !(t->mode & MODE_STEP) && present(t) & packs(t);
}

/* Adds a constant to a class; it is filled in at the end. */
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

/* MOV of a constant of 64 or 32 bits that is filled in at the end. */
static u8 *mov_later(struct trans *t, u8 reg, bool wide)
{
	u8 *imm;

	emit_u8(&t->e, (wide ? 0x48 : 0x40) | (reg >= R8));
	emit_u8(&t->e, 0xb8 | (reg & 7));
	imm = t->e.p;
	emit_u32(&t->e, 0);
	if (wide)
		emit_u32(&t->e, 0);
	return imm;
}

/* The sum is left in the register as well. */
static void add_word(struct trans *t, u32 word, u8 reg)
{
	t->packed_imm[word] = mov_later(t, reg, t->packed_wide[word]);
	emit_rm(&t->e, true, OP_ADD, reg, packed(word));
	emit_rm(&t->e, true, OP_MOV_STORE, reg, packed(word));
}

/* Adds to the words of the block's classes; leaves the OR of the sums in S1. */
static void add_words(struct trans *t, retire_wanted added)
{
	u64 most[PACK_WORDS] = { 0 };
	bool first = true;

	pack_add(most, packs(t), added, BLOCK_INSNS);
	for (u32 i = 0; i < PACK_WORDS; i++) {
		t->packed_imm[i] = NULL;
		if (!most[i])
			continue;
		t->packed_wide[i] = most[i] > ~0u;
		add_word(t, i, first ? S1 : S0);
		if (!first)
			emit_rr(&t->e, true, OP_OR, S1, S0);
		first = false;
	}
}

/* After all that the block adds, since the exit takes all of it back. The sums of the words are in
 * S1, and the sign of a single class of priv->live[] in the flags. */
static void look_for_trips(struct trans *t, retire_wanted lived)
{
	bool several = lived & (lived - 1), looks = lived && !(t->mode & MODE_STEP);

	t->trip_from[0] = t->trip_from[1] = NULL;
	if (looks && !several)
		t->trip_from[1] = if_reached(t, lived);
	if (watches(t)) {
		watch(t, S1);
		t->trip_from[0] = emit_jcc(&t->e, CC_NE);
	}
	if (looks && several)
		t->trip_from[1] = if_reached(t, lived);
}

void emit_count_begin_block(struct trans *t)
{
	retire_wanted added, lived;

	if (!t->counts)
		return;
	added = present(t);
	lived = added & lives(t);
	t->nadded = 0;
	add_words(t, added);
	for (retire_wanted left = lived; left; left &= left - 1)
		add_total(t, retire_first(left));
	look_for_trips(t, lived);
}

static bool keep_weights(struct trans *t)
{
	u32 size = t->block->ninsns * sizeof(struct weight);

	t->block->weights = cache_alloc(t->eng, size);
	t->block->charge = cache_alloc(t->eng, sizeof(t->charge));
	if (!t->block->weights || !t->block->charge)
		return false;
	bytes_copy(t->block->weights, t->weights, size);
	bytes_copy(t->block->charge, t->charge, sizeof(t->charge));
	return true;
}

static void fill_in(struct trans *t)
{
	for (u32 i = 0; i < t->nadded; i++)
		*(u32_unaligned *)t->added[i].imm = class_total(t, t->added[i].class, 0);
	bytes_fill(t->charge, 0, sizeof(t->charge));
	for (u32 i = 0; i < t->block->ninsns; i++)
		pack_add(t->charge, packs(t), t->weights[i].classes, 1);
	for (u32 i = 0; i < PACK_WORDS; i++)
		if (t->packed_imm[i])
			bytes_copy_few(t->packed_imm[i], &t->charge[i], t->packed_wide[i] ? 8 : 4);
}

/* A block of one instruction just reaches its trip, and the run ends. */
bool emit_count_end_block(struct trans *t)
{
	if (!t->counts || !present(t) || t->e.full)
		return true;
	fill_in(t);
	for (u32 i = 0; i < ARRAY_SIZE(t->trip_from); i++)
		if (t->trip_from[i])
			emit_patch(&t->e, t->trip_from[i], t->e.p);
	if (t->trip_from[0] || t->trip_from[1])
		emit_block_leave_with(t, t->eng->leave_with[LEAVE_TRIP]);
	return keep_weights(t);
}
