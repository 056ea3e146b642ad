// SPDX-License-Identifier: MIT
/*
 * Any text as a suite, and as a baseline, of vpmu check: each is understood or refused with a
 * reason, and what is written of a baseline is read again as the same.
 *
 * Input: the text.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/check/check.h"
#include "fuzz/fuzz.h"

static char text[64 << 10];

void fuzz_set_up(void)
{
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

static void try_baseline(size_t size)
{
	struct check_results results;

	if (results_parse(&results, "baseline", text, size))
		check_strings(&results);
	else if (!*results.error)
		fuzz_fail("no reason is given");
	results_free(&results);
}

void fuzz_one(struct fuzz_input *in)
{
	size_t size = fuzz_take(in, text, sizeof(text));

	try_suite(size);
	try_baseline(size);
}
