// SPDX-License-Identifier: MIT
/*
 * What software takes out of the caches and TLBs of the timing model. vCPU thread; general
 * registers only.
 */
#include "timing/coherence.h"
#include "timing/first.h"
#include "timing/levels.h"
#include "timing/walk.h"

static void forget_lines(struct timing *t)
{
	const struct first data = first_data(t), code = first_code(t);

	first_unsettle_all(t, &data);
	first_unsettle_all(t, &code);
}

void timing_flush_line(struct timing *t, gpa_t physical)
{
	levels_drop(t, physical >> LINE_SHIFT);
}

void timing_flush_caches(struct timing *t)
{
	levels_empty(&t->l1d);
	levels_empty(&t->l1i);
	levels_empty_second(t);
	if (t->shared)
		coherence_empty(t);
	else
		levels_empty_last(t);
	forget_lines(t);
}

static bool is_page(u64 tag, gva_t linear)
{
	u8 shift = tag >> SIZE_SHIFT & MASK(SPACE_SHIFT - SIZE_SHIFT - 1, 0);
	u64 number = (tag & MASK(SIZE_SHIFT - 1, 0)) - 1;

	return tag && number == walk_page(linear, shift);
}

/* In all address spaces: looks at the set of each size that a page can have. */
static void flush_page(const struct timing_sets *s, gva_t linear)
{
	static const u8 shifts[] = { 12, 21, 22, 30 };

	for (u32 k = 0; k < ARRAY_SIZE(shifts); k++) {
		u64 number = walk_page(linear, shifts[k]);
		const u64 *set = sets_of(s, number);

		for (u32 i = 0; i < s->ways; i++)
			while (is_page(set[i], linear))
				sets_drop(s, number, set[i]);
	}
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

void timing_forget_hosts(struct timing *t)
{
	/* No line was ever entered: this spares memory that is not mapped yet. */
	if (!t->data_pages.groups)
		return;
	bytes_fill(t->data_line, 0, sizeof(t->data_line));
	bytes_fill(t->store_line, 0, sizeof(t->store_line));
}

void timing_switch_space(struct timing *t)
{
	forget_lines(t);
}
