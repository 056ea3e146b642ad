// SPDX-License-Identifier: MIT
/*
 * vpmu check without guests: what suites and baselines say, how results are compared, what the
 * reports have.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "cli/check/check.h"

#define SUITE "/tmp/vpmu-check.toml" /* a path whose folder exists */

static bool parse(struct check_suite *suite, const char *text)
{
	return suite_parse(suite, SUITE, text, strlen(text));
}

/* --- suites --- */

static void a_suite_has_defaults_and_exceptions(void **state)
{
	struct check_suite suite;
	const struct check_benchmark *b;

	(void)state;
	if (!parse(&suite,
		   "timeout = 9\nevents = [\"cycles\", \"instructions:k\"]\n"
		   "models = [\"milan\", \"icelake\"]\n"
		   "[tolerance]\n\"instructions:k\" = 0.5\n"
		   "[[benchmark]]\nname = \"one\"\ncommand = [\"a\", \"b\"]\n"
		   "[[benchmark]]\nname = \"two\"\ncommand = [\"c\"]\ntolerance = 2\n"
		   "events = [\"cpu/event=0xc4,umask=0/u\"]\nmodels = [\"genoa\"]\nfolder = \"bin\"\n"
		   "input = \"/dev/null\"\ntimeout = 1\ncpus = 2\nfeatures = \"host\"\n"
		   "[benchmark.environment]\nA = \"1\"\n"))
		fail_msg("%s", suite.error);
	assert_int_equal(suite.benchmarks, 2);
	assert_int_equal(suite.cases, 3);
	assert_string_equal(suite.one[1].model, "icelake");
	assert_string_equal(suite.baseline, "/tmp/vpmu-check.baseline");
	b = &suite.benchmark[0];
	assert_null(b->error);
	assert_string_equal(b->command[1], "b");
	assert_int_equal(b->timeout, 9);
	assert_int_equal(b->cpus, 1);
	assert_false(b->host_features);
	assert_int_equal(b->events, 2);
	assert_true(b->event[0].tolerance == 0);
	assert_true(b->event[1].tolerance == 0.5);
	b = &suite.benchmark[1];
	assert_null(b->error);
	assert_true(b->event[0].tolerance == 2);
	assert_int_equal(b->cpus, 2);
	assert_true(b->host_features);
	assert_string_equal(b->folder, "/tmp/bin");
	assert_string_equal(b->input, "/dev/null");
	assert_string_equal(b->environment[0], "A=1");
	suite_free(&suite);
}

static void a_benchmark_that_says_little_is_enough(void **state)
{
	struct check_suite suite;

	(void)state;
	assert_true(parse(&suite, "[[benchmark]]\nname = \"x\"\ncommand = [\"true\"]\n"));
	assert_int_equal(suite.cases, 1);
	assert_string_equal(suite.one[0].model, DEFAULT_MODEL);
	assert_string_equal(suite.benchmark[0].event[0].name, "instructions:u");
	suite_free(&suite);
}

#define ONE "[[benchmark]]\nname = \"x\"\ncommand = [\"true\"]\n"

static const struct {
	const char *text, *error;
} bad_suites[] = {
	{ "", ":1: there is no [[benchmark]]" },
	{ "benchmark = 1", ":1: 'benchmark' is not an array of tables" },
	{ "[benchmark]\nname = \"x\"", ":1: 'benchmark' is not an array of tables" },
	{ "modles = [\"milan\"]\n" ONE, ":1: there is no key 'modles' in a suite" },
	{ "[[benchmark]]\ncommand = [\"true\"]", ":1: a benchmark has no name" },
	{ "[[benchmark]]\nname = 1", ":2: 'name' wants a string, not an integer" },
	{ "[[benchmark]]\nname = \"\"", ":2: a name has one to 100 bytes" },
	{ "[[benchmark]]\nname = \"\\u001b\"", ":2: a name has one to 100 bytes, and no control" },
	{ "[[benchmark]]\nname = \"\\u009b\"", ":2: a name has one to 100 bytes, and no control" },
	{ "\"\\u001b\\u00e9\" = 1\n" ONE, ":1: there is no key '?\?\?' in a suite" },
	{ ONE ONE, ":5: the benchmark 'x' is there twice" },
	{ "baseline = 1\n" ONE, ":1: 'baseline' wants a string" },
	{ "tested = [1]\n" ONE, ":1: 'tested' wants a string" },
	{ "a = [\n", ":2: an array has no closing ]" },
};

