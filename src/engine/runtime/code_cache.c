// SPDX-License-Identifier: MIT
/*
 * The code cache of one processor: code memory, translation blocks by address, the links between
 * them, and the bytes that they were made from.
 *
 * The problem. A guest may change its code at any time: by its own stores, by those of another
 * vCPU, of the program that runs the VM, of a device. A block made from old bytes must not be
 * entered where a processor would execute the new ones: at once after its own stores, after an
 * interrupt or a serializing instruction for stores of others (SDM 3A 8.1.3). There is no page
 * protection to catch such stores, comparing all code each time would be far too slow, and no block
 * may vanish while it runs.
 *
 * The idea. Blocks are made from a copy of their page (struct page_copy), so that "has it changed?"
 * is a comparison of 64-byte lines. What has to be compared depends on who can write:
 *
 *   this processor    its TLB has no write tag for a page with code, so that every store to one
 *                     takes the slow path, which notes the lines (cpu/mmu/code_pages.h);
 *                     cache_written() drops their blocks before the next block is entered
 *   other processors  a page with code is *claimed* in its memory slot (cpu/mmu/shared_code.h).
 *                     They store to claimed pages on their slow paths as well, and count that
 *   program, devices  whatever comes from outside of the machine is counted, too; but a device that
 *                     says which pages it wrote only if one of them is claimed
 *
 * Where the guest may rely on seeing new code, an *epoch* begins if one of these counts has grown
 * (cache_check_shared(), jump_cache.c). A page is then compared the first time it is entered in the
 * epoch, or at once if the jump cache leads to it.
 *
 * Memory is simple: code and tables are bump-allocated, nothing is freed on its own, and a full
 * cache is flushed as a whole. Code memory is mapped twice, writable and executable, never both at
 * one address.
 *
 * Invariants, besides those of code_check.h:
 *
 *  1. What is compared is what was translated: decoding reads page copies only, and a line of a
 *     copy is refreshed only while no live block was made from it.
 *  2. code_page.lines has every line that a live block of the page was made from, and maybe more.
 *  3. A page whose lines are not 0 is claimed, and no TLB entry of this processor has a write tag
 *     for it, nor for another guest physical address of its host memory (mem_next_alias()).
 *  4. A claim counts as noticed once every other processor has acknowledged it. Until then it is on
 *     the list engine->unacked[], or its number is at most engine->unacked_overflow, and the page
 *     is compared whenever code may have changed; once at least, after the claim, so that what a
 *     device wrote between the reading and the claim is found (vm/irq/written.c).
 *  5. A page is entered only after it was compared in the last epoch that concerns its code
 *     (page_verified()). None is due for the space whose code runs (epoch_begin_due()).
 *  6. Blocks are dropped and the cache is flushed between two visits to translated code only
 *     (code_check.h, 3): a running block may jump to any other, and its tables say where it is. C
 *     that translated code calls marks what is to be done (priv->code, engine->check_pending);
 *     update_cache() does it before the next entry.
 *  7. The memory of a dropped block stays readable until the next flush: page lists still hold it,
 *     marked by block_dropped().
 *
 * vCPU thread; general registers only.
 */
#include "engine/code_check.h"
#include "engine/jump_cache.h"
#include "engine/priv.h"

#include "base/bytes.h"
#include "base/guarded.h"
#include "base/must.h"
#include "cpu/mmu/tlb.h"
#include "cpu/mmu/shared_code.h"

/* Room that one translation may take; the cache counts as full below it. */
#define CODE_RESERVE (64u << 10)
#define META_RESERVE (64u << 10)
#define LINE	     64

bool cache_room(const struct engine *eng)
{
	return eng->code_next + CODE_RESERVE < eng->code_limit &&
	       eng->meta_next + META_RESERVE < eng->meta_limit && eng->nblocks < MAX_BLOCKS;
}

void *cache_alloc(struct engine *eng, size_t size)
{
	u8 *p = eng->meta_next;

	size = (size + 15) & ~(size_t)15;
	if (size > (size_t)(eng->meta_limit - p))
		return NULL;
	eng->meta_next += size;
	return p;
}

/* Each begins a line of the host's cache. */
struct block *cache_alloc_block(struct engine *eng)
{
	size_t skip = -(uintptr_t)eng->meta_next % LINE;

