// SPDX-License-Identifier: MIT
/*
 * The subset of TOML that suites and baselines are written in: what it means, and the line and the
 * reason of what it refuses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/types.h"
#include "cli/check/toml.h"

static void parse(struct toml *toml, const char *text)
{
	if (!toml_parse(toml, text, strlen(text)))
		fail_msg("line %u: %s", toml->line, toml->error);
}

static const struct toml_value *need(const struct toml_table *table, const char *key,
				     enum toml_type type)
{
	const struct toml_value *value = toml_find(table, key);

	assert_non_null(value);
	assert_int_equal(value->type, type);
	return value;
}

static void values_mean_what_toml_says(void **state)
{
	static const struct {
		const char *text;
		s64 integer;
	} integers[] = { { "0", 0 },
			 { "+7", 7 },
			 { "-12", -12 },
			 { "1_000_000", 1000000 },
			 { "0xff_Fe", 0xfffe },
			 { "9223372036854775807", INT64_MAX },
			 { "-9223372036854775808", INT64_MIN } };
	static const struct {
		const char *text;
		double number;
	} floats[] = { { "0.5", 0.5 }, { "-1e3", -1000 }, { "6.25E-2", 0.0625 }, { "1_0.0", 10 } };
	struct toml toml;
	char text[64];

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(integers); i++) {
		snprintf(text, sizeof(text), "a = %s", integers[i].text);
		parse(&toml, text);
		assert_int_equal(need(&toml.root, "a", TOML_INTEGER)->integer, integers[i].integer);
		toml_free(&toml);
	}
	for (u32 i = 0; i < ARRAY_SIZE(floats); i++) {
		snprintf(text, sizeof(text), "a = %s # c", floats[i].text);
		parse(&toml, text);
		assert_true(need(&toml.root, "a", TOML_FLOAT)->number == floats[i].number);
		toml_free(&toml);
	}
	parse(&toml, "yes = true\nno = false\r\n");
	assert_true(need(&toml.root, "yes", TOML_BOOLEAN)->boolean);
	assert_false(need(&toml.root, "no", TOML_BOOLEAN)->boolean);
	toml_free(&toml);
}

static void strings_have_escapes_or_are_literal(void **state)
{
	struct toml toml;

	(void)state;
	parse(&toml, "a = \"tab\\t quote\\\" \\u00e9 \\U0001F600 # no comment\"\n"
		     "b = 'C:\\n \"x\"'\n\"quoted: key\" = ''\n'lit' = \"\"");
	assert_string_equal(need(&toml.root, "a", TOML_STRING)->string,
			    "tab\t quote\" \xc3\xa9 \xf0\x9f\x98\x80 # no comment");
	assert_string_equal(need(&toml.root, "b", TOML_STRING)->string, "C:\\n \"x\"");
	assert_string_equal(need(&toml.root, "quoted: key", TOML_STRING)->string, "");
	assert_string_equal(need(&toml.root, "lit", TOML_STRING)->string, "");
	toml_free(&toml);
}

static void arrays_and_tables_nest(void **state)
{
	const struct toml_value *list, *one;
	struct toml toml;

	(void)state;
	parse(&toml, "models = [ \"a\", # first\n  [1, 2],\n]\n"
		     "[[benchmark]]\nname = \"x\"\n[benchmark.tolerance]\n\"instructions:u\" = 1\n"
		     "[[benchmark]]\nname = \"y\"\n"
		     "[a.b]\nc = 1\n[a]\nd = 2\n");
	list = need(&toml.root, "models", TOML_ARRAY);
	assert_int_equal(list->array.count, 2);
	assert_int_equal(list->array.item[1].array.item[1].integer, 2);
	list = need(&toml.root, "benchmark", TOML_ARRAY);
	assert_int_equal(list->array.count, 2);
	one = need(list->array.item[0].table, "tolerance", TOML_TABLE);
	assert_int_equal(need(one->table, "instructions:u", TOML_INTEGER)->integer, 1);
	assert_int_equal(one->line, 6);
	assert_string_equal(need(list->array.item[1].table, "name", TOML_STRING)->string, "y");
	one = need(&toml.root, "a", TOML_TABLE);
	assert_int_equal(need(one->table, "d", TOML_INTEGER)->integer, 2);
	toml_free(&toml);
}

static void tables_with_many_keys_find_all(void **state)
{
	size_t size;
	char *text, key[32];
	FILE *out = open_memstream(&text, &size);
	struct toml toml;

	(void)state;
	for (u32 i = 0; i < 5000; i++)
		fprintf(out, "k%u = %u\n", i, i);
	fclose(out);
	parse(&toml, text);
	for (u32 i = 0; i < 5000; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		assert_int_equal(need(&toml.root, key, TOML_INTEGER)->integer, i);
	}
	assert_null(toml_find(&toml.root, "k5000"));
	toml_free(&toml);
	free(text);
}

static const struct refused {
	const char *text;
	u32 line;
	const char *error; /* a part of it */
} refused[] = {
	{ "a = 1\nb =", 2, "there is no value" },
	{ "a = 1\n\na = 2", 3, "the key 'a' is there twice" },
	{ "a 1", 1, "there is no '=' after the key 'a'" },
	{ "= 1", 1, "there is no key" },
	{ "a.b = 1", 1, "dotted keys are not supported" },
	{ "a = { b = 1 }", 1, "inline tables" },
	{ "a = \"\"\"x\"\"\"", 1, "strings of several lines" },
	{ "a = '''x'''", 1, "strings of several lines" },
	{ "a = 2020-01-01", 1, "dates are not supported" },
	{ "a = 0o17", 1, "octal and binary" },
	{ "a = 017", 1, "'017' is no value" },
	{ "a = 1__0", 1, "'1__0' is no value" },
	{ "a = 1.", 1, "'1.' is no value" },
	{ "a = 0x", 1, "'0x' is no value" },
	{ "a = yes", 1, "'yes' is no value" },
	{ "a = 9223372036854775808", 1, "too large for an integer" },
	{ "a = 1e999", 1, "too large" },
	{ "a = \"x", 1, "a string has no closing \"" },
	{ "a = \"x\\\"\nb = 1", 1, "a string has no closing \"" },
	{ "a = \"\\q\"", 1, "unknown escape '\\q'" },
	{ "a = \"\\u12\"", 1, "needs 4 hexadecimal digits" },
	{ "a = \"\\u0000\"", 1, "no character that a string may have" },
	{ "a = \"\\ud800\"", 1, "no character that a string may have" },
	{ "a = \"\x01\"", 1, "control character 0x01" },
	{ "a = \"\xc0\x80\"", 1, "0xc0 that is not UTF-8" },
	{ "# \xff", 1, "0xff that is not UTF-8" },
	{ "a = [1, 2", 1, "an array has no closing ]" },
	{ "a = [1 2]", 1, "an array needs ',' or ']'" },
	{ "a = [[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]", 1, "nested more than 16 deep" },
	{ "a = 1 b = 2", 1, "unexpected 'b' where the line should end" },
	{ "[a]\n[a]", 2, "'a' is there twice" },
	{ "[[a]]\n[a]", 2, "'a' is there twice" },
	{ "[a]\n[[a]]", 2, "'a' is a table already" },
	{ "a = [1]\n[[a]]", 2, "'a' is an array already" },
	{ "a = 1\n[a.b]", 2, "'a' is an integer already" },
	{ "[a", 1, "a header has no closing ]" },
	{ "[[a]", 1, "a header has no closing ]]" },
	{ "[a] x", 1, "unexpected 'x'" },
	{ "[a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q]", 1, "more than 16 names" },
};

