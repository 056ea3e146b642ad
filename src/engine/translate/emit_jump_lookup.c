// SPDX-License-Identifier: MIT
/*
 * The look-up in the jump cache, as host code: what an indirect branch executes. It compares the
 * whole address first and then the key, each a field of its own: invariants 1 and 2 of
 * code_check.h. S1 is the index, scaled.
 */
#include "engine/code_check.h"
#include "engine/translate/trans.h"

/* The index is in bits 1 and up, scaled by 8: cpu_jump_index(). */
_Static_assert(sizeof(struct jump_entry) == 2 * 8, "see above");

static struct ea column(s32 offset)
{
	return (struct ea){ .base = RSP, .index = S1, .scale = 8, .disp = PRIV(jump) + offset };
}

#define COLUMN(field) column(offsetof(struct jump_entry, field))

static void jump_to_s0(struct emitter *e)
{
	emit_insn(e, &(struct enc){ .opcode = 0xff, .reg = 4, .rm = S0 });
}

/* The checking build asks C, which puts the code's address into S0. */
static void follow_checked(struct emitter *e, const struct engine *eng)
{
	emit_rm(e, true, OP_MOV_LOAD, S0, COLUMN(rip));
	emit_rm(e, false, OP_MOV_LOAD, S1, COLUMN(code));
	emit_patch(e, emit_call(e), eng->check_jump);
	jump_to_s0(e);
}

static void follow(struct emitter *e)
{
	emit_rm(e, false, OP_MOV_LOAD, S0, COLUMN(code));
	emit_rm(e, true, OP_ADD, S0, ea_base(RSP, PRIV(code_base)));
	jump_to_s0(e);
}

struct jump_lookup emit_jump_lookup(struct emitter *e, const struct engine *eng)
{
	struct jump_lookup l;

	emit_rr(e, false, OP_MOV_LOAD, S1, S0);
	emit_rm(e, false, OP_XOR, S1, ea_base(RSP, PRIV(jump_spread)));
	emit_group1(e, false, GROUP_AND, S1, (JUMP_SIZE - 1) << 1);
	emit_rm(e, true, OP_CMP, S0, COLUMN(rip));
	l.other_rip = emit_jcc(e, CC_NE);
	emit_rm(e, false, OP_MOV_LOAD, S0, COLUMN(key));
	emit_rm(e, false, OP_CMP, S0, ea_base(RSP, PRIV(jump_key)));
	l.other_key = emit_jcc(e, CC_NE);
	if (CHECKING)
		follow_checked(e, eng);
	else
		follow(e);
	return l;
}

void emit_jump_lookup_missed(struct emitter *e, const struct jump_lookup *l, u32 n)
{
	for (u32 i = 0; i < n; i++)
		emit_patch(e, l[i].other_key, e->p);
	emit_rm(e, true, OP_MOV_LOAD, S0, COLUMN(rip)); /* equal to the target, which S0 held */
	for (u32 i = 0; i < n; i++)
		emit_patch(e, l[i].other_rip, e->p);
}
