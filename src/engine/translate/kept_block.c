// SPDX-License-Identifier: MIT
/*
 * Blocks that outlive their process (base/kept.h).
 *
 * The problem. Most code that a program executes when it is started is executed a few times, and
 * translating it takes longer than executing it; the next start translates the same code again. The
 * emitted code is not the same in two processes, though: it has addresses of tables and thunks in
 * it, and numbers of blocks.
 *
 * The idea. The emitter notes the few places that differ (struct fixup). A kept block has neutral
 * values there; the process that recalls it copies the code to the end of its own code memory, as
 * if it had been emitted there, makes the block's tables, and fills the places in (kept_fixup.h).
 * From then on it is a block like all others, for which the invariants of code_check.h and
 * code_cache.c hold.
 *
 * Invariants:
 *
 *  1. The key is a hash of everything that the translation of some bytes depends on: RIP, mode, all
 *     that the emitters ask of the processor and of the host (struct circumstances), and the build,
 *     which stands for the translator itself and the layout of every struct. What is added to the
 *     translator's questions must be added to struct circumstances. A guest that knows the hash can
 *     choose bytes whose keys are equal in different circumstances: so these have a hash of their
 *     own, of nothing that a guest chooses, and it is compared, as RIP and mode are.
 *  2. The bytes are not in it but for two lines: the block has all bytes that decoding has read, in
 *     ranges, and is recalled only if the copy of the page (source.c) has the same in all of them.
 *  3. Modes are kept whose code depends on nothing that changes while a processor runs:
 *     kept_mode(). What one counts has its constants in the block, and its mode in the key. Other
 *     counts than that of cycles have sets with numbers of this process. What is shown to the
 *     timing model is known by its linear address, which is in the key, and lines of code by their
 *     physical one, for which there are fixups.
 *  4. Blocks of two pages are not kept, nor those that raise an exception instead of an
 *     instruction, whose length is not known.
 *  5. What is recalled before it is needed is what would be recalled then: the same key, the same
 *     comparisons, on a page that is verified.
 *
 * A hot block replaces the one that it was made of, and is recalled as it is: which way it follows
 * branches is a guess that changes no result.
 */
#include "base/bytes.h"
#include "base/kept.h"
#include "cpu/mmu/mmu.h"
#include "engine/translate/kept_fixup.h"
#include "engine/translate/trans.h"

#define LINE 64

struct circumstances {
	u64 build[2];
	u64 features[FEATURE_WORDS + (FEATURE_WORDS & 1)];
	u64 foreign_rules;
	u64 thunks; /* size of all; where they are follows from it and the build */
	u32 linear_bits, model;
	bool is_amd, avx512, harden, seeded, full_timing, has_rorx;
	bool shared_caches; /* stores look elsewhere: emit_observe.c */
	bool unused;
};

/* What the key is the hash of. */
struct keyed {
	u64 circumstances[2]; /* their hash */
	u64 rip, mode;
	u8 line[LINE]; /* in which the block begins */
};

/* What the blocks of a page have in common, whatever else the page has on it. */
struct keyed_page {
	u64 circumstances[2];
	u64 page, unused; /* of RIP */
	u8 line[LINE];	  /* the first one */
};

_Static_assert(sizeof(struct circumstances) % 16 == 0 && sizeof(struct keyed) % 16 == 0 &&
		       sizeof(struct keyed_page) % 16 == 0,
	       "kept_hash()");

/* A kept block. The tables follow it in the order of the counts, then the code. */
struct kept_block {
	u64 circumstances[2];
	u64 rip;
	u32 mode;
	s32 rsp_moved;
	u16 code_size, source_size;
	u16 ninsns, nfixups, nplaces;
	u8 nranges, nlinks, ncopies, nrecipes;
	u8 nbranches;
	u8 complex; /* number of the copy that is the last instruction, from 1; 0: none */
	bool hot, weighed;
};

struct kept_link {
	u64 rip;
	u16 site, guard, stub; /* offsets in the code; guard 0: none */
	bool unshared;
};

/* The tables of a kept block, as they lie in the buffer. */
struct tables {
	struct kept_link *links;
	struct insn *copies;
	struct weight *weights;
	struct place *places;
	struct recipe *recipes;
	struct fixup *fixups;
	struct source_range *ranges;
	u8 *source, *code;
	u64 size; /* of all, the head included */
};

