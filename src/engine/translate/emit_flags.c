// SPDX-License-Identifier: MIT
/*
 * Arithmetic flags in translated code. They are in the host's flags after an instruction that
 * writes them. When code of the translator's own is about to destroy them, the instructions that
 * follow decide: if one reads them they are saved (LAHF, SETO) and restored for it; if none does,
 * but an exception may push them before they are overwritten, a recipe is kept where there is one;
 * else they are dropped. At block borders they are in hot->aflags.
 */
#include "engine/translate/trans.h"

#include "base/must.h"

static void emit_save(struct trans *t)
{
	emit_u8(&t->e, 0x9f); /* LAHF */
	emit_insn(&t->e, &(struct enc){ .map = MAP_0F, .opcode = 0x90 | CC_O, .rm = RAX });
	emit_rm(&t->e, false, OP_MOV_STORE, RAX, ea_base(RSP, HOT(aflags)));
}

void emit_flags_save(struct trans *t)
{
	must(t->flags != FLAGS_BY_RECIPE && t->flags != FLAGS_DEAD);
	if (t->flags != FLAGS_IN_HOST)
		return;
	emit_save(t);
	t->flags = FLAGS_IN_BOTH;
}

/* Do the recipe's registers stay unchanged wherever an instruction may fault before flags are
 * written again? */
static bool recipe_holds(const struct trans *t)
{
	const struct recipe *r = &t->recipe;
	u16 uses = (r->a != NO_REG ? BIT(r->a) : 0) | (r->b != NO_REG ? BIT(r->b) : 0);
	bool lost = false;

	if (r->kind == RECIPE_NONE)
		return false;
	for (u32 i = t->recipe_at + 1; i < t->nscan; i++) {
		const struct scan *s = &t->scan[i];

		if (lost && s->may_fault)
			return false;
		if (s->writes || s->keeps)
			return true;
		lost |= s->regs_written & uses;
		if (lost && s->stores)
			return false; /* the block may be left after the instruction */
	}
	return true;
}

void emit_flags_keep(struct trans *t)
{
	const struct scan *s = &t->scan[t->at];

	if (t->flags == FLAGS_IN_BOTH)
		t->flags = FLAGS_IN_CPU;
	if (t->flags != FLAGS_IN_HOST)
		return;
	if (!s->live && !s->exposed) {
		t->flags = FLAGS_DEAD;
	} else if (!s->live && recipe_holds(t)) {
		t->recipes[t->nrecipes++] = t->recipe;
		t->recipe_id = t->nrecipes;
		t->flags = FLAGS_BY_RECIPE;
	} else {
		emit_save(t);
		t->flags = FLAGS_IN_CPU;
	}
}

void emit_flags_restore(struct trans *t)
{
	must(t->flags != FLAGS_BY_RECIPE && t->flags != FLAGS_DEAD);
	if (t->flags != FLAGS_IN_CPU)
		return;
	emit_rm(&t->e, false, OP_MOV_LOAD, RAX, ea_base(RSP, HOT(aflags)));
	emit_u8(&t->e, 0x04); /* ADD AL, 7Fh: sets OF if AL is 1 */
	emit_u8(&t->e, 0x7f);
	emit_u8(&t->e, 0x9e); /* SAHF */
	t->flags = FLAGS_IN_BOTH;
}

static void alu(struct trans *t, u8 opcode, u8 size)
{
	emit_insn(&t->e, &(struct enc){ .p66 = size == 2,
					.w = size == 8,
					.opcode = opcode - (size == 1),
					.reg = S0,
					.rm = S1,
					.force_rex = true });
}

#define OP_SUB	0x2b
#define OP_TEST 0x85

void emit_flags_materialize(struct trans *t)
{
	const struct recipe *r;

	if (t->flags != FLAGS_BY_RECIPE)
		return;
	r = &t->recipes[t->recipe_id - 1];
	if (r->a == NO_REG)
		emit_mov_imm(&t->e, S0, (s64)r->imm);
	else
		emit_guest_get(t, r->a, S0);
	if (r->b == NO_REG)
		emit_mov_imm(&t->e, S1, (s64)r->imm);
	else
		emit_guest_get(t, r->b, S1);
	switch (r->kind) {
	case RECIPE_COMPARE:
		alu(t, OP_CMP, r->size);
		break;
	case RECIPE_ADDED:
		alu(t, OP_SUB, r->size);
		alu(t, OP_ADD, r->size);
		break;
	case RECIPE_TAKEN:
		alu(t, OP_ADD, r->size);
		alu(t, OP_SUB, r->size);
		break;
	default:
		alu(t, OP_TEST, r->size);
		break;
	}
	emit_save(t);
	t->flags = FLAGS_IN_CPU;
}

