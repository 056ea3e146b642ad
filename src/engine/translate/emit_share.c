// SPDX-License-Identifier: MIT
/*
 * Memory accesses of a block that share one check of the soft TLB.
 *
 * The problem. Each access of translated code costs a TLB look-up of several instructions, which
 * also destroys the host's flags. But the accesses of a block are seldom independent: pushes and
 * pops next to each other, fields of one struct.
 *
 * The idea. Accesses whose addresses differ by a constant form a *group*. Its first access, the
 * *leader*, checks the whole range of the group at once, and keeps the host address of the range's
 * first byte in priv->share[]; the others, the members, access memory at that address plus a
 * constant, with no check and the flags untouched.
 *
 * Constant differences are found by following registers symbolically through the block. The value
 * of a register is a symbol plus an offset: the symbol stands for what the register held at the
 * start, or for what an instruction left in it that is not understood. MOV and LEA copy symbol and
 * offset; ADD, SUB and stack instructions change the offset. Constants are offsets of one more
 * symbol.
 *
 * Invariants:
 *
 *  1. Members have the leader's symbols, and its scale of the index: their addresses differ by the
 *     difference of the offsets, modulo 2^64, whatever the registers hold.
 *  2. A leader's check holds for the range [lo, hi) of its group, which lies on one page, and for a
 *     write if some member writes. A group whose range crosses a page or whose page lacks the right
 *     is not shared: the block is left in front of the leader and goes on in another block, which
 *     starts with the leader and checks each access by itself (MODE_UNSHARED).
 *  3. A leader is executed before its members: blocks have one entry, and can only be left early.
 *  4. What a leader found holds to the end of the block: instructions that may change a mapping or
 *     the mode end the analysis, and rights to write (dirty log, translated code, claims of other
 *     processors) are withdrawn between blocks only.
 *  5. Faults stay precise: if a member would fault, so would the leader's check fail (2), and the
 *     unshared block finds the instruction that does.
 *
 * Not where each access must be seen by itself: alignment checks, observation, single steps; nor
 * outside 64-bit code, where addresses wrap. Runs while translating.
 */
#include "engine/translate/trans.h"

#define GROUP_SPAN 512	   /* bytes at most: the wider, the less often it fits */
#define FAR	   BIT(30) /* displacements up to it can be shifted by a span within 32 bits */

/* What a register holds, or where an access is but for an index register. */
struct value {
	u16 symbol;
	u64 offset;
};

#define SYMBOL_ZERO NREGS /* below: a register as it was in the beginning */
#define NREGS	    16

/* The registers' values at one point of the block. */
struct known {
	struct value reg[NREGS];
	u16 symbols; /* the next new symbol */
};

/* One access of an instruction. */
struct access {
	struct value at, index;
	u8 scale;
	s64 displacement; /* as encoded in the instruction */
	u8 size;
	bool write;
};

static struct value plus(struct value v, u64 delta)
{
	v.offset += delta;
	return v;
}

static struct value constant(u64 offset)
{
	return (struct value){ .symbol = SYMBOL_ZERO, .offset = offset };
}

static struct value known_reg(const struct known *known, u8 reg)
{
	return reg == NO_REG ? constant(0) : known->reg[reg];
}

static bool is_constant(struct value v)
{
	return v.symbol == SYMBOL_ZERO;
}

/* Where a memory operand lies; the index register's offset is moved to the base's. */
static struct access locate(const struct known *known, const struct operand *mem)
{
	struct access a = { .at = plus(known_reg(known, mem->base), mem->imm),
			    .index = known_reg(known, mem->index),
			    .scale = mem->scale,
			    .displacement = mem->imm };

	a.at.offset += a.index.offset * a.scale;
	a.index.offset = 0;
	if (is_constant(a.index))
		a.scale = 1;
	if (mem->base == NO_REG && mem->index == NO_REG)
		a.displacement = 0; /* an absolute address: nothing will be shifted */
	return a;
}

static bool is_register(const struct operand *op, u8 size)
{
	return op->kind == OPERAND_REG && op->cls == REG_GPR && op->size == size;
}

/* A register of 32 bits is written as a whole, and so is one of 64. */
static bool is_whole(const struct operand *op)
{
	return is_register(op, 4) || is_register(op, 8);
}

