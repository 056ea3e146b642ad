/* SPDX-License-Identifier: MIT */
/*
 * The first levels, of data and of code: when an access needs no look-up.
 *
 * The problem. Most accesses hit the first level of cache and of TLB, and all that they change is
 * which line and which page is the youngest of its set. Translated code must not call C for that.
 *
 * The idea. An access is *settled*, and changes nothing, if
 *
 *  - its line is young, one of the younger three quarters of its set, and was not prefetched or has
 *    been used since;
 *  - the TLB has not lost the page by which the line was looked up last since then, and the address
 *    space has not changed.
 *
 * Any other access is looked up, which makes its line and its page the youngest. So what is used
 * often is looked up again before it could fall out, and replacement is that of least recent use
 * but for the order of what is young. This is a rule of the model.
 *
 * Line buffers are what translated code sees of it: a table of lines, by twelve bits of their
 * addresses, that are settled. A line that is settled may be missing there, since another one took
 * its place: then C finds that nothing is to be done. But a line that is there is settled: whatever
 * changes that empties its place. A note for each way of a first-level cache says where the line
 * was entered, a hash of its page, and when it was looked up.
 *
 * Tags and notes of a set stay where they are. The order is a word: its lowest four bits are the
 * way of the youngest line, and so on, all of them exclusive or ORDER_NONE, so that zeroes are an
 * order, too. Empty ways are the oldest. Each way has a byte, a fingerprint of its tag; those of a
 * set are compared all at once, and only tags whose fingerprints are equal are looked at. That of
 * an empty way, or of one that the cache does not have, means nothing.
 *
 * Time is a stamp: a number that grows whenever lines of a page, or all, cease to be settled.
 *
 * vCPU thread; other threads empty places (coherence.c).
 */
#ifndef TIMING_FIRST_H
#define TIMING_FIRST_H

#include "base/bytes.h"
#include "timing/sets.h"

/* A note: stamp, hash of the page, place. */
#define NOTE_HASH_SHIFT	 PLACE_BITS
#define NOTE_STAMP_SHIFT (PLACE_BITS + PAGE_HASH_BITS)

/* Places of one page of 4 Kbytes, side by side. */
#define GROUP_PLACES TIMING_LINES

_Static_assert(TIMING_PLACES / GROUP_PLACES == 64, "a bit for each group");

#define FIRST_WAYS  16u /* four bits of an order each */
#define FIRST_WORDS 2u	/* of fingerprints */
#define EACH_BYTE   0x0101010101010101ull
#define TOP_BITS    0x8080808080808080ull
#define ORDER_NONE  0xfedcba9876543210ull
#define NIBBLES	    0x1111111111111111ull

struct first {
	const struct timing_sets *cache, *tlb, *second;
	struct timing_pages *pages;
	u64 *lines;  /* buffers */
	u64 *stores; /* buffers that stores ask, with other processors; else NULL */
};

static inline struct first first_data(struct timing *t)
{
	return (struct first){ &t->l1d,	     &t->dtlb,
			       &t->stlb,     &t->data_pages,
			       t->data_line, unlikely(t->shared) ? t->store_line : NULL };
}

static inline struct first first_code(struct timing *t)
{
	return (struct first){ &t->l1i, &t->itlb, &t->istlb, &t->code_pages, t->code_line, NULL };
}

static inline u32 first_place(u64 note)
{
	return note & (TIMING_PLACES - 1);
}

static inline u32 first_hash(u64 page_tag)
{
	return (u32)(page_tag * HASH_FACTOR >> (64 - PAGE_HASH_BITS));
}

static inline u64 *first_notes(const struct timing_sets *s, const u64 *set)
{
	return s->notes + (set - s->tags);
}

/* --- emptying --- */

/* Another thread may empty it, too, at any time. */
static inline void first_empty_place(const struct first *f, u64 note)
{
	__atomic_store_n(&f->lines[first_place(note)], 0, __ATOMIC_RELAXED);
	if (unlikely(f->stores != NULL))
		__atomic_store_n(&f->stores[first_place(note)], 0, __ATOMIC_RELAXED);
}

static inline void first_empty_groups(const struct first *f, u64 groups, u64 places)
{
	for (; groups; groups &= groups - 1) {
		u32 at = (u32)__builtin_ctzll(groups) * GROUP_PLACES;

		for (u64 left = places; left; left &= left - 1)
			first_empty_place(f, at + (u32)__builtin_ctzll(left));
	}
}

