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

static inline u32 sets_find(const struct timing_sets *s, const u64 *set, u64 tag)
{
	u32 i = 0;

	while (i < s->ways && set[i] != tag)
		i++;
	return i;
}

/* If the tag is there, makes it the youngest of its set. Else nothing changes. */
static inline bool sets_touch(const struct timing_sets *s, u64 index, u64 tag)
{
	u64 *set = sets_of(s, index);
	u32 i = sets_find(s, set, tag);

	if (i == s->ways)
		return false;
	for (; i > 0; i--)
		set[i] = set[i - 1];
	set[0] = tag;
	return true;
}

/* Removes a tag; older ones move up. True: it was there. */
static inline bool sets_drop(const struct timing_sets *s, u64 index, u64 tag)
{
	u64 *set = sets_of(s, index);
	u32 i = sets_find(s, set, tag);

	if (i == s->ways)
		return false;
	for (; i + 1u < s->ways; i++)
		set[i] = set[i + 1];
	set[i] = 0;
	return true;
}

#endif
