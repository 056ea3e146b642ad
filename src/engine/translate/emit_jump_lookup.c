// SPDX-License-Identifier: MIT
/*
 * The look-up in the jump cache, as host code: what an indirect branch executes. It compares the
 * whole address first and then the key, each a field of its own: invariants 1 and 2 of
 * code_check.h. S1 is the index, scaled.
 */
#include "engine/code_check.h"
#include "engine/jump_cache.h"
#include "engine/translate/trans.h"

/* Scaled by 8, which a scale of 2 makes 16: cpu_jump_index(). */
_Static_assert(JUMP_SPAN == 8 && sizeof(struct jump_entry) == 2 * JUMP_SPAN, "see above");

static struct ea column(s32 offset)
{
	return (struct ea){ .base = RSP, .index = S1, .scale = 2, .disp = PRIV(jump) + offset };
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

static void emit_index(struct emitter *e)
{
	emit_rr(e, false, OP_MOV_LOAD, S1, S0);
	emit_rm(e, false, OP_XOR, S1, ea_base(RSP, PRIV(jump_spread)));
	emit_group1(e, false, GROUP_AND, S1, (JUMP_SIZE - 1) * JUMP_SPAN);
}

static void follow_entry(struct emitter *e, const struct engine *eng)
{
	if (CHECKING)
		follow_checked(e, eng);
	else
		follow(e);
}

struct jump_lookup emit_jump_lookup(struct emitter *e, const struct engine *eng)
{
	struct jump_lookup l;

	emit_index(e);
	emit_rm(e, true, OP_CMP, S0, COLUMN(rip));
	l.other_rip = emit_jcc(e, CC_NE);
	emit_rm(e, false, OP_MOV_LOAD, S0, COLUMN(key));
	emit_rm(e, false, OP_CMP, S0, ea_base(RSP, PRIV(jump_key)));
	l.other_key = emit_jcc(e, CC_NE);
	follow_entry(e, eng);
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

/* Before and after code that needs a further register: its home in struct cpu is free meanwhile. */
static void move_rcx(struct emitter *e, u8 opcode)
{
	emit_rm(e, true, opcode, RCX, ea_base(RSP, CPU(regs) + 8 * RCX));
}

/* jump_cache.c, jump_find(). */
void emit_jump_renew(struct emitter *e, const struct engine *eng)
{
	struct ea mapping = { .base = RSP, .index = S1, .scale = 1, .disp = PRIV(jump_mapping) };
	struct ea current = ea_base(RSP, PRIV(jump_key));
	u8 *first, *good, *other[4];

	move_rcx(e, OP_MOV_STORE);
	emit_index(e);
	emit_rm(e, true, OP_CMP, S0, COLUMN(rip));
	first = emit_jcc(e, CC_E);
	emit_group1(e, false, GROUP_XOR, S1, cpu_jump_beside(0) * JUMP_SPAN);
	emit_rm(e, true, OP_CMP, S0, COLUMN(rip));
	other[0] = emit_jcc(e, CC_NE);
	emit_patch(e, first, e->p);
	emit_rm(e, false, OP_MOV_LOAD, RCX, COLUMN(key));
	emit_rm(e, false, OP_XOR, RCX, current);
	good = emit_jcc(e, CC_E);
	emit_group1(e, false, GROUP_AND, RCX, JUMP_MODES - 1);
	other[1] = emit_jcc(e, CC_NE);
	emit_rr(e, false, OP_MOV_LOAD, RCX, S0);
	emit_shift(e, false, SHIFT_SHR, RCX, PAGE_SHIFT);
	emit_group1(e, false, GROUP_AND, RCX, MAPPED_PAGES - 1);
	emit_shift(e, false, SHIFT_SHL, RCX, 2);
	emit_rm(e, true, OP_ADD, RCX, ea_base(RSP, PRIV(mapped_now)));
	emit_rm(e, false, OP_MOV_LOAD, RCX, ea_base(RCX, 0));
	emit_rr(e, false, OP_TEST, RCX, RCX);
	other[2] = emit_jcc(e, CC_E);
	emit_shift(e, false, SHIFT_SHR, S1, 1); /* scaled by 4 */
	emit_rm(e, false, OP_CMP, RCX, mapping);
	emit_rm(e, true, OP_LEA, S1, (struct ea){ .base = S1, .index = S1, .scale = 1 });
	other[3] = emit_jcc(e, CC_NE);
	emit_rm(e, false, OP_MOV_LOAD, RCX, current);
	emit_rm(e, false, OP_MOV_STORE, RCX, COLUMN(key));
	emit_patch(e, good, e->p);
	move_rcx(e, OP_MOV_LOAD);
	follow_entry(e, eng);
	for (u32 i = 0; i < ARRAY_SIZE(other); i++)
		emit_patch(e, other[i], e->p);
	move_rcx(e, OP_MOV_LOAD);
}