/* Lines that were looked up by this page are no longer settled. */
static inline void first_unsettle_page(struct timing *t, const struct first *f, u64 tag)
{
	struct timing_page *page = &f->pages->page[first_hash(tag)];

	page->lost = ++t->stamp;
	first_empty_groups(f, page->groups, page->places);
	page->groups = page->places = 0;
}

static inline void first_unsettle_all(struct timing *t, const struct first *f)
{
	f->pages->lost = ++t->stamp;
	for (u64 left = f->pages->groups; left; left &= left - 1) {
		u32 at = (u32)__builtin_ctzll(left) * GROUP_PLACES;

		bytes_fill(&f->lines[at], 0, GROUP_PLACES * sizeof(u64));
		if (unlikely(f->stores != NULL))
			bytes_fill(&f->stores[at], 0, GROUP_PLACES * sizeof(u64));
	}
	f->pages->groups = 0;
}

/* --- settled lines --- */

static inline bool first_note_holds(const struct first *f, u64 note)
{
	u64 stamp = note >> NOTE_STAMP_SHIFT;
	u32 hash = note >> NOTE_HASH_SHIFT & (PAGE_HASHES - 1);

	return stamp > f->pages->lost && stamp > f->pages->page[hash].lost;
}

/* --- order --- */

static inline u64 *first_order(const struct timing_sets *s, const u64 *set)
{
	return s->order + (u32)(set - s->tags) / s->ways;
}

static inline u32 order_way(u64 order, u32 place)
{
	return order >> 4 * place & 15;
}

/* Which place a way has: 0 is the youngest. */
static inline u32 order_place(u64 order, u32 way)
{
	u64 other = order ^ way * NIBBLES;

	/* The lowest group of bits that is zero. */
	return (u32)__builtin_ctzll((other - NIBBLES) & ~other & 8 * NIBBLES) / 4;
}

/* The way at a place moves to a younger one; what is between grows older. */
static inline u64 order_rise(u64 order, u32 from, u32 to)
{
	u64 upto = (8ull << 4 * from) * 2 - 1, kept = BIT(4 * to) - 1;

	return (order & (~upto | kept)) | (((order & ~kept) << 4) & upto) |
	       (u64)order_way(order, from) << 4 * to;
}

/* The way at a place moves to an older one; what is between grows younger. */
static inline u64 order_sink(u64 order, u32 from, u32 to)
{
	u64 upto = (8ull << 4 * to) * 2 - 1, kept = BIT(4 * from) - 1;

	return (order & (~upto | kept)) | ((order & upto) >> 4 & ~kept) |
	       (u64)order_way(order, from) << 4 * to;
}

/* --- fingerprints --- */

/* Of the tag, without its mark. */
static inline u8 first_print(u64 tag)
{
	return (tag << 1) * HASH_FACTOR >> 56;
}

/* The top bits of the bytes that are 0. A byte of 1 may seem to be one, but only above one. */
static inline u64 zero_bytes(u64 word)
{
	return (word - EACH_BYTE) & ~word & TOP_BITS;
}

/* --- lines of a set --- */

/* Where a line is in its set. */
struct way {
	u64 *set, *order_word, *prints;
	u64 order;
	u32 i;	   /* `ways`: nowhere */
	u32 place; /* in the order, if it is there */
};

/* The way of a tag, which may be marked; `ways`: there is none. */
static inline u32 first_way(const struct timing_sets *s, const u64 *set, const u64 *prints, u64 tag)
{
	u64 pattern = first_print(tag) * EACH_BYTE;
	/* Bit 8 * n is way n, and bit 8 * n + 1 way n + 8. */
	u64 found = zero_bytes(prints[0] ^ pattern) >> 7 | zero_bytes(prints[1] ^ pattern) >> 6;

	for (; found; found &= found - 1) {
		u32 bit = (u32)__builtin_ctzll(found), i = bit / 8 + bit % 8 * 8;

		if (likely(i < s->ways && !((set[i] ^ tag) << 1)))
			return i;
	}
	return s->ways;
}

static inline struct way first_find(const struct first *f, u64 line, u64 tag)
{
	u32 number = line % TIMING_LINES;
	struct way way = { .set = f->cache->tags + number * f->cache->ways,
			   .order_word = &f->cache->order[number],
			   .prints = f->cache->prints + number * FIRST_WORDS };

	way.i = first_way(f->cache, way.set, way.prints, tag);
	way.order = *way.order_word ^ ORDER_NONE;
	way.place = way.i < f->cache->ways ? order_place(way.order, way.i) : FIRST_WAYS;
	return way;
}

static inline bool first_is_there(const struct first *f, const struct way *way)
{
	return way->i < f->cache->ways;
}

