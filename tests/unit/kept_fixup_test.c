// SPDX-License-Identifier: MIT
/*
 * Fixups of kept blocks (engine/translate/kept_fixup.h): none is believed that leads out of the
 * block's code or its tables, and lines of code get the keys and buffers of the page that has them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "engine/translate/kept_fixup.h"

#define SIZE	100
#define NCOPIES 3
#define NLINKS	5
#define NUMBER	7 /* of the block */

static const struct {
	u8 kind, bytes, indices; /* indices 0: it has none */
} kinds[] = {
	{ FIXUP_THUNK, 4, 0 },	      { FIXUP_BLOCK64, 8, 0 },	   { FIXUP_INSN64, 8, NCOPIES },
	{ FIXUP_BLOCK32, 4, 0 },      { FIXUP_LINK32, 4, NLINKS }, { FIXUP_NUMBER, 4, 0 },
	{ FIXUP_HEAT, 4, 0 },	      { FIXUP_LANDING, 4, 0 },	   { FIXUP_LINE, 8, PAGE_LINES },
	{ FIXUP_KEY, 4, PAGE_LINES },
};

_Static_assert(ARRAY_SIZE(kinds) == NFIXUP_KINDS, "");

/* A block that is being recalled; its code, with bytes after it that are not its own. */
static struct engine *eng;
static struct trans *t;
static u8 bytes[SIZE + 8];
static const struct kept_code code = { bytes, SIZE };

static int set_up(void **state)
{
	static struct insn copies[NCOPIES];
	static struct link links[NLINKS];
	static struct block block;
	static u8 memory[SIZE];
	static s32 until_hot[NUMBER + 1];

	(void)state;
	eng = test_calloc(1, sizeof(*eng));
	t = test_calloc(1, sizeof(*t));
	eng->code_rw = eng->code_rx = eng->code_next = memory;
	eng->until_hot = until_hot;
	eng->nblocks = NUMBER;
	eng->meta = (u8 *)&block;
	block = (struct block){ .code = memory, .link = links, .nlinks = NLINKS };
	t->eng = eng;
	t->block = &block;
	t->copies[0] = copies;
	t->ncopies = NCOPIES;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	test_free(eng);
	test_free(t);
	return 0;
}

static bool fill_in(u32 kind, u16 at)
{
	struct kept_fixups counts = { .all = 1 };

	counts.n[kind] = 1;
	return kept_fixup_fill_in(t, code, &counts, &at);
}

static void fixups_stay_in_the_code(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(kinds); i++) {
		for (u32 at = 0; at <= 0xffff; at++) {
			memset(bytes, 0, SIZE);
			memset(bytes + SIZE, 0xcc, 8);
			assert_int_equal(fill_in(kinds[i].kind, at), at + kinds[i].bytes <= SIZE);
			for (u32 n = 0; n < 8; n++)
				assert_int_equal(bytes[SIZE + n], 0xcc);
		}
	}
}

static void fixups_stay_in_the_tables(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(kinds); i++) {
		for (u32 bit = 0; bit <= 8u * kinds[i].bytes; bit++) {
			for (u64 more = 0; more < 2 * PAGE_LINES; more++) {
				u64 index = (bit ? BIT(bit - 1) : 0) + more;

				if (kinds[i].bytes == 4 || kinds[i].kind == FIXUP_LINE)
					index = (u32)index;
				memcpy(bytes, &index, sizeof(index));
				assert_int_equal(fill_in(kinds[i].kind, 0),
						 !kinds[i].indices || index < kinds[i].indices);
			}
		}
	}
}

/* As emit_fixup() does. */
static void note(const struct fixup *fixups, u32 n)
{
	fixups_clear(&t->fixups);
	for (u32 i = 0; i < n; i++) {
		t->fixups.fixup[t->fixups.n++] = fixups[i];
		t->fixups.counts[fixups[i].kind]++;
	}
}

static void neutralize(const struct fixup *f)
{
	u16 place;

	note(f, 1);
	kept_fixup_neutralize(t, code, &place);
	assert_int_equal(place, f->at);
}