/* Tables are aligned by their order: the ones with larger elements come first. */
static struct tables tables_of(struct kept_block *k)
{
	u8 *p = (u8 *)(k + 1);
	struct tables t;

#define NEXT(table, n) (t.table = (void *)p, p += (n) * sizeof(*t.table))
	NEXT(links, k->nlinks);
	NEXT(copies, k->ncopies);
	NEXT(weights, k->weighed ? k->ninsns : 0);
	NEXT(places, k->nplaces);
	NEXT(recipes, k->nrecipes);
	NEXT(fixups, k->nfixups);
	NEXT(ranges, k->nranges);
	NEXT(source, k->source_size);
	NEXT(code, k->code_size);
#undef NEXT
	t.size = p - (u8 *)k;
	return t;
}

_Static_assert(sizeof(struct kept_block) % 8 == 0 && sizeof(struct kept_link) % 8 == 0 &&
		       sizeof(struct insn) % 8 == 0 && sizeof(struct weight) % 4 == 0 &&
		       sizeof(struct place) % 4 == 0 && sizeof(struct recipe) % 4 == 0,
	       "tables_of()");

/* Misses of branches are counted by the timing model: blocks of a set of these alone are those of
 * the empty set. */
#define KEPT_COUNTS (RETIRE_BIT(RETIRE_CYCLES) | OBSERVED_IN_BRANCHES)

/* Invariant 3. */
static bool kept_mode(const struct trans *t)
{
	u32 mode = t->mode;

	return (mode & MODE_CODE64) && !(cpu_counts(t->cpu, mode) & ~KEPT_COUNTS) &&
	       !(mode & (MODE_STEP | MODE_SINGLE | MODE_LBR)) &&
	       (!(mode & MODE_OBSERVE_MEMORY) || kept_fixup_lines_fit(t->block->gpa));
}

/* The mode without the number of a set, which is one of this process. */
static u32 neutral_mode(u32 mode)
{
	return mode & ~(u32)MASK(31, MODE_COUNT_SHIFT);
}

static void hash_circumstances(struct trans *t, const struct kept *kept)
{
	const struct cpu *cpu = t->cpu;
	struct circumstances c = {
		.build = { kept->build[0], kept->build[1] },
		.foreign_rules = cpu->port.foreign_rules,
		.thunks = t->eng->code_first - t->eng->code_rw,
		.linear_bits = cpu_linear_bits(cpu),
		.model = cpu->port.model ? cpu->port.model->set : MODEL_ICELAKE,
		.is_amd = cpu->is_amd,
		.avx512 = cpu_avx512(cpu),
		.harden = cpu->port.harden,
		.seeded = cpu->port.seeded,
		.full_timing = cpu->port.full_timing,
		.has_rorx = t->eng->has_rorx,
		.shared_caches = (t->mode & MODE_OBSERVE_MEMORY) && cpu_priv(cpu)->timing.shared,
	};

	for (u32 i = 0; i < FEATURE_WORDS; i++)
		c.features[i] = cpu->features[i];
	kept_hash(&c, sizeof(c), t->circumstances);
}

/* Bytes of a page whose blocks have their first slots in one line of the index. Three blocks of
 * such a part are executed on average, so that lines are filled evenly. */
#define PART	   256
#define PART_SHARE (PART / KEPT_LINE)

