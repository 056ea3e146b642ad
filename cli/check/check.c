// SPDX-License-Identifier: MIT
/*
 * vpmu check: runs the benchmarks of a suite in deterministic guests and compares their counts with
 * a baseline. A first round of steps counts; of those whose counts have changed, a second one finds
 * the functions.
 */
#include "cli/check/check.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

#define MAX_FORMATS 8
#define MAX_JOBS    1024

#define STATUS_WORSE   1
#define STATUS_TROUBLE 2 /* whatever it is: 1 is a regression, and nothing else */

static const struct format {
	const char *name;
	void (*write)(FILE *out, const struct check_report *report);
} formats[] = {
	{ "text", report_text },
	{ "json", report_json },
	{ "junit", report_junit },
	{ "markdown", report_markdown },
};

struct options {
	const char *suite, *baseline, *explain, *results;
	const char *run_one; /* the index of a case */
	enum check_step step;
	bool update, gather;
	u32 jobs;
	struct {
		const struct format *format;
		const char *file; /* NULL: standard output */
	} output[MAX_FORMATS];
	u32 outputs;
};

/* --- the command line --- */

static int add_format(struct options *options, const char *value)
{
	size_t length = strcspn(value, "=");

	if (options->outputs == MAX_FORMATS)
		return usage_error(&command_check, "--format may be given %u times", MAX_FORMATS);
	for (u32 i = 0; i < ARRAY_SIZE(formats); i++) {
		if (strncmp(formats[i].name, value, length) || formats[i].name[length])
			continue;
		options->output[options->outputs].format = &formats[i];
		options->output[options->outputs++].file =
			value[length] ? value + length + 1 : NULL;
		return STATUS_OK;
	}
	return usage_error(&command_check, "--format is text, json, junit or markdown, not '%s'",
			   value);
}

static int set_jobs(struct options *options, const char *value)
{
	char *end;
	unsigned long n = strtoul(value, &end, 10);

	options->jobs = n;
	return *value >= '0' && *value <= '9' && !*end && n >= 1 && n <= MAX_JOBS
		       ? STATUS_OK
		       : usage_error(&command_check, "--jobs wants a number from 1 to %u, not '%s'",
				     MAX_JOBS, value);
}

static int set_step(struct options *options, const char *value)
{
	options->step = strcmp(value, "functions") ? STEP_COUNTS : STEP_FUNCTIONS;
	return !strcmp(value, "functions") || !strcmp(value, "counts")
		       ? STATUS_OK
		       : usage_error(&command_check, "--step is counts or functions, not '%s'",
				     value);
}

#define STRING(field)                                                      \
	static int set_##field(struct options *options, const char *value) \
	{                                                                  \
		options->field = value;                                    \
		return STATUS_OK;                                          \
	}

STRING(baseline)
STRING(explain)
STRING(results)
STRING(run_one)

static int set_update(struct options *options, const char *value)
{
	(void)value;
	options->update = true;
	return STATUS_OK;
}

static int set_gather(struct options *options, const char *value)
{
	(void)value;
	options->gather = true;
	return STATUS_OK;
}

static const struct option {
	const char *name, *value, *text;
	int (*set)(struct options *options, const char *value);
} options_table[] = {
	{ "update", NULL, "write the baseline, with what this run counts", set_update },
	{ "explain", "NAME", "run this benchmark alone, and list all functions that changed",
	  set_explain },
	{ "baseline", "FILE", "the baseline (SUITE.baseline, beside the suite)", set_baseline },
	{ "format", "F[=FILE]", "text, json, junit or markdown, to a file; may be given again",
	  add_format },
	{ "jobs", "N", "how many guests run at a time (as many as there are CPUs)", set_jobs },
	{ "results", "FOLDER", "keep the steps' results there", set_results },
	{ "run-one", "INDEX", "run one step, into --results, and compare nothing", set_run_one },
	{ "step", "STEP", "which one: counts or functions (counts)", set_step },
	{ "gather", NULL, "run nothing: compare what is in --results", set_gather },
};

static const struct option *find_option(const char *word)
{
	size_t length = strcspn(word + 2, "=");

	for (u32 i = 0; i < ARRAY_SIZE(options_table); i++)
		if (!strncmp(word, "--", 2) && !strncmp(options_table[i].name, word + 2, length) &&
		    !options_table[i].name[length])
			return &options_table[i];
	return NULL;
}