/* A copy for another page has what the code would have that is made there. */
static void lines_are_those_of_the_page(void **state)
{
	static const gpa_t pages[] = { 0, 0x10000, 0x1fffffe000 };

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(pages) * PAGE_LINES; i++) {
		const struct fixup line = { 0, FIXUP_LINE, i % PAGE_LINES },
				   key = { 4, FIXUP_KEY, i % PAGE_LINES };
		gpa_t gpa = pages[i / PAGE_LINES] + i % PAGE_LINES * LINE_SIZE;
		u32 expected[] = { (u32)kept_fixup_line_buffer(gpa), (u32)timing_code_key(gpa) };

		t->block->gpa = pages[i / PAGE_LINES] + 0x123;
		assert_true(kept_fixup_lines_fit(gpa));
		assert_int_equal(kept_fixup_line(gpa), line.index);
		memset(bytes, 0xcc, sizeof(bytes));
		neutralize(&line);
		assert_int_equal(*(u64_unaligned *)bytes, line.index);
		assert_true(fill_in(FIXUP_LINE, 0));
		assert_memory_equal(bytes, expected, sizeof(expected));
		memset(bytes, 0xcc, sizeof(bytes));
		neutralize(&key);
		assert_int_equal(*(u64_unaligned *)bytes, (u64)key.index << 32 | 0xcccccccc);
		assert_true(fill_in(FIXUP_KEY, 4));
		assert_int_equal(*(u64_unaligned *)bytes, timing_code_key(gpa) << 32 | 0xcccccccc);
	}
	assert_false(kept_fixup_lines_fit(0x1ffffff000));
	assert_false(kept_fixup_lines_fit(0x2000000000));
}

/* SUB [RIP + disp32], 1 */
static void a_block_counts_its_own_executions(void **state)
{
	const struct fixup heat = { 10, FIXUP_HEAT, 0 };
	s32 disp;

	(void)state;
	memset(bytes, 0xcc, sizeof(bytes));
	neutralize(&heat);
	assert_int_equal(*(u32_unaligned *)(bytes + 10), 0);
	assert_false(t->block->heats);
	assert_true(fill_in(FIXUP_HEAT, 10));
	assert_true(t->block->heats);
	memcpy(&disp, bytes + 10, sizeof(disp));
	assert_ptr_equal(t->block->code + 15 + disp, &eng->until_hot[NUMBER]);
	assert_true(fill_in(FIXUP_NUMBER, 0));
	assert_false(t->block->heats); /* one that has none cannot become hot */
}

/* Fixups of different kinds, in any order, are each filled in where they were. */
static void fixups_are_sorted_by_kind(void **state)
{
	static const struct fixup mixed[] = { { 40, FIXUP_KEY, 7 },	{ 0, FIXUP_LINK32, 4 },
					      { 20, FIXUP_INSN64, 2 },	{ 8, FIXUP_KEY, 63 },
					      { 12, FIXUP_BLOCK32, 0 }, { 4, FIXUP_LINK32, 0 } };
	struct kept_fixups counts;
	u16 places[ARRAY_SIZE(mixed)];

	(void)state;
	t->block->gpa = 0x5000;
	note(mixed, ARRAY_SIZE(mixed));
	kept_fixup_count(&t->fixups, &counts);
	assert_int_equal(counts.all, ARRAY_SIZE(mixed));
	memset(bytes, 0xcc, sizeof(bytes));
	kept_fixup_neutralize(t, code, places);
	assert_true(kept_fixup_fill_in(t, code, &counts, places));
	assert_int_equal(*(u32_unaligned *)(bytes + 40), timing_code_key(0x5000 + 7 * LINE_SIZE));
	assert_int_equal(*(u32_unaligned *)(bytes + 8), timing_code_key(0x5000 + 63 * LINE_SIZE));
	assert_int_equal(*(u32_unaligned *)bytes, meta_offset(t, &t->block->link[4]));
	assert_int_equal(*(u32_unaligned *)(bytes + 4), meta_offset(t, &t->block->link[0]));
	assert_int_equal(*(u64_unaligned *)(bytes + 20), (u64)(uintptr_t)(t->copies[0] + 2));
	assert_int_equal(*(u32_unaligned *)(bytes + 12), meta_offset(t, t->block));
	assert_int_equal(bytes[16], 0xcc);
	counts.all--;
	kept_fixup_neutralize(t, code, places);
	assert_false(kept_fixup_fill_in(t, code, &counts, places));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fixups_stay_in_the_code),
		cmocka_unit_test(fixups_stay_in_the_tables),
		cmocka_unit_test(lines_are_those_of_the_page),
		cmocka_unit_test(a_block_counts_its_own_executions),
		cmocka_unit_test(fixups_are_sorted_by_kind),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
