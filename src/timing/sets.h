/* SPDX-License-Identifier: MIT */
/*
 * Set-associative memory with exact least-recently-used replacement: what caches and TLBs are made
 * of.
 */
#ifndef TIMING_SETS_H
#define TIMING_SETS_H

#include "timing/timing.h"

static inline u64 *sets_of(const struct timing_sets *s, u64 index)
{
	return s->tags + index % s->sets * s->ways;
}

/* Makes `tag` the youngest of its set. True: it was there. Else *lost is what fell out, or 0. */
static inline bool sets_use(const struct timing_sets *s, u64 index, u64 tag, u64 *lost)
{
	u64 *set = sets_of(s, index), older = tag;

	for (u32 i = 0; i < s->ways; i++) {
		u64 here = set[i];

		set[i] = older;
		if (here == tag)
			return true;
		older = here;
	}
	*lost = older;
	return false;
}

/* Removes a tag; older ones move up. */
static inline void sets_drop(const struct timing_sets *s, u64 index, u64 tag)
{
	u64 *set = sets_of(s, index);
	u32 to = 0;

	for (u32 i = 0; i < s->ways; i++)
		if (set[i] != tag)
			set[to++] = set[i];
	while (to < s->ways)
		set[to++] = 0;
}

#endif
