// SPDX-License-Identifier: MIT
/*
 * Line buffers of the timing model (timing/first.h): a processor whose translated code asks them
 * counts what one counts that is shown everything, wherever its host has mapped memory; and what is
 * shown again after a trip changes nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "timing/first.h"
#include "timing/levels.h"
#include "timing/timing.h"
#include "unit/on_models.h"

#define LINE  64ull
#define STEPS 400000
#define ALIAS 0x40000000ull /* the same memory by pages of 2 Mbytes */

struct side {
	struct timing timing;
	u64 count[NRETIRE];
	void *memory;
	u64 host; /* address of physical address 0 */
	bool in_line;
};

static struct side *side[2];
static const struct model *model;
static u64 chance;

static u64 draw(u64 below)
{
	chance = chance * 6364136223846793005ull + 1442695040888963407ull;
	return (chance >> 33) % below;
}

static int on_model(void **state)
{
	static const u64 host[] = { 0x7f0000000000ull, 0x7f0000005000ull };

	model = model_find(*state);
	chance = 1;
	for (u32 i = 0; i < 2; i++) {
		side[i] = calloc(1, sizeof(*side[i]));
		assert_non_null(side[i]);
		side[i]->memory = calloc(1, timing_memory(model));
		assert_non_null(side[i]->memory);
		side[i]->host = host[i];
		side[i]->in_line = i;
		timing_init(&side[i]->timing, model, side[i]->memory, side[i]->count);
		timing_observe(&side[i]->timing, true);
	}
	return 0;
}

static int done(void **state)
{
	(void)state;
	for (u32 i = 0; i < 2; i++) {
		free(side[i]->memory);
		free(side[i]);
	}
	return 0;
}

static void data(struct side *s, struct timing_access a)
{
	a.host = s->host + a.physical;
	if (s->in_line && (s->timing.data_line[timing_place(a.host)] ^ a.host) < LINE + 1 - a.size)
		return;
	timing_data(&s->timing, &a);
}

static void fetch(struct side *s, struct timing_access a)
{
	if (s->in_line &&
	    s->timing.code_line[timing_place(a.physical)] == timing_code_key(a.physical))
		return;
	timing_fetch(&s->timing, &a);
}

/* Few pages are used often, and few lines of each. */
static struct timing_access somewhere(void)
{
	u64 page = draw(4) ? draw(24) : draw(400), line = draw(3) ? draw(6) * page % 64 : draw(64);
	gpa_t physical = page * PAGE_SIZE + line * LINE + draw(LINE);
	struct timing_access a = { .linear = physical,
				   .physical = physical,
				   .size = 1u << draw(4),
				   .page_shift = PAGE_SHIFT,
				   .store = !draw(4),
				   .space = 1 };

	if (!draw(16)) {
		a.linear += ALIAS;
		a.page_shift = 21;
		a.global = true;
	}
	if (physical % PAGE_SIZE + a.size > PAGE_SIZE)
		a.size = 1;
	return a;
}

static void seldom(struct timing *t, u64 what, u64 page)
{
	switch (what) {
	case 0:
		timing_flush_page(t, page * PAGE_SIZE);
		break;
	case 1:
		timing_flush_line(t, page * PAGE_SIZE);
		break;
	case 2:
		timing_switch_space(t);
		break;
	case 3:
		timing_flush_space(t, 1);
		break;
	default:
		timing_flush_tlbs(t);
	}
}

static void assert_equal(void)
{
	const struct timing *a = &side[0]->timing, *b = &side[1]->timing;

	assert_memory_equal(side[0]->count, side[1]->count, sizeof(side[0]->count));
	assert_memory_equal(a->l1d.tags, b->l1d.tags, 8ull * a->l1d.sets * a->l1d.ways);
	assert_memory_equal(a->l1i.tags, b->l1i.tags, 8ull * a->l1i.sets * a->l1i.ways);
	assert_memory_equal(a->dtlb.tags, b->dtlb.tags, 8ull * a->dtlb.sets * a->dtlb.ways);
	assert_memory_equal(a->itlb.tags, b->itlb.tags, 8ull * a->itlb.sets * a->itlb.ways);
	assert_int_equal(a->stamp, b->stamp);
}

