/* SPDX-License-Identifier: MIT */
/*
 * Set-associative memory with exact least-recently-used replacement: what TLBs are made of. The
 * first levels of cache are in first.h, the others in rings.h.
 */
#ifndef TIMING_SETS_H
#define TIMING_SETS_H

#include "timing/timing.h"

#define SETS_MARK BIT(63) /* of a tag, in sets whose owner says so */

/* Fields of the tags of TLBs and paging-structure caches. */
#define SPACE_SHIFT 52 /* the address space */
#define SIZE_SHIFT \
	47 /* log2 of a page's size, or the kind of a table; a page's number has 45 bits */

static inline u64 *sets_of(const struct timing_sets *s, u64 index)
{
	return s->tags + (index & (s->sets - 1)) * s->ways;
}

/* Makes `tag` the youngest of its set. True: it was there. Else *lost is what fell out, or 0. */
static inline bool sets_use(const struct timing_sets *s, u64 index, u64 tag, u64 *lost)
{
	u64 *set = sets_of(s, index), older = set[0];

	if (older == tag)
		return true;
	set[0] = tag;
	for (u32 i = 1; i < s->ways; i++) {
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

static inline bool sets_hold(const struct timing_sets *s, u64 index, u64 tag)
{
	return sets_find(s, sets_of(s, index), tag) < s->ways;
}

/* Of sets whose tags may be marked: marked or not. */
static inline u32 sets_find_marked(const struct timing_sets *s, const u64 *set, u64 tag)
{
	u32 found = s->ways;

	/* Without branches that depend on where it is: a host mispredicts them. */
	for (u32 i = s->ways; i-- > 0;)
		found = (set[i] ^ tag) << 1 ? found : i;
	return found;
}

static inline bool sets_hold_marked(const struct timing_sets *s, u64 index, u64 tag)
{
	return sets_find_marked(s, sets_of(s, index), tag) < s->ways;
}

/* Makes the tag, which is at place i, the youngest of its set. */
static inline void sets_rise(u64 *set, u32 i, u64 tag)
{
	for (; i > 0; i--)
		set[i] = set[i - 1];
	set[0] = tag;
}

/* If the tag is there, makes it the youngest of its set. Else nothing changes. */
static inline bool sets_touch(const struct timing_sets *s, u64 index, u64 tag)
{
	u64 *set = sets_of(s, index);
	u32 i = sets_find(s, set, tag);

	if (i == s->ways)
		return false;
	sets_rise(set, i, tag);
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

/* Removes the tags of one address space. */
static inline void sets_drop_space(const struct timing_sets *s, u64 owner)
{
	for (u64 i = 0; i < (u64)s->sets * s->ways; i++)
		while (s->tags[i] && s->tags[i] >> SPACE_SHIFT == owner)
			sets_drop(s, i / s->ways, s->tags[i]);
}

#endif