	if (skip && !cache_alloc(eng, skip))
		return NULL;
	return cache_alloc(eng, sizeof(struct block));
}

/* A translation that was abandoned may have written into the room for the next one. */
static u8 *written_limit(const struct engine *eng)
{
	size_t room = eng->code_limit - eng->code_next;

	return eng->code_next + (room < CODE_RESERVE ? room : CODE_RESERVE);
}

void cache_flush(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct engine *eng = cpu->engine;

	must(!eng->in_translated_code);
	for (u32 i = 0; i < ARRAY_SIZE(priv->code->page); i++)
		if (priv->code->page[i].claim)
			shared_release(cpu, &priv->code->page[i]);
	eng->nunacked = eng->unacked_overflow = 0;
	check_dead(eng, eng->code_first, written_limit(eng));
	eng->code_next = eng->code_first;
	eng->meta_next = eng->meta;
	block_hash_clear(eng);
	eng->nblocks = 0;
	eng->flushes++;
	eng->blocks_dropped++;
	returns_invalidate(eng);
	code_clear(priv->code);
	jump_clear(cpu);
	cpu_drop_jumps(cpu);
}

/* The number of the block that this host code belongs to. */
static u32 number_of(const struct engine *eng, const u8 *host_pc)
{
	u64 offset = host_pc - eng->code_rx;
	u32 lo = 0, hi = eng->nblocks;

	while (hi - lo > 1) {
		u32 mid = (lo + hi) / 2;

		if (eng->code_starts[mid] <= offset)
			lo = mid;
		else
			hi = mid;
	}
	return lo;
}

bool cache_holds(const struct engine *eng, u64 host_pc)
{
	return host_pc >= (u64)(uintptr_t)exec_view(eng, eng->code_first) &&
	       host_pc < (u64)(uintptr_t)exec_view(eng, eng->code_next);
}

struct block *cache_by_code(const struct engine *eng, const u8 *host_pc)
{
	return eng->by_address[number_of(eng, host_pc)];
}

static u8 *end_of(const struct engine *eng, const struct block *block)
{
	u32 next = number_of(eng, exec_view(eng, block->code)) + 1;

	return next < eng->nblocks ? eng->by_address[next]->code : eng->code_next;
}

/* Links: jumps from block to block. */

static void patch(const struct link *link, const u8 *target)
{
	*(s32_unaligned *)link->site = target - (link->site + 4);
}

void link_set(const struct engine *eng, struct link *link, struct block *to)
{
	if (CHECKING) {
		check_live(eng, to->code);
		check_live(eng, cache_by_code(eng, exec_view(eng, link->site))->code);
	}
	link->to = to;
	link->next_in = to->links_in;
	link->prev_in = &to->links_in;
	if (link->next_in)
		link->next_in->prev_in = &link->next_in;
	to->links_in = link;
	patch(link, to->code);
}

static void unlink_out(struct link *link)
{
	if (!link->to)
		return;
	*link->prev_in = link->next_in;
	if (link->next_in)
		link->next_in->prev_in = link->prev_in;
	link->to = NULL;
}

/* It has no target; the next execution links it again. */
static void cut(const struct engine *eng, struct link *link)
{
	patch(link, link->stub);
	link->to = NULL;
	*link_misses(eng, link) = 0;
}

#define GUARD_MISSES_SHIFT     3
#define GUARD_MISSES_SHIFT_MAX 6

void link_renew(const struct cpu *cpu, struct link *link, struct block *to)
{
	u32 mapping = jump_mapping_of(cpu, to);

	*link_misses(cpu->engine, link) = 1 << GUARD_MISSES_SHIFT_MAX;
	if (!mapping)
		return;
	if (link->to != to) {
		unlink_out(link);
		link_set(cpu->engine, link, to);
	}
	*(u32_unaligned *)link->guard = mapping;
	link->times_linked += link->times_linked < GUARD_MISSES_SHIFT_MAX - GUARD_MISSES_SHIFT;
	*link_misses(cpu->engine, link) = 1 << (link->times_linked + GUARD_MISSES_SHIFT);
}

static void unlink_in(const struct engine *eng, struct block *block)
{
	struct link *link = block->links_in;

	for (; link; link = link->next_in)
		cut(eng, link);
	block->links_in = NULL;
}

/* Pages: which blocks were made from them, and of what bytes. */

