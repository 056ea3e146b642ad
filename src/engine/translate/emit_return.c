// SPDX-License-Identifier: MIT
/*
 * Returns without a look-up in the jump cache.
 *
 * The problem. A return goes to an address that it finds in guest memory. The guest may have put
 * anything there, so the translator cannot link it; a look-up costs several instructions and ends
 * in an indirect jump, which the host predicts badly, because one return has many callers.
 *
 * The idea. The host has a predictor for exactly this, its return stack; so guest calls and returns
 * become host CALLs and RETs, one for one:
 *
 *   call    stores the host address of its *landing* in a slot of priv->returns[], selected by the
 *           guest's stack pointer; executes a host CALL over the landing, which pushes that address
 *           for the predictor, and drops it from the host's stack at once
 *   return  selects the slot by the stack pointer, which is the same as at the call, pushes what it
 *           holds and executes a host RET
 *
 * The landing belongs to the block of the call. It compares the address that the guest really
 * returns to with that of the instruction after the call, and goes on at the block there, by a
 * link.
 *
 * Invariants:
 *
 *  1. A slot leads to a landing of a live block or to the look-up thunk (code_check.h, 6). When a
 *     block dies or the key changes all slots are refilled with the thunk before the next entry
 *     (returns_validate()).
 *  2. A landing compares all 64 bits of the guest's target before it goes on. So a slot need not be
 *     right: one that another call has overwritten, or that a guest with its own idea of stacks
 *     selects, costs a look-up and nothing else.
 *  3. The host's stack pointer is struct cpu at every landing and at the end of every block.
 *  4. When a landing or the thunk is reached, the guest's target is in S0, and hot->returned_from
 *     is the number of the block that the return ends.
 *
 * Only in 64-bit code with returns of 8 bytes; others use the jump cache. Runs while translating.
 */
#include "cpu/mmu/mmu.h"
#include "engine/code_check.h"
#include "engine/jump_cache.h"
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

	emit_rm(&t->e, false, OP_LEA, S1, ea_base(HOST_GUEST_RSP, delta + t->rsp_pending));
	emit_group1(&t->e, false, GROUP_AND, S1, (RETURN_SLOTS - 1) * 8);
	return (struct ea){ .base = RSP, .index = S1, .scale = 1, .disp = PRIV(returns) + set };
}

/* LEA S0, [RIP + displacement]; returns where the displacement is. */
static u8 *lea_rip(struct trans *t)
{
	emit_u8(&t->e, 0x4c);
	emit_u8(&t->e, OP_LEA);
	emit_u8(&t->e, (S0 & 7) << 3 | 5);
	emit_u32(&t->e, 0);
	return t->e.p - 4;
}

/* The guest's target is in S0: invariants 2 and 4. */
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

	/* A return to a non-canonical address faults: it needs no landing. */
	if (!usable(t) || !cpu_canonical(t->cpu, trans_next_rip(t)))
		return;
	emit_flags_keep(t);
	t->s0_group = NO_GROUP;
	where = lea_rip(t);
	emit_rm(&t->e, true, OP_MOV_STORE, S0, find_slot(t, 0));
	over = emit_call(&t->e);
	emit_patch(&t->e, where, t->e.p);
	check_enterable(t->eng, t->e.p);
	emit_fixup(&t->e, t->e.p, FIXUP_LANDING, 0);
	landing(t, trans_next_rip(t));
	emit_patch(&t->e, over, t->e.p);
	emit_rm(&t->e, true, OP_LEA, RSP, ea_base(RSP, 8));
}

/* The checking build asks C whether the slot may be followed. S0 stays the target. */
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
	emit_fixup(&t->e, t->e.p - 4, FIXUP_NUMBER, 0);
	emit_insn(&t->e,
		  &(struct enc){ .opcode = 0xff, .reg = 6, .is_mem = true, .ea = slot }); /* PUSH */
	emit_u8(&t->e, 0xc3);
	return true;
}
