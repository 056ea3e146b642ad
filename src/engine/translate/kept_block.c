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
 * values there; the process that recalls it makes the block's tables, fills the places in
 * (kept_fixup.h), and copies the code to the end of its own code memory, as if it had been emitted
 * there.
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
 *     physical one, for which there are fixups. Blocks of one instruction are kept if they are for
 *     one that has to be executed alone (MODE_STEP), as after a page fault, which leaves RF in the
 *     flags: the next guest has the same faults. Where a slice ends (MODE_SINGLE) is another
 *     place each time.
 *  4. Blocks of two pages are not kept, nor those that raise an exception instead of an
 *     instruction, whose length is not known.
 *  5. What is recalled before it is needed is what would be recalled then: the same key, the same
 *     comparisons, on a page that is verified.
 *  6. Code memory gets no byte of an entry before all of the entry has been checked: its hash, its
 *     key, what it was made of, and that no table or fixup leads out of it. Until then everything
 *     happens in the private copy.
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

/* What the keys of a page's blocks have in common, whatever else the page has on it. */
struct keyed_page {
	u64 circumstances[2]; /* their hash */
	u64 page, unused;     /* of RIP */
	u8 line[LINE];	      /* the first one */
};

_Static_assert(sizeof(struct circumstances) % 16 == 0 && sizeof(struct keyed_page) % 16 == 0,
	       "kept_hash()");

/* A kept block. The tables follow it in the order of the counts, then the code. */
struct kept_block {
	u64 circumstances[2];
	u64 rip;
	u32 mode;
	s32 rsp_moved;
	u16 code_size, source_size;
	u16 ninsns, nplaces;
	u8 nranges, nlinks, ncopies, nrecipes;
	u8 nbranches;
	u8 complex; /* number of the copy that is the last instruction, from 1; 0: none */
	bool hot, weighed;
	struct kept_fixups nfixups;
	u16 unused[2];
};

struct kept_link {
	u64 rip;
	u16 site, guard, stub; /* offsets in the code; guard 0: none */
	bool unshared;
};

/* The tables of a kept block, as they lie in the buffer. Those of a block in the code cache have
 * copies, weights, places and recipes as they are here. */
