// SPDX-License-Identifier: MIT
/*
 * Accesses of the timing model, and what takes lines and translations away (INVLPG, CLFLUSH, a
 * change of CR3): first-level caches and two levels of TLB, and what is counted of them. The caches
 * beyond are in levels.c. vCPU thread; general registers only.
 */
#include "base/bytes.h"
#include "timing/coherence.h"
#include "timing/levels.h"
#include "timing/params.h"
#include "timing/sets.h"
#include "timing/walk.h"

static void add(struct timing *t, enum retire_class class)
{
	t->count[class]++;
}

/* --- translation --- */

static u64 page_number(gva_t linear, u8 shift)
{
	return (linear & MASK(56, 0)) >> shift;
}

/* A TLB's tag: the page's number, log2 of its size and the address space. */
static u64 tlb_tag(const struct timing_access *a)
{
	u64 owner = a->global ? SPACE_GLOBAL : walk_owner(a->space);

	return owner << SPACE_SHIFT | (u64)a->page_shift << SIZE_SHIFT |
	       (page_number(a->linear, a->page_shift) + 1);
}

struct side {
	const struct timing_sets *first, *second;
	u64 *lines, *stores, *pages; /* its line buffers */
};

/* Another thread may do the same at any time. */
static void empty(u64 *lines, u64 *stores, u32 i)
{
	__atomic_store_n(&lines[i], 0, __ATOMIC_RELAXED);
	__atomic_store_n(&stores[i], 0, __ATOMIC_RELAXED);
}

static void forget_page(const struct side *side, u64 tag)
{
	for (u32 i = 0; i < TIMING_LINES; i++)
		if (side->pages[i] == tag)
			empty(side->lines, side->stores, i);
}

