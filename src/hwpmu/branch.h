/* SPDX-License-Identifier: MIT */
/*
 * The last branches: what the processor writes when a branch retires, and the physical PMU reads.
 * With retire.h and observe.h this is what silicon shares with its PMU. C code calls
 * branch_record(). Translated code notes the way it took through each block
 * (engine/translate/emit_lbr.c) in a log, which branch_settle() moves to the ring whenever that
 * code is left: outside translated code the log is empty.
 *
 * Owned by the vCPU thread. Freestanding.
 */
#ifndef HWPMU_BRANCH_H
#define HWPMU_BRANCH_H

#include "base/types.h"
#include "hwpmu/retire.h"

/* In the order of the bits of LBR_SELECT. */
enum branch_kind {
	BRANCH_JCC,
	BRANCH_REL_CALL,
	BRANCH_IND_CALL,
	BRANCH_RET,
	BRANCH_IND_JMP,
	BRANCH_REL_JMP,
	BRANCH_FAR, /* also interrupts and exceptions */
	NBRANCHES
};

struct branch_entry {
	u64 from, to;
	/* Ticks so far, both privileges: at this branch, and at the previous record. */
	u64 ticks, since;
	u64 kind;    /* plus one; 0: none, or software wrote the entry */
	u64 missed;  /* mispredicted */
	u64 written; /* INFO as software wrote it */
	u64 unused;
};

#define BRANCH_DEPTH 32

struct branch_ring {
	u8 kinds[2];	 /* to record, by the privilege after the branch; all 0: nothing is */
	bool call_stack; /* near calls push and near returns pop */
	bool hides_from; /* FROM is ~0 if the privilege before the branch is not recorded */
	u32 top;	 /* the youngest entry */
	u32 mask;	 /* the depth, a power of two, minus one */
	u64 ticks;	 /* of the last record */
	u64 ticks_from;	 /* what to add to the processor's live count of ticks to get the tally */
	u64 missed;	 /* the next branch to be recorded was mispredicted */
	struct branch_entry entry[BRANCH_DEPTH];
};

static inline bool branch_wanted(const struct branch_ring *ring)
{
	return ring->kinds[RETIRE_OS] | ring->kinds[RETIRE_USR];
}

#define BRANCH_OUTCOMES	  16
#define BRANCH_UNNOTED	  BRANCH_OUTCOMES	/* its verdict is missed_from, if any */
#define BRANCH_UNRECORDED (BRANCH_OUTCOMES + 1) /* it has none */

/* What is known of a near branch when it is translated. */
struct branch_site {
	u64 from, to;	 /* to: of a direct one */
	u32 ticks_after; /* ticks of later instructions of its block, already in the count */
	u8 kind;
	u8 index;   /* of the instruction in its block */
	u8 outcome; /* index in branch_verdict.predicted[]; BRANCH_UNNOTED: none */
	/* no_call: a call to the next instruction, which no call stack records. */
	bool indirect, no_call;
};

/* The branches that are taken on one path through a block: the first n of those in its middle, then
 * maybe one that ends it. */
struct branch_path {
	u32 sites; /* offset of the former, an array of struct branch_site */
	u8 n;
	bool ends;
	struct branch_site last;
};

/* A path through a block that was taken. Two notes of one visit to translated code for the same
 * branch differ in `count`. */
struct branch_note {
	u32 path;	 /* offset of a struct branch_path */
	u16 first, upto; /* if not 0: only branches of instructions from first on and before upto */
	s64 count, ticks;
	u64 to; /* where the last branch went, if that is an indirect one */
};

/* What the timing model said of its branches. */
struct branch_verdict {
	bool predicted[BRANCH_OUTCOMES];
	/* missed_count, missed_from: note and address of a branch that was mispredicted. */
	s64 missed_count;
	u64 missed_from;
};

/*
 * A ring of notes. Unless a call stack is recorded it may overflow: only the last ones become
 * records. Translated code finds the place of a note in the lowest byte of `at`, scaled by 8, and
 * adds branch_step() to it as it is: in its upper bits are the branches of all notes, modulo the
 * ring's size, and no visit to translated code has as many notes as would carry to there.
 */
#define BRANCH_NOTES 64
#define BRANCH_STEP  (256u / BRANCH_NOTES)
#define BRANCH_SHIFT 27

struct branch_log {
	u32 at;
	bool missed; /* some verdict has missed_from set */
	struct branch_note note[BRANCH_NOTES];
	struct branch_verdict verdict[BRANCH_NOTES];
};
_Static_assert(BRANCH_NOTES > BRANCH_DEPTH && BRANCH_DEPTH == 1 << (32 - BRANCH_SHIFT) &&
		       sizeof(struct branch_note) == 8 * BRANCH_STEP &&
		       sizeof(struct branch_verdict) == 8 * BRANCH_STEP,
	       "translated code scales");

/* A branch retired. The privileges are those before and after it. */
struct branch {
	enum branch_kind kind;
	u64 from, to, next; /* next: address of the next instruction */
	enum retire_privilege before, after;
};

void branch_record(struct branch_ring *ring, const struct retire_tally *tally,
		   const struct branch *branch);

static inline u32 branch_step(u32 branches)
{
	return BRANCH_STEP + (branches << BRANCH_SHIFT);
}

static inline u32 branch_next_note(const struct branch_log *log)
{
	return (u8)log->at / BRANCH_STEP;
}

static inline bool branch_noted(const struct branch_log *log)
{
	return log->at || log->missed;
}

/* Notes branches of a block that was left in its middle. Offsets are from `meta`. */
void branch_note_part(struct branch_log *log, const u8 *meta, const struct branch_note *note);

/* Turns the notes into records. Targets wider than linear_bits faulted and are dropped. */
void branch_settle(struct branch_ring *ring, struct branch_log *log, const u8 *meta,
		   u8 linear_bits);

#endif