static u64 part_hash(u64 page, u32 offset)
{
	return (page + offset / PART * 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull >> 32;
}

/*
 * Blocks of one page are looked up one after the other, so those of a part have slots in one line
 * of the index, and when a page is first looked for the lines of all its parts are prefetched.
 * Pages of different programs at the same address are told apart by their first line.
 */
static void choose_slot(struct trans *t, const struct kept *kept, const u8 *page)
{
	struct keyed_page k = { .circumstances = { t->circumstances[0], t->circumstances[1] },
				.page = t->block->rip & PAGE_MASK };
	u32 offset = t->block->rip & ~PAGE_MASK;
	u64 hash[2];

	bytes_copy_words(k.line, page, LINE);
	kept_hash(&k, sizeof(k), hash);
	kept_near(t->key, part_hash(hash[0], offset), offset % PART / PART_SHARE);
	for (u32 i = 0; t->eng->kept_page != hash[0] && i < PAGE_SIZE; i += PART)
		kept_expect(kept, part_hash(hash[0], i));
	t->eng->kept_page = hash[0];
}

/* False: the page cannot be read. */
static bool make_key(struct trans *t, const struct kept *kept)
{
	u32 line = (t->block->rip & ~PAGE_MASK) & ~(LINE - 1);
	const u8 *page = t->source.copy[0]->bytes;
	struct keyed k = { .circumstances = { t->circumstances[0], t->circumstances[1] },
			   .rip = t->block->rip,
			   .mode = neutral_mode(t->mode) };

	if (!source_load(t, 0, LINE) || !source_load(t, line, line + LINE))
		return false;
	bytes_copy_words(k.line, page + line, LINE);
	kept_hash(&k, sizeof(k), t->key);
	choose_slot(t, kept, page);
	return true;
}

/* --- keeping a block --- */

static bool keepable(const struct trans *t)
{
	const struct source *s = &t->source;

	for (u32 i = 0; i < t->nscan; i++)
		if (t->scan[i].vector >= 0)
			return false;
	return t->block->gpa2 == NO_GPA && s->nranges && !s->many_ranges && !t->fixups.lost &&
	       t->nplaces <= 0xffff && t->e.p - t->block->code <= 0xffff;
}

static u32 source_size(const struct source *s)
{
	u32 n = 0;

	for (u32 i = 0; i < s->nranges; i++)
		n += s->range[i].to - s->range[i].from;
	return n;
}

static u8 complex_number(const struct trans *t)
{
	for (u32 i = 0; i < t->ncopies; i++)
		if (t->copies[i] == t->block->complex)
			return i + 1;
	return 0;
}

static struct kept_block head_of(const struct trans *t)
{
	const struct block *b = t->block;

	return (struct kept_block){ .circumstances = { t->circumstances[0], t->circumstances[1] },
				    .rip = b->rip,
				    .mode = neutral_mode(b->mode),
				    .rsp_moved = b->rsp_moved,
				    .code_size = t->e.p - b->code,
				    .source_size = source_size(&t->source),
				    .ninsns = b->ninsns,
				    .nfixups = t->fixups.n,
				    .nplaces = b->nplaces,
				    .nranges = t->source.nranges,
				    .nlinks = b->nlinks,
				    .ncopies = t->ncopies,
				    .nrecipes = b->nrecipes,
				    .nbranches = b->nbranches,
				    .complex = complex_number(t),
				    .hot = b->hot,
				    .weighed = b->weights };
}

static void copy_links(const struct block *b, struct kept_link *to)
{
	for (u32 i = 0; i < b->nlinks; i++) {
		const struct link *link = &b->link[i];

		to[i] = (struct kept_link){ .rip = link->rip,
					    .site = link->site - b->code,
					    .guard = link->guard ? link->guard - b->code : 0,
					    .stub = link->stub - b->code,
					    .unshared = link->unshared };
	}
}

static void copy_source(const struct trans *t, const struct tables *to)
{
	const struct source *s = &t->source;
	u8 *p = to->source;

	for (u32 i = 0; i < s->nranges; i++) {
		u32 n = s->range[i].to - s->range[i].from;

		to->ranges[i] = s->range[i];
		bytes_copy(p, s->copy[0]->bytes + s->range[i].from, n);
		p += n;
	}
}

/* The code with neutral values at its fixups. */
static void copy_code(const struct trans *t, const struct tables *to, u32 size)
{
	bytes_copy(to->code, t->block->code, size);
	for (u32 i = 0; i < t->fixups.n; i++) {
		to->fixups[i] = t->fixups.fixup[i];
		kept_fixup_neutralize(t, &to->fixups[i], to->code);
	}
}

void kept_block_add(struct trans *t)
{
	struct kept_buffer *buffer = &t->eng->kept;
	struct kept_block *k = (struct kept_block *)buffer->body, head;
	const struct block *b = t->block;
	struct tables to;

	if (!keepable(t))
		return;
	head = head_of(t);
	if (tables_of(&head).size > KEPT_BODY)
		return;
	*k = head;
	to = tables_of(k);
	copy_links(b, to.links);
	for (u32 i = 0; i < t->ncopies; i++)
		to.copies[i] = *t->copies[i];
	if (k->weighed)
		bytes_copy(to.weights, b->weights, k->ninsns * sizeof(*to.weights));
	bytes_copy(to.places, b->places, k->nplaces * sizeof(*to.places));
	bytes_copy(to.recipes, b->recipes, k->nrecipes * sizeof(*to.recipes));
	copy_source(t, &to);
	copy_code(t, &to, k->code_size);
	kept_add(t->cpu->port.kept, t->key, buffer, to.size);
}

/* --- recalling one --- */

/* Invariant 2. */
static bool same_source(struct trans *t, const struct tables *from, const struct kept_block *k)
{
	const u8 *p = from->source, *end = p + k->source_size;

	for (u32 i = 0; i < k->nranges; i++) {
		struct source_range r = from->ranges[i];
		u32 n = r.to - r.from;

		if (r.from >= r.to || r.to > PAGE_SIZE || n > (u64)(end - p) ||
		    !source_load(t, r.from, r.to) ||
		    !bytes_equal(p, t->source.copy[0]->bytes + r.from, n))
			return false;
		p += n;
	}
	return k->nranges && from->ranges[0].from == (t->block->rip & ~PAGE_MASK);
}

/* Nothing in it leads out of its own tables. */
static bool sound(const struct kept_block *k, const struct tables *from)
{
	const struct fixup_bounds bounds = { k->code_size, k->ncopies, k->nlinks };

	if (!k->code_size || !k->ninsns || k->complex > k->ncopies)
		return false;
	for (u32 i = 0; i < k->nfixups; i++)
		if (!kept_fixup_sound(&from->fixups[i], &bounds))
			return false;
	for (u32 i = 0; i < k->nlinks; i++)
		if (from->links[i].site + 4u > k->code_size ||
		    from->links[i].guard + 4u > k->code_size || from->links[i].stub >= k->code_size)
			return false;
	return true;
}

static bool make_links(struct trans *t, const struct kept_block *k, const struct kept_link *from)
{
	struct block *b = t->block;

	b->nlinks = k->nlinks;
	b->link = cache_alloc(t->eng, k->nlinks * sizeof(*b->link));
	for (u32 i = 0; b->link && i < k->nlinks; i++)
		b->link[i] = (struct link){ .site = b->code + from[i].site,
					    .guard = from[i].guard ? b->code + from[i].guard : NULL,
					    .stub = b->code + from[i].stub,
					    .rip = from[i].rip,
					    .unshared = from[i].unshared };
	return b->link;
}

/* Cycles count in none of the packed words. */
static bool make_weights(struct trans *t, const struct kept_block *k, const struct weight *from)
{
	static const u64 none[PACK_WORDS];
	struct block *b = t->block;

	if (!k->weighed)
		return true;
	b->weights = trans_keep(t, from, k->ninsns * sizeof(*from));
	b->charge = trans_keep(t, none, sizeof(none));
	return b->weights && b->charge;
}

static bool make_tables(struct trans *t, const struct kept_block *k, const struct tables *from)
{
	struct block *b = t->block;

	t->copies[0] = trans_keep(t, from->copies, k->ncopies * sizeof(*from->copies));
	b->places = trans_keep(t, from->places, k->nplaces * sizeof(*from->places));
	b->recipes = trans_keep(t, from->recipes, k->nrecipes * sizeof(*from->recipes));
	b->nplaces = k->nplaces;
	b->nrecipes = k->nrecipes;
	b->complex = k->complex ? t->copies[0] + k->complex - 1 : NULL;
	return t->copies[0] && b->places && b->recipes && make_links(t, k, from->links) &&
	       make_weights(t, k, from->weights);
}

/* As translate() makes one; false: the cache is full, which translating will find again. */
static bool make_block(struct trans *t, const struct kept_block *k, const struct tables *from)
{
	struct block *b = t->block, empty = *b;

	if (!make_tables(t, k, from)) {
		*b = empty;
		return false;
	}
	bytes_copy(b->code, from->code, k->code_size);
	for (u32 i = 0; i < k->nfixups; i++)
		kept_fixup_fill_in(t, &from->fixups[i]);
	for (u32 i = 0; i < k->nranges; i++)
		source_use(t, from->ranges[i].from, from->ranges[i].to);
	b->lines = t->source.used[0];
	b->ninsns = k->ninsns;
	b->nbranches = k->nbranches;
	b->rsp_moved = k->rsp_moved;
	b->hot = k->hot;
	b->until_hot = t->eng->hot_after;
	t->eng->code_next = b->code + k->code_size;
	t->eng->blocks_recalled++;
	cache_insert(t->cpu, b);
	return true;
}

typedef bool find_fn(const struct kept *, const u64 key[2], struct kept_buffer *);

static bool recall(struct trans *t, const struct kept *kept, find_fn *find)
{
	struct kept_buffer *buffer = &t->eng->kept;
	struct kept_block *k = (struct kept_block *)buffer->body;
	struct tables from;

	if (!find(kept, t->key, buffer) || buffer->entry.size < sizeof(*k))
		return false;
	from = tables_of(k);
	return from.size == buffer->entry.size && k->circumstances[0] == t->circumstances[0] &&
	       k->circumstances[1] == t->circumstances[1] && k->rip == t->block->rip &&
	       k->mode == neutral_mode(t->mode) && sound(k, &from) && same_source(t, &from, k) &&
	       make_block(t, k, &from);
}

/* --- recalling what follows it --- */

/* Blocks that are recalled beside the one that is needed, at most. */
#define FOLLOWING 8

/* The block at this address of the page; NULL: it is not kept, or the cache is full. */
static struct block *recall_ahead(struct trans *t, u64 rip, gpa_t gpa)
{
	const struct kept *kept = t->cpu->port.kept;
	struct engine *eng = t->eng;
	u8 *meta = eng->meta_next;

	if (!cache_room(eng) || !(t->block = cache_alloc_block(eng)))
		return NULL;
	*t->block = (struct block){ .rip = rip,
				    .gpa = gpa,
				    .gpa2 = NO_GPA,
				    .mode = t->mode,
				    .limit = code_limit(t->cpu, t->mode),
				    .code = eng->code_next };
	t->source.used[0] = 0;
	if (make_key(t, kept) && recall(t, kept, kept_find_ahead))
		return t->block;
	eng->meta_next = meta;
	return NULL;
}

static bool stays_on_page(const struct block *from, const struct link *link)
{
	return !link->guard && !link->unshared && !((link->rip ^ from->rip) & PAGE_MASK);
}

/*
 * If a block is kept that a link of this one leads to, it was executed after it, and likely will be
 * again: it is recalled and linked now. Later it would cost a visit to the main loop, and another
 * look at all tables.
 */
static void recall_following(struct trans *t)
{
	struct block *queue[1 + FOLLOWING] = { t->block };
	u32 n = 1;

	for (u32 i = 0; i < n; i++) {
		for (u32 k = 0; k < queue[i]->nlinks; k++) {
			struct link *link = &queue[i]->link[k];
			gpa_t gpa = (queue[i]->gpa & PAGE_MASK) | (link->rip & ~PAGE_MASK);
			struct block *to;

			if (!stays_on_page(queue[i], link))
				continue;
			to = cache_find(t->cpu, link->rip, gpa, t->mode);
			if (!to && n < ARRAY_SIZE(queue)) {
				to = queue[n] = recall_ahead(t, link->rip, gpa);
				n += !!to;
			}
			if (to && to->gpa2 == NO_GPA)
				link_set(t->eng, link, to);
		}
	}
	t->block = queue[0];
}

bool kept_block_recall(struct trans *t)
{
	const struct kept *kept = t->cpu->port.kept;

	t->keeps = false;
	if (likely(!kept) || !kept_mode(t) || t->eng->profile)
		return false;
	hash_circumstances(t, kept);
	if (!make_key(t, kept))
		return false;
	t->keeps = kept->news;
	t->fixups.n = 0;
	t->fixups.lost = false;
	t->e.fixups = t->keeps ? &t->fixups : NULL;
	if (t->eng->translating_hot || !recall(t, kept, kept_find))
		return false;
	if (!(t->mode & MODE_UNSHARED))
		recall_following(t);
	return true;
}
