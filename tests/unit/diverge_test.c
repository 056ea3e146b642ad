// SPDX-License-Identifier: MIT
/*
 * Files of vpmu exec --trace-hash: what vpmu diverge refuses, and what it finds in two that are
 * sound. Where records are due.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cli/diverge/diverge.h"
#include "vm/time/trace.h"

#define STRINGS "/folder\0--deterministic\0true\0HOME=/root\0"

struct image {
	struct trace_header header;
	char strings[sizeof(STRINGS) - 1];
	struct trace_record record[4];
} __attribute__((packed));

/* A working directory, two words, one variable; three records and the end. */
static struct image sound(void)
{
	struct image image = {
		.header = { .magic = TRACE_MAGIC,
			    .version = TRACE_VERSION,
			    .strings = sizeof(image.strings),
			    .words = 2,
			    .variables = 1,
			    .every = 1000,
			    .vpmu = "1.0",
			    .model = "icelake" },
	};

	memcpy(image.strings, STRINGS, sizeof(image.strings));
	for (u32 i = 0; i < 4; i++)
		image.record[i] = (struct trace_record){ .kind = i < 3 ? TRACE_HASH : TRACE_END,
							 .instruction = 1000 * i,
							 .state = 7 * i };
	return image;
}

/* In memory of its own size, so that a sanitizer sees what lies after it. */
static bool parse(struct trace_file *file, const void *data, size_t size)
{
	u8 *copy = malloc(size ?: 1);

	assert_non_null(copy);
	memcpy(copy, data, size);
	return trace_parse(file, copy, size);
}

static void parse_sound(struct trace_file *file, const struct image *image)
{
	if (!parse(file, image, sizeof(*image)))
		fail_msg("%s", file->error);
}

static void refused(const void *data, size_t size, const char *why)
{
	struct trace_file file;

	assert_false(parse(&file, data, size));
	if (!strstr(file.error, why))
		fail_msg("'%s' is not '%s'", file.error, why);
}

static void a_sound_file_is_read(void **state)
{
	struct image image = sound();
	struct trace_file file;

	(void)state;
	parse_sound(&file, &image);
	assert_string_equal(file.folder, "/folder");
	assert_string_equal(file.words[1], "true");
	assert_null(file.words[2]);
	assert_string_equal(file.variables[0], "HOME=/root");
	assert_int_equal(file.records, 4);
	assert_int_equal(trace_at(&file, 2).instruction, 2000);
	trace_free(&file);
}

static void every_part_of_a_file_is_refused(void **state)
{
	struct image image = sound();

	(void)state;
	for (size_t size = 0; size < sizeof(image); size++)
		refused(&image, size, size < 8 ? "no file of" : "truncated");
}

static void more_than_a_file_is_refused(void **state)
{
	struct {
		struct image image;
		u8 more;
	} __attribute__((packed)) longer = { .image = sound() };

	(void)state;
	refused(&longer, sizeof(longer), "after its end");
}

#define FORGE(field, value, why)                     \
	do {                                         \
		struct image image = sound();        \
                                                     \
		image.field = value;                 \
		refused(&image, sizeof(image), why); \
	} while (0)

static void forged_fields_are_refused(void **state)
{
	(void)state;
	FORGE(header.magic, 1, "no file of");
	FORGE(header.version, TRACE_VERSION + 1, "version");
	FORGE(header.every, 0, "makes no sense");
	FORGE(header.strings, 0, "make no sense");
	FORGE(header.strings, ~0u, "make no sense");
	FORGE(header.strings, TRACE_STRINGS_MAX, "truncated");
	FORGE(header.strings, sizeof(STRINGS) - 2, "not as many");
	FORGE(header.words, 0, "make no sense");
	FORGE(header.words, ~0u, "make no sense");
	FORGE(header.words, TRACE_COUNT_MAX, "not as many");
	FORGE(header.words, 1, "not as many");
	FORGE(header.variables, ~0u, "make no sense");
	FORGE(header.variables, 2, "not as many");
	FORGE(strings[sizeof(STRINGS) - 2], 'x', "not as many");
	FORGE(record[0].kind, 0, "record 1 makes no sense");
	FORGE(record[1].kind, TRACE_STOP + 1, "record 2 makes no sense");
	FORGE(record[1].kind, TRACE_STATE, "truncated");
	FORGE(record[1].kind, TRACE_END, "after its end");
	FORGE(record[3].kind, TRACE_HASH, "truncated");
	FORGE(record[1].instruction, 5000, "record 3 makes no sense");
	FORGE(record[3].instruction, ~0ull, "record 4 makes no sense");
}

static void names_without_an_end_are_refused(void **state)
{
	struct image image = sound();

	(void)state;
	memset(image.header.model, 'x', sizeof(image.header.model));
	refused(&image, sizeof(image), "makes no sense");
}

static s64 difference(const struct image *a, const struct image *b)
{
	struct trace_file in_a, in_b;
	s64 index;

	parse_sound(&in_a, a);
	parse_sound(&in_b, b);
	index = trace_first_difference(&in_a, &in_b);
	trace_free(&in_a);
	trace_free(&in_b);
	return index;
}

static void the_first_difference_is_found(void **state)
{
	struct image a = sound(), b = sound();

	(void)state;
	assert_int_equal(difference(&a, &b), -1);
	b.record[3].instruction++;
	assert_int_equal(difference(&a, &b), 3);
	b.record[2].inputs++;
	assert_int_equal(difference(&a, &b), 2);
	b.record[1].vcpu++;
	assert_int_equal(difference(&a, &b), 1);
	b.record[0].state++;
	assert_int_equal(difference(&a, &b), 0);
}

static void a_run_is_repeated_up_to_an_instruction(void **state)
{
	struct image recorded = sound(), again = sound();
	struct trace_file a, b;

	(void)state;
	again.record[2].state++;
	parse_sound(&a, &recorded);
	parse_sound(&b, &again);
	assert_true(trace_reproduces(&a, &b, 1000));
	assert_false(trace_reproduces(&a, &b, 2000));
	trace_free(&a);
	trace_free(&b);
}

static void records_are_due_where_the_plan_says(void **state)
{
	static const struct {
		struct trace_plan plan;
		u64 now, next;
	} rows[] = {
		{ { 1000, 0, 0, 0 }, 0, 1000 },
		{ { 1000, 0, 0, 0 }, 999, 1000 },
		{ { 1000, 0, 0, 0 }, 1000, 2000 },
		{ { 1000, 1500, 1900, 0 }, 1000, 1900 },
		{ { 1000, 1500, 1900, 150 }, 1000, 1500 },
		{ { 1000, 1500, 1900, 150 }, 1500, 1650 },
		{ { 1000, 1500, 1900, 150 }, 1800, 1900 },
		{ { 1000, 1500, 2900, 300 }, 1800, 2000 },
		{ { 1000, 1500, 2900, 300 }, 2000, 2100 },
		{ { 1000, 1500, 1502, 1 }, 1501, 1502 },
	};

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(trace_next(&rows[i].plan, rows[i].now), rows[i].next);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sound_file_is_read),
		cmocka_unit_test(every_part_of_a_file_is_refused),
		cmocka_unit_test(more_than_a_file_is_refused),
		cmocka_unit_test(forged_fields_are_refused),
		cmocka_unit_test(names_without_an_end_are_refused),
		cmocka_unit_test(the_first_difference_is_found),
		cmocka_unit_test(a_run_is_repeated_up_to_an_instruction),
		cmocka_unit_test(records_are_due_where_the_plan_says),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