static int take_option(struct options *options, char **argv, int *i)
{
	const char *word = argv[*i], *value = strchr(word, '=');
	const struct option *option = find_option(word);

	if (!option)
		return usage_error(&command_check, "unknown option '%s'", word);
	value = value ? value + 1 : NULL;
	if (!option->value && value)
		return usage_error(&command_check, "--%s takes no value", option->name);
	if (option->value && !value)
		value = argv[++*i];
	if (option->value && !value)
		return usage_error(&command_check, "--%s needs a value: %s", option->name,
				   option->value);
	return option->set(options, value);
}

static int check_options(const struct options *options)
{
	if (options->update && options->explain)
		return usage_error(&command_check, "--update and --explain do not go together");
	if ((options->run_one || options->gather) && !options->results)
		return usage_error(&command_check, "--%s needs --results",
				   options->gather ? "gather" : "run-one");
	return STATUS_OK;
}

static int parse(struct options *options, int argc, char **argv)
{
	int status = STATUS_OK;

	for (int i = 1; i < argc && !status; i++) {
		if (argv[i][0] == '-' && argv[i][1])
			status = take_option(options, argv, &i);
		else if (options->suite)
			status = usage_error(&command_check,
					     "there is one suite, and not '%s' as well", argv[i]);
		else
			options->suite = argv[i];
	}
	return status ?: check_options(options);
}

/* --- results of steps --- */

/* All that a check holds. */
struct check {
	const struct options *options;
	struct check_suite suite;
	struct check_results baseline;
	bool bad_baseline;
	char folder[PATH_MAX];			  /* of results */
	struct check_results *counts, *functions; /* of each case; empty where there are none */
	struct check_comparison *comparison;
	u32 *chosen; /* cases that are run */
	u32 count;
	struct check_task *task;
	u32 tasks;
};

static const struct check_result *result_of(const struct check_results *results,
					    const struct check_case *of)
{
	return results_find(results, of->benchmark->name, of->model);
}

/* What is not there was not run; what cannot be read is told of. */
static void load_step(struct check *check, u32 index, enum check_step step)
{
	struct check_results *to = &(step == STEP_COUNTS ? check->counts : check->functions)[index];
	char path[PATH_MAX];

	check_result_path(path, check->folder, index, step);
	results_free(to);
	if (!access(path, F_OK) && !results_read(to, path))
		failure(STATUS_BROKEN, "%s", to->error);
}

static bool compare(struct check *check, u32 i)
{
	u32 index = check->chosen[i];
	const struct check_case *of = &check->suite.one[index];

	compare_free(&check->comparison[i]);
	load_step(check, index, STEP_COUNTS);
	load_step(check, index, STEP_FUNCTIONS);
	return compare_case(&check->suite, of, result_of(&check->counts[index], of),
			    result_of(&check->functions[index], of),
			    result_of(&check->baseline, of), &check->comparison[i]);
}

static bool compare_all(struct check *check)
{
	for (u32 i = 0; i < check->count; i++)
		if (!compare(check, i))
			return false;
	return true;
}

/* --- rounds of steps --- */

static void add_task(struct check *check, u32 index, enum check_step step)
{
	check->task[check->tasks++] = (struct check_task){ index, step };
}

static int run_tasks(struct check *check)
{
	int status = check->options->gather ? STATUS_OK
					    : jobs_run(&check->suite, check->task, check->tasks,
						       check->options->jobs, check->folder);

	check->tasks = 0;
	return status;
}

static int run_counts(struct check *check)
{
	bool functions = check->options->update || check->options->explain;

	for (u32 i = 0; i < check->count; i++) {
		if (check->suite.one[check->chosen[i]].benchmark->error)
			continue;
		add_task(check, check->chosen[i], STEP_COUNTS);
		if (functions)
			add_task(check, check->chosen[i], STEP_FUNCTIONS);
	}
	return run_tasks(check);
}

/* Of those that have changed, where the baseline has functions to compare with. */
static int run_functions(struct check *check)
{
	for (u32 i = 0; i < check->count; i++) {
		const struct check_result *before =
			result_of(&check->baseline, check->comparison[i].of);

		if (compare_is_changed(&check->comparison[i]) && before->has_functions &&
		    !check->functions[check->chosen[i]].count)
			add_task(check, check->chosen[i], STEP_FUNCTIONS);
	}
	return run_tasks(check);
}

