/* SPDX-License-Identifier: MIT */
/*
 * The second level and the last, which data and code share: levels.c. Lines are physical addresses
 * without LINE_SHIFT bits.
 */
#ifndef TIMING_LEVELS_H
#define TIMING_LEVELS_H

#include "timing/sets.h"

/* A cache's tag of a line. */
static inline u64 levels_tag(u64 line)
{
	return line + 1;
}

/* A first-level cache or a prefetcher asks L2 for the line, which then holds it. OBSERVED_L2: it
 * did before; else where it comes from. Counts requests and fills, not references and misses. */
enum observed_level levels_request(struct timing *t, u64 line);
enum observed_level levels_request_absent(struct timing *t, u64 line); /* L2 does not hold it */
enum observed_level levels_fill(struct timing *t, u64 line);	       /* counts nothing */

/* What neighbours have done to the line's set of the last level by now. */
void levels_age(struct timing *t, u64 line);
/* L2 is going to be asked for the line: the host may fetch what that takes. */
static inline void levels_prepare(const struct timing *t, u64 line)
{
	sets_prepare(&t->l2, line);
}

/* L2 is going to take in this line, and then the next two in that direction, which it does not
 * hold: the host may fetch what that takes, of the first what L2 will lose, too. */
static inline void levels_prepare_absent(const struct timing *t, u64 line, s64 direction)
{
	const u64 *set = sets_of(&t->l2, line);
	u64 victim = set[t->l2.ways - 1u];

	sets_prepare(&t->llc, victim - !!victim);
	sets_prepare(&t->llc, line + (u64)direction);
	sets_prepare(&t->l2, line + 2 * (u64)direction);
}

/* Has the last level the line? Then L2 takes it from there. */
bool levels_in_last(struct timing *t, u64 line);

void levels_drop(struct timing *t, u64 line);
void levels_empty(const struct timing_sets *s); /* for TLBs, too */

#endif
