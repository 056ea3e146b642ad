// SPDX-License-Identifier: MIT
/*
 * Looking up the rows of params.def, and timing_init(): the tags of all caches and TLBs that they
 * describe, laid out in memory that the caller maps; timing_set_last(), which makes the last level
 * smaller, and timing_set_life(), which gives it neighbours; and timing_set_full(), which switches
 * penalties on and off. Before the first run, and before observation begins.
 */
#include "timing/params.h"

#include "base/must.h"
#include "timing/first.h"
#include "timing/rings.h"

static const struct timing_params params[] = {
#define TIMING(...) { __VA_ARGS__ },
#include "timing/params.def"
#undef TIMING
};

const struct timing_params *timing_params_of(enum model_set set)
{
	for (u32 i = 0; i < ARRAY_SIZE(params); i++)
		if (params[i].set == set)
			return &params[i];
	must(!"a row for each model");
	return NULL;
}

static struct timing_sets cache_sets(const struct model_cache *cache)
{
	return (struct timing_sets){ .sets = cache->kbytes * 1024 / LINE_SIZE / cache->ways,
				     .ways = cache->ways };
}

static struct timing_sets tlb_sets(const struct timing_tlb_size *tlb)
{
	return (struct timing_sets){ .sets = tlb->ways ? tlb->entries / tlb->ways : 0,
				     .ways = tlb->ways };
}

#define NSETS 10

/* In the order of their addresses. */
static void layout(const struct model *model, struct timing_sets out[NSETS])
{
	const struct timing_params *p = timing_params_of(model->set);

	for (u32 i = 0; i < NCACHES; i++)
		out[i] = cache_sets(&model->cache[i]);
	out[NCACHES] = tlb_sets(&p->dtlb);
	out[NCACHES + 1] = tlb_sets(&p->itlb);
	out[NCACHES + 2] = tlb_sets(&p->stlb);
	out[NCACHES + 3] = tlb_sets(&p->istlb);
	out[NCACHES + 4] = (struct timing_sets){ .sets = 1, .ways = p->directory };
	out[NCACHES + 5] = (struct timing_sets){ .sets = 1, .ways = p->upper };
}

void timing_set_full(struct timing *t, bool full)
{
	t->costs = full && t->params ? penalty_params_of(t->params->set) : NULL;
}

static bool is_uneven(u32 sets)
{
	return sets & (sets - 1);
}

/* For ring_last(). */
static void set_last(struct timing_last *s, u32 sets)
{
	must(!is_uneven(sets) || sets < SETS_UNEVEN);
	s->sets = sets;
	s->inverse = is_uneven(sets) ? ~0ull / sets + 1 : 0;
	s->shift = __builtin_ctz(sets);
}

void timing_set_last(struct timing *t, u32 kbytes)
{
	u32 sets = kbytes * 1024u / LINE_SIZE / t->llc.ways / TIMING_LINES * TIMING_LINES;

	must(sets && sets <= t->llc.sets);
	set_last(&t->llc, sets);
}

void timing_set_life(struct timing *t, u32 cycles)
{
	t->llc_period = (u64)cycles * TICKS_PER_CYCLE / t->llc.ways;
}

static u64 ntags(const struct timing_sets *sets)
{
	return (u64)sets->sets * sets->ways;
}

static bool has_notes(u32 i)
{
	return i == CACHE_L1D || i == CACHE_L1I;
}

static size_t bytes_of_last(const struct timing_sets *sets)
{
	return sets->sets *
	       (LAST_PLACES * sizeof(u32) + sizeof(*((struct timing *)0)->llc_aged) + sizeof(u8));
}

size_t timing_memory(const struct model *model)
{
	struct timing_sets sets[NSETS];
	size_t n = 0;

	layout(model, sets);
	for (u32 i = 0; i < NSETS; i++)
		if (i != CACHE_L3)
			n += ntags(&sets[i]) +
			     (has_notes(i) ? ntags(&sets[i]) + (1 + FIRST_WORDS) * sets[i].sets
					   : 0);
	return n * sizeof(u64) + sets[CACHE_L2].sets + LINES_ALIKE + LINE_SIZE +
	       bytes_of_last(&sets[CACHE_L3]);
}

/* A set is a line of the host's cache. */
static void init_last(struct timing *t, const struct timing_sets *sets, void *memory)
{
	must(sets->ways <= LAST_PLACES);
	t->llc.ways = sets->ways;
	set_last(&t->llc, sets->sets);
	t->llc.tags = (u32 *)(((uintptr_t)memory + LINE_SIZE - 1) & ~(uintptr_t)(LINE_SIZE - 1));
	t->llc_aged = (u64 *)(t->llc.tags + (u64)sets->sets * LAST_PLACES);
	t->llc.youngest = (u8 *)(t->llc_aged + sets->sets);
}

void timing_init(struct timing *t, const struct model *model, void *memory, u64 *count)
{
	struct timing_sets sets[NSETS];
	u64 *next = memory;

	layout(model, sets);
	for (u32 i = 0; i < NSETS; i++) {
		if (i == CACHE_L3)
			continue;
		sets[i].tags = next;
		must(!is_uneven(sets[i].sets));
		next += ntags(&sets[i]);
		if (!has_notes(i))
			continue;
		sets[i].young = sets[i].ways * 3 / 4;
		sets[i].notes = next;
		next += ntags(&sets[i]);
		sets[i].order = next;
		next += sets[i].sets;
		sets[i].prints = next;
		next += FIRST_WORDS * sets[i].sets;
		must(sets[i].ways <= FIRST_WAYS);
	}
	sets[CACHE_L2].youngest = (u8 *)next;
	t->l2_alike = sets[CACHE_L2].youngest + sets[CACHE_L2].sets;
	init_last(t, &sets[CACHE_L3], t->l2_alike + LINES_ALIKE);
	/* Alike lines are of one set, so that a byte counts them. */
	must(sets[CACHE_L2].sets <= LINES_ALIKE);
	must(sets[CACHE_L1D].sets == TIMING_LINES && sets[CACHE_L1I].sets == TIMING_LINES);
	must(!(sets[CACHE_L2].sets % TIMING_LINES) && !(sets[CACHE_L3].sets % TIMING_LINES));
	t->params = timing_params_of(model->set);
	must(t->params->prefetch.rate <= PREFETCH_RATE);
	t->prefetch.kinds = t->params->prefetch.kinds;
	predict_init(&t->predict, &t->params->predict);
	t->count = count;
	/* XSNP_HITM; later it is XSNP_FWD, also clean lines that the last level did not have. */
	t->forwards = model->set == MODEL_SKYLAKE ? OBSERVED_SNOOP_MODIFIED : OBSERVED_SNOOP_CLEAN;
	t->l1d = sets[CACHE_L1D];
	t->l1i = sets[CACHE_L1I];
	t->l2 = sets[CACHE_L2];
	t->dtlb = sets[NCACHES];
	t->itlb = sets[NCACHES + 1];
	t->stlb = sets[NCACHES + 2];
	t->istlb = sets[NCACHES + 3].ways ? sets[NCACHES + 3] : t->stlb;
	t->directory = sets[NCACHES + 4];
	t->upper = sets[NCACHES + 5];
}
