/* SPDX-License-Identifier: MIT */
/*
 * The second level and the last, which data and code share: levels.c. Lines are physical addresses
 * without LINE_SHIFT bits.
 */
#ifndef TIMING_LEVELS_H
#define TIMING_LEVELS_H

#include "timing/timing.h"

/* A cache's tag of a line. */
static inline u64 levels_tag(u64 line)
{
	return line + 1;
}

/* A first-level cache or a prefetcher asks L2 for the line, which then holds it. OBSERVED_L2: it
 * did before; else where it comes from. Counts requests and fills, not references and misses. */
enum observed_level levels_request(struct timing *t, u64 line);
enum observed_level levels_fill(struct timing *t, u64 line); /* counts nothing */

/* Has the last level the line? Then L2 takes it from there. */
bool levels_in_last(struct timing *t, u64 line);

void levels_drop(struct timing *t, u64 line);
void levels_empty(const struct timing_sets *s); /* for TLBs, too */

#endif