static int run_rounds(struct check *check)
{
	int status = run_counts(check);

	if (!compare_all(check))
		return out_of_memory();
	if (!status)
		status = run_functions(check);
	return compare_all(check) ? status : out_of_memory();
}

/* --- the baseline --- */

/* Both steps in one. */
static struct check_result merged(const struct check_result *counts,
				  const struct check_result *functions)
{
	struct check_result both = *counts;

	both.has_functions = functions && functions->has_functions;
	if (both.has_functions)
		both.functions = functions->functions;
	if (functions)
		both.files = functions->files;
	return both;
}

/* A case that failed keeps what it had. */
static int update(struct check *check)
{
	const struct check_result **list = calloc(check->count, sizeof(*list));
	struct check_result *both = calloc(check->count, sizeof(*both));
	u32 n = 0;
	int status = STATUS_OK;

	if (!list || !both)
		return out_of_memory();
	for (u32 i = 0; i < check->count; i++) {
		const struct check_case *of = check->comparison[i].of;
		u32 index = check->chosen[i];

		both[i] =
			merged(result_of(&check->counts[index], of) ?: &(struct check_result){ 0 },
			       result_of(&check->functions[index], of));
		list[n] = check->comparison[i].verdict == VERDICT_FAILED
				  ? result_of(&check->baseline, of)
				  : &both[i];
		n += list[n] != NULL;
	}
	if (!results_write(check->suite.baseline,
			   "Counts of benchmarks, written by vpmu check --update.", list, n))
		status = failure(STATUS_BROKEN, "cannot write %s: %s", check->suite.baseline,
				 strerror(errno));
	free(list);
	free(both);
	return status;
}

/* Without a file there is no baseline yet. */
static void read_baseline(struct check *check)
{
	if (access(check->suite.baseline, F_OK) && errno == ENOENT)
		return;
	if (results_read(&check->baseline, check->suite.baseline))
		return;
	check->bad_baseline = !check->options->update;
	if (check->bad_baseline)
		failure(STATUS_USAGE, "%s", check->baseline.error);
	results_free(&check->baseline);
}

/* --- what came of it --- */

static int write_report(const struct check_report *report, const struct format *format,
			const char *path)
{
	FILE *out = path ? fopen(path, "we") : stdout;

	if (out)
		format->write(out, report);
	if (!out || (path ? fclose(out) : fflush(out)))
		return failure(STATUS_BROKEN, "cannot write %s: %s", path ?: "standard output",
			       strerror(errno));
	return STATUS_OK;
}

static int report(const struct check *check)
{
	const struct options *options = check->options;
	struct check_report report = { &check->suite, check->comparison, check->count,
				       options->explain };
	int status = STATUS_OK, one;

	if (!options->outputs)
		return write_report(&report, &formats[0], NULL);
	for (u32 i = 0; i < options->outputs; i++) {
		one = write_report(&report, options->output[i].format, options->output[i].file);
		status = status ?: one;
	}
	return status;
}

static int verdict(const struct check *check)
{
	struct check_report report = { &check->suite, check->comparison, check->count, false };

	if (report_count(&report, VERDICT_FAILED) || check->bad_baseline)
		return STATUS_TROUBLE;
	return report_count(&report, VERDICT_WORSE) && !check->options->update ? STATUS_WORSE
									       : STATUS_OK;
}

/* --- the whole --- */

static int choose(struct check *check)
{
	const char *wanted = check->options->explain;
	u32 n = check->suite.cases;

	check->chosen = calloc(n, sizeof(*check->chosen));
	check->counts = calloc(n, sizeof(*check->counts));
	check->functions = calloc(n, sizeof(*check->functions));
	check->comparison = calloc(n, sizeof(*check->comparison));
	check->task = calloc(n, 2 * sizeof(*check->task));
	if (!check->chosen || !check->counts || !check->functions || !check->comparison ||
	    !check->task)
		return out_of_memory();
	for (u32 i = 0; i < n; i++)
		if (!wanted || !strcmp(wanted, check->suite.one[i].benchmark->name))
			check->chosen[check->count++] = i;
	return check->count
		       ? STATUS_OK
		       : usage_error(&command_check, "the suite has no benchmark '%s'", wanted);
}