static void a_suite_that_makes_no_sense_has_its_line(void **state)
{
	struct check_suite suite;

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(bad_suites); i++) {
		bool ok = parse(&suite, bad_suites[i].text);

		if (ok || !strstr(suite.error, bad_suites[i].error))
			fail_msg("'%s': %s", bad_suites[i].text, ok ? "taken" : suite.error);
		suite_free(&suite);
	}
}

static const struct {
	const char *text, *error;
} bad_benchmarks[] = {
	{ "", ":1: the benchmark 'b' has no command" },
	{ "command = []", ":3: 'command' is empty" },
	{ "command = [\"\"]", ":1: the command of 'b' is empty" },
	{ "command = \"true\"", ":3: 'command' wants an array, not a string" },
	{ "command = [1]", ":3: 'command' wants a string, not an integer" },
	{ "command = [\"x\"]\nmodels = [\"z80\"]", ":4: there is no CPU model 'z80'" },
	{ "command = [\"x\"]\nmodels = [\"milan\", \"milan\"]",
	  ":4: the model 'milan' is there twice" },
	{ "command = [\"x\"]\nevents = [\"a|b\"]", ":4: 'a|b' is no event" },
	{ "command = [\"x\"]\nevents = [\"\"]", ":4: '' is no event" },
	{ "command = [\"x\"]\nevents = [\"a:u,b:u\", \"c\"]",
	  ":4: 'a:u,b:u' is more than one event" },
	{ "command = [\"x\"]\nevents = [\"cpu/a,b/u,c\"]", ":4: 'cpu/a,b/u,c' is more than one" },
	{ "command = [\"x\"]\nevents = [\"mem:0x10/4,c\"]", ":4: 'mem:0x10/4,c' is more than one" },
	{ "command = [\"x\"]\nevents = [\"a\", \"a\"]", ":4: the event 'a' is there twice" },
	{ "command = [\"x\"]\ntolerance = -1", ":4: a tolerance is not negative" },
	{ "command = [\"x\"]\ntolerance = \"1\"", ":4: a tolerance is a number of percent" },
	{ "command = [\"x\"]\n[benchmark.tolerance]\ncycles = 1",
	  ":4: 'tolerance' names an event" },
	{ "command = [\"x\"]\ntimeout = 0", ":4: 'timeout' is from 1 to" },
	{ "command = [\"x\"]\ntimeout = 1.5", ":4: 'timeout' wants an integer, not a float" },
	{ "command = [\"x\"]\ncpus = 65", ":4: 'cpus' is from 1 to 64" },
	{ "command = [\"x\"]\nfeatures = \"all\"", ":4: 'features' is \"baseline\" or \"host\"" },
	{ "command = [\"x\"]\nexpect = 1", ":4: there is no key 'expect' in a benchmark" },
	{ "command = [\"x\"]\n[benchmark.environment]\n\"A=B\" = \"\"", ":5: 'A=B' is no name" },
};

static void a_benchmark_that_makes_no_sense_leaves_the_others(void **state)
{
	struct check_suite suite;
	char text[512];

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(bad_benchmarks); i++) {
		snprintf(text, sizeof(text), "[[benchmark]]\nname = \"b\"\n%s\n" ONE,
			 bad_benchmarks[i].text);
		if (!parse(&suite, text))
			fail_msg("'%s': %s", text, suite.error);
		assert_int_equal(suite.cases, 2);
		if (!suite.benchmark[0].error ||
		    !strstr(suite.benchmark[0].error, bad_benchmarks[i].error))
			fail_msg("'%s': %s", text, suite.benchmark[0].error ?: "taken");
		assert_null(suite.benchmark[1].error);
		suite_free(&suite);
	}
}

/* --- results --- */

static const char baseline_text[] =
	"version = 1\n"
	"[[case]]\nname = \"x\"\nmodel = \"icelake\"\n"
	"[case.where]\nvpmu = \"1\"\nkernel = \"6\"\n"
	"[case.files]\n\"/lib/libc.so.6\" = \"aa\"\n\"bin/x\" = \"01\"\n"
	"[case.counts]\n\"instructions:u\" = 1000\n\"branches:u\" = 100\n"
	"[case.functions]\n\"bin/x:main\" = 400\n\"bin/x:work\" = 600\n\"bin/x:gone\" = 3\n";