static inline enum observed_tlb translate(const struct side *side, u64 number, u64 tag)
{
	u64 lost;

	if (likely(sets_use(side->first, number, tag, &lost)))
		return OBSERVED_TLB_L1;
	if (lost)
		forget_page(side, lost);
	return sets_use(side->second, number, tag, &lost) ? OBSERVED_TLB_L2 : OBSERVED_TLB_WALK;
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

/* What the first level missed. What other caches had to do with it stays in t->snoop. */
static enum observed_level outer_levels(struct timing *t, u64 line)
{
	enum observed_level level = levels_request(t, line);
	u8 snoop = t->snoop;

	t->storing = 0;
	prefetch_requested(t, line, level);
	t->snoop = snoop;
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
static enum observed_level data_line(struct timing *t, gpa_t physical, bool store, u64 host,
				     bool *prefetched)
{
	u64 line = physical >> LINE_SHIFT, lost;

	*prefetched = false;
	if (unlikely(t->shared))
		coherence_refresh(t, timing_set(physical));
	if (sets_use_marked(&t->l1d, line, levels_tag(line), prefetched, &lost)) {
		if (*prefetched && !store)
			prefetch_loaded(t, line);
		return unlikely(t->shared) && store ? own_line(t, line, host) : OBSERVED_L1;
	}
	if (unlikely(t->shared)) {
		coherence_lost(t, lost);
		t->storing = store ? host : 0;
	}
	return missed_line(t, line, store);
}

/* --- data --- */

static u16 latency(const struct timing *t, enum observed_level level, enum observed_tlb tlb,
		   enum observed_snoop snoop)
{
	bool peer = snoop && level == OBSERVED_LLC;
	u16 cycles = t->params->latency[peer ? OBSERVED_MEMORY : level - OBSERVED_L1];

	if (tlb == OBSERVED_TLB_L2)
		cycles += t->params->second;
	if (tlb == OBSERVED_TLB_WALK)
		cycles += t->walk_cycles;
	return cycles;
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

static void set_buffer(struct timing *t, u32 set, u64 host, u64 tag, bool store)
{
	t->data_page[set] = tag;
	if (likely(!t->shared)) {
		t->data_line[set] = host;
		return;
	}
	if (!store)
		__atomic_store_n(&t->store_line[set], 0, __ATOMIC_RELAXED);
	coherence_set_buffer(t, set, host);
}

/* A line that is not in its buffer. */
static struct found look_up(struct timing *t, const struct timing_access *a, u64 tag, u32 offset,
			    u64 host)
{
	const struct side side = { &t->dtlb, &t->stlb, t->data_line, t->store_line, t->data_page };
	struct found here = { .tlb = translate(&side, page_number(a->linear, a->page_shift), tag) };

	if (here.tlb == OBSERVED_TLB_WALK)
		walk(t, a, true);
	count_data_tlb(t, here.tlb, a->store);
	t->snoop = OBSERVED_SNOOP_NONE;
	here.level = data_line(t, a->physical + offset, a->store, host, &here.prefetched);
	here.snoop = t->snoop;
	if (unlikely(here.snoop) && here.snoop >= t->forwards && loads(a, &here))
		add(t, RETIRE_LOAD_FORWARDS);
	set_buffer(t, timing_set(a->physical + offset), host, tag, a->store);
	return here;
}

/* A store to the line in a buffer, of which others may hold copies. */
static struct found own_buffered(struct timing *t, gpa_t physical, u64 host)
{
	struct found here = { .tlb = OBSERVED_TLB_L1 };

	t->snoop = OBSERVED_SNOOP_NONE;
	here.level = own_line(t, physical >> LINE_SHIFT, host);
	here.snoop = t->snoop;
	return here;
}

static bool may_write(const struct timing *t, u32 set, u64 host)
{
	return likely(!t->shared) || __atomic_load_n(&t->store_line[set], __ATOMIC_RELAXED) == host;
}

/* One line of an access, `offset` bytes into it. */
static void one_line(struct timing *t, const struct timing_access *a, u64 tag, u32 offset,
		     struct found *found)
{
	u64 host = (a->host + offset) & ~(u64)(LINE_SIZE - 1);
	u32 set = timing_set(a->physical + offset);
	struct found here;

	if (__atomic_load_n(&t->data_line[set], __ATOMIC_RELAXED) != host)
		here = look_up(t, a, tag, offset, host);
	else if (a->store && !may_write(t, set, host))
		here = own_buffered(t, a->physical + offset, host);
	else
		return;
	if (likely(hits(&here) && !here.prefetched))
		return; /* it costs nothing, and prefetchers are not told */
	if (t->costs) {
		penalty_data(t, a, offset, here.level,
			     latency(t, here.level, here.tlb, here.snoop));
		penalty_prefetch(t);
	}
	found->level = here.level > found->level ? here.level : found->level;
	found->tlb = here.tlb > found->tlb ? here.tlb : found->tlb;
	found->snoop = here.snoop > found->snoop ? here.snoop : found->snoop;
}

bool timing_data_hit(struct timing *t, const struct timing_access *a)
{
	const struct found found = { .level = OBSERVED_L1, .tlb = OBSERVED_TLB_L1 };
	u64 line = a->physical >> LINE_SHIFT, host = a->host & ~(u64)(LINE_SIZE - 1), tag;
	u32 set = timing_set(a->physical);

	if (unlikely(t->shared) || (a->physical & (LINE_SIZE - 1)) + a->size > LINE_SIZE)
		return false;
	if (likely(t->data_line[set] != host)) {
		tag = tlb_tag(a);
		if (!sets_touch_both(&t->dtlb, page_number(a->linear, a->page_shift), tag, &t->l1d,
				     line, levels_tag(line)))
			return false;
		set_buffer(t, set, host, tag, a->store);
	}
	note(t, a, &found);
	return true;
}

void timing_data(struct timing *t, const struct timing_access *a)
{
	u32 first = LINE_SIZE - (a->physical & (LINE_SIZE - 1));
	u64 tag = tlb_tag(a);
	struct found found = { .level = OBSERVED_L1, .tlb = OBSERVED_TLB_L1 };

	one_line(t, a, tag, 0, &found);
	for (u32 offset = first; offset < a->size; offset += LINE_SIZE)
		one_line(t, a, tag, offset, &found);
	if (t->costs && a->size > LINE_SIZE)
		penalty_bytes(t, a);
	note(t, a, &found);
}

/* --- instructions --- */

void timing_observe(struct timing *t, bool look)
{
	if (look && !t->observing) {
		/* Empties the line buffers, so that the first line comes to timing_fetch(). */
		bytes_fill(t->code_line, 0, sizeof(t->code_line));
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

static void fill_code(struct timing *t, u64 line)
{
	u64 lost;

	if (!sets_use(&t->l1i, line, levels_tag(line), &lost))
		levels_fill(t, line);
}

static void count_code_tlb(struct timing *t, enum observed_tlb tlb)
{
	if (tlb == OBSERVED_TLB_L2)
		add(t, RETIRE_ITLB_STLB);
	if (tlb == OBSERVED_TLB_WALK)
		add(t, RETIRE_ITLB_MISSES);
}

static enum observed_level code_line(struct timing *t, u64 line)
{
	enum observed_level level;
	u64 lost;

	if (sets_use(&t->l1i, line, levels_tag(line), &lost))
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
			      latency(t, level, tlb, t->snoop) - t->params->latency[0]);
	penalty_prefetch(t);
}

static void set_code_buffer(struct timing *t, gpa_t physical, u64 tag)
{
	u32 set = timing_set(physical);

	t->code_line[set] = timing_code_key(physical);
	t->code_page[set] = tag;
}

bool timing_fetch_hit(struct timing *t, const struct timing_access *a)
{
	u64 line = a->physical >> LINE_SHIFT, tag = tlb_tag(a);

	if (unlikely(t->first_line || t->next_line))
		return false;
	if (t->code_line[timing_set(a->physical)] == timing_code_key(a->physical))
		return true;
	if (!sets_touch_both(&t->itlb, page_number(a->linear, a->page_shift), tag, &t->l1i, line,
			     levels_tag(line)))
		return false;
	set_code_buffer(t, a->physical, tag);
	return true;
}

void timing_fetch(struct timing *t, const struct timing_access *a)
{
	const struct side side = { &t->itlb, &t->istlb, t->code_line, t->code_line, t->code_page };
	u64 line = a->physical >> LINE_SHIFT, tag = tlb_tag(a);
	enum observed_tlb tlb;
	bool before;

	if (t->code_line[timing_set(a->physical)] == timing_code_key(a->physical))
		return;
	tlb = translate(&side, page_number(a->linear, a->page_shift), tag);
	before = fetched_before(t, a->physical);
	if (tlb == OBSERVED_TLB_WALK)
		walk(t, a, !before);
	if (before) {
		fill_code(t, line);
	} else {
		count_code_tlb(t, tlb);
		t->snoop = OBSERVED_SNOOP_NONE;
		code_missed(t, line, code_line(t, line), tlb);
	}
	set_code_buffer(t, a->physical, tag);
}

/* --- invalidation by software --- */

static void forget_lines(struct timing *t)
{
	bytes_fill(t->data_line, 0, sizeof(t->data_line));
	bytes_fill(t->store_line, 0, sizeof(t->store_line));
	bytes_fill(t->code_line, 0, sizeof(t->code_line));
}

void timing_flush_line(struct timing *t, gpa_t physical)
{
	levels_drop(t, physical >> LINE_SHIFT);
	empty(t->data_line, t->store_line, timing_set(physical));
	t->code_line[timing_set(physical)] = 0;
}

void timing_flush_caches(struct timing *t)
{
	levels_empty(&t->l1d);
	levels_empty(&t->l1i);
	levels_empty(&t->l2);
	if (t->shared)
		coherence_empty(t);
	else
		levels_empty(&t->llc);
	forget_lines(t);
}

static bool is_page(u64 tag, gva_t linear)
{
	u8 shift = tag >> SIZE_SHIFT & MASK(SPACE_SHIFT - SIZE_SHIFT - 1, 0);
	u64 number = (tag & MASK(SIZE_SHIFT - 1, 0)) - 1;

	return tag && number == page_number(linear, shift);
}

static void flush_page(const struct timing_sets *s, gva_t linear)
{
	for (u64 i = 0; i < (u64)s->sets * s->ways; i++)
		while (is_page(s->tags[i], linear))
			sets_drop(s, i / s->ways, s->tags[i]);
}

void timing_flush_page(struct timing *t, gva_t linear)
{
	flush_page(&t->dtlb, linear);
	flush_page(&t->itlb, linear);
	flush_page(&t->stlb, linear);
	if (t->istlb.tags != t->stlb.tags)
		flush_page(&t->istlb, linear);
	walk_forget(t); /* SDM 3A 4.10.4.1: whatever the address */
	forget_lines(t);
}

void timing_flush_space(struct timing *t, u16 space)
{
	sets_drop_space(&t->dtlb, walk_owner(space));
	sets_drop_space(&t->itlb, walk_owner(space));
	sets_drop_space(&t->stlb, walk_owner(space));
	if (t->istlb.tags != t->stlb.tags)
		sets_drop_space(&t->istlb, walk_owner(space));
	walk_forget_space(t, space);
	forget_lines(t);
}

void timing_flush_tlbs(struct timing *t)
{
	levels_empty(&t->dtlb);
	levels_empty(&t->itlb);
	levels_empty(&t->stlb);
	levels_empty(&t->istlb);
	walk_forget(t);
	forget_lines(t);
}

void timing_switch_space(struct timing *t)
{
	forget_lines(t);
}
