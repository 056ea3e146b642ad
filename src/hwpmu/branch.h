/* SPDX-License-Identifier: MIT */
/*
 * The last branches: what the processor writes when a branch retires, and the physical PMU reads.
 * The other half of what silicon shares with its PMU, besides retire.h. Translated code appends to
 * the ring itself (engine/trans_lbr.c); branch_record() says what that code has to do, and is what
 * C code calls.
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

#define BRANCH_DEPTH	   32
#define BRANCH_ENTRY_SHIFT 6
_Static_assert(sizeof(struct branch_entry) == 1 << BRANCH_ENTRY_SHIFT, "translated code shifts");

struct branch_ring {
	u8 kinds[2];	 /* to record, by the privilege after the branch; all 0: nothing is */
	bool call_stack; /* near calls push and near returns pop */
	bool hides_from; /* FROM is ~0 if the privilege before the branch is not recorded */
	u32 top;	 /* the youngest entry */
	u32 mask;	 /* the depth, a power of two, minus one */
	u64 cycles;	 /* of the last record */
	u64 cycles_from; /* what to add to the processor's live count of cycles */
	u64 missed;	 /* the branch that is about to be recorded; the timing model's */
	struct branch_entry entry[BRANCH_DEPTH];
};

static inline bool branch_wanted(const struct branch_ring *ring)
{
	return ring->kinds[RETIRE_OS] | ring->kinds[RETIRE_USR];
}

/* A branch retired. The privileges are those before and after it. */
struct branch {
	enum branch_kind kind;
	u64 from, to, next; /* next: the instruction behind it */
	enum retire_privilege before, after;
};

void branch_record(struct branch_ring *ring, const struct retire_tally *tally,
		   const struct branch *branch);

#endif