static void results_are_read_as_they_were_written(void **state)
{
	struct check_results first, second;
	const struct check_result *list[1];
	char path[] = "/tmp/vpmu-check-test-XXXXXX";
	int fd = mkstemp(path);

	(void)state;
	assert_true(fd >= 0);
	close(fd);
	assert_true(results_parse(&first, "x", baseline_text, strlen(baseline_text)));
	list[0] = &first.result[0];
	assert_true(results_write(path, "a test", list, 1));
	if (!results_read(&second, path))
		fail_msg("%s", second.error);
	unlink(path);
	assert_int_equal(second.count, 1);
	assert_string_equal(second.result[0].where.item[1].value, "6");
	assert_string_equal(second.result[0].files.item[0].name, "/lib/libc.so.6");
	assert_int_equal(counts_find(&second.result[0].counts, "branches:u")->value, 100);
	assert_int_equal(counts_find(&second.result[0].functions, "bin/x:work")->value, 600);
	assert_true(second.result[0].has_functions);
	assert_null(results_find(&second, "x", "milan"));
	results_free(&first);
	results_free(&second);
}

static const struct {
	const char *text, *error;
} bad_results[] = {
	{ "", "b:1: there is no version" },
	{ "version = 2", "b:1: it is of version 2, and this vpmu has 1" },
	{ "version = \"1\"", "b:1: there is no version" },
	{ "version = 1\ncase = 1", "b:2: 'case' is not an array of tables" },
	{ "version = 1\n[[case]]\n", "b:2: a case has no name or no model" },
	{ "version = 1\n[[case]]\nname = \"x\"", "b:2: a case has no name or no model" },
	{ "version = 1\n[[case]]\nname = \"x\"\nmodel = \"icelake\"\n[[case]]\nname = \"x\"",
	  "b:5: a case has no name or no model" },
	{ "version = 1\n[[case]]\nname = 1", "b:3: 'name' is no string" },
	{ "version = 1\n[[case]]\n[case.counts]\nx = -1",
	  "b:4: the count of 'x' is no whole number" },
	{ "version = 1\n[[case]]\ncounts = 1", "b:3: 'counts' is no table" },
	{ "version = 1\n[[case]]\n[case.files]\nx = 1", "b:4: 'x' is no string" },
	{ "version = ", "b:1: there is no value" },
};

static void a_baseline_that_makes_no_sense_has_its_line(void **state)
{
	struct check_results results;

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(bad_results); i++) {
		bool ok = results_parse(&results, "b", bad_results[i].text,
					strlen(bad_results[i].text));

		if (ok || !strstr(results.error, bad_results[i].error))
			fail_msg("'%s': %s", bad_results[i].text, ok ? "taken" : results.error);
		/* The part that was understood is no result. */
		assert_null(results_find(&results, "x", "icelake"));
		results_free(&results);
	}
}

/* --- comparing --- */

struct scene {
	struct check_suite suite;
	struct check_results before, counts, functions;
	struct check_comparison comparison;
};

/* The suite has one benchmark, x, with instructions:u and branches:u, and this tolerance. */
static void set_scene(struct scene *s, const char *tolerance, const char *before,
		      const char *counts, const char *functions)
{
	char text[256];

	snprintf(text, sizeof(text), ONE "tolerance = %s\n", tolerance);
	*s = (struct scene){ 0 };
	assert_true(parse(&s->suite, text));
	assert_true(results_parse(&s->before, "b", before, strlen(before)));
	assert_true(results_parse(&s->counts, "c", counts, strlen(counts)));
	if (functions)
		assert_true(results_parse(&s->functions, "f", functions, strlen(functions)));
	assert_true(compare_case(&s->suite, &s->suite.one[0],
				 results_find(&s->counts, "x", "icelake"),
				 results_find(&s->functions, "x", "icelake"),
				 results_find(&s->before, "x", "icelake"), &s->comparison));
}

static void end_scene(struct scene *s)
{
	compare_free(&s->comparison);
	results_free(&s->before);
	results_free(&s->counts);
	results_free(&s->functions);
	suite_free(&s->suite);
}

#define HEAD	       "version = 1\n[[case]]\nname = \"x\"\nmodel = \"icelake\"\n"
#define WHERE	       "[case.where]\nvpmu = \"1\"\nkernel = \"6\"\n"
#define COUNTS(i, b)   "[case.counts]\n\"instructions:u\" = " #i "\n\"branches:u\" = " #b "\n"
#define FILES(libc, x) "[case.files]\n\"/lib/libc.so.6\" = \"" libc "\"\n\"bin/x\" = \"" x "\"\n"

