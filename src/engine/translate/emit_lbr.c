// SPDX-License-Identifier: MIT
/*
 * Recording near branches in translated code, in blocks of a mode that records (MODE_LBR). Which
 * branches are taken on a way through a block is known when it is translated: where the block is
 * left, one note says which way it was, in a ring (hwpmu/branch.h). Records are made of the notes
 * when translated code is left. If only some kinds are recorded each branch is a way of its own,
 * and notes are taken only after the filter is checked. Far branches, interrupts and exceptions are
 * recorded by run.c.
 *
 * A note is written once the last branch can no longer fault, except for a non-canonical target,
 * which only the dispatcher finds: no record is made of such a branch. A block that is left
 * elsewhere, by an exception or for a device, is noted by observe_partial_block().
 */
#include "engine/translate/trans.h"

static s32 log_field(size_t offset)
{
	return PRIV(branch_log) + (s32)offset;
}

static struct ea log_at(void)
{
	return ea_base(RSP, log_field(offsetof(struct branch_log, at)));
}

/* A field of the next note or verdict; its place is in a register. */
static struct ea next_field(u8 at, size_t offset)
{
	return (struct ea){ .base = RSP, .index = at, .scale = 8, .disp = log_field(offset) };
}

#define NOTE(field)    next_field(S1, offsetof(struct branch_log, note[0].field))
#define VERDICT(field) next_field(S1, offsetof(struct branch_log, verdict[0].field))

/* The place of the next note, into S1. */
static void load_place(struct trans *t)
{
	emit_load_byte(&t->e, S1, log_at());
}

static bool records_ways(const struct trans *t)
{
	return (t->mode & MODE_LBR) && (t->mode & MODE_LBR_ANY);
}

/* --- branches in the middle of a block --- */

static bool conditional(const struct scan *s)
{
	return s->insn.weight.classes & RETIRE_BIT(RETIRE_CONDITIONAL);
}

static bool taken_continued(const struct scan *s)
{
	return s->continues && (s->inverted || !conditional(s));
}

static enum branch_kind kind_through(const struct scan *s)
{
	if (conditional(s))
		return BRANCH_JCC;
	return s->insn.id == INSN_CALL ? BRANCH_REL_CALL : BRANCH_REL_JMP;
}

/* Branches taken before an instruction; or only the conditional ones. */
static u32 taken_before(const struct trans *t, u32 index, bool only_conditional)
{
	u32 n = 0;

	for (u32 i = 0; i < index; i++)
		n += taken_continued(&t->scan[i]) &&
		     (!only_conditional || conditional(&t->scan[i]));
	return n;
}

/* Branches that are noted where the block is left before instruction index. */
static u32 passed(const struct trans *t, u32 index)
{
	return records_ways(t) ? taken_before(t, index, false) : 0;
}

/* The index in predicted[] for a taken conditional branch. */
static u8 outcome_place(const struct trans *t, u32 index, enum branch_kind kind)
{
	if (kind != BRANCH_JCC || !trans_observe_in_line(t))
		return BRANCH_UNNOTED;
	return records_ways(t) ? taken_before(t, index, true) : 0;
}

/* The instruction of that index, taken to a target. */
static struct branch_site site_of(const struct trans *t, u32 index, enum branch_kind kind,
				  u64 target)
{
	const struct scan *s = &t->scan[index];
	u64 next = s->rip + s->insn.len;

	if (!(t->mode & MODE_CODE64))
		next = (u32)next;
	return (struct branch_site){ .from = s->rip,
				     .to = target,
				     .kind = kind,
				     .index = index,
				     .outcome = outcome_place(t, index, kind),
				     .no_call = kind == BRANCH_REL_CALL && target == next };
}

static void keep_site(struct trans *t, struct branch_site *site)
{
	t->sites[t->nsites++] = site;
}

/* The whole way through the block. */
void emit_lbr_begin_block(struct trans *t)
{
	u32 n = t->mode & MODE_LBR ? taken_before(t, t->nscan, false) : 0;
	struct branch_path *path;
	struct branch_site *site;

	t->nsites = 0;
	if (!n)
		return;
	path = cache_alloc(t->eng, sizeof(*path));
	site = cache_alloc(t->eng, n * sizeof(*site));
	if (!path || !site) {
		t->e.full = true;
		return;
	}
	*path = (struct branch_path){ .sites = meta_offset(t, site), .n = n };
	t->block->path = meta_offset(t, path);
	for (u32 i = 0; i < t->nscan; i++) {
		if (!taken_continued(&t->scan[i]))
			continue;
		*site = site_of(t, i, kind_through(&t->scan[i]), t->scan[i].next);
		keep_site(t, site++);
	}
}

