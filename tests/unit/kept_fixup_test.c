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

#define SIZE 100

static const struct fixup_bounds bounds = { .code_size = SIZE, .ncopies = 3, .nlinks = 5 };

static const struct {
	u8 kind, bytes, indices; /* indices 0: it is not used */
} kinds[] = {
	{ FIXUP_THUNK, 4, 0 },	 { FIXUP_BLOCK64, 8, 0 },	{ FIXUP_INSN64, 8, 3 },
	{ FIXUP_BLOCK32, 4, 0 }, { FIXUP_LINK32, 4, 5 },	{ FIXUP_NUMBER, 4, 0 },
	{ FIXUP_LANDING, 4, 0 }, { FIXUP_LINE, 8, PAGE_LINES }, { FIXUP_KEY, 4, PAGE_LINES },
};

static bool sound(u32 at, u32 kind, u32 index)
{
	return kept_fixup_sound(&(struct fixup){ at, kind, index }, &bounds);
}

static void fixups_stay_in_the_code(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(kinds); i++)
		for (u32 at = 0; at <= 0xffff; at++)
			assert_int_equal(sound(at, kinds[i].kind, 0), at + kinds[i].bytes <= SIZE);
}

static void fixups_stay_in_the_tables(void **state)
{
	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(kinds); i++)
		for (u32 index = 0; index <= 0xff; index++)
			assert_int_equal(sound(0, kinds[i].kind, index),
					 !kinds[i].indices || index < kinds[i].indices);
}

static void other_kinds_are_refused(void **state)
{
	(void)state;
	for (u32 kind = 0; kind <= 0xff; kind++)
		assert_int_equal(sound(0, kind, 0), kind < ARRAY_SIZE(kinds));
}

/* A copy for another page has what the code would have that is made there. */
static void lines_are_those_of_the_page(void **state)
{
	static const gpa_t pages[] = { 0, 0x10000, 0x1fffffe000 };
	u8 code[8], neutral[8];
	struct block block = { .code = code };
	struct trans *t = test_calloc(1, sizeof(*t));

	(void)state;
	t->block = &block;
	for (u32 i = 0; i < ARRAY_SIZE(pages) * PAGE_LINES; i++) {
		const struct fixup line = { 0, FIXUP_LINE, i % PAGE_LINES },
				   key = { 4, FIXUP_KEY, i % PAGE_LINES };
		gpa_t gpa = pages[i / PAGE_LINES] + i % PAGE_LINES * LINE_SIZE;
		u32 expected[] = { (u32)kept_fixup_line_buffer(gpa), (u32)timing_code_key(gpa) };

		block.gpa = pages[i / PAGE_LINES] + 0x123;
		assert_true(kept_fixup_lines_fit(gpa));
		assert_int_equal(kept_fixup_line(gpa), line.index);
		memset(code, 0xcc, sizeof(code));
		kept_fixup_neutralize(t, &line, neutral);
		assert_int_equal(*(u64_unaligned *)neutral, 0);
		kept_fixup_fill_in(t, &line);
		assert_memory_equal(code, expected, sizeof(expected));
		memset(code, 0xcc, sizeof(code));
		memset(neutral, 0xcc, sizeof(neutral));
		kept_fixup_neutralize(t, &key, neutral);
		assert_int_equal(*(u64_unaligned *)neutral, 0xcccccccc);
		kept_fixup_fill_in(t, &key);
		assert_int_equal(*(u64_unaligned *)code, timing_code_key(gpa) << 32 | 0xcccccccc);
	}
	assert_false(kept_fixup_lines_fit(0x1ffffff000));
	assert_false(kept_fixup_lines_fit(0x2000000000));
	test_free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fixups_stay_in_the_code),
		cmocka_unit_test(fixups_stay_in_the_tables),
		cmocka_unit_test(other_kinds_are_refused),
		cmocka_unit_test(lines_are_those_of_the_page),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
