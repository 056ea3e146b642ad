// SPDX-License-Identifier: MIT
/*
 * The second level of cache and the last. A line that comes from memory goes to L2, and from there
 * to the first level; the last level gets it when L2 loses it. What happens to the last level's
 * copy when L2 asks for it again is a row's llc_gives (params.def). L1 and L2 do not depend on each
 * other: L2 may lose a line that L1 holds. With other processors: coherence.c.
 *
 * Neighbours, other machines on the cores that share the last level, push lines out of it: with
 * llc_period each set gets a line of theirs, which is nothing but an empty way, at equal times. So
 * a line that is not asked for goes through all ways, and is gone after as many periods. A set is
 * brought up to date when it is looked at (levels_age()). Time is that of observation: between two
 * of them the guest's own lines do not change either, and whether ticks are tallied then depends on
 * slices (cpu/mode.c).
 *
 * vCPU thread; general registers only.
 */
#include "timing/levels.h"

#include "base/bytes.h"
#include "timing/coherence.h"
#include "timing/first.h"
#include "timing/params.h"

/* So many empty ways become the youngest. */
static void add_foreign(const struct ring *r, u64 n)
{
	for (u64 i = n < r->ways ? n : r->ways; i; i--)
		ring_add(r, 0);
}

void levels_age_set(struct timing *t, const struct ring *set)
{
	struct penalty *p = &t->penalty;
	u64 *aged, by_now;

	if (!t->costs)
		return;
	t->llc_clock += p->now - p->aged;
	p->aged = p->now;
	aged = &t->llc_aged[set->youngest - t->llc.youngest];
	by_now = t->llc_clock / t->llc_period;
	if (by_now <= *aged) /* of another processor, whose clock is ahead of this one's */
		return;
	add_foreign(set, by_now - *aged);
	*aged = by_now;
}

static void drop_from_second(struct timing *t, u64 line)
{
	const struct ring set = ring_of(&t->l2, line);

	if (!levels_hold(t, line))
		return;
	ring_drop(&set, ring_find(&set, levels_tag(line)));
	t->l2_alike[line % LINES_ALIKE]--;
}

bool levels_hold_last(const struct timing *t, u64 line)
{
	u64 tag;
	const struct ring set = ring_last(&t->llc, line, &tag);

	return ring_find(&set, tag) < set.ways;
}

void levels_drop_from_last(struct timing *t, u64 line)
{
	u64 tag;
	const struct ring set = ring_last(&t->llc, line, &tag);
	u32 place = ring_find(&set, tag);

	if (place < set.ways)
		ring_drop(&set, place);
}

void levels_drop(struct timing *t, u64 line)
{
	const struct first data = first_data(t), code = first_code(t);

	first_drop(&data, line, levels_tag(line));
	first_drop(&code, line, levels_tag(line));
	drop_from_second(t, line);
	if (t->shared)
		coherence_drop(t, line);
	else
		levels_drop_from_last(t, line);
}

void levels_empty(const struct timing_sets *s)
{
	bytes_fill(s->tags, 0, (u64)s->sets * s->ways * sizeof(u64));
}

void levels_empty_second(struct timing *t)
{
	levels_empty(&t->l2);
	bytes_fill(t->l2_alike, 0, LINES_ALIKE);
}

void levels_empty_last(struct timing *t)
{
	bytes_fill(t->llc.tags, 0, (u64)t->llc.sets * LAST_PLACES * sizeof(u32));
}
