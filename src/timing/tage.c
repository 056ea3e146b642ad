// SPDX-License-Identifier: MIT
/*
 * Conditional branches. Those that are not sure (predict.h) are predicted by a two-bit counter by
 * address, and by tagged tables by address and path, each with a longer history than the one before
 * (Seznec and Michaud, "A case for (partially) TAgged GEometric history length branch prediction",
 * JILP 8, 2006). The longest match is the provider, the one before it the alternate.
 *
 * Every conditional branch that is not sure comes here while mispredictions are counted, so this is
 * written for speed: tables are asked from the longest history on, only as far as the branch ever
 * got an entry, and no further than the second match.
 *
 * vCPU thread; general registers only.
 */
#include "timing/timing.h"

#define BASE_MAX    1
#define BASE_MIN    (-2)
#define COUNTER_MAX 3
#define COUNTER_MIN (-4)
#define USEFUL_MAX  3u
#define TRUST_MAX   7
#define TRUST_MIN   (-8)
#define AGE_AFTER   (1u << 18) /* updates */

/* What the tables say of one branch. */
struct answer {
	u64 key;		     /* of the branch, for find() */
	u32 longer;		     /* tables from this one on do not have it */
	struct tage_entry *provider; /* or NULL */
	s8 *alternate;		     /* counter */
	bool is_new;		     /* the provider was never right when the alternate was wrong */
	bool provided, other, taken; /* what provider and alternate said, and who was believed */
};

static inline void step(s8 *counter, bool up, s8 lowest, s8 highest)
{
	s8 here = *counter;

	*counter = (s8)(up ? here + (here < highest) : here - (here > lowest));
}

/* Where a table would have a branch, and with which tag. */
static struct tage_entry *find(struct predict *p, u32 table, u64 key, u16 *tag)
{
	u64 hash = predict_hash_path(p, &p->history[table], key);

	*tag = predict_tag(hash);
	return &p->tage[table][predict_index(hash, TAGE_BITS) & p->history[table].mask];
}

/* From the longest history that the branch ever needed: the first match is the provider, the second
 * the alternate. As find(), for one table after the other: half of the time is spent here. */
static inline void look_up(struct predict *p, struct sure *s, struct answer *a)
{
	const struct history *h = &p->history[s->tables];
	struct tage_entry *table = p->tage[s->tables];
	const u64 key = a->key;
	const u8 at = p->path_at;

	a->alternate = &s->base;
	a->provider = NULL;
	a->longer = 0;
	while (h-- != p->history) {
		u64 hash = key - p->ring[(u8)(at - h->length)] * h->factor;
		struct tage_entry *entry;

		table -= 1u << TAGE_BITS;
		entry = &table[predict_index(hash, TAGE_BITS) & h->mask];
		if (likely(entry->tag != predict_tag(hash)))
			continue;
		if (a->provider) {
			a->alternate = &entry->counter;
			return;
		}
		a->provider = entry;
		a->longer = (u32)(h - p->history) + 1;
	}
}

static inline void decide(const struct predict *p, struct answer *a)
{
	const struct tage_entry *entry = a->provider;

	a->other = a->taken = *a->alternate >= 0;
	if (!entry)
		return;
	a->provided = entry->counter >= 0;
	a->is_new = !entry->useful && (entry->counter == 0 || entry->counter == -1);
	if (!a->is_new || p->trust_alternate < 0)
		a->taken = a->provided;
}

/* An entry for a longer history than the provider's: the next, or sometimes one further. */
static __attribute__((noinline)) void allocate(struct predict *p, struct sure *s,
					       const struct answer *a, bool taken)
{
	u32 first = a->longer, n = p->params->tables;
	struct tage_entry *entry;
	u16 tag;

	if (first + 1 < n && !(predict_draw(p) & 3))
		first++;
	for (u32 i = first; i < n; i++) {
		entry = find(p, i, a->key, &tag);
		if (entry->useful)
			continue;
		*entry = (struct tage_entry){ .tag = tag, .counter = taken ? 0 : -1 };
		s->tables = i < s->tables ? s->tables : i + 1;
		return;
	}
	for (u32 i = first; i < n; i++)
		find(p, i, a->key, &tag)->useful--;
}

