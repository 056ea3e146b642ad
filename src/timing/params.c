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

/* For sets_of(). */
static void set_inverse(struct timing_sets *s)
{
	s->inverse = s->sets & (s->sets - 1) ? ~0ull / s->sets + 1 : 0;
	must(!s->inverse || s->sets < SETS_UNEVEN);
}

void timing_set_last(struct timing *t, u32 kbytes)
{
	u32 sets = kbytes * 1024u / LINE_SIZE / t->llc.ways / TIMING_LINES * TIMING_LINES;

	must(sets && sets <= t->llc.sets);
	t->llc.sets = sets;
	set_inverse(&t->llc);
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

size_t timing_memory(const struct model *model)
{
	struct timing_sets sets[NSETS];
	size_t n = 0;

	layout(model, sets);
	for (u32 i = 0; i < NSETS; i++)
		n += ntags(&sets[i]) +
		     (has_notes(i) ? ntags(&sets[i]) + (1 + FIRST_WORDS) * sets[i].sets : 0);
	return (n + sets[CACHE_L3].sets) * sizeof(u64);
}

void timing_init(struct timing *t, const struct model *model, void *memory, u64 *count)
{
	struct timing_sets sets[NSETS];
	u64 *next = memory;

	layout(model, sets);
	for (u32 i = 0; i < NSETS; i++) {
		sets[i].tags = next;
		set_inverse(&sets[i]);
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
	t->llc_aged = next;
	must(sets[CACHE_L1D].sets == TIMING_LINES && sets[CACHE_L1I].sets == TIMING_LINES);
	must(!(sets[CACHE_L2].sets % TIMING_LINES) && !(sets[CACHE_L3].sets % TIMING_LINES));
	t->params = timing_params_of(model->set);
	t->prefetch.kinds = t->params->prefetch.kinds;
	predict_init(&t->predict, &t->params->predict);
	t->count = count;
	/* XSNP_HITM; later it is XSNP_FWD, also clean lines that the last level did not have. */
	t->forwards = model->set == MODEL_SKYLAKE ? OBSERVED_SNOOP_MODIFIED : OBSERVED_SNOOP_CLEAN;
	t->l1d = sets[CACHE_L1D];
	t->l1i = sets[CACHE_L1I];
	t->l2 = sets[CACHE_L2];
	t->llc = sets[CACHE_L3];
	t->dtlb = sets[NCACHES];
	t->itlb = sets[NCACHES + 1];
	t->stlb = sets[NCACHES + 2];
	t->istlb = sets[NCACHES + 3].ways ? sets[NCACHES + 3] : t->stlb;
	t->directory = sets[NCACHES + 4];
	t->upper = sets[NCACHES + 5];
}
