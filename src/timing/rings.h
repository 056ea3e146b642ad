/* SPDX-License-Identifier: MIT */
/*
 * The sets of the second level and of the last. They hold what those of sets.h would, but each is a
 * ring: the youngest tag is at a place of its own, and older ones follow. A new tag takes the place
 * before the youngest, which is that of the oldest, so that nothing moves. What these caches are
 * asked for is mostly young, or not there.
 *
 * A tag of the second level is the line's number + 1. One of the last level is that number divided
 * by the number of sets, + 1: it has 32 bits, so that a set is one line of the host's cache. With
 * the fewest sets that timing_set_last() allows that tells lines of 64 Tbytes apart.
 */
#ifndef TIMING_RINGS_H
#define TIMING_RINGS_H

#include "timing/sets.h"

/* A division takes as long as the rest of a look-up. The quotient is exact: lines are less than
 * 2^46, and sets less than 2^18 where they are no power of two. */
#define LINE_BITS   46
#define SETS_UNEVEN BIT(18)

struct ring {
	void *tags;
	u8 *youngest;
	u32 ways;
	bool narrow; /* tags have 32 bits */
};

static inline struct ring ring_of(const struct timing_sets *s, u64 line)
{
	u64 number = line & (s->sets - 1);

	return (struct ring){ s->tags + number * s->ways, s->youngest + number, s->ways, false };
}

/* Of the last level. *tag: the line's. */
static inline struct ring ring_last(const struct timing_last *s, u64 line, u64 *tag)
{
	u64 quotient, number;

	line &= MASK(LINE_BITS - 1, 0);
	if (s->inverse)
		quotient = (u64)((unsigned __int128)line * s->inverse >> 64);
	else
		quotient = line >> s->shift;
	number = line - quotient * s->sets;
	*tag = quotient + 1;
	return (struct ring){ s->tags + number * LAST_PLACES, s->youngest + number, s->ways, true };
}

static inline u64 ring_at(const struct ring *r, u32 place)
{
	return r->narrow ? ((const u32 *)r->tags)[place] : ((const u64 *)r->tags)[place];
}

static inline void ring_set(const struct ring *r, u32 place, u64 tag)
{
	if (r->narrow)
		((u32 *)r->tags)[place] = (u32)tag;
	else
		((u64 *)r->tags)[place] = tag;
}

/* The set is going to be searched: the host may fetch it. */
static inline void ring_prepare(const struct ring *r)
{
	__builtin_prefetch(r->tags);
	if (r->narrow)
		return;
	__builtin_prefetch((const u64 *)r->tags + 8);
	__builtin_prefetch((const u64 *)r->tags + r->ways - 1);
}

static inline u32 ring_before(const struct ring *r, u32 place)
{
	return (place ? place : r->ways) - 1;
}

static inline u32 ring_after(const struct ring *r, u32 place)
{
	return place + 1 < r->ways ? place + 1 : 0;
}

/* The tag that falls out next, or 0. */
static inline u64 ring_oldest(const struct ring *r)
{
	return ring_at(r, ring_before(r, *r->youngest));
}

/* Where a tag is; `ways`: nowhere. */
static inline u32 ring_find(const struct ring *r, u64 tag)
{
	u32 youngest = *r->youngest;

	for (u32 i = youngest; i < r->ways; i++)
		if (ring_at(r, i) == tag)
			return i;
	for (u32 i = 0; i < youngest; i++)
		if (ring_at(r, i) == tag)
			return i;
	return r->ways;
}

/* Moves tags by one place, from one place to before another one. *older comes to the first. True:
 * the tag was found, and the rest stays. Else *older is what the last place had. */
static inline bool ring_move_until(const struct ring *r, u32 from, u32 to, u64 tag, u64 *older)
{
	u64 moved = *older;

	for (u32 i = from; i < to; i++) {
		u64 here = ring_at(r, i);

		ring_set(r, i, moved);
		if (here == tag)
			return true;
		moved = here;
	}
	*older = moved;
	return false;
}

/* Makes a tag the youngest. True: it was there. Else *lost is what fell out, or 0. */
static inline bool ring_use(const struct ring *r, u64 tag, u64 *lost)
{
	u32 youngest = *r->youngest;
	u64 older = ring_at(r, youngest);

	if (older == tag)
		return true;
	ring_set(r, youngest, tag);
	if (ring_move_until(r, youngest + 1, r->ways, tag, &older) ||
	    ring_move_until(r, 0, youngest, tag, &older))
		return true;
	*lost = older;
	return false;
}

/* The tags that are younger than that of a place take the place after theirs. */
static inline void ring_age(const struct ring *r, u32 place)
{
	u32 youngest = *r->youngest;

	while (place != youngest) {
		u32 before = ring_before(r, place);

		ring_set(r, place, ring_at(r, before));
		place = before;
	}
}

/* Makes the tag, which is at a place, the youngest. */
static inline void ring_rise(const struct ring *r, u32 place, u64 tag)
{
	ring_age(r, place);
	ring_set(r, *r->youngest, tag);
}

/* Adds a tag that is not there as the youngest. Returns what fell out, or 0. */
static inline u64 ring_add(const struct ring *r, u64 tag)
{
	u32 place = ring_before(r, *r->youngest);
	u64 lost = ring_at(r, place);

	ring_set(r, place, tag);
	*r->youngest = (u8)place;
	return lost;
}

/* Removes the tag of a place: older ones move up. */
static inline void ring_drop(const struct ring *r, u32 place)
{
	u32 youngest = *r->youngest;

	ring_age(r, place);
	ring_set(r, youngest, 0);
	*r->youngest = (u8)ring_after(r, youngest);
}

#endif
