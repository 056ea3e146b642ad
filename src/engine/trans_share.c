// SPDX-License-Identifier: MIT
/*
 * Accesses of a block that share one check. Those with the same base and index registers lie a
 * known distance apart: the first of them, the leader, checks that all of them lie in one page that
 * the most demanding may access, and keeps the host address; the others use it, with no check and
 * no harm to the flags. Registers that move by a constant, as the stack pointer does, keep their
 * group.
 *
 * A group that does not fit its page, or whose page does not grant what all members want, goes on
 * in another block that begins with the leader and checks each access apart (MODE_APART). What a
 * leader learned holds to the end of the block: nothing within a block changes a mapping.
 */
#include "engine/trans.h"

#define GROUP_SPAN 512	   /* bytes at most: the wider, the less often it fits */
#define FAR	   BIT(30) /* displacements from -FAR to FAR are safe to be moved within 32 bits */

/* One access of an instruction. */
struct access {
	u8 base, index, scale;
	s64 offset;
	u8 size;
	bool write;
};

static bool shareable_seg(const struct operand *op)
{
	return op->seg != FS && op->seg != GS;
}

/* Constant movement of a register: RSP by stack instructions, any by ADD, SUB, LEA of 64 bits. */
static bool moves_by(const struct scan *s, u8 *reg, s64 *delta)
{
	const struct operand *to = &s->insn.ops[0], *by = &s->insn.ops[1];

	*reg = RSP;
	switch (s->zi.mnemonic) {
	case ZYDIS_MNEMONIC_PUSH:
	case ZYDIS_MNEMONIC_CALL:
		*delta = -(s64)s->insn.opsize;
		return true;
	case ZYDIS_MNEMONIC_POP:
		*delta = s->insn.opsize;
		return to->kind == OPERAND_REG && to->reg != RSP;
	case ZYDIS_MNEMONIC_ADD:
	case ZYDIS_MNEMONIC_SUB:
		*reg = to->reg;
		*delta = s->zi.mnemonic == ZYDIS_MNEMONIC_ADD ? by->imm : -by->imm;
		return to->kind == OPERAND_REG && to->cls == REG_GPR && to->size == 8 &&
		       by->kind == OPERAND_IMM;
	case ZYDIS_MNEMONIC_INC:
	case ZYDIS_MNEMONIC_DEC:
		*reg = to->reg;
		*delta = s->zi.mnemonic == ZYDIS_MNEMONIC_INC ? 1 : -1;
		return to->kind == OPERAND_REG && to->cls == REG_GPR && to->size == 8;
	case ZYDIS_MNEMONIC_LEA:
		*reg = to->reg;
		*delta = by->imm;
		return to->size == 8 && s->insn.addrsize == 8 && by->base == to->reg &&
		       by->index == NO_REG;
	default:
		return false;
	}
}

static struct access stack_access(s64 offset, u8 size, bool write)
{
	return (struct access){ .base = RSP,
				.index = NO_REG,
				.scale = 1,
				.offset = offset,
				.size = size,
				.write = write };
}

/* What an instruction accesses; false: nothing, or more or other things than can be shared. */
static bool access_of(const struct scan *s, struct access *a)
{
	const struct operand *mem = NULL;

	for (u32 i = 0; i < s->insn.nops; i++)
		if (s->insn.ops[i].kind == OPERAND_MEM)
			mem = &s->insn.ops[i];
	switch (s->zi.mnemonic) {
	case ZYDIS_MNEMONIC_PUSH:
	case ZYDIS_MNEMONIC_CALL:
		*a = stack_access(-(s64)s->insn.opsize, s->insn.opsize, true);
		return !mem;
	case ZYDIS_MNEMONIC_POP:
	case ZYDIS_MNEMONIC_RET:
		*a = stack_access(0, s->insn.opsize, false);
		return !mem && !s->insn.far;
	case ZYDIS_MNEMONIC_LEA:
	case ZYDIS_MNEMONIC_LEAVE:
		return false;
	default:
		break;
	}
	if (s->quiet)
		return false;
	if (!mem || !mem->size || s->insn.addrsize != 8 || mem->base == NO_REG ||
	    !shareable_seg(mem) || s->insn.far)
		return false;
	if (s->zi.meta.category == ZYDIS_CATEGORY_BITBYTE && s->insn.ops[1].kind == OPERAND_REG)
		return false; /* a bit string: the operand lies elsewhere */
	*a = (struct access){ .base = mem->base,
			      .index = mem->index,
			      .scale = mem->scale,
			      .offset = mem->imm,
			      .size = mem->size,
			      .write = mem->written };
	return mem->size <= 64 && mem->index_cls != REG_VEC;
}

/* A group while the block is looked through. */
struct open {
	struct access key;
	s64 moved; /* of the base register since the leader */
	bool usable;
};

static bool fits(const struct group *g, s64 lo, s64 hi)
{
	return (hi > g->hi ? hi : g->hi) - (lo < g->lo ? lo : g->lo) <= GROUP_SPAN;
}

