// SPDX-License-Identifier: MIT
/*
 * Hardware prefetchers. Intel's optimization manual (248966), "Data Prefetching", describes the
 * next-line prefetcher of L1, the streamer and the pairs of lines of L2. AMD's streams of L1 and L2
 * and up/down prefetcher are those of the register that switches them off (PPR of Zen 4, MSR
 * C000_0108H), as recalled. None crosses a page of 4 Kbytes. How many requests make a sequence the
 * manuals do not say: STREAM_RUN, STREAM_REACH and PREFETCH_LOADS are chosen.
 *
 * Not modelled: prefetchers that know the address of the instruction (Intel's IP stride, AMD's
 * stride and region).
 *
 * One access asks for 2 * rate + 5 lines at most: by what L1 misses, and by the line that is
 * prefetched into L1 in turn. A row of params.def must keep that within ASKED_MOST (penalty.h).
 * t->snoop stays that of the access. vCPU thread; general registers only.
 */
#include "timing/prefetch.h"

#include "timing/coherence.h"
#include "timing/first.h"
#include "timing/levels.h"
#include "timing/params.h"

#define STREAM_REACH 4 /* lines between two requests of a stream, at most */

static bool on_one_page(u64 line, u64 other)
{
	return line / PAGE_LINES == other / PAGE_LINES;
}

static inline void ask(struct timing *t, u64 line, enum observed_level level)
{
	if (t->costs)
		penalty_ask(&t->penalty, line, level);
}

/* --- into L2 --- */

static inline void into_l2(struct timing *t, u64 line)
{
	u8 snoop = t->snoop;

	if (levels_hold(t, line)) {
		t->count[RETIRE_L2_REQUESTS]++; /* and it grows no younger */
		return;
	}
	ask(t, line, levels_request_absent(t, line));
	t->snoop = snoop;
}

void prefetch_other_stream(struct stream *set, u64 page, s8 at)
{
	struct stream found = { .page = page, .last = at, .front = at }, older = set[0];

	for (u32 i = 1; i < STREAM_WAYS; i++) {
		struct stream here = set[i];

		set[i] = older;
		if (here.page == page) {
			found = here;
			break;
		}
		older = here;
	}
	set[0] = found;
}

static inline void follow(struct stream *s, s32 at)
{
	s32 step = at - s->last, direction = step < 0 ? -1 : 1;

	if (!step)
		return;
	if (direction != s->direction || step * direction > STREAM_REACH) {
		s->direction = (s8)direction;
		s->run = 0;
		s->front = (s8)at;
	}
	s->run += s->run < 255;
	s->last = (s8)at;
	if ((at - s->front) * direction > 0)
		s->front = (s8)at;
}

static inline void run_ahead(struct timing *t, struct stream *s)
{
	u64 first = (s->page - 1) * PAGE_LINES;
	s32 direction = s->direction, next = s->front + direction;
	s32 left = t->params->prefetch.ahead - (next - s->last) * direction;

	for (u32 i = 0; i < t->params->prefetch.rate && left >= 0; i++, left--, next += direction) {
		if ((u32)next >= PAGE_LINES)
			return;
		s->front = (s8)next;
		into_l2(t, first + (u64)next);
	}
	levels_prepare_absent(t, first + (u64)(s64)next, direction);
}

static void up_or_down(struct timing *t, const struct stream *s, u64 line)
{
	u64 next = line + (u64)(s64)s->direction;

	if (s->direction && on_one_page(line, next))
		into_l2(t, next);
}

static inline void requested(struct timing *t, u64 line, enum observed_level level)
{
	u8 kinds = t->prefetch.kinds;
	struct stream *s;

	if ((kinds & PREFETCH_PAIR) && level != OBSERVED_L2)
		into_l2(t, line ^ 1);
	if (!(kinds & (PREFETCH_STREAM | PREFETCH_UP_DOWN)))
		return;
	s = prefetch_stream(&t->prefetch, line);
	follow(s, (s8)(line % PAGE_LINES));
	if ((kinds & PREFETCH_UP_DOWN) && level != OBSERVED_L2)
		up_or_down(t, s, line);
	if ((kinds & PREFETCH_STREAM) && s->run >= STREAM_RUN)
		run_ahead(t, s);
}

void prefetch_requested(struct timing *t, u64 line, enum observed_level level)
{
	requested(t, line, level);
}

/* --- into L1 --- */

static inline void into_l1(struct timing *t, u64 from, u64 line)
{
	const struct first first = first_data(t);
	u64 tag = levels_tag(line), lost;
	enum observed_level level;
	u8 snoop = t->snoop;
	struct way way;

	if (!on_one_page(from, line))
		return;
	way = first_find(&first, line, tag);
	if (first_is_there(&first, &way))
		return;
	level = levels_request(t, line);
	t->snoop = snoop;
	ask(t, line, level);
	t->count[RETIRE_L1D_FILLS]++;
	t->count[RETIRE_L1D_PREFETCHES]++;
	lost = first_add_prefetched(&first, &way, tag);
	*prefetch_way(&t->prefetch, line) = (u8)way.i;
	if (unlikely(t->shared))
		coherence_lost(t, lost);
	requested(t, line, level);
}

void prefetch_loaded(struct timing *t, u64 line)
{
	struct prefetch *p = &t->prefetch;
	u64 next = line;

	if (!(p->kinds & (PREFETCH_NEXT | PREFETCH_AROUND)))
		return;
	if (prefetch_knows(p, line - 1))
		next = line + 1;
	else if ((p->kinds & PREFETCH_AROUND) && prefetch_knows(p, line + 1))
		next = line - 1;
	if (next != line)
		into_l1(t, line, next);
	prefetch_learn(p, line);
}