struct page_copy *cache_page(struct cpu *cpu, gpa_t gpa)
{
	struct code_page *page = code_add(cpu_priv(cpu)->code, gpa);

	if (!page)
		return NULL;
	if (!page->blocks) {
		struct page_copy *copy = cache_alloc(cpu->engine, sizeof(*copy));

		if (!copy)
			return NULL;
		copy->blocks = NULL;
		page->blocks = copy;
		page->epoch = cpu->engine->epoch;
	}
	return page->blocks;
}

static struct block **next_on_page(struct block *b, gpa_t page)
{
	return (b->gpa & PAGE_MASK) == page ? &b->next_page : &b->next_page2;
}

static u64 lines_on_page(const struct block *b, gpa_t page)
{
	return (b->gpa & PAGE_MASK) == page ? b->lines : b->lines2;
}

static void note_unacked(struct engine *eng, struct code_page *cp, u64 number)
{
	if (eng->nunacked == UNACKED_MAX) { /* all of these are then known by the last number */
		eng->unacked_overflow = eng->unacked[UNACKED_MAX - 1].number;
		eng->nunacked = 0;
	}
	eng->unacked[eng->nunacked++] = (struct unacked_claim){ cp, number };
}

/* Invariants 3 and 4. Once all processors have acknowledged it, each store to it is noticed. */
static void claim(struct cpu *cpu, struct code_page *cp)
{
	u64 number = shared_claim(cpu, cp);

	tlb_protect(cpu, (cp->gfn_plus_1 - 1) << PAGE_SHIFT);
	if (!number)
		return;
	shared_acknowledge_own(cpu, number);
	note_unacked(cpu->engine, cp, number);
}

static void set_lines(struct cpu *cpu, struct code_page *cp, u64 lines)
{
	if (cp->lines && !lines)
		shared_release(cpu, cp);
	cp->lines = lines;
}

static void add_to_page(struct cpu *cpu, struct block *block, gpa_t page)
{
	struct code_page *cp = code_find(cpu_priv(cpu)->code, page);
	struct page_copy *copy = cp->blocks;

	if (!cp->lines)
		claim(cpu, cp);
	cp->lines |= lines_on_page(block, page);
	*next_on_page(block, page) = copy->blocks;
	copy->blocks = block;
}

void cache_insert(struct cpu *cpu, struct block *block)
{
	struct engine *eng = cpu->engine;

	block_hash_add(eng, block);
	check_enterable(eng, block->code);
	block->number = eng->nblocks;
	eng->code_starts[block->number] = block->code - eng->code_rw;
	eng->until_hot[block->number] = eng->hot_after;
	eng->by_address[eng->nblocks++] = block;
	/* Neighbours in linear memory may be one page. */
	if (block->gpa2 == (block->gpa & PAGE_MASK))
		block->lines |= block->lines2;
	else if (block->gpa2 != NO_GPA)
		add_to_page(cpu, block, block->gpa2);
	add_to_page(cpu, block, block->gpa & PAGE_MASK);
}

/*
 * Takes a block out of everything but the lists of its pages, where finding it would take longer
 * than all the rest: there it remains, made from no lines (invariant 7), until drop_lines() removes
 * it. Until then lines that it alone was made from are watched for nothing.
 */
void cache_drop(struct cpu *cpu, struct block *block)
{
	must(!cpu->engine->in_translated_code);
	if (block_dropped(block))
		return;
	block_hash_remove(cpu->engine, block);
	jump_remove(cpu, block);
	returns_invalidate(cpu->engine);
	unlink_in(cpu->engine, block);
	for (u32 i = 0; i < block->nlinks; i++)
		unlink_out(&block->link[i]);
	block->lines = block->lines2 = 0;
	cpu->engine->blocks_dropped++;
	cpu->engine->single_drops++;
	if (CHECKING)
		check_dead(cpu->engine, block->code, end_of(cpu->engine, block));
}

static void drop_lines(struct cpu *cpu, struct code_page *cp, gpa_t page, u64 lines)
{
	struct page_copy *copy = cp->blocks;
	struct block **p = &copy->blocks, *b;
	u64 kept = 0;

	while ((b = *p)) {
		u64 own = lines_on_page(b, page);

		if (own && !(own & lines)) {
			kept |= own;
			p = next_on_page(b, page);
			continue;
		}
		*p = *next_on_page(b, page);
		if (own)
			cache_drop(cpu, b);
	}
	set_lines(cpu, cp, kept);
}

