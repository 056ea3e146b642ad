// SPDX-License-Identifier: MIT
/*
 * The problem. A line that another processor has written must not be found in a cache of this one,
 * and the load that asks for it again is a HITM: another core's modified line. But translated code
 * looks at no more than a line buffer, and caches are private memory of their processor's thread.
 *
 * The idea. A directory, shared like the last level, knows of each line which processors hold it,
 * and whether the one that does has written it. Whoever asks for a line, or is about to write one,
 * changes the directory under the lock of the line's set, and tells the others:
 *
 *   taken   their line buffers of the set are emptied and stale[set] is raised. The next access of
 *           theirs to the set comes to C, sees the flag, and drops from the first level what the
 *           directory says it no longer holds. The second level is compared with the directory
 *           whenever it is asked.
 *   shared  another one reads a line that they wrote: only the set's places of store_line[] are
 *           emptied, so that their next store asks for it again.
 *
 * Invariants:
 *
 *  1. Tags of private caches are read and written by their own thread only.
 *  2. A place of store_line[] is set under its set's lock only, to a line that the directory says
 *     the processor alone holds. A processor that changes that empties it first.
 *  3. A place of data_line[] is set before stale[set] is read, and stale[set] raised before the
 *     set's places are emptied: one of both threads notices the other (coherence_set_buffer()).
 *  4. An entry of the directory names only processors that have joined.
 *
 * A lock is held for a few hundred instructions. A handler of a signal may leave that code for good
 * (siglongjmp): its processor finds itself as the holder and goes on, others take the lock after a
 * while. The worst that two holders do is wrong counts: every index is masked.
 *
 * vCPU threads; general registers only.
 */
#include "timing/coherence.h"

#include "base/bytes.h"
#include "base/futex.h"
#include "timing/first.h"
#include "timing/levels.h"
#include "timing/params.h"

/* --- locks --- */

#define SPINS	1000
#define WAIT_NS 1000000
#define WAITS	100 /* then the holder is taken to be gone */

static u32 set_of(u64 line)
{
	return line & (TIMING_LINES - 1);
}

static bool try_lock(u32 *word, u32 self)
{
	u32 holder = 0;

	return __atomic_compare_exchange_n(word, &holder, self, false, __ATOMIC_ACQUIRE,
					   __ATOMIC_RELAXED) ||
	       holder == self;
}

/* Nothing wakes a thread that waits: locks are free again long before it sleeps, unless their
 * holder does not run. */
static void lock(struct timing *t, u32 set)
{
	u32 *word = &t->shared->lock[set].holder, self = t->index + 1, seen = 0;

	for (u32 i = 0; !try_lock(word, self); i++) {
		u32 holder = __atomic_load_n(word, __ATOMIC_RELAXED);

		if (holder != seen)
			i = 0;
		seen = holder;
		if (i < SPINS)
			__builtin_ia32_pause();
		else if (i < SPINS + WAITS)
			futex_wait(word, holder, WAIT_NS);
		else if (__atomic_compare_exchange_n(word, &holder, self, false, __ATOMIC_ACQUIRE,
						     __ATOMIC_RELAXED))
			return;
	}
}

static void unlock(struct timing *t, u32 set)
{
	u32 self = t->index + 1;

	__atomic_compare_exchange_n(&t->shared->lock[set].holder, &self, 0, false, __ATOMIC_RELEASE,
				    __ATOMIC_RELAXED);
}

/* --- the directory --- */

static u64 bit_of(const struct timing *t)
{
	return BIT(t->index);
}

static struct coherence_entry *directory_of(const struct coherence *c, u64 line)
{
	struct coherence_entry *all = c->memory;

	return all + (line & (COHERENCE_SETS - 1)) * COHERENCE_WAYS;
}

static bool names(const struct coherence_entry *e, u64 line)
{
	return (e->tag & ~COHERENCE_MODIFIED) == levels_tag(line);
}

/* NULL: no private cache holds the line. */
static struct coherence_entry *find(const struct coherence *c, u64 line)
{
	struct coherence_entry *set = directory_of(c, line);

