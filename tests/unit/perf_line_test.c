// SPDX-License-Identifier: MIT
/*
 * What vpmu perf makes of perf's arguments: where a command runs, and which files it writes and
 * reads.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "base/types.h"
#include "cli/perf/perf.h"

static const struct row {
	const char *line;
	bool host;
	int record;
	const char *output; /* NULL: none */
} rows[] = {
	{ "", false, -1, NULL },
	{ "stat ls", false, -1, NULL },
	{ "stat -o a ls", false, -1, "a" },
	{ "stat -x, -o a ls -o b", false, -1, "a" },
	{ "stat -I 100 -oa ls", false, -1, "a" },
	{ "stat -j -o a ls", false, -1, "a" },
	{ "stat --field-separator , --output a ls", false, -1, "a" },
	{ "stat record -o a ls", false, 1, "a" },
	{ "stat report", false, -1, NULL },
	{ "record", false, 0, NULL },
	{ "record ls -o b", false, 0, NULL },
	{ "record -- ls -o b", false, 0, NULL },
	{ "record -e x ls -o b", false, 0, NULL },
	{ "record -j any -o a ls", false, 0, "a" },
	{ "record -g -go a ls", false, 0, "a" },
	{ "record -qoa", false, 0, "a" },
	{ "record -o a --output=b ls", false, 0, "b" },
	{ "record --call-graph dwarf -o a ls", false, 0, "a" },
	{ "record --call-graph=dwarf -o - ls", false, 0, "-" },
	{ "record -o", false, 0, NULL },
	{ "record --output", false, 0, NULL },
	{ "mem record -o a ls", false, 1, "a" },
	{ "mem -t load record -o a ls", false, 3, "a" },
	{ "mem -tload -x , --type=load --cpu 0 -D record -o a ls", false, 8, "a" },
	{ "mem report", true, -1, NULL },
	{ "mem report -i record", true, -1, NULL },
	{ "mem -i record report", true, -1, NULL },
	{ "mem --input record report", true, -1, NULL },
	{ "mem -i", true, -1, NULL },
	{ "mem --input", true, -1, NULL },
	{ "mem", true, -1, NULL },
	{ "sched script top", true, -1, NULL },
	{ "sched record record -o b", false, 1, NULL },
	{ "kvm --host --guestmount record record -o a", false, 4, "a" },
	{ "kvm stat record -o a", false, 2, "a" },
	{ "kvm stat", true, -1, NULL },
	{ "kvm stat report", true, -1, NULL },
	{ "kvm stat live", false, -1, NULL },
	{ "sched latency", true, -1, NULL },
	{ "script", true, -1, NULL },
	{ "script record", false, -1, NULL },
	{ "report -i x", true, -1, NULL },
	{ "annotate", true, -1, NULL },
	{ "list", false, -1, NULL },
	{ "top", false, -1, NULL },
	{ "--version", false, -1, NULL },
};

static char **split(const char *line, char text[256], char *argv[32])
{
	char *rest = text;
	u32 n = 0;

	snprintf(text, 256, "%s", line);
	while (n < 31 && (argv[n] = strsep(&rest, " ")))
		n += argv[n][0] != '\0';
	argv[n] = NULL;
	return argv;
}

static void a_command_is_understood(void **state)
{
	char text[256], *argv[32];

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		const char *output = perf_output(split(rows[i].line, text, argv));

		if (perf_is_for_host(argv) != rows[i].host ||
		    perf_find_record(argv) != rows[i].record || !output != !rows[i].output ||
		    (output && strcmp(output, rows[i].output)))
			fail_msg("perf %s: host %d, record %d, output %s", rows[i].line,
				 perf_is_for_host(argv), perf_find_record(argv), output);
	}
}

static void the_file_that_is_read_is_found(void **state)
{
	static const char *const cases[][2] = {
		{ "report", "perf.data" },	   { "report -i a", "a" },
		{ "report --stdio -ia", "a" },	   { "annotate --input a main", "a" },
		{ "script --input=a -F ip", "a" }, { "report --inline", "perf.data" },
		{ "report -i", "perf.data" },	   { "report --input", "perf.data" },
	};
	char text[256], *argv[32];

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(cases); i++)
		assert_string_equal(perf_input(split(cases[i][0], text, argv)), cases[i][1]);
}

static void a_trace_of_rr_is_found(void **state)
{
	static const char *const cases[][2] = {
		{ "record -o a ls", "a" },
		{ "record -n -v X=1 --output-trace-dir=a ls", "a" },
		{ "record --output-trace-dir a ls", "a" },
		{ "record ls -o a", NULL },
		{ "replay -o a", NULL },
		{ "", NULL },
	};
	char text[256], *argv[32];

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *output = rr_output(split(cases[i][0], text, argv));

		assert_string_equal(output ?: "none", cases[i][1] ?: "none");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_command_is_understood),
		cmocka_unit_test(the_file_that_is_read_is_found),
		cmocka_unit_test(a_trace_of_rr_is_found),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
