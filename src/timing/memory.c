// SPDX-License-Identifier: MIT
/*
 * Accesses of the timing model: first-level caches and two levels of TLB, and what is counted of
 * them. The caches beyond are in levels.c; what takes lines and translations away (INVLPG, CLFLUSH,
 * a change of CR3) is in flush.c. vCPU thread; general registers only.
 */
#include "timing/coherence.h"
#include "timing/first.h"
#include "timing/levels.h"
#include "timing/params.h"
#include "timing/run.h"
#include "timing/walk.h"

static void add(struct timing *t, enum retire_class class)
{
	t->count[class]++;
}

/* --- translation --- */

/* A TLB's tag: the page's number, log2 of its size and the address space. */
static u64 tlb_tag(const struct timing_access *a)
{
	u64 owner = a->global ? SPACE_GLOBAL : walk_owner(a->space);

	return owner << SPACE_SHIFT | (u64)a->page_shift << SIZE_SHIFT |
	       (walk_page(a->linear, a->page_shift) + 1);
}

static inline enum observed_tlb translate(struct timing *t, const struct first *f, u64 number,
					  u64 tag)
{
	u64 lost;

	if (likely(first_translate(t, f, number, tag)))
		return OBSERVED_TLB_L1;
	return sets_use(f->second, number, tag, &lost) ? OBSERVED_TLB_L2 : OBSERVED_TLB_WALK;
}

static void count_data_tlb(struct timing *t, enum observed_tlb tlb, bool store)
{
	if (tlb == OBSERVED_TLB_L1)
		return;
	add(t, RETIRE_DTLB_L1_MISSES);
	if (tlb == OBSERVED_TLB_L2) {
		add(t, store ? RETIRE_DTLB_STORE_STLB : RETIRE_DTLB_LOAD_STLB);
		return;
	}
	add(t, RETIRE_DTLB_MISSES);
	add(t, store ? RETIRE_DTLB_STORE_MISSES : RETIRE_DTLB_LOAD_MISSES);
}

/* --- lines --- */

/* What the first level missed. t->snoop is then what other caches had to do with it. */
static enum observed_level outer_levels(struct timing *t, u64 line)
{
	enum observed_level level = levels_request(t, line);

	t->storing = 0;
	prefetch_requested(t, line, level);
	add(t, RETIRE_L2_REFERENCES);
	add(t, level == OBSERVED_L2 ? RETIRE_L2_HITS : RETIRE_LLC_REFERENCES);
	if (level == OBSERVED_MEMORY)
		add(t, RETIRE_LLC_MISSES);
	return level;
}

/* Counts a data access that missed the first level, as load or store, by the level that hit. */
static void count_data(struct timing *t, enum observed_level level, bool store)
{
	add(t, RETIRE_L1D_MISSES);
	add(t, RETIRE_L1D_FILLS);
	add(t, store ? RETIRE_STORE_L1_MISSES : RETIRE_LOAD_L1_MISSES);
	add(t, level == OBSERVED_L2 ? RETIRE_DATA_L2_HITS : RETIRE_DATA_L2_MISSES);
	if (level == OBSERVED_LLC)
		add(t, RETIRE_DATA_LLC_HITS);
	if (level == OBSERVED_MEMORY)
		add(t, RETIRE_DATA_LLC_MISSES);
}

static void count_load(struct timing *t, enum observed_level level)
{
	add(t, level == OBSERVED_L2 ? RETIRE_LOAD_L2_HITS : RETIRE_LOAD_L2_MISSES);
	if (level == OBSERVED_LLC)
		add(t, RETIRE_LOAD_LLC_HITS);
	if (level == OBSERVED_MEMORY)
		add(t, RETIRE_LOAD_LLC_MISSES);
}

static void count_store(struct timing *t, enum observed_level level)
{
	if (level != OBSERVED_L2)
		add(t, RETIRE_STORE_L2_MISSES);
	if (level == OBSERVED_MEMORY)
		add(t, RETIRE_STORE_LLC_MISSES);
}

/* A store to a line that the first level has. The others that hold it give it up: a request that
 * brings no data. */
static enum observed_level own_line(struct timing *t, u64 line, u64 host)
{
	if (!coherence_own(t, line, host))
		return OBSERVED_L1;
	add(t, RETIRE_L1D_MISSES);
	add(t, RETIRE_STORE_L1_MISSES);
	add(t, RETIRE_STORE_L2_MISSES);
	add(t, RETIRE_DATA_L2_MISSES);
	add(t, RETIRE_DATA_LLC_HITS);
	add(t, RETIRE_L2_REQUESTS);
	add(t, RETIRE_L2_REFERENCES);
	add(t, RETIRE_LLC_REFERENCES);
	t->snoop = OBSERVED_SNOOP_CLEAN;
	return OBSERVED_LLC;
}

