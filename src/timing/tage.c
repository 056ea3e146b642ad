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
	struct tage_entry *provider, *alternate; /* or NULL */
	u32 longer;				 /* tables from this one on do not have it */
	bool is_new;		     /* the provider was never right when the alternate was wrong */
	bool provided, other, taken; /* what provider and alternate said, and who was believed */
};

static inline s8 stepped(s8 here, bool up, s8 lowest, s8 highest)
{
	return (s8)(up ? here + (here < highest) : here - (here > lowest));
}

static inline void step(s8 *counter, bool up, s8 lowest, s8 highest)
{
	*counter = stepped(*counter, up, lowest, highest);
}

/* Where a table would have a branch, and with which tag. */
static struct tage_entry *find(struct predict *p, u32 table, u64 key, u16 *tag)
{
	u64 hash = predict_hash_path(p, &p->history[table], key);

	*tag = predict_tag(hash);
	return &p->tage[table][predict_index(hash, TAGE_BITS) & p->history[table].mask];
}

/* True: the second match was found. */
static inline __attribute__((always_inline)) bool ask(struct predict *p, u32 table, u64 key,
						      struct answer *a)
{
	u16 tag;
	struct tage_entry *entry = find(p, table, key, &tag);

	if (likely(entry->tag != tag))
		return false;
	if (a->provider) {
		a->alternate = entry;
		return true;
	}
	a->provider = entry;
	a->longer = table + 1;
	return false;
}

/* From the longest history that the branch ever needed: the first match is the provider, the second
 * the alternate. A third of the time is spent here; a loop takes half as many instructions again.
 */
static inline __attribute__((always_inline)) void look_up(struct predict *p, u32 tables, u64 key,
							  struct answer *a)
{
	switch (tables) {
	case 6:
		if (ask(p, 5, key, a))
			return;
		__attribute__((fallthrough));
	case 5:
		if (ask(p, 4, key, a))
			return;
		__attribute__((fallthrough));
	case 4:
		if (ask(p, 3, key, a))
			return;
		__attribute__((fallthrough));
	case 3:
		if (ask(p, 2, key, a))
			return;
		__attribute__((fallthrough));
	case 2:
		if (ask(p, 1, key, a))
			return;
		__attribute__((fallthrough));
	case 1:
		ask(p, 0, key, a);
		__attribute__((fallthrough));
	case 0:
		return;
	}
	__builtin_unreachable();
}

static inline void decide(const struct predict *p, const struct sure *s, struct answer *a)
{
	const struct tage_entry *entry = a->provider;

	a->other = a->taken = (a->alternate ? a->alternate->counter : s->base) >= 0;
	if (!entry)
		return;
	a->provided = entry->counter >= 0;
	a->is_new = !entry->useful && (entry->counter == 0 || entry->counter == -1);
	if (!a->is_new || p->trust_alternate < 0)
		a->taken = a->provided;
}

/* An entry for a longer history than the provider's: the next, or sometimes one further. */
static __attribute__((noinline)) void allocate(struct predict *p, struct sure *s, u64 key,
					       u32 first, bool taken)
{
	u32 n = p->params->tables;
	struct tage_entry *entry;
	u16 tag;

	if (first + 1 < n && !(predict_draw(p) & 3))
		first++;
	for (u32 i = first; i < n; i++) {
		entry = find(p, i, key, &tag);
		if (entry->useful)
			continue;
		*entry = (struct tage_entry){ .tag = tag, .counter = taken ? 0 : -1 };
		s->tables = i < s->tables ? s->tables : i + 1;
		return;
	}
	for (u32 i = first; i < n; i++)
		find(p, i, key, &tag)->useful--;
}

static void learn_by_alternate(const struct answer *a, struct sure *s, bool taken)
{
	if (a->alternate)
		step(&a->alternate->counter, taken, COUNTER_MIN, COUNTER_MAX);
	else
		s->base = stepped(s->base, taken, BASE_MIN, BASE_MAX);
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

static inline void learn(struct predict *p, struct sure *s, const struct answer *a, bool taken)
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
	u64 key = predict_key(p, from, LAST_OF_CONDITIONAL);
	struct answer a = { 0 };

	look_up(p, s->tables, key, &a);
	decide(p, s, &a);
	learn(p, s, &a, taken);
	if (a.taken != taken && (!a.provider || a.provided != taken))
		allocate(p, s, key, a.longer, taken);
	if (unlikely(!(++p->updates % AGE_AFTER)))
		age(p);
	return a.taken != taken;
}