static enum check_verdict verdict_of(const char *tolerance, const char *before, const char *counts,
				     const char *functions)
{
	enum check_verdict verdict;
	struct scene s;

	set_scene(&s, tolerance, before, counts, functions);
	verdict = s.comparison.verdict;
	end_scene(&s);
	return verdict;
}

static void verdicts_follow_from_counts(void **state)
{
	static const struct {
		const char *tolerance, *counts;
		enum check_verdict verdict;
	} rows[] = {
		{ "0", HEAD WHERE COUNTS(1000, 100), VERDICT_SAME },
		{ "0", HEAD WHERE COUNTS(1001, 100), VERDICT_WORSE },
		{ "0", HEAD WHERE COUNTS(999, 100), VERDICT_BETTER },
		{ "0", HEAD WHERE COUNTS(999, 101), VERDICT_WORSE }, /* the gravest counts */
		{ "0.1", HEAD WHERE COUNTS(1001, 100), VERDICT_TOLERATED },
		{ "0.1", HEAD WHERE COUNTS(1002, 100), VERDICT_WORSE },
		{ "1", HEAD WHERE COUNTS(990, 100), VERDICT_TOLERATED },
		{ "1", HEAD WHERE COUNTS(989, 100), VERDICT_BETTER },
		{ "0", HEAD "error = \"it did not end\"\n", VERDICT_FAILED },
		{ "0", "version = 1\n", VERDICT_FAILED }, /* there is no result */
	};

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(verdict_of(rows[i].tolerance, baseline_text, rows[i].counts, NULL),
				 rows[i].verdict);
	assert_int_equal(verdict_of("0", "version = 1\n", HEAD WHERE COUNTS(1, 1), NULL),
			 VERDICT_NEW);
	assert_int_equal(verdict_of("0", HEAD WHERE "[case.counts]\n\"branches:u\" = 100\n",
				    HEAD WHERE COUNTS(1, 100), NULL),
			 VERDICT_NEW);
	/* From nothing to something. */
	assert_int_equal(
		verdict_of("50", HEAD WHERE COUNTS(0, 100), HEAD WHERE COUNTS(1, 100), NULL),
		VERDICT_WORSE);
}

/* Only if the counts differ, too: then it is not known why. */
static void a_baseline_of_another_environment_does_not_apply(void **state)
{
	static const char other[] =
		HEAD "[case.where]\nvpmu = \"1\"\nkernel = \"7\"\n" COUNTS(1001, 100);
	struct scene s;

	(void)state;
	set_scene(&s, "0", baseline_text, other, NULL);
	assert_int_equal(s.comparison.verdict, VERDICT_OTHER);
	assert_string_equal(s.comparison.reason, "the baseline was made with kernel 6, this is 7");
	end_scene(&s);
	assert_int_equal(
		verdict_of("0", baseline_text,
			   HEAD "[case.where]\nvpmu = \"1\"\nkernel = \"7\"\n" COUNTS(1000, 100),
			   NULL),
		VERDICT_SAME);
	/* A library, and the program itself, which is what is tested. */
	assert_int_equal(verdict_of("0", baseline_text, HEAD WHERE COUNTS(1001, 100),
				    HEAD FILES("bb", "01")),
			 VERDICT_OTHER);
	assert_int_equal(verdict_of("0", baseline_text, HEAD WHERE COUNTS(1001, 100),
				    HEAD FILES("aa", "02")),
			 VERDICT_WORSE);
}

static void functions_that_differ_are_listed_by_size(void **state)
{
	struct scene s;

	(void)state;
	set_scene(&s, "0", baseline_text, HEAD WHERE COUNTS(1001, 100),
		  HEAD "[case.functions]\n\"bin/x:main\" = 400\n\"bin/x:work\" = 1600\n"
		       "\"bin/x:new\" = 3\n");
	assert_true(s.comparison.has_functions);
	assert_int_equal(s.comparison.differences, 3);
	assert_string_equal(s.comparison.difference[0].name, "bin/x:work");
	assert_int_equal(s.comparison.difference[0].before, 600);
	assert_int_equal(s.comparison.difference[0].after, 1600);
	assert_string_equal(s.comparison.difference[1].name, "bin/x:gone");
	assert_int_equal(s.comparison.difference[1].after, 0);
	assert_string_equal(s.comparison.difference[2].name, "bin/x:new");
	end_scene(&s);
}

/* --- reports --- */