static enum observed_level missed_line(struct timing *t, u64 line, bool store)
{
	enum observed_level level = outer_levels(t, line);

	count_data(t, level, store);
	if (store) {
		count_store(t, level);
	} else {
		count_load(t, level);
		prefetch_loaded(t, line);
	}
	return level;
}

/* *prefetched: the first level has the line because it was prefetched, and this is its first use.
 */
static inline enum observed_level data_line(struct timing *t, const struct first *f, u64 line,
					    struct way *way, bool store, u64 host, bool *prefetched)
{
	u64 lost;

	*prefetched = false;
	if (likely(first_is_there(f, way))) {
		*prefetched = way->set[way->i] & SETS_MARK;
		first_rise(f, way, levels_tag(line));
		if (*prefetched && !store)
			prefetch_loaded(t, line);
		return unlikely(t->shared) && store ? own_line(t, line, host) : OBSERVED_L1;
	}
	levels_prepare(t, line);
	lost = first_add(f, way, 0, levels_tag(line));
	if (unlikely(t->shared)) {
		coherence_lost(t, lost);
		t->storing = store ? host : 0;
	}
	return missed_line(t, line, store);
}

/* --- data --- */

static u16 line_latency(const struct timing *t, enum observed_level level,
			enum observed_snoop snoop)
{
	bool peer = snoop && level == OBSERVED_LLC;

	return t->params->latency[peer ? OBSERVED_MEMORY : level - OBSERVED_L1];
}

static u16 translation_latency(const struct timing *t, enum observed_tlb tlb)
{
	if (tlb == OBSERVED_TLB_L2)
		return t->params->second;
	return tlb == OBSERVED_TLB_WALK ? t->walk_cycles : 0;
}

static u16 latency(const struct timing *t, enum observed_level level, enum observed_tlb tlb,
		   enum observed_snoop snoop)
{
	return line_latency(t, level, snoop) + translation_latency(t, tlb);
}

/* Hits of the first level never count as slow, so they need not come here. */
static void count_slow(struct timing *t, u16 cycles)
{
	if (cycles > t->slow_cycles && cycles > t->params->latency[0])
		add(t, RETIRE_SLOW_LOADS);
}

/* Where the lines of an access were, and its translation: the worst of each. */
struct found {
	enum observed_level level;
	enum observed_tlb tlb;
	enum observed_snoop snoop;
	bool prefetched; /* of one line: its first use since it was */
	bool counted;	 /* of an access: something may have been */
};

/* A read-modify-write is a store, but for one that reads what another processor wrote. */
static bool loads(const struct timing_access *a, const struct found *found)
{
	return !a->store || (a->modify && found->snoop == OBSERVED_SNOOP_MODIFIED);
}

static bool hits(const struct found *found)
{
	return found->level == OBSERVED_L1 && found->tlb == OBSERVED_TLB_L1;
}

static void note(struct timing *t, const struct timing_access *a, const struct found *found)
{
	u16 cycles = t->params->latency[0];

	if (!hits(found)) {
		cycles = latency(t, found->level, found->tlb, found->snoop);
		if (loads(a, found))
			count_slow(t, cycles);
	}
	if (t->keep_seen)
		return;
	t->seen.access = (struct observed_access){ .valid = true,
						   .store = a->store,
						   .modify = a->modify,
						   .level = found->level,
						   .snoop = found->snoop,
						   .tlb = found->tlb,
						   .size = a->size,
						   .latency = cycles,
						   .linear = a->linear,
						   .physical = a->physical };
}

/* The line is settled: lets translated code know. */
static inline void set_buffer(struct timing *t, u64 host)
{
	u32 place = timing_place(host);

	if (likely(!t->shared)) {
		t->data_line[place] = host;
		return;
	}
	if (__atomic_load_n(&t->store_line[place], __ATOMIC_RELAXED) != host)
		__atomic_store_n(&t->store_line[place], 0, __ATOMIC_RELAXED);
	coherence_set_buffer(t, host);
}

/* A line that is not settled. */
static inline __attribute__((always_inline)) struct found
look_up(struct timing *t, const struct first *f, const struct timing_access *a, u64 line,
	struct way *way, u64 host)
{
	u64 tag = tlb_tag(a);
	struct found here = { .tlb = translate(t, f, walk_page(a->linear, a->page_shift), tag) };