	for (u32 i = 0; i < COHERENCE_WAYS; i++)
		if (names(&set[i], line))
			return set[i].holders ? &set[i] : NULL;
	return NULL;
}

/* Those of all lines of a set. */
static void empty_buffers(u64 *lines, u32 set)
{
	for (u32 place = set; place < TIMING_PLACES; place += TIMING_LINES)
		__atomic_store_n(&lines[place], 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* Others no longer hold a line of the set; or, if they wrote one, may go on to read it. */
static void tell(const struct coherence *c, u64 others, u32 set, bool taken)
{
	for (; others; others &= others - 1) {
		struct timing *other = c->cpu[__builtin_ctzll(others)];

		empty_buffers(other->store_line, set);
		if (!taken)
			continue;
		__atomic_store_n(&other->stale[set], true, __ATOMIC_SEQ_CST);
		empty_buffers(other->data_line, set);
	}
}

/* The line's entry, which becomes the youngest of its set. */
static struct coherence_entry *use(const struct coherence *c, u64 line)
{
	struct coherence_entry *set = directory_of(c, line);
	struct coherence_entry older = { .tag = levels_tag(line) };

	for (u32 i = 0; i < COHERENCE_WAYS; i++) {
		struct coherence_entry here = set[i];

		set[i] = older;
		if (names(&here, line)) {
			set[0] = here;
			return set;
		}
		older = here;
	}
	tell(c, older.holders, set_of(line), true);
	return set;
}

static void leave(struct timing *t, u64 line)
{
	struct coherence_entry *e = find(t->shared, line);

	if (!e)
		return;
	e->holders &= ~bit_of(t);
	if (!e->holders)
		e->tag &= ~COHERENCE_MODIFIED;
}

/* --- what processors do --- */

void coherence_join(struct coherence *c, struct timing *t, u32 index)
{
	t->shared = c;
	t->index = index;
	t->llc.tags =
		(u32 *)((struct coherence_entry *)c->memory + COHERENCE_SETS * COHERENCE_WAYS);
	t->llc_aged = (u64 *)(t->llc.tags + (u64)t->llc.sets * LAST_PLACES);
	t->llc.youngest = (u8 *)(t->llc_aged + t->llc.sets);
	for (u32 i = 0; i < TIMING_LINES; i++)
		t->stale[i] = true;
	bytes_fill(t->data_line, 0, sizeof(t->data_line));
	bytes_fill(t->store_line, 0, sizeof(t->store_line));
	__atomic_store_n(&c->cpu[index], t, __ATOMIC_RELEASE);
}

/* The processor is to be the one that holds the line. */
static void take(struct timing *t, struct coherence_entry *e, u64 line, u64 host)
{
	u32 set = set_of(line);

	tell(t->shared, e->holders & ~bit_of(t), set, true);
	e->holders = bit_of(t);
	e->tag |= COHERENCE_MODIFIED;
	__atomic_store_n(&t->store_line[timing_place(host)], host, __ATOMIC_SEQ_CST);
}

/* Who has a line that this processor does not hold. */
static enum observed_level ask(struct timing *t, struct coherence_entry *e, u64 line)
{
	u64 others = e->holders & ~bit_of(t);
	bool in_llc = levels_in_last(t, line);

	if (others && (e->tag & COHERENCE_MODIFIED)) {
		tell(t->shared, others, set_of(line), false);
		e->tag &= ~COHERENCE_MODIFIED;
		t->snoop = OBSERVED_SNOOP_MODIFIED;
		return OBSERVED_LLC;
	}
	if (in_llc)
		return OBSERVED_LLC;
	t->snoop = others ? OBSERVED_SNOOP_CLEAN : OBSERVED_SNOOP_NONE;
	return others ? OBSERVED_LLC : OBSERVED_MEMORY;
}

/* L2 has lost a line, which goes to the last level. Both lie in sets of the same lock. */
static void evict(struct timing *t, u64 victim)
{
	const struct coherence_entry *e = find(t->shared, victim - 1);

	if (!e || !(e->holders & bit_of(t))) /* another processor took it long ago */
		return;
	levels_give(t, victim - 1);
	if (!sets_hold_marked(&t->l1d, victim - 1, victim))
		leave(t, victim - 1);
}

/* May the processor use the copy that L2 has? To write it, it must be the only one. */
static bool usable(const struct timing *t, const struct coherence_entry *e)
{
	return (e->holders & bit_of(t)) && !(t->storing && (e->holders & ~bit_of(t)));
}

enum observed_level coherence_fill(struct timing *t, u64 line)
{
	enum observed_level level = OBSERVED_L2;
	struct coherence_entry *e;
	u64 victim = 0;

	t->snoop = OBSERVED_SNOOP_NONE;
	lock(t, set_of(line));
	e = use(t->shared, line);
	if (!levels_use(t, line, &victim) || !usable(t, e))
		level = ask(t, e, line);
	e->holders |= bit_of(t);
	if (t->storing)
		take(t, e, line, t->storing);
	if (victim)
		evict(t, victim);
	unlock(t, set_of(line));
	return level;
}

bool coherence_own(struct timing *t, u64 line, u64 host)
{
	struct coherence_entry *e;
	bool shared;

	lock(t, set_of(line));
	/* A line that is the processor's own already is not made younger: whether it comes here
	 * depends on which lines share a place of the buffers. */
	e = find(t->shared, line);
	if (!e || e->holders != bit_of(t) || !(e->tag & COHERENCE_MODIFIED))
		e = use(t->shared, line);
	shared = e->holders & ~bit_of(t);
	take(t, e, line, host);
	unlock(t, set_of(line));
	return shared;
}

void coherence_refresh(struct timing *t, u32 set)
{
	const struct first first = first_data(t);
	u64 *tags = sets_of(&t->l1d, set);

	if (!__atomic_load_n(&t->stale[set], __ATOMIC_SEQ_CST))
		return;
	lock(t, set);
	__atomic_store_n(&t->stale[set], false, __ATOMIC_SEQ_CST);
	for (u32 i = 0; i < t->l1d.ways;) {
		u64 line = (tags[i] & ~SETS_MARK) - 1;
		const struct coherence_entry *e = tags[i] ? find(t->shared, line) : NULL;

		if (tags[i] && (!e || !(e->holders & bit_of(t))))
			first_drop_way(&first, tags, i);
		else
			i++;
	}
	unlock(t, set);
}

void coherence_lost(struct timing *t, u64 tag)
{
	u64 line = (tag & ~SETS_MARK) - 1;

	if (!tag || levels_hold(t, line))
		return;
	lock(t, set_of(line));
	leave(t, line);
	unlock(t, set_of(line));
}

void coherence_set_buffer(struct timing *t, u64 host)
{
	u64 *line = &t->data_line[timing_place(host)];

	__atomic_store_n(line, host, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(&t->stale[timing_set(host)], __ATOMIC_SEQ_CST))
		__atomic_store_n(line, 0, __ATOMIC_SEQ_CST);
}

/* --- invalidation by software --- */

void coherence_drop(struct timing *t, u64 line)
{
	struct coherence_entry *e;

	lock(t, set_of(line));
	levels_drop_from_last(t, line);
	e = find(t->shared, line);
	if (e) {
		tell(t->shared, e->holders & ~bit_of(t), set_of(line), true);
		*e = (struct coherence_entry){ .tag = levels_tag(line) };
	}
	unlock(t, set_of(line));
}

static void hold_nothing(struct timing *t, struct coherence_entry *set)
{
	for (u32 i = 0; i < COHERENCE_WAYS; i++) {
		if (!(set[i].holders & bit_of(t)))
			continue;
		set[i].holders &= ~bit_of(t);
		if (!set[i].holders)
			set[i].tag &= ~COHERENCE_MODIFIED;
	}
}

void coherence_empty(struct timing *t)
{
	for (u32 set = 0; set < TIMING_LINES; set++) {
		lock(t, set);
		for (u32 i = set; i < t->llc.sets; i += TIMING_LINES)
			bytes_fill(t->llc.tags + (u64)i * LAST_PLACES, 0,
				   LAST_PLACES * sizeof(u32));
		for (u32 i = set; i < COHERENCE_SETS; i += TIMING_LINES)
			hold_nothing(t, directory_of(t->shared, i));
		unlock(t, set);
	}
}