static u64 cut(u64 value, u8 size)
{
	return size == 4 ? (u32)value : value;
}

/* What an instruction leaves in its first operand, a register. */
enum share_leaves {
	LEAVES_UNKNOWN,
	LEAVES_CONSTANT,
	LEAVES_COPY,
	LEAVES_ZERO,
	LEAVES_SUM,
	LEAVES_DIFFERENCE,
	LEAVES_INCREMENTED,
	LEAVES_DECREMENTED,
	LEAVES_ADDRESS, /* if it has no index that varies */
	/* Not there, but in RSP: */
	LEAVES_PUSHED,
	LEAVES_POPPED,
};

/* Which access it has. */
enum share_access {
	ACCESS_NONE, /* or several, or one that cannot be shared */
	ACCESS_PUSHED,
	ACCESS_POPPED,
	ACCESS_OPERAND, /* this plus the number of the operand */
};

static bool result(const struct known *known, const struct scan *s, struct value *out)
{
	const struct operand *to = &s->insn.ops[0], *by = &s->insn.ops[1];
	struct access a;

	switch ((enum share_leaves)s->decoded->leaves) {
	case LEAVES_CONSTANT:
		*out = constant(cut(by->imm, to->size));
		return true;
	case LEAVES_COPY:
		*out = known_reg(known, by->reg);
		return true;
	case LEAVES_ZERO:
		*out = constant(0);
		return true;
	case LEAVES_SUM:
		*out = plus(known->reg[to->reg], by->imm);
		return true;
	case LEAVES_DIFFERENCE:
		*out = plus(known->reg[to->reg], -(u64)by->imm);
		return true;
	case LEAVES_INCREMENTED:
		*out = plus(known->reg[to->reg], 1);
		return true;
	case LEAVES_DECREMENTED:
		*out = plus(known->reg[to->reg], -1ull);
		return true;
	case LEAVES_ADDRESS:
		a = locate(known, by);
		*out = a.at;
		return is_constant(a.index);
	default:
		return false;
	}
}

static enum share_leaves leaves_in_register(const struct insn *insn)
{
	const struct operand *to = &insn->ops[0], *by = &insn->ops[1];
	bool imm = by->kind == OPERAND_IMM, wide = to->size == 8;

	if (!is_whole(to))
		return LEAVES_UNKNOWN;
	switch (insn_facts(insn)->result) {
	case RESULT_MOVE:
		return imm			    ? LEAVES_CONSTANT
		       : wide && is_register(by, 8) ? LEAVES_COPY
						    : LEAVES_UNKNOWN;
	case RESULT_XOR:
		return is_register(by, to->size) && by->reg == to->reg ? LEAVES_ZERO
								       : LEAVES_UNKNOWN;
	case RESULT_ADD:
		return wide && imm ? LEAVES_SUM : LEAVES_UNKNOWN;
	case RESULT_SUB:
		return wide && imm ? LEAVES_DIFFERENCE : LEAVES_UNKNOWN;
	case RESULT_INC:
		return wide ? LEAVES_INCREMENTED : LEAVES_UNKNOWN;
	case RESULT_DEC:
		return wide ? LEAVES_DECREMENTED : LEAVES_UNKNOWN;
	case RESULT_LEA:
		return wide && insn->addrsize == 8 ? LEAVES_ADDRESS : LEAVES_UNKNOWN;
	default:
		return LEAVES_UNKNOWN;
	}
}

static bool shareable_seg(const struct operand *op)
{
	return op->seg != FS && op->seg != GS;
}

static enum share_leaves leaves(const struct insn *insn)
{
	switch (insn_facts(insn)->stack) {
	case STACK_PUSH:
		return LEAVES_PUSHED;
	case STACK_POP:
		if (insn->ops[0].kind == OPERAND_REG && insn->ops[0].reg != RSP)
			return LEAVES_POPPED;
		/* fall through */
	default:
		return leaves_in_register(insn);
	}
}