static void count_run(struct sure *s, bool taken)
{
	s->run = (u8)((s->run & -(s->taken == taken)) + 1); /* no branch: the host would miss */
	s->taken = taken;
	s->known |= taken;
	s->sure = s->run < SURE_AFTER ? 0 : taken ? SURE_TAKEN : SURE_NOT_TAKEN;
}

/* --- branches that history does not help: predict.h --- */

static bool own_missed(struct sure *s, bool taken)
{
	bool wrong = (s->own >= 0) != taken;

	step(&s->own, taken, COUNTER_MIN, COUNTER_MAX);
	return wrong;
}

/* The tables begin to learn it again. */
static __attribute__((noinline)) void end_plain(struct sure *s)
{
	s->plain = s->warm = 0;
	s->level += s->level < PLAIN_LEVELS;
	s->count = s->run = s->sure = 0;
	s->helped = 0;
}

static inline bool plain_missed(struct sure *s, bool taken, bool wrong)
{
	s->known |= taken;
	s->sure = s->own == COUNTER_MAX ? SURE_TAKEN : s->own == COUNTER_MIN ? SURE_NOT_TAKEN : 0;
	if (wrong && ++s->count == PLAIN_MISSES << s->level)
		end_plain(s);
	return wrong;
}

static __attribute__((noinline)) void end_window(struct sure *s)
{
	if (s->warm && s->helped < PLAIN_HELPED)
		s->plain = 1;
	else if (s->warm)
		s->level -= s->level > 0;
	s->warm = 1;
	s->count = 0;
	s->helped = 0;
}

/* Who was wrong: the tables, its own counter? A window also ends where the range of `helped` does.
 */
static inline void judge(struct sure *s, bool wrong, bool own_wrong)
{
	s->helped += own_wrong - wrong;
	s->count++;
	if (unlikely((s->count == PLAIN_WINDOW) | (s->helped == 127) | (s->helped == -128)))
		end_window(s);
}

/* A branch that is sure, plain or both. */
static inline bool missed_by_address(struct sure *s, bool taken)
{
	bool wrong;

	if (s->sure == (taken ? SURE_TAKEN : SURE_NOT_TAKEN))
		return false;
	wrong = own_missed(s, taken);
	if (s->plain)
		return plain_missed(s, taken, wrong);
	count_run(s, taken);
	s->streak = 0;
	return true;
}

/* --- loops that are counted: predict.h --- */

static bool is_counted(const struct sure *s)
{
	return s->streak == COUNTED_AFTER;
}

/* It did not do what it did before. */
static __attribute__((noinline)) void end_counted(struct sure *s, bool taken)
{
	s->run = s->trip;
	s->taken = true;
	count_run(s, taken);
	s->trip = s->streak = s->left = 0;
}

static inline bool counted_missed(struct sure *s, bool taken)
{
	if (taken == !s->left) {
		end_counted(s, taken);
		return true;
	}
	s->left = taken ? s->left - 1 : s->trip;
	return false;
}

/* The outcome differs from the one before. */
static inline void learn_trip(struct sure *s, bool taken, bool foreseen)
{
	if (taken) {
		if (s->run != 1) /* no exit of a loop */
			s->streak = 0;
		return;
	}
	s->streak = foreseen && s->run == s->trip && s->trip >= COUNTED_LEAST ? s->streak + 1 : 0;
	s->trip = s->run;
	s->left = is_counted(s) ? s->trip : 0;
}

/* Translated code asks first whether the branch is sure, which a counted one is not, then whether
 * something is left. */
static inline __attribute__((always_inline)) bool missed(struct predict *p, u64 from, bool taken)
{
	struct sure *s = &p->sure[predict_place(from)];
	bool own_wrong, wrong;

	if (is_counted(s))
		return counted_missed(s, taken);
	if (s->sure | s->plain)
		return missed_by_address(s, taken);
	own_wrong = own_missed(s, taken);
	wrong = tables_missed(p, s, from, taken);
	if (s->taken != taken)
		learn_trip(s, taken, !wrong);
	count_run(s, taken);
	judge(s, wrong, own_wrong);
	return wrong;
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
