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

static void add_foreign(u64 *set, u32 ways, u64 n)
{
	for (u32 i = ways; i-- > 0;)
		set[i] = i >= n ? set[i - n] : 0;
}

void levels_age(struct timing *t, u64 line)
{
	struct penalty *p = &t->penalty;
	u64 *set, *aged, by_now;

	if (likely(!t->llc_period) || !t->costs)
		return;
	t->llc_clock += p->now - p->aged;
	p->aged = p->now;
	set = sets_of(&t->llc, line);
	aged = &t->llc_aged[(u64)(set - t->llc.tags) / t->llc.ways];
	by_now = t->llc_clock / t->llc_period;
	if (by_now <= *aged) /* of another processor, whose clock is ahead of this one's */
		return;
	add_foreign(set, t->llc.ways, by_now - *aged);
	*aged = by_now;
}

bool levels_in_last(struct timing *t, u64 line)
{
	levels_age(t, line);
	if (t->params->llc_gives)
		return sets_drop(&t->llc, line, levels_tag(line));
	return sets_touch(&t->llc, line, levels_tag(line));
}

/* L2 has taken a line in, and lost another one, or none. Where does it come from? */
static enum observed_level from_last(struct timing *t, u64 line, u64 victim)
{
	enum observed_level level = levels_in_last(t, line) ? OBSERVED_LLC : OBSERVED_MEMORY;
	u64 lost;

	if (victim) {
		levels_age(t, victim - 1);
		sets_use(&t->llc, victim - 1, victim, &lost);
	}
	return level;
}

static inline enum observed_level fill(struct timing *t, u64 line)
{
	u64 victim;

	if (unlikely(t->shared))
		return coherence_fill(t, line);
	if (sets_use(&t->l2, line, levels_tag(line), &victim))
		return OBSERVED_L2;
	return from_last(t, line, victim);
}

enum observed_level levels_fill(struct timing *t, u64 line)
{
	return fill(t, line);
}

enum observed_level levels_request(struct timing *t, u64 line)
{
	enum observed_level level = fill(t, line);

	t->count[RETIRE_L2_REQUESTS]++;
	if (level != OBSERVED_L2)
		t->count[RETIRE_L2_FILLS]++;
	return level;
}

enum observed_level levels_request_absent(struct timing *t, u64 line)
{
	if (unlikely(t->shared)) /* it may have to be asked for though L2 has it */
		return levels_request(t, line);
	t->count[RETIRE_L2_REQUESTS]++;
	t->count[RETIRE_L2_FILLS]++;
	return from_last(t, line, sets_add(&t->l2, line, levels_tag(line)));
}

void levels_drop(struct timing *t, u64 line)
{
	const struct first data = first_data(t), code = first_code(t);

	first_drop(&data, line, levels_tag(line));
	first_drop(&code, line, levels_tag(line));
	sets_drop(&t->l2, line, levels_tag(line));
	if (t->shared)
		coherence_drop(t, line);
	else
		sets_drop(&t->llc, line, levels_tag(line));
}

void levels_empty(const struct timing_sets *s)
{
	bytes_fill(s->tags, 0, (u64)s->sets * s->ways * sizeof(u64));
}