static void line_buffers_change_no_count(void **state)
{
	(void)state;
	for (u32 i = 0; i < STEPS; i++) {
		struct timing_access a = somewhere();
		u64 what = draw(2000), page = draw(24);
		bool code = !draw(4);

		for (u32 j = 0; j < 2; j++) {
			if (what < 5)
				seldom(&side[j]->timing, what, page);
			if (code)
				fetch(side[j], a);
			else
				data(side[j], a);
		}
		if (i % 1000 == 0)
			assert_equal();
	}
	assert_equal();
}

/* Two operands in one set, the first of which the second makes old. */
static void what_is_shown_again_changes_nothing(void **state)
{
	u32 young = side[0]->timing.l1d.young;
	struct timing_access a[2] = { { .size = 8, .page_shift = 30 },
				      { .size = 8, .page_shift = 30 } };

	(void)state;
	for (u32 j = 0; j < 2; j++) {
		struct timing *t = &side[j]->timing;
		const struct first first = first_data(t);

		t->prefetch.kinds = 0;
		for (u32 i = 0; i < young; i++) {
			a[0].linear = a[0].physical = i * PAGE_SIZE;
			data(side[j], a[0]);
		}
		a[0].linear = a[0].physical = 0;
		a[1].linear = a[1].physical = young * PAGE_SIZE;
		for (u32 i = 0; i < 2; i++)
			data(side[j], a[i]);
		assert_int_equal(first_find(&first, 0, levels_tag(0)).place, young);
		if (j) {
			timing_replay(t, false);
			timing_visit(t);
			for (u32 i = 0; i < 2; i++)
				data(side[j], a[i]);
			timing_visit(t);
		}
		a[1].linear = a[1].physical = (young + 1) * PAGE_SIZE;
		data(side[j], a[1]); /* the next instruction is new */
	}
	assert_equal();
}

static struct timing_access code_at(gpa_t at)
{
	return (struct timing_access){ .linear = at, .physical = at, .page_shift = PAGE_SHIFT };
}

#define NO_TRIP 2u

/* An instruction on two lines. If one of them reaches a trip, it is executed again. */
static void fetch_across(struct side *s, gpa_t at, u32 trip)
{
	const struct timing_access a[2] = { code_at(at), code_at((at | (LINE - 1)) + 1) };

	fetch(s, a[0]);
	if (trip > 0)
		fetch(s, a[1]);
	if (trip == NO_TRIP)
		return;
	timing_replay(&s->timing, true);
	timing_visit(&s->timing);
	fetch(s, a[0]);
	fetch(s, a[1]);
	timing_visit(&s->timing);
}

/* Its second line is missed, and may take the first one's page out of the TLB, where that is the
 * oldest. */
static void a_trip_of_one_line_of_code_loses_no_other(void **state)
{
	(void)state;
	for (u32 trip = 0; trip < 2; trip++)
		for (u32 j = 0; j < 2; j++) {
			gpa_t page = 0x10000000 * (trip + 1);
			u32 entries = side[j]->timing.itlb.sets * side[j]->timing.itlb.ways;

			fetch(side[j], code_at(page)); /* the first one shown */
			fetch_across(side[j], page + 10 * LINE - 3, j ? trip : NO_TRIP);
			if (!trip)
				assert_int_equal(side[j]->count[RETIRE_L1I_MISSES], 2);
			page += 0x1000000;
			for (u32 i = 0; i < entries; i++)
				fetch(side[j], code_at(page - i * (PAGE_SIZE + LINE) - 3));
			fetch_across(side[j], page - 3, j ? trip : NO_TRIP);
		}
	assert_equal();
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		TEST(line_buffers_change_no_count),
		TEST(what_is_shown_again_changes_nothing),
		TEST(a_trip_of_one_line_of_code_loses_no_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
