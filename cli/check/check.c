// SPDX-License-Identifier: MIT
/*
 * vpmu check: runs the benchmarks of a suite in deterministic guests and compares their counts with
 * a baseline. A first round of steps counts; of those whose counts have changed, a second one finds
 * the functions.
 */
#include "cli/check/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"

#define STATUS_WORSE   1
#define STATUS_TROUBLE 2 /* whatever it is: 1 is a regression, and nothing else */

/* --- results of steps --- */

/* All that a check holds. */
struct check {
	const struct check_options *options;
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

/* The suite may have changed since: a file's name has the number of a case, and no more. */
static bool has_result(const struct check *check, u32 index, enum check_step step)
{
	struct check_results results;
	char path[PATH_MAX];
	bool found;

	check_result_path(path, check->folder, index, step);
	found = results_read(&results, path) && result_of(&results, &check->suite.one[index]);
	results_free(&results);
	return found;
}

/* With --resume a step that has left a result is not run again, and functions of the case stay:
 * they are of the run that is resumed. */
static void add_task(struct check *check, u32 index, enum check_step step)
{
	bool resume = check->options->resume;

	if (resume && has_result(check, index, step))
		return;
	check->task[check->tasks++] = (struct check_task){
		index, step,
		step == STEP_COUNTS && !(resume && has_result(check, index, STEP_FUNCTIONS))
	};
}

static int run_tasks(struct check *check)
{
	const struct check_options *options = check->options;
	int status = options->gather
			     ? STATUS_OK
			     : options->runner->run(&check->suite, check->task, check->tasks,
						    &options->limits, check->folder);

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
		const struct check_case *of = check->comparison[i].of;
		const struct check_result *before = result_of(&check->baseline, of);

		if (compare_is_changed(&check->comparison[i]) && before->has_functions &&
		    !result_of(&check->functions[check->chosen[i]], of))
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

/* --- the history --- */

static int add_to_history(const struct check *check)
{
	const struct check_result **list = calloc(check->count, sizeof(*list));
	u32 n = 0;
	int status;

	if (!list)
		return out_of_memory();
	for (u32 i = 0; i < check->count; i++) {
		list[n] = result_of(&check->counts[check->chosen[i]], check->comparison[i].of);
		n += list[n] != NULL;
	}
	status = history_add(check->options, &check->suite, list, n);
	free(list);
	return status;
}

/* --- what came of it --- */

static int write_report(const struct check_report *report, const struct check_format *format,
			const char *path)
{
	FILE *out = path ? fopen(path, "we") : stdout;

	if (out)
		format->write(out, report);
	if (!out || !(path ? stream_close(out, false) : stream_written(out)))
		return failure(STATUS_BROKEN, "cannot write %s: %s", path ?: "standard output",
			       strerror(errno));
	return STATUS_OK;
}

static int report(const struct check *check)
{
	const struct check_options *options = check->options;
	struct check_report report = { &check->suite, check->comparison, check->count,
				       options->explain };
	int status = STATUS_OK, one;

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

	if (choose(check) ||
	    (check->options->history && history_probe(check->options, &check->suite)))
		return STATUS_TROUBLE;
	read_baseline(check);
	status = run_rounds(check);
	if (status > 128) /* a signal: what there is is no result */
		return status;
	if (!status && check->options->update)
		status = update(check);
	if (report(check))
		status = STATUS_TROUBLE;
	if (check->options->history && add_to_history(check))
		status = STATUS_TROUBLE;
	if (status)
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

static int check_suite(const struct check_options *options)
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
	struct check_options options = { 0 };
	int status;

	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			command_help(&command_check);
			return STATUS_OK;
		}
	open_standard_files();
	status = options_parse(&options, argc, argv);
	return status ?: check_suite(&options);
}

const struct command command_check = {
	.name = "check",
	.synopsis = "[OPTIONS] [SUITE]",
	.summary = "Compare counts of benchmarks with a baseline, for CI",
	.run = run,
	.describe = options_describe,
};
