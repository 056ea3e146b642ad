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

#define PAGE_LINES   (PAGE_SIZE / LINE_SIZE)
#define STREAM_RUN   2 /* requests in one direction, after the first of a page, make a stream */
#define STREAM_REACH 4 /* lines between two requests of a stream, at most */

static bool on_one_page(u64 line, u64 other)
{
	return line / PAGE_LINES == other / PAGE_LINES;
}

/* --- into L2 --- */

static void into_l2(struct timing *t, u64 line)
{
	u8 snoop = t->snoop;

	if (sets_hold(&t->l2, line, levels_tag(line))) {
		t->count[RETIRE_L2_REQUESTS]++; /* and it grows no younger */
		return;
	}
	penalty_ask(t, line, levels_request_absent(t, line));
	t->snoop = snoop;
}

/* The stream of the line's page, which becomes the youngest of its set. A new one begins with the
 * line. */
static struct stream *stream_of(struct timing *t, u64 line)
{
	u64 number = line / PAGE_LINES, page = number + 1;
	struct stream *set = t->prefetch.stream[(number ^ number >> 3 ^ number >> 6) % STREAM_SETS];
	struct stream found = { .page = page,
				.last = (s8)(line % PAGE_LINES),
				.front = (s8)(line % PAGE_LINES) };
	struct stream older;

	if (set[0].page == page)
		return set;
	older = set[0];
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
	return set;
}

static void follow(struct stream *s, s8 at)
{
	s8 step = at - s->last;
	s8 direction = step < 0 ? -1 : 1;

	if (!step)
		return;
	if (direction != s->direction || step * direction > STREAM_REACH) {
		s->direction = direction;
		s->run = 0;
		s->front = at;
	}
	s->run += s->run < 255;
	s->last = at;
	if ((at - s->front) * direction > 0)
		s->front = at;
}

static void run_ahead(struct timing *t, struct stream *s)
{
	u64 first = (s->page - 1) * PAGE_LINES;

	for (u32 i = 0; i < t->params->prefetch.rate; i++) {
		s8 next = s->front + s->direction;

		if (next < 0 || next >= (s8)PAGE_LINES ||
		    (next - s->last) * s->direction > t->params->prefetch.ahead)
			return;
		s->front = next;
		into_l2(t, first + (u64)next);
	}
	levels_prepare_absent(t, first + (u64)(s64)(s->front + s->direction), s->direction);
}

static void up_or_down(struct timing *t, const struct stream *s, u64 line)
{
	u64 next = line + (u64)(s64)s->direction;

	if (s->direction && on_one_page(line, next))
		into_l2(t, next);
}

void prefetch_requested(struct timing *t, u64 line, enum observed_level level)
{
	u8 kinds = t->prefetch.kinds;
	struct stream *s;

	if ((kinds & PREFETCH_PAIR) && level != OBSERVED_L2)
		into_l2(t, line ^ 1);
	if (!(kinds & (PREFETCH_STREAM | PREFETCH_UP_DOWN)))
		return;
	s = stream_of(t, line);
	follow(s, (s8)(line % PAGE_LINES));
	if ((kinds & PREFETCH_UP_DOWN) && level != OBSERVED_L2)
		up_or_down(t, s, line);
	if ((kinds & PREFETCH_STREAM) && s->run >= STREAM_RUN)
		run_ahead(t, s);
}

/* --- into L1 --- */

static void into_l1(struct timing *t, u64 from, u64 line)
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
	penalty_ask(t, line, level);
	t->count[RETIRE_L1D_FILLS]++;
	t->count[RETIRE_L1D_PREFETCHES]++;
	/* Below the youngest. */
	lost = first_add(&first, &way, way.set[order_way(way.order, 0)] ? 1 : 0, tag | SETS_MARK);
	if (unlikely(t->shared))
		coherence_lost(t, lost);
	prefetch_requested(t, line, level);
}

static bool loaded_before(const struct prefetch *p, u64 line)
{
	for (u32 i = 0; i < PREFETCH_LOADS; i++)
		if (p->load[i] == line + 1)
			return true;
	return false;
}

void prefetch_loaded(struct timing *t, u64 line)
{
	struct prefetch *p = &t->prefetch;

	if (!(p->kinds & (PREFETCH_NEXT | PREFETCH_AROUND)))
		return;
	if (loaded_before(p, line - 1))
		into_l1(t, line, line + 1);
	else if ((p->kinds & PREFETCH_AROUND) && loaded_before(p, line + 1))
		into_l1(t, line, line - 1);
	p->load[p->load_at++ % PREFETCH_LOADS] = line + 1;
}
