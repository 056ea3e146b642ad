/* SPDX-License-Identifier: MIT */
/*
 * The second level and the last, which data and code share: levels.c. Lines are physical addresses
 * without LINE_SHIFT bits.
 */
#ifndef TIMING_LEVELS_H
#define TIMING_LEVELS_H

#include "timing/coherence.h"
#include "timing/params.h"
#include "timing/rings.h"

/* A cache's tag of a line. */
static inline u64 levels_tag(u64 line)
{
	return line + 1;
}

/* The last level is going to be asked for the line: the host may fetch what that takes. */
static inline void levels_prepare_last(const struct timing *t, u64 line)
{
	u64 tag;
	const struct ring set = ring_last(&t->llc, line, &tag);

	ring_prepare(&set);
}

/* L2 is going to be asked for the line. */
static inline void levels_prepare(const struct timing *t, u64 line)
{
	const struct ring set = ring_of(&t->l2, line);

	ring_prepare(&set);
	if (!t->l2_alike[line % LINES_ALIKE])
		levels_prepare_last(t, line);
}

/* L2 is going to take in this line and those after it in that direction, one at a time, none of
 * which it holds: the host may fetch what these take, of the nearer ones what L2 will lose, too. */
static inline void levels_prepare_absent(const struct timing *t, u64 line, s64 direction)
{
	const struct ring near = ring_of(&t->l2, line + 2 * (u64)direction),
			  far = ring_of(&t->l2, line + 4 * (u64)direction);
	u64 victim = ring_oldest(&near);

	levels_prepare_last(t, victim - !!victim);
	levels_prepare_last(t, line + 3 * (u64)direction);
	ring_prepare(&far);
}

/* Does L2 hold the line? Changes nothing. Mostly a count says that it does not. */
static inline bool levels_hold(const struct timing *t, u64 line)
{
	const struct ring r = ring_of(&t->l2, line);

	return t->l2_alike[line % LINES_ALIKE] && ring_find(&r, levels_tag(line)) < r.ways;
}

/* L2 takes in a line that it does not hold. Returns the tag of the one that it loses, or 0. */
static inline u64 levels_add(const struct timing *t, u64 line)
{
	const struct ring r = ring_of(&t->l2, line);
	u64 victim = ring_add(&r, levels_tag(line));

	t->l2_alike[line % LINES_ALIKE]++;
	if (victim)
		t->l2_alike[(victim - 1) % LINES_ALIKE]--;
	return victim;
}

/* Makes the line the youngest of its set. True: L2 held it. Else *victim is the tag of the line
 * that it loses, or 0. */
static inline bool levels_use(const struct timing *t, u64 line, u64 *victim)
{
	const struct ring r = ring_of(&t->l2, line);
	u8 *alike = &t->l2_alike[line % LINES_ALIKE];

	if (unlikely(!*alike)) {
		*victim = ring_add(&r, levels_tag(line));
	} else if (likely(ring_use(&r, levels_tag(line), victim))) {
		return true;
	}
	++*alike;
	if (*victim)
		t->l2_alike[(*victim - 1) % LINES_ALIKE]--;
	return false;
}

/* What neighbours have done to a set of the last level by now: see levels.c. */
void levels_age_set(struct timing *t, const struct ring *set);

static inline void levels_age(struct timing *t, const struct ring *set)
{
	if (unlikely(t->llc_period))
		levels_age_set(t, set);
}

/* Has the last level the line? Then L2 takes it from there. */
static inline bool levels_in_last(struct timing *t, u64 line)
{
	u64 tag;
	const struct ring set = ring_last(&t->llc, line, &tag);
	u32 place;

	levels_age(t, &set);
	place = ring_find(&set, tag);
	if (place == set.ways)
		return false;
	if (t->params->llc_gives)
		ring_drop(&set, place);
	else
		ring_rise(&set, place, tag);
	return true;
}

/* The last level gets a line that L2 has lost. */
static inline void levels_give(struct timing *t, u64 line)
{
	u64 tag, lost;
	const struct ring set = ring_last(&t->llc, line, &tag);

	levels_age(t, &set);
	/* What it gives it does not hold, unless another processor has given it a copy. */
	if (t->params->llc_gives && likely(!t->shared))
		ring_add(&set, tag);
	else
		ring_use(&set, tag, &lost);
}

/* L2 has taken a line in, and lost another one, by its tag, or none. Where does it come from? */
static inline enum observed_level levels_from_last(struct timing *t, u64 line, u64 victim)
{
	enum observed_level level = levels_in_last(t, line) ? OBSERVED_LLC : OBSERVED_MEMORY;

	if (likely(victim))
		levels_give(t, victim - 1);
	return level;
}

/* A first-level cache or a prefetcher asks L2 for the line, which then holds it. OBSERVED_L2: it
 * did before; else where it comes from. Counts nothing. */
static inline enum observed_level levels_fill(struct timing *t, u64 line)
{
	u64 victim;

	if (unlikely(t->shared))
		return coherence_fill(t, line);
	if (likely(levels_use(t, line, &victim)))
		return OBSERVED_L2;
	return levels_from_last(t, line, victim);
}

/* Likewise. Counts requests and fills, not references and misses. */
static inline enum observed_level levels_request(struct timing *t, u64 line)
{
	enum observed_level level = levels_fill(t, line);

	t->count[RETIRE_L2_REQUESTS]++;
	if (level != OBSERVED_L2)
		t->count[RETIRE_L2_FILLS]++;
	return level;
}

/* L2 does not hold the line. */
static inline enum observed_level levels_request_absent(struct timing *t, u64 line)
{
	if (unlikely(t->shared)) /* it may have to be asked for though L2 has it */
		return levels_request(t, line);
	t->count[RETIRE_L2_REQUESTS]++;
	t->count[RETIRE_L2_FILLS]++;
	return levels_from_last(t, line, levels_add(t, line));
}

void levels_drop(struct timing *t, u64 line);
bool levels_hold_last(const struct timing *t, u64 line); /* changes nothing */
void levels_drop_from_last(struct timing *t, u64 line);
void levels_empty(const struct timing_sets *s); /* for TLBs, too; not for the next two */
void levels_empty_second(struct timing *t);
void levels_empty_last(struct timing *t);

#endif
