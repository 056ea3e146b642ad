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

/* Where a line is in its set; `ways`: nowhere. */
struct way {
	u64 *set;
	u32 i;
};

/* The line's tag may be marked. */
static inline struct way first_find(const struct first *f, u64 line, u64 tag)
{
	u64 *set = sets_of(f->cache, line);

	return (struct way){ .set = set, .i = sets_find_marked(f->cache, set, tag) };
}

/* A line with a mark has no note. */
static inline bool first_settled(const struct first *f, struct way way)
{
	return way.i < f->cache->young &&
	       first_note_holds(f, first_notes(f->cache, way.set)[way.i]);
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
static inline void first_renote(const struct first *f, struct way way, u32 place)
{
	u64 *note = &first_notes(f->cache, way.set)[way.i];

	if (unlikely(first_place(*note) != place)) {
		first_empty_place(f, *note);
		*note = (*note & ~(u64)(TIMING_PLACES - 1)) | place;
	}
	first_use_group(f, *note >> NOTE_HASH_SHIFT & (PAGE_HASHES - 1), place);
}

/* --- order --- */

/* Moves what is at places from..to-1 of a set one further. The oldest of the young lines may cease
 * to be one. */
static inline void first_age(const struct first *f, u64 *set, u32 from, u32 to)
{
	u64 *notes = first_notes(f->cache, set);

	for (u32 i = to; i > from; i--) {
		set[i] = set[i - 1];
		notes[i] = notes[i - 1];
	}
	if (from <= f->cache->young && to >= f->cache->young)
		first_empty_place(f, notes[f->cache->young]);
}

/* Makes the tag at place i the youngest of its set, with its note. */
static inline void first_rise(const struct first *f, u64 *set, u32 i, u64 tag)
{
	u64 *notes = first_notes(f->cache, set), note = notes[i];

	if (i)
		first_age(f, set, 0, i);
	set[0] = tag;
	notes[0] = note;
}

/* Adds a tag that is not there as the youngest, or below the youngest. Returns what fell out, or 0.
 */
static inline u64 first_add(const struct first *f, u64 *set, u32 at, u64 tag)
{
	u32 last = f->cache->ways - 1u;
	u64 lost = set[last];

	first_age(f, set, at, last);
	set[at] = tag;
	first_notes(f->cache, set)[at] = 0;
	return lost;
}

/* Removes the tag at place i; older ones move up. */
static inline void first_drop_way(const struct first *f, u64 *set, u32 i)
{
	u64 *notes = first_notes(f->cache, set);

	first_empty_place(f, notes[i]);
	for (; i + 1u < f->cache->ways; i++) {
		set[i] = set[i + 1];
		notes[i] = notes[i + 1];
	}
	set[i] = notes[i] = 0;
}

static inline void first_drop(const struct first *f, u64 line, u64 tag)
{
	struct way way = first_find(f, line, tag);

	if (way.i < f->cache->ways)
		first_drop_way(f, way.set, way.i);
}

/* --- translations --- */

/* Makes the page the youngest of its set. True: it was there. Lines of one that is lost are no
 * longer settled. */
static inline bool first_translate(struct timing *t, const struct first *f, u64 number, u64 tag)
{
	u64 *set = sets_of(f->tlb, number), lost;
	u32 i = sets_find(f->tlb, set, tag), last = f->tlb->ways - 1u;

	if (likely(i <= last)) {
		sets_rise(set, i, tag);
		return true;
	}
	lost = set[last];
	sets_rise(set, last, tag);
	if (lost)
		first_unsettle_page(t, f, lost);
	return false;
}

#endif