/* Updates the registers for an instruction. */
static void follow(struct known *known, const struct scan *s)
{
	struct value left;
	u16 written = s->regs_written;

	if (s->decoded->leaves >= LEAVES_PUSHED) {
		u64 size = s->insn.opsize;

		known->reg[RSP] =
			plus(known->reg[RSP], s->decoded->leaves == LEAVES_PUSHED ? -size : size);
		written &= ~BIT(RSP);
	} else if (result(known, s, &left)) {
		known->reg[s->insn.ops[0].reg] = left;
		written &= ~BIT(s->insn.ops[0].reg);
	}
	for (; written; written &= written - 1)
		known->reg[__builtin_ctz(written)] = (struct value){ .symbol = known->symbols++ };
}

static struct access stack_access(const struct known *known, u64 delta, u8 size, bool write)
{
	return (struct access){ .at = plus(known->reg[RSP], delta),
				.index = constant(0),
				.scale = 1,
				.size = size,
				.write = write };
}

static u8 access_of_operand(const struct insn *insn, const struct decoded *d, u8 number)
{
	const struct operand *mem = &insn->ops[number];

	if (d->quiet || insn_facts(insn)->result == RESULT_LEA || !mem->size || mem->size > 64 ||
	    mem->index_cls == REG_VEC || insn->addrsize != 8 || !shareable_seg(mem) || insn->far)
		return ACCESS_NONE;
	if (d->category == ZYDIS_CATEGORY_SHA)
		return ACCESS_NONE; /* misaligned ones must reach the slow path: emit_memory.c */
	if (d->category == ZYDIS_CATEGORY_BITBYTE && insn->ops[1].kind == OPERAND_REG)
		return ACCESS_NONE; /* a bit string: the operand lies elsewhere */
	return ACCESS_OPERAND + number;
}

static u8 access_of(const struct insn *insn, const struct decoded *d)
{
	u8 number = NO_OPERAND;

	for (u32 i = 0; i < insn->nops; i++)
		if (insn->ops[i].kind == OPERAND_MEM)
			number = i;
	switch (insn_facts(insn)->stack) {
	case STACK_PUSH:
		return number == NO_OPERAND ? ACCESS_PUSHED : ACCESS_NONE;
	case STACK_POP:
	case STACK_RETURN:
		return number == NO_OPERAND && !insn->far ? ACCESS_POPPED : ACCESS_NONE;
	case STACK_FRAME:
		return ACCESS_NONE;
	default:
		return number == NO_OPERAND ? ACCESS_NONE : access_of_operand(insn, d, number);
	}
}

void trans_share_learn(const struct trans *t, struct decoded *d)
{
	d->access = access_of(&t->insn, d);
	d->leaves = leaves(&t->insn);
}

/* False: it has none that may be shared. */
static bool find_access(const struct known *known, const struct scan *s, struct access *a)
{
	const struct operand *mem;
	u8 opsize = s->insn.opsize;

	switch (s->decoded->access) {
	case ACCESS_NONE:
		return false;
	case ACCESS_PUSHED:
		*a = stack_access(known, -(u64)opsize, opsize, true);
		return true;
	case ACCESS_POPPED:
		*a = stack_access(known, 0, opsize, false);
		return true;
	default:
		mem = &s->insn.ops[s->decoded->access - ACCESS_OPERAND];
		*a = locate(known, mem);
		a->size = mem->size;
		a->write = mem->written;
		return true;
	}
}

/* Invariant 1. *lo: from the leader's address to the access; the group stays within GROUP_SPAN. */
static bool fits(const struct group *g, const struct access *leader, const struct access *a,
		 s64 *lo)
{
	*lo = (s64)(a->at.offset - leader->at.offset);
	return a->at.symbol == leader->at.symbol && a->index.symbol == leader->index.symbol &&
	       a->scale == leader->scale && *lo > -GROUP_SPAN && *lo < GROUP_SPAN &&
	       (*lo + a->size > g->hi ? *lo + a->size : g->hi) - (*lo < g->lo ? *lo : g->lo) <=
		       GROUP_SPAN;
}

static void join(struct trans *t, u32 i, u8 id, const struct access *a, s64 lo)
{
	struct group *g = &t->groups[id];
	s64 hi = lo + a->size;

	g->lo = lo < g->lo ? lo : g->lo;
	g->hi = hi > g->hi ? hi : g->hi;
	g->write |= a->write;
	g->members++;
	t->scan[i].group = id;
	t->scan[i].at_offset = lo;
}

