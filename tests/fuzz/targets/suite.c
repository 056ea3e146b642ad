// SPDX-License-Identifier: MIT
/*
 * Any text as a suite, as a baseline, and as the result of a step, of vpmu check: each is
 * understood or refused with a reason, and what is written of a baseline is read again as the same.
 *
 * Input: the text.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/check/check.h"
#include "fuzz/fuzz.h"

static const char suite_text[] = "[[benchmark]]\nname = \"x\"\ncommand = [\"true\"]\n";
static const char other_text[] = "version = 1\n[[case]]\nname = \"x\"\nmodel = \"icelake\"\n"
				 "[case.where]\nvpmu = \"1\"\n"
				 "[case.files]\n\"/lib/libc.so.6\" = \"aa\"\n"
				 "[case.counts]\n\"instructions:u\" = 1\n\"branches:u\" = 1\n"
				 "[case.functions]\n\"bin/x:main\" = 1\n";

static char text[64 << 10];
static struct check_suite fixed_suite;
static struct check_results other;

void fuzz_set_up(void)
{
	if (!suite_parse(&fixed_suite, "/tmp/suite.toml", suite_text, sizeof(suite_text) - 1) ||
	    !results_parse(&other, "other", other_text, sizeof(other_text) - 1))
		fuzz_fail("%s%s", fixed_suite.error, other.error);
}

static void try_suite(size_t size)
{
	struct check_suite suite;
	bool ok = suite_parse(&suite, "/tmp/suite.toml", text, size);

	if (ok ? !suite.cases : !*suite.error)
		fuzz_fail("%s", ok ? "a suite without benchmarks" : "no reason is given");
	for (u32 i = 0; i < suite.cases; i++)
		if (!suite.one[i].benchmark->error && !suite.one[i].benchmark->command[0])
			fuzz_fail("a benchmark without a command");
	suite_free(&suite);
}

static char *write_strings(const struct check_results *results, size_t *size)
{
	char *out;
	FILE *to = open_memstream(&out, size);

	for (u32 i = 0; i < results->count; i++) {
		fprintf(to, "s%u = ", i);
		toml_write_string(to, results->result[i].name);
		fputc('\n', to);
	}
	fclose(to);
	return out;
}

/* Names as they are written are names as they were read. */
static void check_strings(const struct check_results *results)
{
	struct toml again;
	char key[16], *out;
	size_t size;

	out = write_strings(results, &size);
	if (!toml_parse(&again, out, size))
		fuzz_fail("line %u of what was written: %s", again.line, again.error);
	for (u32 i = 0; i < results->count; i++) {
		const struct toml_value *value;

		snprintf(key, sizeof(key), "s%u", i);
		value = toml_find(&again.root, key);
		if (!value || strcmp(value->string, results->result[i].name))
			fuzz_fail("a string is another one when it was written");
	}
	toml_free(&again);
	free(out);
}

static const struct check_result *result_of(const struct check_results *results)
{
	const struct check_case *of = &fixed_suite.one[0];

	return results_find(results, of->benchmark->name, of->model);
}

/* As vpmu check --gather has them: whether or not they were understood. */
static void try_comparison(const struct check_results *now, const struct check_results *before)
{
	struct check_comparison comparison;
	struct check_report report = { &fixed_suite, &comparison, 1, true };
	size_t size;
	char *out;
	FILE *to = open_memstream(&out, &size);

	if (!compare_case(&fixed_suite, &fixed_suite.one[0], result_of(now), result_of(now),
			  result_of(before), &comparison))
		fuzz_fail("out of memory");
	report_text(to, &report);
	fclose(to);
	for (size_t i = 0; i < size; i++)
		if (((u8)out[i] < 0x20 && out[i] != '\n') || out[i] == 0x7f)
			fuzz_fail("a report has the control character %02x", out[i]);
	free(out);
	compare_free(&comparison);
}

static void try_baseline(size_t size)
{
	struct check_results results;

	if (results_parse(&results, "baseline", text, size))
		check_strings(&results);
	else if (!*results.error)
		fuzz_fail("no reason is given");
	try_comparison(&results, &other);
	try_comparison(&other, &results);
	results_free(&results);
}

void fuzz_one(struct fuzz_input *in)
{
	size_t size = fuzz_take(in, text, sizeof(text));

	try_suite(size);
	try_baseline(size);
}