/* A line with a mark has no note. */
static inline bool first_settled(const struct first *f, const struct way *way)
{
	return first_is_there(f, way) && way->place < f->cache->young &&
	       first_note_holds(f, first_notes(f->cache, way->set)[way->i]);
}

/* The group of a place has lines of the page. */
static inline void first_use_group(const struct first *f, u32 hash, u32 place)
{
	struct timing_page *page = &f->pages->page[hash];

	if (page->lost < f->pages->lost) {
		page->lost = f->pages->lost;
		page->groups = page->places = 0;
	}
	page->groups |= BIT(place / GROUP_PLACES);
	page->places |= BIT(place % GROUP_PLACES);
	f->pages->groups |= BIT(place / GROUP_PLACES);
}

/* The line, which has been looked up by a page, is about to be entered at a place. */
static inline void first_note(struct timing *t, const struct first *f, u64 *note, u32 place,
			      u64 page_tag)
{
	u32 hash = first_hash(page_tag);

	if (unlikely(first_place(*note) != place))
		first_empty_place(f, *note);
	*note = (t->stamp + 1) << NOTE_STAMP_SHIFT | (u64)hash << NOTE_HASH_SHIFT | place;
	first_use_group(f, hash, place);
}

/* A settled line is about to be entered at a place, again. */
static inline void first_renote(const struct first *f, const struct way *way, u32 place)
{
	u64 *note = &first_notes(f->cache, way->set)[way->i];

	if (unlikely(first_place(*note) != place)) {
		first_empty_place(f, *note);
		*note = (*note & ~(u64)(TIMING_PLACES - 1)) | place;
	}
	first_use_group(f, *note >> NOTE_HASH_SHIFT & (PAGE_HASHES - 1), place);
}

/* --- changes of the order --- */

/* The way at a place becomes a younger one. The oldest of the young lines may cease to be one. */
static inline void first_age(const struct first *f, const struct way *way, u32 from, u32 to)
{
	u64 order = order_rise(way->order, from, to);

	*way->order_word = order ^ ORDER_NONE;
	if (from >= f->cache->young)
		first_empty_place(
			f, first_notes(f->cache, way->set)[order_way(order, f->cache->young)]);
}

/* Makes the line, which is there, the youngest of its set. Its note stays. */
static inline void first_rise(const struct first *f, const struct way *way, u64 tag)
{
	if (way->place)
		first_age(f, way, way->place, 0);
	way->set[way->i] = tag;
}

/* Adds a tag that is not there as the youngest, or below the youngest. Returns what fell out, or 0;
 * way->i is where it is now. */
static inline u64 first_add(const struct first *f, struct way *way, u32 at, u64 tag)
{
	u32 last = f->cache->ways - 1u, i = order_way(way->order, last);
	u64 lost = way->set[i];
	u8 old = ((const u8 *)way->prints)[i];

	first_notes(f->cache, way->set)[i] = 0;
	first_age(f, way, last, at);
	way->set[i] = tag;
	/* A word, not a byte: a host forwards no store to a load that is larger. */
	way->prints[i / 8] ^= (u64)(old ^ first_print(tag)) << i % 8 * 8;
	way->i = i;
	return lost;
}

/* Adds a line that a prefetcher has asked for. */
static inline u64 first_add_prefetched(const struct first *f, struct way *way, u64 tag)
{
	return first_add(f, way, way->set[order_way(way->order, 0)] ? 1 : 0, tag | SETS_MARK);
}

/* Removes the tag of a way. */
static inline void first_drop_way(const struct first *f, u64 *set, u32 i)
{
	u64 *order_word = first_order(f->cache, set), order = *order_word ^ ORDER_NONE;
	u64 *note = &first_notes(f->cache, set)[i];

	first_empty_place(f, *note);
	*order_word = order_sink(order, order_place(order, i), f->cache->ways - 1u) ^ ORDER_NONE;
	set[i] = *note = 0;
}

static inline void first_drop(const struct first *f, u64 line, u64 tag)
{
	struct way way = first_find(f, line, tag);

	if (first_is_there(f, &way))
		first_drop_way(f, way.set, way.i);
}

/* --- translations --- */

/* Makes the page the youngest of its set. True: it was there. Lines of one that is lost are no
 * longer settled. */
static inline bool first_translate(struct timing *t, const struct first *f, u64 number, u64 tag)
{
	u64 lost;

	if (likely(sets_use(f->tlb, number, tag, &lost)))
		return true;
	if (lost)
		first_unsettle_page(t, f, lost);
	return false;
}

#endif