void cache_verify(struct cpu *cpu, struct code_page *cp, const u8 *host)
{
	const struct page_copy *copy = cp->blocks;
	u64 changed = 0;

	cp->epoch = cpu->engine->epoch;
	for (u64 left = cp->lines; left; left &= left - 1) {
		u32 line = __builtin_ctzll(left);

		cpu->engine->lines_compared++;
		if (!guarded_same_line(copy->bytes + line * LINE, host + line * LINE))
			changed |= BIT(line);
	}
	if (changed)
		drop_lines(cpu, cp, (cp->gfn_plus_1 - 1) << PAGE_SHIFT, changed);
}

/* Its table has been read: prefetches what cache_verify() compares. */
void cache_expect(const struct code_page *cp, const u8 *host)
{
	const struct page_copy *copy = cp->blocks;

	for (u64 left = cp->lines; left; left &= left - 1) {
		u32 line = __builtin_ctzll(left);

		__builtin_prefetch(copy->bytes + line * LINE);
		__builtin_prefetch(host + line * LINE);
	}
}

/*
 * A page that is fetched from through a new mapping may have been used for something else in
 * between, and filled by a device that did not interrupt: it is compared when it is next entered.
 */
void cache_mark_unverified(struct cpu *cpu, gpa_t gpa)
{
	struct code_page *cp = code_find(cpu_priv(cpu)->code, gpa);

	if (cp)
		cp->epoch = 0;
}

/* Memory slots have changed: claims in slots that are gone are made again in their successors. */
static void claim_again(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	for (u32 i = 0; i < ARRAY_SIZE(priv->code->page); i++) {
		struct code_page *cp = &priv->code->page[i];

		if (cp->lines && shared_claim_gone(cpu, cp))
			claim(cpu, cp);
	}
}

static void verify_unacked(struct cpu *cpu)
{
	struct engine *eng = cpu->engine;

	for (u32 i = 0; i < eng->nunacked; i++) {
		struct code_page *cp = eng->unacked[i].page;
		gpa_t gpa = (cp->gfn_plus_1 - 1) << PAGE_SHIFT;
		const struct mem_slot *slot = mem_find(cpu->port.mem, gpa);

		if (slot)
			cache_verify(cpu, cp, mem_hva(slot, gpa));
	}
}

/* Claims up to this number have been acknowledged by all processors. */
static void forget_acked(struct engine *eng, u64 acked)
{
	u32 n = 0;

	if (eng->unacked_overflow <= acked)
		eng->unacked_overflow = 0;
	while (n < eng->nunacked && eng->unacked[n].number <= acked)
		n++;
	eng->nunacked -= n;
	for (u32 i = 0; n && i < eng->nunacked; i++)
		eng->unacked[i] = eng->unacked[i + n];
}

bool cache_check_due(const struct cpu *cpu)
{
	const struct cpu_priv *priv = cpu_priv(cpu);
	const struct engine *eng = cpu->engine;

	return !priv->shared || priv->claims_generation != cpu->port.mem->generation ||
	       eng->nunacked || eng->unacked_overflow || shared_change_unseen(cpu);
}

bool cache_check_shared(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct engine *eng = cpu->engine;
	bool news;
	u64 acked;

	if (priv->claims_generation != cpu->port.mem->generation)
		claim_again(cpu);
	priv->claims_generation = cpu->port.mem->generation;
	shared_acknowledge(cpu);
	news = shared_changed(cpu);
	if (!eng->nunacked && !eng->unacked_overflow)
		return news;
	acked = shared_acknowledged(cpu);
	news |= eng->unacked_overflow != 0;
	if (!news)
		verify_unacked(cpu);
	forget_acked(eng, acked);
	return news;
}

void cache_written(struct cpu *cpu)
{
	struct code_pages *code = cpu_priv(cpu)->code;

	if (code->nwritten > ARRAY_SIZE(code->written)) {
		cache_flush(cpu);
		return;
	}
	for (u32 i = 0; i < code->nwritten; i++) {
		const struct code_note *note = &code->written[i];
		struct code_page *cp = code_find(code, note->page);

		if (cp && cp->lines & note->lines)
			drop_lines(cpu, cp, note->page, note->lines);
	}
	code->nwritten = 0;
}