/* A count of 0 leaves the flags alone. */
static bool may_keep_flags(const struct trans *t)
{
	u8 category = t->zi->meta.category;

	return category == ZYDIS_CATEGORY_SHIFT || category == ZYDIS_CATEGORY_ROTATE;
}

static bool plain_register(const struct operand *op)
{
	return op->kind == OPERAND_REG && op->cls == REG_GPR && !op->high8;
}

/* ADD and SUB are undone, which takes the operand that they left as it was. */
static bool computable(enum recipe_kind kind, bool same_register)
{
	return !same_register || (kind != RECIPE_ADDED && kind != RECIPE_TAKEN);
}

/* a is the first operand, b the second. An immediate is not filled in. */
static struct recipe recipe_of(const struct trans *t, bool *has_imm)
{
	const struct insn_facts *facts = insn_facts(&t->insn);
	const struct operand *a = &t->insn.ops[0], *b = &t->insn.ops[1];
	bool same = plain_register(b) && a->reg == b->reg;
	struct recipe r = { .kind = RECIPE_NONE, .size = a->size, .a = a->reg, .b = b->reg };

	if (facts->recipe == RECIPE_NONE || !plain_register(a) || t->insn.nops != 2)
		return r;
	if (facts->recipe_of_result) {
		r.kind = facts->recipe;
		r.b = r.a;
		if (same && t->insn.id == INSN_XOR)
			r.a = r.b = NO_REG; /* 0 */
		return r;
	}
	if (b->kind == OPERAND_IMM) {
		r.b = NO_REG;
		*has_imm = true;
	} else if (!plain_register(b)) {
		return r;
	}
	if (computable(facts->recipe, same))
		r.kind = facts->recipe;
	return r;
}

/*
 * Undefined flags count as kept: their values must not depend on the flags that the translator's
 * own code left there, or two runs would differ. So do all of a shift, whose count may be
 * 0.
 */
void trans_flags_learn(const struct trans *t, struct decoded *d)
{
	const ZydisAccessedFlags *f = t->zi->cpu_flags;
	bool has_imm = false;

	d->recipe = recipe_of(t, &has_imm);
	d->recipe_has_imm = has_imm;
	d->reads = d->writes = d->keeps = 0;
	if (!f)
		return;
	d->reads = f->tested & FL_ARITH;
	d->writes = (f->modified | f->set_0 | f->set_1) & FL_ARITH;
	if (insn_facts(&t->insn)->clears_af)
		d->writes |= FL_AF;
	d->keeps = d->writes || (f->undefined & FL_ARITH) ? FL_ARITH & ~d->writes : 0;
	if (may_keep_flags(t))
		d->keeps = FL_ARITH;
}

void trans_flags_classify(const struct trans *t, struct scan *s, const struct decoded *d)
{
	bool all = s->ends || trans_system_candidate(t, d);

	s->recipe = d->recipe;
	if (d->recipe_has_imm) {
		s64 imm = s->insn.ops[1].imm;

		s->recipe.imm = imm;
		if (imm != (s32)imm)
			s->recipe.kind = RECIPE_NONE;
	}
	s->reads = all ? FL_ARITH : d->reads;
	s->writes = all ? 0 : d->writes;
	s->keeps = all ? 0 : d->keeps;
}

/* Backwards from the block's end, where all flags are live. */
void trans_flags_analyse(struct trans *t)
{
	u16 live = FL_ARITH, exposed = 0;
	/* Observation runs before every instruction and needs them saved. */
	u16 always = t->mode & MODE_OBSERVE_MEMORY ? FL_ARITH : 0;

	for (u32 i = t->nscan; i-- > 0;) {
		struct scan *s = &t->scan[i];
		bool changes = s->writes | s->keeps;

		s->merges = s->keeps & (live | exposed);
		live = changes ? -(u16)s->merges & s->keeps : live;
		exposed = changes ? 0 : exposed;
		live |= s->reads | always;
		exposed |= -(u16)s->may_fault & FL_ARITH;
		s->live = live;
		s->exposed = exposed;
	}
}