static void assign(struct trans *t, struct access *leader, u32 i, const struct access *a)
{
	s64 lo;

	for (u32 id = 0; id < t->ngroups; id++)
		if (fits(&t->groups[id], &leader[id], a, &lo)) {
			join(t, i, id, a, lo);
			return;
		}
	if (t->ngroups == MAX_GROUPS || a->displacement < -(s64)FAR || a->displacement > (s64)FAR)
		return;
	leader[t->ngroups] = *a;
	t->groups[t->ngroups] = (struct group){ .leader = i };
	join(t, i, t->ngroups++, a, 0);
}

/* A group of one access is none. Of the others, the first SHARE_SLOTS have slots. */
static void give_slots(struct trans *t)
{
	u32 slots = 0;

	for (u32 id = 0; id < t->ngroups; id++)
		t->groups[id].slot =
			t->groups[id].members > 1 && slots < SHARE_SLOTS ? slots++ : NO_SLOT;
	for (u32 i = 0; i < t->nscan; i++) {
		u8 id = t->scan[i].group;

		if (id != NO_GROUP && t->groups[id].slot == NO_SLOT)
			t->scan[i].group = NO_GROUP;
	}
}

static bool sharing_allowed(const struct trans *t)
{
	return (t->mode & MODE_CODE64) &&
	       !(t->mode & (MODE_STEP | MODE_ALIGN | MODE_OBSERVE_MEMORY | MODE_UNSHARED));
}

static u32 count_accesses(const struct trans *t)
{
	u32 n = 0;

	for (u32 i = 0; i < t->nscan; i++)
		n += t->scan[i].decoded->access != ACCESS_NONE;
	return n;
}

static void find_groups(struct trans *t)
{
	struct access leader[MAX_GROUPS];
	struct known known;

	known.symbols = SYMBOL_ZERO + 1;
	for (u32 i = 0; i < NREGS; i++)
		known.reg[i] = (struct value){ .symbol = i };
	for (u32 i = 0; i < t->nscan; i++) {
		const struct scan *s = &t->scan[i];
		struct access a;

		if (s->vector >= 0 || trans_system_candidate(t, s->decoded))
			break; /* invariant 4: it may change the mode */
		if (find_access(&known, s, &a))
			assign(t, leader, i, &a);
		follow(&known, s);
	}
	give_slots(t);
}

void trans_share_analyse(struct trans *t)
{
	t->ngroups = 0;
	t->s0_group = NO_GROUP;
	for (u32 i = 0; i < t->nscan; i++)
		t->scan[i].group = NO_GROUP;
	if (sharing_allowed(t) && count_accesses(t) > 1)
		find_groups(t);
}

static struct ea slot(const struct trans *t, u8 id)
{
	return ea_base(RSP, PRIV(share) + 8 * t->groups[id].slot);
}

bool trans_share_leads(const struct trans *t)
{
	u8 id = t->scan[t->at].group;

	return id != NO_GROUP && t->groups[id].leader == t->at;
}

bool trans_share_follows(const struct trans *t)
{
	return t->scan[t->at].group != NO_GROUP && !trans_share_leads(t);
}

static s32 in_group(const struct trans *t)
{
	const struct scan *s = &t->scan[t->at];

	return s->at_offset - t->groups[s->group].lo;
}

s64 trans_share_shift(const struct trans *t)
{
	return -(s64)in_group(t);
}

u32 trans_share_span(const struct trans *t)
{
	const struct group *g = &t->groups[t->scan[t->at].group];

	return g->hi - g->lo;
}

void trans_share_reach(struct trans *t, struct native *n)
{
	u8 id = t->scan[t->at].group;

	if (t->s0_group != id || t->s0_group_at + 1 != t->at)
		emit_rm(&t->e, true, OP_MOV_LOAD, S0, slot(t, id));
	n->x.ea.disp = in_group(t);
}

void trans_share_reached(struct trans *t, const struct native *n)
{
	t->s0_group = n->x.reg == S0 ? NO_GROUP : t->scan[t->at].group;
	t->s0_group_at = t->at;
}

void emit_share_keep(struct trans *t, struct native *n)
{
	emit_rm(&t->e, true, OP_MOV_STORE, S0, slot(t, t->scan[t->at].group));
	n->x.ea.disp = in_group(t);
}