struct tables {
	struct kept_link *links;
	struct insn *copies;
	struct weight *weights;
	struct place *places;
	struct recipe *recipes;
	u16 *fixups;
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
	NEXT(fixups, k->nfixups.all);
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
	       !(mode & (MODE_SINGLE | MODE_LBR)) &&
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

/* Bytes of a page whose blocks have their first slots near each other. Seven blocks of such a part
 * are executed on average. */
#define PART	   256
#define PART_SHARE (PART / KEPT_NEAR)
#define PARTS	   (PAGE_SIZE / PART)

/*
 * Blocks of one page are looked up one after the other, so all have their slots in one page of the
 * index, those of a part in two lines that lie together; when another page is looked for its lines
 * are prefetched.
 * Pages of different programs at the same address are told apart by their first line. False: the
 * page cannot be read.
 */
static bool open_page(struct trans *t, const struct kept *kept)
{
	struct keyed_page k = { .circumstances = { t->circumstances[0], t->circumstances[1] },
				.page = t->block->rip & PAGE_MASK };

	if (!source_load(t, 0, LINE))
		return false;
	bytes_copy_words(k.line, t->source.copy[0]->bytes, LINE);
	kept_hash(&k, sizeof(k), t->page_key);
	if (t->eng->kept_page != t->page_key[0])
		kept_expect(kept, t->page_key[0], (t->block->rip & ~PAGE_MASK) / PART, PARTS);
	t->eng->kept_page = t->page_key[0];
	return true;
}

/* Of the block at this address of that page. False: it cannot be read. */
static bool make_key(struct trans *t, u64 rip, u64 key[2])
{
	u32 offset = rip & ~PAGE_MASK, line = offset & ~(LINE - 1);
	const u64 seed[2] = { kept_step(t->page_key[0], rip),
			      kept_step(t->page_key[1], neutral_mode(t->mode)) };

	if (!source_load(t, line, line + LINE))
		return false;
	kept_hash_from(seed, t->source.copy[0]->bytes + line, LINE, key);
	kept_near(key, t->page_key[0], offset / PART, offset % PART / PART_SHARE);
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

/* In its place: copying it would wait for what was stored in parts. */
static void set_head(const struct trans *t, struct kept_block *k)
{
	const struct block *b = t->block;

	k->circumstances[0] = t->circumstances[0];
	k->circumstances[1] = t->circumstances[1];
	k->rip = b->rip;
	k->mode = neutral_mode(b->mode);
	k->rsp_moved = b->rsp_moved;
	k->code_size = t->e.p - b->code;
	k->source_size = source_size(&t->source);
	k->ninsns = b->ninsns;
	k->nplaces = b->nplaces;
	k->nranges = t->source.nranges;
	k->nlinks = b->nlinks;
	k->ncopies = t->ncopies;
	k->nrecipes = b->nrecipes;
	k->nbranches = b->nbranches;
	k->complex = complex_number(t);
	k->hot = b->hot;
	k->weighed = b->weights;
	kept_fixup_count(&t->fixups, &k->nfixups);
	for (u32 i = 0; i < ARRAY_SIZE(k->unused); i++)
		k->unused[i] = 0;
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
		bytes_copy_short(p, s->copy[0]->bytes + s->range[i].from, n);
		p += n;
	}
}

/* The code with neutral values at its fixups. */
static void copy_code(const struct trans *t, const struct tables *to, u32 size)
{
	bytes_copy(to->code, t->block->code, size);
	kept_fixup_neutralize(t, (struct kept_code){ to->code, size }, to->fixups);
}

void kept_block_add(struct trans *t)
{
	struct kept_buffer *buffer = &t->eng->kept;
	struct kept_block *k = (struct kept_block *)buffer->body;
	const struct block *b = t->block;
	struct tables to;

	if (!keepable(t))
		return;
	set_head(t, k);
	to = tables_of(k);
	if (to.size > KEPT_BODY)
		return;
	copy_links(b, to.links);
	for (u32 i = 0; i < t->ncopies; i++)
		to.copies[i] = *t->copies[i];
	if (k->weighed)
		bytes_copy(to.weights, b->weights, k->ninsns * sizeof(*to.weights));
	bytes_copy_short(to.places, b->places, k->nplaces * sizeof(*to.places));
	bytes_copy_short(to.recipes, b->recipes, k->nrecipes * sizeof(*to.recipes));
	copy_source(t, &to);
	copy_code(t, &to, k->code_size);
	kept_add(t->cpu->port.kept, t->key, buffer, to.size);
}

/* --- recalling one --- */

/* Invariant 2. Notes the lines as used. */
static bool same_source(struct trans *t, const struct tables *from, const struct kept_block *k)
{
	const u8 *p = from->source, *end = p + k->source_size;
	u64 lines = 0;

	for (u32 i = 0; i < k->nranges; i++) {
		struct source_range r = from->ranges[i];
		u32 n = r.to - r.from;

		if (r.from >= r.to || r.to > PAGE_SIZE || n > (u64)(end - p) ||
		    !source_load(t, r.from, r.to) ||
		    !bytes_equal(p, t->source.copy[0]->bytes + r.from, n))
			return false;
		lines |= source_lines(r.from, r.to);
		p += n;
	}
	t->source.used[0] = lines;
	return k->nranges && from->ranges[0].from == (t->block->rip & ~PAGE_MASK);
}

/* Nothing in it leads out of its own tables; of fixups kept_fixup_fill_in() sees to that. */
static bool sound(const struct kept_block *k, const struct tables *from)
{
	if (!k->code_size || !k->ninsns || k->complex > k->ncopies)
		return false;
	for (u32 i = 0; i < k->nlinks; i++)
		if (from->links[i].site + 4u > k->code_size ||
		    from->links[i].guard + 4u > k->code_size || from->links[i].stub >= k->code_size)
			return false;
	return true;
}

static void make_link(const struct engine *eng, struct link *link, const struct kept_link *from,
		      u8 *code)
{
	trans_new_link(link, from->rip);
	link->site = code + from->site;
	link->guard = from->guard ? code + from->guard : NULL;
	link->stub = code + from->stub;
	link->unshared = from->unshared;
	*link_misses(eng, link) = 0;
}

static bool make_links(struct trans *t, const struct kept_block *k, const struct kept_link *from)
{
	struct link *link = cache_alloc(t->eng, k->nlinks * sizeof(*link));

	for (u32 i = 0; link && i < k->nlinks; i++)
		make_link(t->eng, &link[i], &from[i], t->block->code);
	t->block->nlinks = k->nlinks;
	t->block->link = link;
	return link;
}

/* Cycles count in none of the packed words. */
static bool make_charge(struct trans *t)
{
	static const u64 none[PACK_WORDS];

	t->block->charge = trans_keep(t, none, sizeof(none));
	return t->block->charge;
}

/* Where a table is in a copy of some of them. */
#define IN_COPY(table) ((void *)(copy + ((u8 *)from->table - (u8 *)from->copies)))

static bool make_tables(struct trans *t, const struct kept_block *k, const struct tables *from)
{
	struct block *b = t->block;
	u8 *copy = trans_keep(t, from->copies, (u8 *)from->fixups - (u8 *)from->copies);

	if (!copy || !make_links(t, k, from->links) || (k->weighed && !make_charge(t)))
		return false;
	t->copies[0] = IN_COPY(copies);
	t->ncopies = k->ncopies;
	b->weights = k->weighed ? IN_COPY(weights) : NULL;
	b->places = IN_COPY(places);
	b->recipes = IN_COPY(recipes);
	b->nplaces = k->nplaces;
	b->nrecipes = k->nrecipes;
	b->complex = k->complex ? t->copies[0] + k->complex - 1 : NULL;
	return true;
}

static void begin_block(struct trans *t, u64 rip, gpa_t gpa)
{
	trans_begin_block(t, rip, gpa);
	t->source.used[0] = 0;
	t->ncopies = 0;
}

/* As translate() makes one; false: a fixup is not sound, or the cache is full, which translating
 * will find again. */
static bool make_block(struct trans *t, const struct kept_block *k, const struct tables *from)
{
	const struct kept_code code = { from->code, k->code_size };
	struct block *b = t->block;

	if (!make_tables(t, k, from) || !kept_fixup_fill_in(t, code, &k->nfixups, from->fixups)) {
		begin_block(t, b->rip, b->gpa);
		return false;
	}
	bytes_copy(b->code, code.bytes, code.size);
	b->lines = t->source.used[0];
	b->ninsns = k->ninsns;
	b->nbranches = k->nbranches;
	b->rsp_moved = k->rsp_moved;
	b->hot = k->hot;
	t->eng->code_next = b->code + code.size;
	t->eng->blocks_recalled++;
	cache_insert(t->cpu, b);
	return true;
}

/* The block whose entry is in the buffer. */
static bool recall(struct trans *t)
{
	struct kept_buffer *buffer = &t->eng->kept;
	struct kept_block *k = (struct kept_block *)buffer->body;
	struct tables from;

	if (buffer->entry.size < sizeof(*k))
		return false;
	from = tables_of(k);
	return from.size == buffer->entry.size && k->circumstances[0] == t->circumstances[0] &&
	       k->circumstances[1] == t->circumstances[1] && k->rip == t->block->rip &&
	       k->mode == neutral_mode(t->mode) && sound(k, &from) && same_source(t, &from, k) &&
	       make_block(t, k, &from);
}

/* --- recalling what follows it --- */

/*
 * If a block is kept that a link of this one leads to, it was executed after it, and likely will be
 * again: it is recalled and linked now. Later it would cost a visit to the main loop, and another
 * look at all tables. An entry is in memory that nobody has read for long, so all of those are
 * asked for before the first one is copied.
 */

/* Blocks that are recalled beside the one that is needed, at most, and links that wait for one. */
#define FOLLOWING 8
#define WAITING	  24

struct follower {
	struct link *link;
	u64 key[2];
	struct kept_place place;
};

struct followers {
	gpa_t page;
	u32 n, recalled;
	struct follower waiting[WAITING];
};

static bool stays_on_page(const struct block *from, const struct link *link)
{
	return !link->guard && !link->unshared && !((link->rip ^ from->rip) & PAGE_MASK);
}

static gpa_t address_of(const struct followers *f, const struct link *link)
{
	return f->page | (link->rip & ~PAGE_MASK);
}

/* Sets links to what there is, and looks for what there could be. */
static void follow(struct trans *t, struct followers *f, const struct block *from)
{
	for (u32 i = 0; i < from->nlinks && f->n < WAITING; i++) {
		struct follower *next = &f->waiting[f->n];
		struct link *link = &from->link[i];
		struct block *to;

		if (!stays_on_page(from, link))
			continue;
		next->link = link;
		to = cache_find(t->cpu, link->rip, address_of(f, link), t->mode);
		if (to && to->gpa2 == NO_GPA)
			link_set(t->eng, link, to);
		else if (!to && make_key(t, link->rip, next->key))
			f->n += kept_expect_entry(t->cpu->port.kept, next->key, &next->place);
	}
}

/* NULL: it is not kept after all, or the cache is full. */
static struct block *recall_follower(struct trans *t, const struct follower *next, gpa_t gpa)
{
	struct engine *eng = t->eng;
	u8 *meta = eng->meta_next;