static void what_is_refused_has_its_line_and_reason(void **state)
{
	struct toml toml;

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(refused); i++) {
		bool ok = toml_parse(&toml, refused[i].text, strlen(refused[i].text));

		if (ok || toml.line != refused[i].line || !strstr(toml.error, refused[i].error))
			fail_msg("'%s': %s, line %u: %s", refused[i].text, ok ? "taken" : "refused",
				 toml.line, toml.error);
		toml_free(&toml);
	}
	assert_false(toml_parse(&toml, "a = \"\0\"", 7));
	assert_non_null(strstr(toml.error, "control character 0x00"));
	toml_free(&toml);
}

static void files_that_cannot_be_read_say_why(void **state)
{
	struct toml toml;

	(void)state;
	assert_false(toml_read(&toml, "/no/such/file"));
	assert_string_equal(toml.error, "No such file or directory");
	assert_int_equal(toml.line, 0);
	assert_false(toml_read(&toml, "/"));
	assert_string_equal(toml.error, "it is no regular file");
	assert_false(toml_read(&toml, "/dev/zero"));
	assert_string_equal(toml.error, "it is no regular file");
}

static void strings_that_are_written_are_read(void **state)
{
	static const char all[] = "a\"b\\c\td\ne\x01 \x7f \xc3\xa9";
	struct toml toml;
	size_t size;
	char *text;
	FILE *out = open_memstream(&text, &size);

	(void)state;
	toml_write_string(out, all);
	fputs(" = ", out);
	toml_write_string(out, all);
	fclose(out);
	parse(&toml, text);
	assert_string_equal(need(&toml.root, all, TOML_STRING)->string, all);
	toml_free(&toml);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(values_mean_what_toml_says),
		cmocka_unit_test(strings_have_escapes_or_are_literal),
		cmocka_unit_test(arrays_and_tables_nest),
		cmocka_unit_test(tables_with_many_keys_find_all),
		cmocka_unit_test(what_is_refused_has_its_line_and_reason),
		cmocka_unit_test(files_that_cannot_be_read_say_why),
		cmocka_unit_test(strings_that_are_written_are_read),
	};

	return cmocka_run_group_tests_name("check_toml", tests, NULL, NULL);
}