static int make_folder(struct check *check)
{
	const char *wanted = check->options->results;

	if (wanted)
		snprintf(check->folder, sizeof(check->folder), "%s", wanted);
	else
		snprintf(check->folder, sizeof(check->folder), "%s/vpmu-check-XXXXXX",
			 getenv("TMPDIR") ?: "/tmp");
	if (wanted ? !mkdir(wanted, 0777) || errno == EEXIST : mkdtemp(check->folder) != NULL)
		return STATUS_OK;
	return failure(STATUS_BROKEN, "cannot make %s: %s", check->folder, strerror(errno));
}

/* All files in a folder that we made. */
static void remove_folder(const struct check *check)
{
	char path[PATH_MAX];

	if (check->options->results)
		return;
	for (u32 i = 0; i < check->suite.cases; i++)
		for (u32 step = STEP_COUNTS; step <= STEP_FUNCTIONS; step++) {
			check_result_path(path, check->folder, i, step);
			unlink(path);
		}
	rmdir(check->folder);
}

static void free_check(struct check *check)
{
	for (u32 i = 0; check->comparison && i < check->count; i++)
		compare_free(&check->comparison[i]);
	for (u32 i = 0; check->counts && check->functions && i < check->suite.cases; i++) {
		results_free(&check->counts[i]);
		results_free(&check->functions[i]);
	}
	free(check->chosen);
	free(check->counts);
	free(check->functions);
	free(check->comparison);
	free(check->task);
	results_free(&check->baseline);
}

static int run_check(struct check *check)
{
	int status;

	if (choose(check))
		return STATUS_TROUBLE;
	read_baseline(check);
	status = run_rounds(check);
	if (status > 128) /* a signal: what there is is no result */
		return status;
	if (!status && check->options->update)
		status = update(check);
	if (report(check) || status)
		return STATUS_TROUBLE;
	return verdict(check);
}

static int run_one(struct check *check)
{
	char *end;
	unsigned long index = strtoul(check->options->run_one, &end, 10);

	if (*end || end == check->options->run_one || index >= check->suite.cases)
		return usage_error(&command_check, "--run-one wants a number below %u, not '%s'",
				   check->suite.cases, check->options->run_one);
	return check_run(&check->suite, index, check->options->step, check->folder);
}

static int check_suite(const struct options *options)
{
	struct check check = { .options = options };
	int status;

	if (!suite_read(&check.suite, options->suite)) {
		status = failure(STATUS_USAGE, "%s", check.suite.error);
		suite_free(&check.suite);
		return status;
	}
	if (options->baseline)
		snprintf(check.suite.baseline, sizeof(check.suite.baseline), "%s",
			 options->baseline);
	status = STATUS_TROUBLE;
	if (!make_folder(&check)) {
		status = options->run_one ? run_one(&check) : run_check(&check);
		remove_folder(&check);
	}
	free_check(&check);
	suite_free(&check.suite);
	return status;
}

static int run(int argc, char **argv)
{
	struct options options = { .jobs = sysconf(_SC_NPROCESSORS_ONLN) };
	int status;

	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			command_help(&command_check);
			return STATUS_OK;
		}
	status = parse(&options, argc, argv);
	if (status)
		return status;
	options.suite = options.suite ?: SUITE_FILE;
	return check_suite(&options);
}

static void describe(void)
{
	puts("options:");
	for (u32 i = 0; i < ARRAY_SIZE(options_table); i++) {
		const struct option *option = &options_table[i];
		char name[64];

		snprintf(name, sizeof(name), "--%s%s%s", option->name, option->value ? " " : "",
			 option->value ?: "");
		printf("  %-20s %s\n", name, option->text);
	}
	puts("\nThe suite (" SUITE_FILE
	     ") names benchmarks: man vpmu-check, docs/check.md. The baseline\n"
	     "belongs into the repository. Guests are deterministic: every run counts the same.\n\n"
	     "exit codes: 1 a count has grown by more than its tolerance; 2 a benchmark could not be\n"
	     "run, or the suite or the baseline cannot be used\n\n"
	     "examples:\n"
	     "  vpmu check --update\n"
	     "  vpmu check --format text --format junit=check.xml\n"
	     "  vpmu check --explain sort");
}

const struct command command_check = {
	.name = "check",
	.synopsis = "[OPTIONS] [SUITE]",
	.summary = "Compare counts of benchmarks with a baseline, for CI",
	.run = run,
	.describe = describe,
};
