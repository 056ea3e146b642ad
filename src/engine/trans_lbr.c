// SPDX-License-Identifier: MIT
/*
 * Recording near branches in translated code, compiled in while somebody records (MODE_LBR): where
 * a branch is taken, a look at the filter, if there is one, and a note in a ring (hwpmu/branch.h).
 * Records are made of the notes when translated code is left. Far branches, interrupts and
 * exceptions are recorded by run.c.
 *
 * A note is written when nothing of the branch can fault any more; but for a target that is not
 * canonical, which only the dispatcher finds: no record is made of such a branch.
 */
#include "engine/trans.h"

#define LOG_BYTES (BRANCH_NOTES * sizeof(struct branch_note))
_Static_assert(!(LOG_BYTES & (LOG_BYTES - 1)), "translated code masks");

static struct ea log_at(void)
{
	return ea_base(RSP, CPU(branch_log) + (s32)offsetof(struct branch_log, at));
}

/* A field of the note at an offset in a register. */
static struct ea note(u8 at, s32 field)
{
	return (struct ea){ .base = RSP,
			    .index = at,
			    .scale = 1,
			    .disp = CPU(branch_log) + (s32)offsetof(struct branch_log, note) +
				    field };
}

#define NOTE(at, field) note(at, (s32)offsetof(struct branch_note, field))

static s32 new_site(struct trans *t, enum branch_kind kind, bool indirect, u64 target)
{
	struct branch_site *site = cache_alloc(t->eng, sizeof(*site));

	if (!site) {
		t->e.full = true;
		return 0;
	}
	*site = (struct branch_site){ .from = t->rip,
				      .to = target,
				      .kind = kind,
				      .indirect = indirect,
				      .no_call = kind == BRANCH_REL_CALL &&
						 target == trans_next_rip(t) };
	t->sites[t->nsites++] = (struct placed_site){ site, t->index };
	return (u8 *)site - t->eng->meta;
}

void lbr_note_miss(struct trans *t, u64 from)
{
	emit_rm(&t->e, true, OP_MOV_LOAD, S0, log_at());
	emit_rm(&t->e, true, OP_MOV_STORE, COUNTDOWN, NOTE(S0, missed_count));
	emit_mov_imm(&t->e, S1, from);
	emit_rm(&t->e, true, OP_MOV_STORE, S1, NOTE(S0, missed_from));
}

/* How much of the block was counted too early is known when its end is. */
void lbr_end_block(struct trans *t)
{
	for (u32 i = 0; i < t->nsites; i++)
		for (u32 j = t->sites[i].index + 1; j < t->block->ninsns; j++)
			t->sites[i].site->cycles_behind += t->weights[j].cycles;
}

/* Skips what follows if the filter suppresses this kind; the place of the jump's displacement. */
static u8 *if_filtered(struct trans *t, enum branch_kind kind)
{
	u32 privilege = t->mode & MODE_CPL ? RETIRE_USR : RETIRE_OS;

	if (t->mode & MODE_LBR_ANY)
		return NULL;
	emit_insn(&t->e, &(struct enc){ .opcode = 0xf6,
					.is_mem = true,
					.ea = ea_base(RSP, CPU(branches.kinds) + (s32)privilege),
					.imm = BIT(kind),
					.imm_len = 1 });
	return emit_jcc(&t->e, CC_E);
}

static void end_filtered(struct trans *t, u8 *filtered)
{
	if (filtered)
		emit_patch(&t->e, filtered, t->e.p);
}

/* The note is the one at the offset in `at`; the other scratch register is destroyed. */
static void write_note(struct trans *t, u8 at, u8 other, s32 site)
{
	emit_mov_mem_imm(&t->e, true, NOTE(at, site), site);
	emit_rm(&t->e, true, OP_MOV_STORE, COUNTDOWN, NOTE(at, count));
	emit_rm(&t->e, true, OP_MOV_LOAD, other, ea_base(RSP, CPU(live) + 8 * RETIRE_STALLS));
	emit_rm(&t->e, true, OP_MOV_STORE, other, NOTE(at, stalls));
}

static void next_note(struct trans *t, u8 at)
{
	emit_group1(&t->e, false, GROUP_ADD, at, sizeof(struct branch_note));
	emit_group1(&t->e, false, GROUP_AND, at, LOG_BYTES - 1);
	emit_rm(&t->e, true, OP_MOV_STORE, at, log_at());
	if (t->mode & MODE_LBR_STACK)
		observe_log(t, emit_jcc(&t->e, CC_E));
}

void lbr_record_direct(struct trans *t, enum branch_kind kind, u64 target)
{
	u8 *filtered;

	if (!(t->mode & MODE_LBR))
		return;
	filtered = if_filtered(t, kind);
	emit_rm(&t->e, true, OP_MOV_LOAD, S0, log_at());
	write_note(t, S0, S1, new_site(t, kind, false, target));
	next_note(t, S0);
	end_filtered(t, filtered);
}

void lbr_record_indirect(struct trans *t, enum branch_kind kind)
{
	u8 *filtered;

	if (!(t->mode & MODE_LBR))
		return;
	filtered = if_filtered(t, kind);
	emit_rm(&t->e, true, OP_MOV_LOAD, S1, log_at());
	emit_rm(&t->e, true, OP_MOV_STORE, S0, NOTE(S1, to));
	write_note(t, S1, S0, new_site(t, kind, true, 0));
	emit_rm(&t->e, true, OP_MOV_LOAD, S0, NOTE(S1, to));
	next_note(t, S1);
	end_filtered(t, filtered);
}