static char *report_of(const struct scene *s, void (*write)(FILE *, const struct check_report *),
		       bool every)
{
	struct check_report report = { &s->suite, &s->comparison, 1, every };
	size_t size;
	char *text;
	FILE *out = open_memstream(&text, &size);

	write(out, &report);
	fclose(out);
	return text;
}

static void expect(const struct scene *s, void (*write)(FILE *, const struct check_report *),
		   const char *expected)
{
	char *text = report_of(s, write, false);

	if (!strstr(text, expected))
		fail_msg("no '%s' in:\n%s", expected, text);
	free(text);
}

static void reports_have_the_change_and_its_function(void **state)
{
	struct scene s;

	(void)state;
	set_scene(&s, "0", baseline_text, HEAD WHERE COUNTS(1001000, 100),
		  HEAD "[case.functions]\n\"bin/x:main\" = 400\n\"bin/x:work<&\" = 1000600\n");
	expect(&s, report_text, "1,000 -> 1,001,000        +1,000,000 +100000.0000 %  worse\n");
	expect(&s, report_text, "+1,000,600  bin/x:work<&\n");
	expect(&s, report_text, "\n1 benchmark, 1 worse\n");
	expect(&s, report_markdown,
	       "| x@icelake | instructions:u | 1,000 | 1,001,000 | +1,000,000 |");
	expect(&s, report_markdown, "- +1,000,600 bin/x:work\\<\\&\n");
	expect(&s, report_json,
	       "\"event\": \"instructions:u\", \"before\": 1000, \"after\": 1001000");
	expect(&s, report_json,
	       "{\"function\": \"bin/x:work<&\", \"before\": 0, \"after\": 1000600}");
	expect(&s, report_json, "\"worse\": 1");
	expect(&s, report_junit, "tests=\"1\" failures=\"1\" errors=\"0\" skipped=\"0\"");
	expect(&s, report_junit, "<failure type=\"regression\" message=\"counts have grown\">");
	expect(&s, report_junit, "bin/x:work&lt;&amp;: +1000600\n");
	end_scene(&s);
}

static void a_change_of_nothing_reports_nothing(void **state)
{
	struct scene s;
	char *text;

	(void)state;
	set_scene(&s, "0", baseline_text, HEAD WHERE COUNTS(1000, 100), NULL);
	text = report_of(&s, report_text, false);
	assert_string_equal(text, "1 benchmark, 1 same\n");
	free(text);
	text = report_of(&s, report_markdown, false);
	assert_string_equal(text, "### vpmu check\n\n1 benchmark, 1 same\n");
	free(text);
	end_scene(&s);
}

static void a_failure_has_its_reason_in_every_report(void **state)
{
	struct scene s;

	(void)state;
	set_scene(&s, "0", baseline_text, HEAD "error = \"it \\\"ended\\\" <badly>\"\n", NULL);
	expect(&s, report_text, "failed: it \"ended\" <badly>\n");
	expect(&s, report_markdown, "failed: it \"ended\" \\<badly\\>");
	expect(&s, report_json, "\"reason\": \"it \\\"ended\\\" <badly>\"");
	expect(&s, report_junit,
	       "<error type=\"failed\" message=\"it &quot;ended&quot; &lt;badly&gt;\"/>");
	end_scene(&s);
}

/* A line of its own would be a command to a CI service. */
#define UNSAFE "a\\u001b]0;b\\n::error::c\\u009b"
#define SAFE   "a?]0;b?::error::c??"

static void text_of_files_reaches_reports_as_printable(void **state)
{
	static const char failed[] = HEAD "error = \"" UNSAFE "\"\n";
	struct scene s;

	(void)state;
	set_scene(&s, "0", baseline_text, failed, NULL);
	expect(&s, report_text, "failed: " SAFE "\n");
	end_scene(&s);
	set_scene(&s, "0", baseline_text,
		  HEAD "[case.where]\n\"" UNSAFE "\" = \"" UNSAFE "\"\n" COUNTS(1001, 100),
		  HEAD "[case.functions]\n\"" UNSAFE "\" = 7000\n");
	expect(&s, report_text, "was made with " SAFE " unknown, this is " SAFE "\n");
	expect(&s, report_text, "+7,000  " SAFE "\n");
	end_scene(&s);
}