static void learn_by_alternate(const struct answer *a, const struct sure *s, bool taken)
{
	if (a->alternate == &s->base)
		step(a->alternate, taken, BASE_MIN, BASE_MAX);
	else
		step(a->alternate, taken, COUNTER_MIN, COUNTER_MAX);
}

/* Provider and alternate disagreed. */
static inline void settle_dispute(struct predict *p, const struct answer *a, bool taken)
{
	u8 *useful = &a->provider->useful;

	if (a->is_new)
		step(&p->trust_alternate, a->other == taken, TRUST_MIN, TRUST_MAX);
	if (a->provided != taken)
		*useful -= *useful > 0;
	else
		*useful += *useful < USEFUL_MAX;
}

static inline void learn(struct predict *p, const struct sure *s, const struct answer *a,
			 bool taken)
{
	if (!a->provider || !a->provider->useful)
		learn_by_alternate(a, s, taken);
	if (!a->provider)
		return;
	if (a->provided != a->other)
		settle_dispute(p, a, taken);
	step(&a->provider->counter, taken, COUNTER_MIN, COUNTER_MAX);
}

static __attribute__((noinline)) void age(struct predict *p)
{
	for (u32 i = 0; i < p->params->tables; i++)
		for (u32 j = 0; j < 1u << p->params->bits[i]; j++)
			p->tage[i][j].useful >>= 1;
}

/* Compiled for either outcome: much of it is then a constant. */
static inline __attribute__((always_inline)) bool tables_missed(struct predict *p, struct sure *s,
								u64 from, bool taken)
{
	struct answer a = { .key = predict_key(p, from, LAST_OF_CONDITIONAL) };

	look_up(p, s, &a);
	decide(p, &a);
	learn(p, s, &a, taken);
	if (a.taken != taken && (!a.provider || a.provided != taken))
		allocate(p, s, &a, taken);
	if (unlikely(++p->updates % AGE_AFTER == 0))
		age(p);
	return a.taken != taken;
}

static void count_run(struct sure *s, bool taken)
{
	s->run = s->taken == taken ? s->run + 1 : 1;
	s->taken = taken;
	s->known |= taken;
	s->sure = s->run < SURE_AFTER ? 0 : taken ? SURE_TAKEN : SURE_NOT_TAKEN;
}

static inline __attribute__((always_inline)) bool missed(struct predict *p, u64 from, bool taken)
{
	struct sure *s = &p->sure[predict_place(from)];
	u8 sure = s->sure;

	if (sure == (taken ? SURE_TAKEN : SURE_NOT_TAKEN))
		return false;
	count_run(s, taken);
	return sure || tables_missed(p, s, from, taken);
}

static bool outcome(struct timing *t, bool wrong, enum retire_class class)
{
	t->seen.mispredicted = wrong;
	if (!wrong)
		return false;
	t->count[RETIRE_BRANCH_MISSES]++;
	t->count[RETIRE_COND_MISSES]++;
	t->count[class]++;
	return true;
}

bool timing_taken(struct timing *t, u64 from, u64 to)
{
	bool wrong = missed(&t->predict, from, true);

	predict_taken(&t->predict, from, to, false);
	t->count[RETIRE_TAKEN_MISSES] += wrong;
	return outcome(t, wrong, RETIRE_COND_TAKEN_MISSES);
}

bool timing_not_taken(struct timing *t, u64 from)
{
	struct predict *p = &t->predict;
	const struct sure *s = &p->sure[predict_place(from)];
	bool seen = p->params->outcomes && s->known && s->sure != SURE_NOT_TAKEN;
	bool wrong = missed(p, from, false);

	if (seen)
		predict_step(p, predict_outcome(FOOT_NOT_TAKEN));
	return outcome(t, wrong, RETIRE_NOT_TAKEN_MISSES);
}