static void join(struct trans *t, struct open *open, u32 i, u8 id, const struct access *a)
{
	struct group *g = &t->groups[id];
	s64 lo = a->offset + open->moved, hi = lo + a->size;

	g->lo = lo < g->lo ? lo : g->lo;
	g->hi = hi > g->hi ? hi : g->hi;
	g->write |= a->write;
	g->members++;
	t->scan[i].group = id;
	t->scan[i].at_offset = lo;
}

static bool same_key(const struct access *a, const struct access *b)
{
	return a->base == b->base && a->index == b->index &&
	       (a->index == NO_REG || a->scale == b->scale);
}

static void assign(struct trans *t, struct open *open, u32 i, const struct access *a)
{
	for (u32 id = 0; id < t->ngroups; id++) {
		s64 lo = a->offset + open[id].moved;

		if (open[id].usable && same_key(&open[id].key, a) &&
		    fits(&t->groups[id], lo, lo + a->size)) {
			join(t, &open[id], i, id, a);
			return;
		}
	}
	if (t->ngroups == SHARE_SLOTS || a->offset < -(s64)FAR || a->offset > (s64)FAR)
		return;
	open[t->ngroups] = (struct open){ .key = *a, .usable = true };
	t->groups[t->ngroups] = (struct group){ .leader = i, .lo = a->offset, .hi = a->offset };
	join(t, &open[t->ngroups], i, t->ngroups, a);
	t->ngroups++;
}

/* Registers that the instruction writes end the groups that use them, or move them along. */
static void follow(struct trans *t, struct open *open, const struct scan *s)
{
	u8 reg = NO_REG;
	s64 delta = 0;
	bool moves = moves_by(s, &reg, &delta);

	for (u32 id = 0; id < t->ngroups; id++) {
		const struct access *key = &open[id].key;
		u16 written = s->regs_written;

		if (moves && key->base == reg && key->index != reg) {
			open[id].moved += delta;
			written &= ~BIT(reg);
		} else if (moves && key->index == reg && key->base != reg) {
			open[id].moved += delta * key->scale;
			written &= ~BIT(reg);
		}
		if ((written & BIT(key->base)) ||
		    (key->index != NO_REG && (written & BIT(key->index))))
			open[id].usable = false;
	}
}

static bool sharing_allowed(const struct trans *t)
{
	return (t->mode & MODE_CODE64) &&
	       !(t->mode & (MODE_STEP | MODE_ALIGN | MODE_OBSERVE_MEMORY | MODE_APART));
}

void share_analyse(struct trans *t)
{
	struct open open[SHARE_SLOTS];

	t->ngroups = 0;
	t->reached = NO_GROUP;
	for (u32 i = 0; i < t->nscan; i++)
		t->scan[i].group = NO_GROUP;
	for (u32 i = 0; i < t->nscan && sharing_allowed(t); i++) {
		const struct scan *s = &t->scan[i];
		struct access a;

		if (s->vector >= 0 || system_candidate(t, &s->insn))
			break; /* what comes behind may be in another mode */
		if (access_of(s, &a))
			assign(t, open, i, &a);
		follow(t, open, s);
	}
	for (u32 i = 0; i < t->nscan; i++) {
		u8 id = t->scan[i].group;

		if (id != NO_GROUP && t->groups[id].members == 1)
			t->scan[i].group = NO_GROUP;
	}
}

static struct ea slot(u8 id)
{
	return ea_base(RSP, CPU(share) + 8 * id);
}

bool share_leads(const struct trans *t)
{
	u8 id = t->scan[t->at].group;

	return id != NO_GROUP && t->groups[id].leader == t->at;
}

bool share_follows(const struct trans *t)
{
	return t->scan[t->at].group != NO_GROUP && !share_leads(t);
}

static s32 in_group(const struct trans *t)
{
	const struct scan *s = &t->scan[t->at];

	return s->at_offset - t->groups[s->group].lo;
}

s64 share_shift(const struct trans *t)
{
	return -(s64)in_group(t);
}

u32 share_span(const struct trans *t)
{
	const struct group *g = &t->groups[t->scan[t->at].group];

	return g->hi - g->lo;
}

void share_reach(struct trans *t, struct native *n)
{
	u8 id = t->scan[t->at].group;

	if (t->reached != id || t->reached_at + 1 != t->at)
		emit_rm(&t->e, true, OP_MOV_LOAD, S0, slot(id));
	n->x.ea.disp = in_group(t);
}

void share_reached(struct trans *t, const struct native *n)
{
	t->reached = n->x.reg == S0 ? NO_GROUP : t->scan[t->at].group;
	t->reached_at = t->at;
}

void share_keep(struct trans *t, struct native *n)
{
	emit_rm(&t->e, true, OP_MOV_STORE, S0, slot(t->scan[t->at].group));
	n->x.ea.disp = in_group(t);
}
