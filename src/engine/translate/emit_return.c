// SPDX-License-Identifier: MIT
/*
 * Returns without a look-up. A call notes where it will be returned to, in host code, in a slot of
 * priv->returns[] that the stack pointer selects; the return finds it there, since the stack
 * pointer is the same. The code there, the landing, belongs to the block of the call: it compares
 * the address that the guest really returns to with its own, and is linked to the block there.
 *
 * Control comes to the landing by the host's own RET, and the call executed a CALL whose return
 * address it is (and took that from the stack again), so that the host predicts it. Slots hold as
 * long as jump[] does and no block dies: jump_update_key() empties them. An empty one leads to the
 * thunk that looks into jump[]. This is invariant 6 of code_check.h.
 */
#include "cpu/mmu/mmu.h"
#include "engine/code_check.h"
#include "engine/translate/trans.h"

static bool usable(const struct trans *t)
{
	return (t->mode & MODE_CODE64) && jump_usable(t->mode) && t->mode == t->block->mode &&
	       t->insn.opsize == 8;
}

/* The slot of the guest's RSP plus delta, into S1. Destroys the flags. */
static struct ea find_slot(struct trans *t, s32 delta)
{
	s32 set = cpu_tlb_set(t->mode) * (s32)sizeof(cpu_priv(t->cpu)->returns[0]);

	emit_rm(&t->e, false, OP_LEA, S1, ea_base(HOST_GUEST_RSP, delta + t->owed));
	emit_group1(&t->e, false, GROUP_AND, S1, (RETURN_SLOTS - 1) * 8);
	return (struct ea){ .base = RSP, .index = S1, .scale = 1, .disp = PRIV(returns) + set };
}

/* LEA S0, [RIP + displacement]; returns the place of the displacement. */
static u8 *lea_rip(struct trans *t)
{
	emit_u8(&t->e, 0x4c);
	emit_u8(&t->e, OP_LEA);
	emit_u8(&t->e, (S0 & 7) << 3 | 5);
	emit_u32(&t->e, 0);
	return t->e.p - 4;
}

/* The guest's target is in S0. */
static void landing(struct trans *t, u64 rip)
{
	if ((s64)rip == (s32)rip) {
		emit_group1(&t->e, true, GROUP_CMP, S0, (s32)rip);
	} else {
		emit_mov_imm(&t->e, S1, rip);
		emit_rr(&t->e, true, OP_CMP, S0, S1);
	}
	emit_patch(&t->e, emit_jcc(&t->e, CC_NE), t->eng->jump_lookup);
	emit_block_end_direct(t, rip);
}

void emit_return_note(struct trans *t)
{
	u8 *where, *over;

	/* A return to a non-canonical address faults itself. */
	if (!usable(t) || !cpu_canonical(t->cpu, trans_next_rip(t)))
		return;
	emit_flags_keep(t);
	t->reached = NO_GROUP;
	where = lea_rip(t);
	emit_rm(&t->e, true, OP_MOV_STORE, S0, find_slot(t, 0));
	over = emit_call(&t->e);
	emit_patch(&t->e, where, t->e.p);
	check_enterable(t->eng, t->e.p);
	landing(t, trans_next_rip(t));
	emit_patch(&t->e, over, t->e.p);
	emit_rm(&t->e, true, OP_LEA, RSP, ea_base(RSP, 8));
}

/* The target stays in S0. */
static void check_slot(struct trans *t, struct ea slot)
{
	emit_group1(&t->e, false, GROUP_ADD, S1, slot.disp);
	emit_patch(&t->e, emit_call(&t->e), t->eng->check_return);
}

bool emit_return_jump(struct trans *t, u32 popped)
{
	struct ea slot;

	if (!usable(t))
		return false;
	if (CHECKING)
		check_slot(t, find_slot(t, -(s32)popped));
	slot = find_slot(t, -(s32)popped);
	emit_mov_mem_imm(&t->e, false, ea_base(RSP, HOT(returned_from)), (s32)t->eng->nblocks);
	emit_insn(&t->e,
		  &(struct enc){ .opcode = 0xff, .reg = 6, .is_mem = true, .ea = slot }); /* PUSH */
	emit_u8(&t->e, 0xc3);
	return true;
}