	if (!cache_room(eng) || !(t->block = cache_alloc_block(eng)))
		return NULL;
	begin_block(t, next->link->rip, gpa);
	if (kept_take(t->cpu->port.kept, next->key, &next->place, &eng->kept) && recall(t))
		return t->block;
	eng->meta_next = meta;
	return NULL;
}

static void recall_following(struct trans *t)
{
	struct block *first = t->block;
	struct followers f; /* not cleared: it is large */

	f.page = first->gpa & PAGE_MASK;
	f.n = f.recalled = 0;
	follow(t, &f, first);
	for (u32 i = 0; i < f.n; i++) {
		const struct follower *next = &f.waiting[i];
		gpa_t gpa = address_of(&f, next->link);
		/* Another link may have led to it. */
		struct block *to = cache_find(t->cpu, next->link->rip, gpa, t->mode);

		if (!to && f.recalled < FOLLOWING) {
			to = recall_follower(t, next, gpa);
			f.recalled += !!to;
			if (to)
				follow(t, &f, to);
		}
		if (to && to->gpa2 == NO_GPA)
			link_set(t->eng, next->link, to);
	}
	t->block = first;
}

bool kept_block_recall(struct trans *t)
{
	const struct kept *kept = t->cpu->port.kept;

	t->keeps = false;
	if (likely(!kept) || !kept_mode(t) || t->eng->profile)
		return false;
	hash_circumstances(t, kept);
	if (!open_page(t, kept) || !make_key(t, t->block->rip, t->key))
		return false;
	t->keeps = kept->news;
	fixups_clear(&t->fixups);
	t->e.fixups = t->keeps ? &t->fixups : NULL;
	/* Where one block was not kept, the next is not either. */
	if (t->eng->recall_failed)
		scan_expect(t);
	t->eng->recall_failed =
		t->eng->translating_hot || !kept_find(kept, t->key, &t->eng->kept) || !recall(t);
	if (t->eng->recall_failed)
		return false;
	if (!(t->mode & MODE_UNSHARED))
		recall_following(t);
	return true;
}
