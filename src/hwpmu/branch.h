/* SPDX-License-Identifier: MIT */
/*
 * The last branches: what the processor writes when a branch retires, and the physical PMU reads.
 * The other half of what silicon shares with its PMU, besides retire.h. C code calls
 * branch_record(). Translated code notes its near branches in a log (engine/trans_lbr.c), which
 * branch_settle() moves to the ring whenever that code is left: nobody else ever sees the log.
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
	u64 cycles, since; /* tallies of both privileges: at this branch, and at the one before */
	u64 kind;	   /* plus one; 0: none, or software wrote the entry */
	u64 missed;	   /* mispredicted */
	u64 written;	   /* INFO as software wrote it */
	u64 unused;
};

#define BRANCH_DEPTH 32

struct branch_ring {
	u8 kinds[2];	 /* to record, by the privilege after the branch; all 0: nothing is */
	bool call_stack; /* near calls push and near returns pop */
	bool hides_from; /* FROM is ~0 if the privilege before the branch is not recorded */
	u32 top;	 /* the youngest entry */
	u32 mask;	 /* the depth, a power of two, minus one */
	u64 cycles;	 /* of the last record */
	u64 cycles_from; /* what to add to the processor's live count of cycles */
	u64 missed;	 /* the branch that is about to be recorded was mispredicted */
	struct branch_entry entry[BRANCH_DEPTH];
};

static inline bool branch_wanted(const struct branch_ring *ring)
{
	return ring->kinds[RETIRE_OS] | ring->kinds[RETIRE_USR];
}

/* What is known of a near branch when it is translated. */
struct branch_site {
	u64 from, to;	   /* to: of a direct one */
	u32 cycles_behind; /* of its block, that are in the count already */
	u8 kind;
	bool indirect, no_call; /* no_call: of the next instruction */
};

/* A near branch that was taken. Those of a visit to translated code differ in count or address; a
 * count is never 0. */
struct branch_note {
	u64 site; /* offset of a struct branch_site; 0: none */
	s64 count, stalls;
	u64 to;		  /* of an indirect one */
	s64 missed_count; /* this one and the next: of a branch that was mispredicted */
	u64 missed_from;
	u64 unused[2];
};

/* A ring of notes. Unless they are of a call stack it may run over: only the last are records. */
#define BRANCH_NOTES 64
_Static_assert(BRANCH_NOTES > BRANCH_DEPTH && !(BRANCH_NOTES % BRANCH_DEPTH), "see branch.c");

struct branch_log {
	u64 at; /* where the next note goes, in bytes */
	struct branch_note note[BRANCH_NOTES];
};

/* A branch retired. The privileges are those before and after it. */
struct branch {
	enum branch_kind kind;
	u64 from, to, next; /* next: the instruction behind it */
	enum retire_privilege before, after;
};

void branch_record(struct branch_ring *ring, const struct retire_tally *tally,
		   const struct branch *branch);

static inline struct branch_note *branch_next_note(struct branch_log *log)
{
	return (struct branch_note *)((u8 *)log->note + log->at);
}

static inline bool branch_noted(const struct branch_log *log)
{
	return log->at || log->note[0].missed_count || log->note[BRANCH_NOTES - 1].site;
}

/* Makes records of the notes. Counts are shifted to get instructions; `sites` is where sites are.
 */
void branch_settle(struct branch_ring *ring, struct branch_log *log, const u8 *sites,
		   u32 count_shift);

#endif
