// SPDX-License-Identifier: MIT
/*
 * The next line of a run.
 *
 * The problem. Lines that a program loads one after the other are prefetched into L2, then into L1,
 * and used once, so that the model's work for a line falls to one access: the line is used, the one
 * after it comes from L2 to L1, and the stream of the page runs on. A look-up finds all of that out
 * step by step, though it is the same for nearly each line of a run.
 *
 * The idea. The first use of a line that was prefetched into L1 is seen at once: where it was put
 * is noted (prefetch.way[]). For such a line all is done here in one pass, in the order in which
 * memory.c, prefetch.c and penalty.c would do it; they have the rules and the reasons, and what is
 * not like most they do. A note that is out of date leads to a tag that is another one.
 *
 * Not with other processors. vCPU thread; general registers only.
 */
#include "timing/run.h"

#include "timing/first.h"
#include "timing/levels.h"
#include "timing/params.h"
#include "timing/walk.h"

/* If the line after it is to come to L1, where to. Else the access will be looked up, which begins
 * with its translation: that this is the youngest then changes nothing. */
static inline bool has_next(struct timing *t, const struct first *f, const struct timing_access *a,
			    u64 line, u64 page_tag, struct way *way)
{
	u64 next = line + 1;

	if (!(t->prefetch.kinds & PREFETCH_NEXT) || !(next % PAGE_LINES) ||
	    !prefetch_knows(&t->prefetch, line - 1) ||
	    !sets_touch(f->tlb, walk_page(a->linear, a->page_shift), page_tag))
		return false;
	*way = first_find(f, next, levels_tag(next));
	return !first_is_there(f, way);
}

/* Does the page's stream, which has prefetched the line, go on with it, upwards? */
static inline bool goes_on(const struct stream *s, u64 line)
{
	return s->direction == 1 && s->last + 1 == (s32)(line % PAGE_LINES) && s->last < s->front &&
	       s->run >= STREAM_RUN - 1;
}

/* The line is used for the first time. */
static inline void use(const struct first *f, struct way *way, u64 line)
{
	u32 number = line % TIMING_LINES;

	way->order_word = &f->cache->order[number];
	way->order = *way->order_word ^ ORDER_NONE;
	way->place = order_place(way->order, way->i);
	first_rise(f, way, levels_tag(line));
}

/* Where the line comes to L2 from; OBSERVED_L2: it was there. */
static inline enum observed_level into_l2(struct timing *t, u64 line)
{
	t->count[RETIRE_L2_REQUESTS]++;
	if (levels_hold(t, line))
		return OBSERVED_L2;
	t->count[RETIRE_L2_FILLS]++;
	return levels_from_last(t, line, levels_add(t, line));
}

/* The stream's next lines come to L2. Returns how many, the last of them stream->front. */
static inline u32 run_ahead(struct timing *t, struct stream *s, enum observed_level *level)
{
	u64 first = (s->page - 1) * PAGE_LINES;
	u32 last, n = 0;

	s->run += s->run < 255;
	s->last++;
	last = (u32)s->last + t->params->prefetch.ahead;
	if (last > PAGE_LINES - 1)
		last = PAGE_LINES - 1;
	while ((u32)s->front < last && n < t->params->prefetch.rate)
		level[n++] = into_l2(t, first + (u64)++s->front);
	if ((u32)s->front < PAGE_LINES - 2)
		levels_prepare_absent(t, first + (u64)s->front + 1, 1);
	return n;
}

/* The lines of one access arrive. As penalty_prefetched(). */
static inline void arrive(struct timing *t, u64 next, const struct stream *s, u32 n,
			  const enum observed_level *level)
{
	struct penalty *p = &t->penalty;
	const u16 *latency = t->params->latency;
	u64 at = penalty_entered(p, t->costs), begins = penalty_begun(p, t->costs);
	u64 ahead = (s->page - 1) * PAGE_LINES + (u64)s->front + 1 - n;

	penalty_arrives(p, t->costs, latency, next, OBSERVED_L2, begins, at);
	for (u32 i = 0; i < n; i++)
		if (level[i] != OBSERVED_L2)
			penalty_arrives(p, t->costs, latency, ahead + i, level[i], begins, at);
}

bool run_next(struct timing *t, const struct timing_access *a, u32 offset, u32 way, u64 page_tag)
{
	const struct first first = first_data(t);
	u64 line = (a->physical + offset) >> LINE_SHIFT, next = line + 1;
	u64 host = (a->host + offset) & ~(u64)(LINE_SIZE - 1);
	u64 *set = first.cache->tags + line % TIMING_LINES * first.cache->ways;
	struct way here = { .set = set, .i = way }, there;
	enum observed_level from, level[PREFETCH_RATE];
	struct stream *stream = NULL;
	u32 n;

	if (!has_next(t, &first, a, line, page_tag, &there))
		return false;
	use(&first, &here, line);
	from = levels_request(t, next);
	t->snoop = OBSERVED_SNOOP_NONE;
	t->count[RETIRE_L1D_FILLS]++;
	t->count[RETIRE_L1D_PREFETCHES]++;
	first_add_prefetched(&first, &there, levels_tag(next));
	*prefetch_way(&t->prefetch, next) = (u8)there.i;
	if (likely(from == OBSERVED_L2) && (t->prefetch.kinds & PREFETCH_STREAM))
		stream = prefetch_stream(&t->prefetch, next);
	if (likely(stream && goes_on(stream, next))) {
		n = run_ahead(t, stream, level);
	} else {
		stream = NULL;
		if (t->costs)
			penalty_ask(&t->penalty, next, from);
		prefetch_requested(t, next, from);
	}
	prefetch_learn(&t->prefetch, line);
	first_note(t, &first, &first_notes(first.cache, set)[way], timing_place(host), page_tag);
	t->data_line[timing_place(host)] = host;
	if (!t->costs)
		return true;
	if (!penalty_in_time(&t->penalty, t->costs, line))
		penalty_data(t, a, offset, OBSERVED_L1, t->params->latency[0]);
	if (likely(stream))
		arrive(t, next, stream, n, level);
	else
		penalty_prefetched(t);
	return true;
}