	if (here.tlb == OBSERVED_TLB_WALK)
		walk(t, a, true);
	count_data_tlb(t, here.tlb, a->store);
	t->snoop = OBSERVED_SNOOP_NONE;
	here.level = data_line(t, f, line, way, a->store, host, &here.prefetched);
	here.snoop = t->snoop;
	if (unlikely(here.snoop) && here.snoop >= t->forwards && loads(a, &here))
		add(t, RETIRE_LOAD_FORWARDS);
	first_note(t, f, &first_notes(f->cache, way->set)[way->i], timing_place(host), tag);
	set_buffer(t, host);
	return here;
}

/* A store to a settled line, of which others may hold copies. */
static struct found own_settled(struct timing *t, u64 line, u64 host)
{
	struct found here = { .tlb = OBSERVED_TLB_L1 };

	t->snoop = OBSERVED_SNOOP_NONE;
	here.level = own_line(t, line, host);
	here.snoop = t->snoop;
	return here;
}

static bool may_write(const struct timing *t, u64 host)
{
	return likely(!t->shared) ||
	       __atomic_load_n(&t->store_line[timing_place(host)], __ATOMIC_RELAXED) == host;
}

/* One line of an access, `offset` bytes into it. */
static inline __attribute__((always_inline)) struct found
one_line(struct timing *t, const struct timing_access *a, u32 offset)
{
	const struct first first = first_data(t);
	u64 host = (a->host + offset) & ~(u64)(LINE_SIZE - 1);
	u64 line = (a->physical + offset) >> LINE_SHIFT;
	struct found here;
	struct way way;

	if (unlikely(t->shared))
		coherence_refresh(t, timing_set(a->physical + offset));
	way = first_find(&first, line, levels_tag(line));
	if (!first_settled(&first, &way)) {
		here = look_up(t, &first, a, line, &way, host);
	} else {
		first_renote(&first, &way, timing_place(host));
		set_buffer(t, host);
		if (likely(!a->store || may_write(t, host)))
			return (struct found){ .level = OBSERVED_L1, .tlb = OBSERVED_TLB_L1 };
		here = own_settled(t, line, host);
	}
	if (hits(&here)) {
		/* It costs nothing but what is left of a prefetch. */
		if (here.prefetched && t->costs && !penalty_in_time(&t->penalty, t->costs, line))
			penalty_data(t, a, offset, OBSERVED_L1, t->params->latency[0]);
	} else if (t->costs) {
		penalty_data(t, a, offset, here.level,
			     latency(t, here.level, here.tlb, here.snoop));
	}
	if (t->penalty.nasked)
		penalty_prefetched(t);
	here.counted |= !hits(&here) | here.prefetched;
	return here;
}

static void add_found(struct found *all, struct found one)
{
	all->counted |= one.counted;
	all->level = one.level > all->level ? one.level : all->level;
	all->tlb = one.tlb > all->tlb ? one.tlb : all->tlb;
	all->snoop = one.snoop > all->snoop ? one.snoop : all->snoop;
}

/* --- instructions that are executed again --- */

void timing_replay(struct timing *t, bool code)
{
	t->replay = 2;
	t->replay_code = code;
	t->replay_upto = t->shown;
}

/* Was the access shown before? */
static bool shown_before(struct timing *t, gva_t linear, bool code)
{
	if (likely(!t->replay))
		return false;
	if (code != t->replay_code) {
		if (code)
			return true;
		t->replay = 0; /* code is fetched first */
		return false;
	}
	/* An instruction lies on two lines at most, and addresses may wrap. Translated code does
	 * not show the first one again if it is settled: the second one is new even so. */
	if (code && (s32)(linear - t->replay_upto) > 0) {
		t->replay = 0;
		return false;
	}
	if (linear == t->replay_upto)
		t->replay = 0;
	return true;
}

static __attribute__((noinline)) struct found
another_line(struct timing *t, const struct timing_access *a, u32 offset)
{
	return one_line(t, a, offset);
}

/* Does it load, `offset` bytes into it, from a line that was prefetched, as far as that is quickly
 * seen, and of no other processor? */
static inline bool is_prefetched(const struct timing *t, const struct timing_access *a, u32 offset,
				 u32 *way)
{
	u64 line = (a->physical + offset) >> LINE_SHIFT;
	u32 set = line % TIMING_LINES;

	*way = t->prefetch.way[set][line / PAGE_LINES % WAYS_NOTED];
	return t->l1d.tags[set * t->l1d.ways + *way] == (levels_tag(line) | SETS_MARK) &&
	       !a->store && likely(!t->shared);
}

/* More of it, `offset` bytes into it. */
static void more_lines(struct timing *t, const struct timing_access *a, u32 offset,
		       struct found *found)
{
	u32 way;