static void a_name_is_one_word_of_the_shell(void **state)
{
	static const char now[] = HEAD "[case.functions]\na = 1\nb = 1\nc = 1\nd = 1\n";
	struct scene s;

	(void)state;
	set_scene(&s, "0", baseline_text, HEAD WHERE COUNTS(1001, 100), now);
	s.suite.benchmark[0].name = "x'$(y)";
	expect(&s, report_text, "2 more: vpmu check --explain 'x'\\''$(y)'\n");
	end_scene(&s);
}

/* --- jobs --- */

static int run_job(void)
{
	const struct check_task task = { .step = STEP_COUNTS };
	char folder[] = "/tmp/vpmu-check-test-XXXXXX", path[PATH_MAX];
	struct check_suite suite;
	int status;

	assert_true(parse(&suite, "[[benchmark]]\nname = \"b\"\ncommand = []\n"));
	assert_non_null(mkdtemp(folder));
	status = runner_local.run(&suite, &task, 1, &(struct check_limits){ .jobs = 1 }, folder);
	check_result_path(path, folder, 0, STEP_COUNTS);
	unlink(path);
	rmdir(folder);
	suite_free(&suite);
	return status;
}

/* One that arrives before the wait for a process is not left until that process ends. */
static void a_signal_before_the_wait_ends_the_jobs(void **state)
{
	sigset_t set, before, pending, after;
	int first, second;

	(void)state;
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, &before);
	raise(SIGTERM);
	first = run_job();
	sigpending(&pending);
	signal(SIGTERM, SIG_IGN); /* drops it, if it was not taken */
	signal(SIGTERM, SIG_DFL);
	second = run_job();
	sigprocmask(SIG_SETMASK, &before, &after);
	assert_int_equal(first, 128 + SIGTERM);
	assert_false(sigismember(&pending, SIGTERM));
	assert_int_equal(second, 0);
	assert_true(sigismember(&after, SIGTERM));
	assert_false(sigismember(&after, SIGCHLD));
}

/* As a parent may have left it: then the kernel keeps no exit status. */
static void jobs_are_reaped_where_their_signal_is_ignored(void **state)
{
	void (*before)(int) = signal(SIGCHLD, SIG_IGN);

	(void)state;
	alarm(60); /* or it would be waited for without end */
	assert_int_equal(run_job(), 0);
	alarm(0);
	assert_true(signal(SIGCHLD, before) == SIG_IGN);
}

/* A path is any bytes but 0; JSON is UTF-8 (RFC 8259, 8.1). */
static void paths_that_are_not_utf8_are_json_all_the_same(void **state)
{
	static const struct {
		const char *path, *json;
	} row[] = {
		{ "a/\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80",
		  "\"a/\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\"" },
		{ "\xff\xc3/b\x80", "\"\\ufffd\\ufffd/b\\ufffd\"" },
		{ "\xed\xa0\x80\xe2\x82", "\"\\ufffd\\ufffd\\ufffd\\ufffd\\ufffd\"" },
		{ "\"\\\n", "\"\\\"\\\\\\u000a\"" },
	};

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(row); i++) {
		char *text;
		size_t size;
		FILE *out = open_memstream(&text, &size);

		report_put_string(out, row[i].path);
		fclose(out);
		assert_string_equal(text, row[i].json);
		free(text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_suite_has_defaults_and_exceptions),
		cmocka_unit_test(a_benchmark_that_says_little_is_enough),
		cmocka_unit_test(a_suite_that_makes_no_sense_has_its_line),
		cmocka_unit_test(a_benchmark_that_makes_no_sense_leaves_the_others),
		cmocka_unit_test(results_are_read_as_they_were_written),
		cmocka_unit_test(a_baseline_that_makes_no_sense_has_its_line),
		cmocka_unit_test(verdicts_follow_from_counts),
		cmocka_unit_test(a_baseline_of_another_environment_does_not_apply),
		cmocka_unit_test(functions_that_differ_are_listed_by_size),
		cmocka_unit_test(reports_have_the_change_and_its_function),
		cmocka_unit_test(a_change_of_nothing_reports_nothing),
		cmocka_unit_test(a_failure_has_its_reason_in_every_report),
		cmocka_unit_test(text_of_files_reaches_reports_as_printable),
		cmocka_unit_test(paths_that_are_not_utf8_are_json_all_the_same),
		cmocka_unit_test(a_name_is_one_word_of_the_shell),
		cmocka_unit_test(a_signal_before_the_wait_ends_the_jobs),
		cmocka_unit_test(jobs_are_reaped_where_their_signal_is_ignored),
	};

	return cmocka_run_group_tests_name("check", tests, NULL, NULL);
}
