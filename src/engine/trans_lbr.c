// SPDX-License-Identifier: MIT
/*
 * Recording near branches in translated code, compiled in while somebody records (MODE_LBR): where
 * a branch is taken, a look at the filter, and a call of a short piece of generated code that does
 * what hwpmu/branch.c says. Far branches, interrupts and exceptions are recorded by run.c.
 *
 * The record is written when nothing of the branch can fault any more; but for a target that is not
 * canonical, which only the dispatcher finds: such a branch is not recorded.
 */
#include "engine/trans.h"

#define RING(field)  (CPU(branches) + (s32)offsetof(struct branch_ring, field))
#define ENTRY(field) (RING(entry) + (s32)offsetof(struct branch_entry, field))

/* In a thunk two words are on the stack: the way back, and RCX. */
#define PUSHED 16

static struct ea ring_ea(s32 offset)
{
	return ea_base(RSP, PUSHED + offset);
}

static struct ea entry_ea(s32 offset)
{
	return (struct ea){ .base = RSP, .index = RCX, .scale = 1, .disp = PUSHED + offset };
}

static void load_cycles(struct emitter *e)
{
	emit_rr(e, true, OP_MOV_LOAD, S1, COUNTDOWN);
	emit_shift(e, true, SHIFT_SAR, S1, COUNT_SHIFT);
	emit_rm(e, true, OP_ADD, S1, ring_ea(CPU(live) + 8 * RETIRE_STALLS));
	emit_rm(e, true, OP_ADD, S1, ring_ea(RING(cycles_from)));
}

/* FROM in S1, TO in S0, which stays. */
static void emit_push(struct emitter *e, enum branch_kind kind)
{
	emit_rm(e, false, OP_MOV_LOAD, RCX, ring_ea(RING(top)));
	emit_group1(e, false, GROUP_ADD, RCX, 1);
	emit_rm(e, false, OP_AND, RCX, ring_ea(RING(mask)));
	emit_rm(e, false, OP_MOV_STORE, RCX, ring_ea(RING(top)));
	emit_shift(e, false, SHIFT_SHL, RCX, BRANCH_ENTRY_SHIFT);
	emit_rm(e, true, OP_MOV_STORE, S1, entry_ea(ENTRY(from)));
	emit_rm(e, true, OP_MOV_STORE, S0, entry_ea(ENTRY(to)));
	emit_mov_mem_imm(e, true, entry_ea(ENTRY(kind)), kind + 1);
	emit_rm(e, true, OP_MOV_LOAD, S1, ring_ea(RING(cycles)));
	emit_rm(e, true, OP_MOV_STORE, S1, entry_ea(ENTRY(since)));
	load_cycles(e);
	emit_rm(e, true, OP_MOV_STORE, S1, entry_ea(ENTRY(cycles)));
	emit_rm(e, true, OP_MOV_STORE, S1, ring_ea(RING(cycles)));
	emit_rm(e, true, OP_MOV_LOAD, S1, ring_ea(RING(missed)));
	emit_rm(e, true, OP_MOV_STORE, S1, entry_ea(ENTRY(missed)));
}

static void emit_pop(struct emitter *e)
{
	static const s32 fields[] = { ENTRY(from), ENTRY(to),	  ENTRY(cycles), ENTRY(since),
				      ENTRY(kind), ENTRY(missed), ENTRY(written) };

	emit_rm(e, false, OP_MOV_LOAD, RCX, ring_ea(RING(top)));
	emit_shift(e, false, SHIFT_SHL, RCX, BRANCH_ENTRY_SHIFT);
	for (u32 i = 0; i < ARRAY_SIZE(fields); i++)
		emit_mov_mem_imm(e, true, entry_ea(fields[i]), 0);
	emit_shift(e, false, SHIFT_SHR, RCX, BRANCH_ENTRY_SHIFT);
	emit_group1(e, false, GROUP_SUB, RCX, 1);
	emit_rm(e, false, OP_AND, RCX, ring_ea(RING(mask)));
	emit_rm(e, false, OP_MOV_STORE, RCX, ring_ea(RING(top)));
}

static u8 *if_not_canonical(struct emitter *e)
{
	emit_rr(e, true, OP_MOV_LOAD, RCX, S0);
	emit_shift(e, true, SHIFT_SHL, RCX, 16);
	emit_shift(e, true, SHIFT_SAR, RCX, 16);
	emit_rr(e, true, OP_CMP, RCX, S0);
	return emit_jcc(e, CC_NE);
}

static u8 *if_call_stack(struct emitter *e)
{
	emit_insn(e, &(struct enc){ .opcode = 0xf6,
				    .is_mem = true,
				    .ea = ring_ea(RING(call_stack)),
				    .imm = 1,
				    .imm_len = 1 });
	return emit_jcc(e, CC_NE);
}

static void emit_return(struct emitter *e)
{
	emit_insn(e, &(struct enc){ .opcode = 0x58, .no_modrm = true, .rm = RCX });
	emit_u8(e, 0xc3);
}

static void make_thunk(struct emitter *e, enum branch_kind kind, bool no_call)
{
	u8 *bad = NULL, *stack = NULL;

	emit_insn(e, &(struct enc){ .opcode = 0x50, .no_modrm = true, .rm = RCX });
	if (kind == BRANCH_IND_JMP || kind == BRANCH_RET)
		bad = if_not_canonical(e);
	if (kind == BRANCH_RET || no_call)
		stack = if_call_stack(e);
	emit_push(e, kind);
	emit_return(e);
	if (stack) {
		emit_patch(e, stack, e->p);
		if (!no_call)
			emit_pop(e);
		emit_return(e);
	}
	if (bad) {
		emit_patch(e, bad, e->p);
		emit_return(e);
	}
}

void lbr_thunks_make(struct engine *eng, struct emitter *e)
{
	for (u32 kind = 0; kind < BRANCH_FAR; kind++) {
		eng->record[kind] = e->p;
		make_thunk(e, kind, false);
	}
	eng->record_no_call = e->p;
	make_thunk(e, BRANCH_REL_CALL, true);
}

/* Skips what follows if the filter suppresses this kind; the place of the jump's displacement. */
static u8 *if_filtered(struct trans *t, enum branch_kind kind)
{
	u32 privilege = t->mode & MODE_CPL ? RETIRE_USR : RETIRE_OS;

	emit_insn(&t->e, &(struct enc){ .opcode = 0xf6,
					.is_mem = true,
					.ea = ea_base(RSP, RING(kinds) + (s32)privilege),
					.imm = BIT(kind),
					.imm_len = 1 });
	return emit_jcc(&t->e, CC_E);
}

static void call_thunk(struct trans *t, const u8 *thunk)
{
	emit_mov_imm(&t->e, S1, t->rip);
	emit_patch(&t->e, emit_call(&t->e), thunk);
}

void lbr_record_direct(struct trans *t, enum branch_kind kind, u64 target)
{
	bool no_call = kind == BRANCH_REL_CALL && target == trans_next_rip(t);
	u8 *filtered;

	if (!(t->mode & MODE_LBR))
		return;
	filtered = if_filtered(t, kind);
	emit_mov_imm(&t->e, S0, target);
	call_thunk(t, no_call ? t->eng->record_no_call : t->eng->record[kind]);
	emit_patch(&t->e, filtered, t->e.p);
}

void lbr_record_indirect(struct trans *t, enum branch_kind kind)
{
	u8 *filtered;

	if (!(t->mode & MODE_LBR))
		return;
	filtered = if_filtered(t, kind);
	call_thunk(t, t->eng->record[kind]);
	emit_patch(&t->e, filtered, t->e.p);
}