	for (; offset < a->size; offset += LINE_SIZE)
		if (is_prefetched(t, a, offset, &way) && run_next(t, a, offset, way, tlb_tag(a)))
			found->counted = true;
		else
			add_found(found, another_line(t, a, offset));
	if (t->costs && a->size > LINE_SIZE)
		penalty_bytes(t, a);
	found->counted |= a->size > LINE_SIZE;
}

bool timing_data(struct timing *t, const struct timing_access *a)
{
	u32 first = LINE_SIZE - (a->physical & (LINE_SIZE - 1));
	struct found found;
	u32 way;

	if (shown_before(t, a->linear, false))
		return false;
	t->shown = a->linear;
	if (is_prefetched(t, a, 0, &way) && run_next(t, a, 0, way, tlb_tag(a)))
		found = (struct found){ .level = OBSERVED_L1,
					.tlb = OBSERVED_TLB_L1,
					.counted = true };
	else
		found = one_line(t, a, 0);
	if (unlikely(first < a->size))
		more_lines(t, a, first, &found);
	note(t, a, &found);
	return found.counted;
}

/* --- instructions --- */

void timing_observe(struct timing *t, bool look)
{
	if (look && !t->observing) {
		const struct first code = first_code(t);

		first_unsettle_all(t, &code); /* the first line comes to timing_fetch() */
		t->first_line = true;
		t->next_line = 0;
		penalty_begin(t);
	}
	t->observing = look;
}

/* Was the line fetched before observation began? */
static bool fetched_before(struct timing *t, gpa_t physical)
{
	gpa_t next = physical + LINE_SIZE;

	if (t->first_line) {
		t->first_line = false;
		t->next_line = (next ^ physical) & PAGE_MASK ? 0 : timing_code_key(next);
		return true;
	}
	if (t->next_line != timing_code_key(physical))
		return false;
	t->next_line = 0;
	return true;
}

/* Makes the line the youngest of its set. True: it was there. */
static bool use_code(const struct timing *t, const struct first *f, u64 line, struct way *way)
{
	if (!first_is_there(f, way)) {
		levels_prepare(t, line);
		first_add(f, way, 0, levels_tag(line));
		return false;
	}
	first_rise(f, way, levels_tag(line));
	return true;
}

static void fill_code(struct timing *t, const struct first *f, u64 line, struct way *way)
{
	if (!use_code(t, f, line, way))
		levels_fill(t, line);
}

static void count_code_tlb(struct timing *t, enum observed_tlb tlb)
{
	if (tlb == OBSERVED_TLB_L2)
		add(t, RETIRE_ITLB_STLB);
	if (tlb == OBSERVED_TLB_WALK)
		add(t, RETIRE_ITLB_MISSES);
}

static enum observed_level code_line(struct timing *t, const struct first *f, u64 line,
				     struct way *way)
{
	enum observed_level level;

	if (use_code(t, f, line, way))
		return OBSERVED_L1;
	level = outer_levels(t, line);
	add(t, RETIRE_L1I_MISSES);
	add(t, level == OBSERVED_L2 ? RETIRE_CODE_L2_HITS : RETIRE_CODE_L2_MISSES);
	return level;
}

static void code_missed(struct timing *t, u64 line, enum observed_level level,
			enum observed_tlb tlb)
{
	if (!t->costs)
		return;
	if (level != OBSERVED_L1 || tlb != OBSERVED_TLB_L1)
		penalty_fetch(t, line, level,
			      line_latency(t, level, t->snoop) - t->params->latency[0],
			      translation_latency(t, tlb));
	if (t->penalty.nasked)
		penalty_prefetched(t);
}

bool timing_fetch(struct timing *t, const struct timing_access *a)
{
	const struct first first = first_code(t);
	u64 line = a->physical >> LINE_SHIFT, tag = tlb_tag(a);
	struct way way = first_find(&first, line, levels_tag(line));
	u32 place = timing_place(a->physical);
	enum observed_tlb tlb;
	bool before;

	if (shown_before(t, a->linear, true))
		return false;
	t->shown = a->linear;
	if (first_settled(&first, &way)) {
		first_renote(&first, &way, place);
		t->code_line[place] = timing_code_key(a->physical);
		return false;
	}
	tlb = translate(t, &first, walk_page(a->linear, a->page_shift), tag);
	before = fetched_before(t, a->physical);
	if (tlb == OBSERVED_TLB_WALK)
		walk(t, a, !before);
	if (before) {
		fill_code(t, &first, line, &way);
	} else {
		count_code_tlb(t, tlb);
		t->snoop = OBSERVED_SNOOP_NONE;
		code_missed(t, line, code_line(t, &first, line, &way), tlb);
	}
	first_note(t, &first, &first_notes(first.cache, way.set)[way.i], place, tag);
	t->code_line[place] = timing_code_key(a->physical);
	return true;
}