/* The cycles of later instructions are known only once the block is complete. */
void emit_lbr_end_block(struct trans *t)
{
	for (u32 i = 0; i < t->nsites; i++)
		for (u32 j = t->sites[i]->index + 1; j < t->block->ninsns; j++)
			t->sites[i]->ticks_after += t->weights[j].ticks;
}

/* --- notes --- */

/* The path up to an instruction, excluding it. NULL: cache full. */
static struct branch_path *new_path(struct trans *t, u32 index)
{
	const struct branch_path *whole =
		(const struct branch_path *)(t->eng->meta + t->block->path);
	struct branch_path *path = cache_alloc(t->eng, sizeof(*path));

	if (!path) {
		t->e.full = true;
		return NULL;
	}
	*path = (struct branch_path){ .n = passed(t, index) };
	if (path->n)
		path->sites = whole->sites;
	return path;
}

/* The path that ends with the instruction at hand. */
static struct branch_path *new_path_to(struct trans *t, enum branch_kind kind, bool indirect,
				       u64 target)
{
	struct branch_path *path = new_path(t, t->index);

	if (!path)
		return NULL;
	path->ends = true;
	path->last = site_of(t, t->index, kind, target);
	path->last.indirect = indirect;
	keep_site(t, &path->last);
	return path;
}

/* Emits a jump over the note if the filter suppresses this kind; returns its displacement. */
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

/* At the place in S1. Destroys S0. */
static void write_note(struct trans *t, const struct branch_path *path)
{
	emit_mov_mem_imm(&t->e, true, NOTE(path), (s32)meta_offset(t, path));
	emit_rm(&t->e, true, OP_MOV_STORE, COUNTDOWN, NOTE(count));
	emit_rm(&t->e, true, OP_MOV_LOAD, S0, ea_base(RSP, PRIV(live) + 8 * RETIRE_CYCLES));
	emit_rm(&t->e, true, OP_MOV_STORE, S0, NOTE(ticks));
}

/* A call stack's notes must not be overwritten. */
static void next_note(struct trans *t, const struct branch_path *path)
{
	emit_group1_mem(&t->e, false, GROUP_ADD, log_at(), (s32)branch_step(path->n + path->ends));
	if (!(t->mode & MODE_LBR_STACK))
		return;
	emit_insn(&t->e, &(struct enc){ .opcode = 0x80,
					.reg = GROUP_CMP,
					.is_mem = true,
					.ea = log_at(),
					.imm_len = 1 });
	emit_observe_log(t, emit_jcc(&t->e, CC_E));
}

static void note_path(struct trans *t, const struct branch_path *path)
{
	if (!path)
		return;
	load_place(t);
	write_note(t, path);
	next_note(t, path);
}

void emit_lbr_record_direct(struct trans *t, enum branch_kind kind, u64 target)
{
	u8 *filtered;

	if (!(t->mode & MODE_LBR))
		return;
	filtered = if_filtered(t, kind);
	note_path(t, new_path_to(t, kind, false, target));
	end_filtered(t, filtered);
}

void emit_lbr_record_indirect(struct trans *t, enum branch_kind kind)
{
	const struct branch_path *path;
	u8 *filtered;

	if (!(t->mode & MODE_LBR))
		return;
	path = new_path_to(t, kind, true, 0);
	if (!path)
		return;
	filtered = if_filtered(t, kind);
	load_place(t);
	emit_rm(&t->e, true, OP_MOV_STORE, S0, NOTE(to));
	write_note(t, path);
	emit_rm(&t->e, true, OP_MOV_LOAD, S0, NOTE(to));
	next_note(t, path);
	end_filtered(t, filtered);
}

bool trans_lbr_looks(const struct trans *t)
{
	return (t->mode & MODE_LBR) && !(t->mode & MODE_LBR_ANY);
}

void emit_lbr_record_continued(struct trans *t, enum branch_kind kind)
{
	if (trans_lbr_looks(t))
		emit_lbr_record_direct(t, kind, trans_branch_target(t));
}

void emit_lbr_leave(struct trans *t, u32 index)
{
	if (passed(t, index))
		note_path(t, new_path(t, index));
}

u32 trans_lbr_outcome(const struct trans *t, bool taken)
{
	return taken && (t->mode & MODE_LBR) ? outcome_place(t, t->index, BRANCH_JCC)
					     : BRANCH_UNRECORDED;
}

void emit_lbr_outcome(struct trans *t)
{
	struct ea ea = VERDICT(predicted);

	if (!(t->mode & MODE_LBR))
		return;
	ea.disp += outcome_place(t, t->index, BRANCH_JCC);
	load_place(t);
	emit_insn(&t->e, &(struct enc){ .map = MAP_0F,
					.opcode = 0x94, /* SETE */
					.is_mem = true,
					.ea = ea });
}
