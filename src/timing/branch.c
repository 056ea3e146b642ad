// SPDX-License-Identifier: MIT
/*
 * Branch prediction of the timing model. Conditional branches: two-bit counters, indexed by the
 * branch's address XOR the outcomes of the branches before it (McFarling, "Combining Branch
 * Predictors", DEC WRL TN-36: gshare). Indirect jumps and calls: the last target, by address and by
 * the targets before. Returns: a stack that wraps. Direct branches are known at decode and never
 * mispredicted, and far branches are not predicted. vCPU thread; general registers only.
 */
#include "base/bytes.h"
#include "timing/timing.h"

static void outcome(struct timing *t, bool wrong, bool taken)
{
	t->seen.mispredicted = wrong;
	t->count[RETIRE_BRANCH_MISSES] += wrong;
	t->count[RETIRE_TAKEN_MISSES] += wrong && taken;
}

void timing_conditional(struct timing *t, u64 from, bool taken)
{
	u8 *pattern = &t->pattern[(timing_hash(from) ^ t->history) & MASK(PATTERN_BITS - 1, 0)];
	bool wrong = !(*pattern & PATTERN_OTHER) != taken;

	if (taken && *pattern > 0)
		--*pattern;
	if (!taken && *pattern < PATTERN_MAX)
		++*pattern;
	t->history = timing_history(t->history, taken);
	outcome(t, wrong, taken);
	t->count[RETIRE_COND_MISSES] += wrong;
	t->count[taken ? RETIRE_COND_TAKEN_MISSES : RETIRE_NOT_TAKEN_MISSES] += wrong;
}

void timing_indirect(struct timing *t, u64 from, u64 to)
{
	u64 *target = &t->target[(timing_hash(from) ^ t->path) & MASK(TARGET_BITS - 1, 0)];
	bool wrong = *target != to;

	*target = to;
	t->path = t->path << 2 ^ (u32)to;
	outcome(t, wrong, true);
	t->count[RETIRE_INDIRECT_MISSES] += wrong;
}

void timing_call(struct timing *t, u64 next)
{
	t->rsb_top += t->rsb_step;
	*timing_return_at(t) = next;
}

void timing_return(struct timing *t, u64 to)
{
	bool wrong = *timing_return_at(t) != to;

	t->rsb_top -= t->rsb_step;
	outcome(t, wrong, true);
	t->count[RETIRE_RETURN_MISSES] += wrong;
}

void timing_forget_branches(struct timing *t)
{
	bytes_fill(t->target, 0, sizeof(t->target));
	bytes_fill(t->rsb, 0, sizeof(t->rsb));
}
