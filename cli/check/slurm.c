// SPDX-License-Identifier: MIT
/*
 * Steps on a cluster of Slurm's: one array job, each of whose tasks runs `vpmu check --run-one` on
 * some node and leaves its result in a folder that all nodes share.
 *
 * Slurm decides when a task has ended, not its result: a task that is killed and queued again may
 * have taken its guest's death for the benchmark's, and written so. It writes again when it runs
 * again.
 *
 *  1. Results of an earlier run are put aside before the job is submitted, put back if it cannot
 *     be, and removed once it is: what is in the folder is of this job or of nothing.
 *  2. A task has ended when squeue says so, or answers and no longer knows it.
 *  3. Of a task that ended otherwise than well, a result that is an error is removed.
 */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/monotonic.h"
#include "cli/check/check.h"
#include "cli/check/signals.h"
#include "cli/check/tool.h"
#include "cli/cli.h"

#define LONGEST_PAUSE \
	15000 /* ms between two questions to Slurm's controller, which all users share */

/* squeue(1), JOB STATE CODES, of a task that does not run again by itself. */
enum outcome { ACTIVE, GONE, COMPLETED, OTHERS };
static const char *const outcomes[] = {
	[GONE] = "no longer in the queue",
	[COMPLETED] = "COMPLETED",
	"BOOT_FAIL",
	"CANCELLED",
	"DEADLINE",
	"FAILED",
	"NODE_FAIL",
	"OUT_OF_MEMORY",
	"PREEMPTED",
	"REVOKED",
	"TIMEOUT",
};

struct slurm {
	const struct check_suite *suite;
	const struct check_task *task;
	u32 count;
	const struct check_limits *limits;
	char results[PATH_MAX]; /* absolute */
	char job[16];
	char cluster[80]; /* --clusters=NAME; no name: there is one cluster */
	u8 *outcome;	  /* of each task */
	bool told_held;
	int stopped; /* by this signal; 0: by none */
	struct check_signals signals;
};

/* --- results --- */

static void result_path(const struct slurm *slurm, u32 i, char path[PATH_MAX])
{
	check_result_path(path, slurm->results, slurm->task[i].index, slurm->task[i].step);
}

static bool has_result(const struct slurm *slurm, u32 i)
{
	char path[PATH_MAX];

	result_path(slurm, i, path);
	return !access(path, F_OK);
}

/* NFS caches that a name is not there until its folder is opened again. */
static u32 count_results(const struct slurm *slurm)
{
	DIR *folder = opendir(slurm->results);
	u32 n = 0;

	if (folder)
		closedir(folder);
	for (u32 i = 0; i < slurm->count; i++)
		n += has_result(slurm, i);
	return n;
}

static bool result_is_error(const struct slurm *slurm, u32 i)
{
	const struct check_case *of = &slurm->suite->one[slurm->task[i].index];
	const struct check_result *result;
	struct check_results results;
	char path[PATH_MAX];
	bool is_error;

	result_path(slurm, i, path);
	is_error = !results_read(&results, path);
	result = results_find(&results, of->benchmark->name, of->model);
	is_error |= !result || result->error;
	results_free(&results);
	return is_error;
}

/* --- the job --- */

/* In single quotes, for sh. */
static void put_quoted(FILE *out, const char *text)
{
	fputc('\'', out);
	for (; *text; text++)
		if (*text == '\'')
			fputs("'\\''", out);
		else
			fputc(*text, out);
	fputc('\'', out);
}

/* What each task runs: it finds its step by its place in a list. NULL: out of memory. */
static char *make_script(const struct slurm *slurm, const char *vpmu, const char *suite)
{
	char *script = NULL;
	size_t size;
	FILE *out = open_memstream(&script, &size);

	if (!out)
		return NULL;
	fputs("#!/bin/sh\nset --", out);
	for (u32 i = 0; i < slurm->count; i++)
		fprintf(out, " %u:%s", slurm->task[i].index,
			slurm->task[i].step == STEP_COUNTS ? "counts" : "functions");
	fputs("\nshift \"$SLURM_ARRAY_TASK_ID\"\nexec ", out);
	put_quoted(out, vpmu);
	fputs(" check --run-one \"${1%:*}\" --step \"${1#*:}\" --results ", out);
	put_quoted(out, slurm->results);
	fputc(' ', out);
	put_quoted(out, suite);
	fputc('\n', out);
	return fclose(out) ? NULL : script;
}

/* "0-19", or "0-19%4": four at a time. */
static void make_array(const struct slurm *slurm, char *text, size_t size)
{
	int n = snprintf(text, size, "--array=0-%u", slurm->count - 1);

	if (slurm->limits->jobs)
		snprintf(text + n, size - n, "%%%u", slurm->limits->jobs);
}

static void log_path(const struct slurm *slurm, u32 i, char path[PATH_MAX])
{
	snprintf(path, PATH_MAX, "%.*s/task-%u.log", PATH_MAX - 32, slurm->results, i);
}

/* A percent sign in sbatch's --output begins a pattern; %a is the task's number. */
static void make_log_pattern(const struct slurm *slurm, char *text)
{
	text += sprintf(text, "--output=");
	for (const char *c = slurm->results; *c; c++) {
		if (*c == '%')
			*text++ = '%';
		*text++ = *c;
	}
	strcpy(text, "/task-%a.log");
}

/* sbatch --parsable says "JOB", or "JOB;CLUSTER" if it was told to choose one of several. */
static bool take_job(struct slurm *slurm, const char *said)
{
	size_t n = strspn(said, "0123456789");
	const char *cluster = said[n] == ';' ? said + n + 1 : "";

	snprintf(slurm->job, sizeof(slurm->job), "%.*s", (int)n, said);
	snprintf(slurm->cluster, sizeof(slurm->cluster), "--clusters=%.*s",
		 (int)strcspn(cluster, "\n"), cluster);
	return n && n < sizeof(slurm->job);
}

/* An option for squeue and scancel; NULL where there is one cluster: the end of a list. */
static char *cluster_option(const struct slurm *slurm)
{
	return slurm->cluster[strlen("--clusters=")] ? (char *)slurm->cluster : NULL;
}

static int submit(struct slurm *slurm)
{
	char array[64], log[2 * PATH_MAX + 32], vpmu[PATH_MAX], suite[PATH_MAX];
	char *argv[] = { "sbatch",     "--parsable",	       "--requeue", "--job-name=vpmu-check",
			 "--ntasks=1", "--open-mode=truncate", array,	    log,
			 NULL };
	struct tool_answer answer;
	char *script;
	int status = STATUS_OK;

	if (!realpath("/proc/self/exe", vpmu) || !realpath(slurm->suite->path, suite))
		return failure(STATUS_BROKEN, "cannot find vpmu and %s: %s", slurm->suite->path,
			       strerror(errno));
	make_array(slurm, array, sizeof(array));
	make_log_pattern(slurm, log);
	script = make_script(slurm, vpmu, suite);
	if (!script)
		return out_of_memory();
	earlier_put_aside(slurm->task, slurm->count, slurm->results);
	if (tool_run(argv, script, &answer) && take_job(slurm, answer.output)) {
		earlier_remove(slurm->task, slurm->count, slurm->results);
	} else {
		earlier_put_back(slurm->task, slurm->count, slurm->results);
		status = failure(STATUS_BROKEN, "Slurm has not taken the job: %s", answer.said);
	}
	free(answer.output);
	free(script);
	return status;
}

static void cancel(const struct slurm *slurm)
{
	char *argv[] = { "scancel", (char *)slurm->job, cluster_option(slurm), NULL };
	struct tool_answer answer;

	if (!tool_run(argv, "", &answer))
		failure(STATUS_BROKEN, "cannot cancel Slurm's job %s: %s", slurm->job, answer.said);
	free(answer.output);
}

/* --- what becomes of it --- */

static enum outcome outcome_of(const char *state)
{
	for (u32 i = COMPLETED; i < ARRAY_SIZE(outcomes); i++)
		if (!strcmp(outcomes[i], state))
			return i;
	return ACTIVE;
}

/* A held task waits for its user, who should know. */
static void tell_held(struct slurm *slurm, const char *reason)
{
	if (slurm->told_held || (!strcasestr(reason, "held") && !strcasestr(reason, "hold")))
		return;
	slurm->told_held = true;
	fprintf(stderr, "vpmu: Slurm holds tasks of job %s (%s): scontrol release %s\n", slurm->job,
		reason, slurm->job);
}

/* JOB|TASK|STATE|REASON */
static void take_line(struct slurm *slurm, char *line)
{
	char *job = strsep(&line, "|"), *task = strsep(&line, "|"), *state = strsep(&line, "|");
	unsigned long i;
	char *end;

	if (!line || strcmp(job, slurm->job))
		return;
	i = strtoul(task, &end, 10);
	if (*end || end == task || i >= slurm->count)
		return;
	slurm->outcome[i] = outcome_of(state);
	make_printable(line);
	if (slurm->outcome[i] == ACTIVE)
		tell_held(slurm, line);
}

/* All jobs of the user are asked for: a question for one that is no longer known fails, as one to a
 * controller that is away does. */
static bool ask(struct slurm *slurm, struct tool_answer *answer)
{
	char user[16], *rest, *line;
	char *argv[] = {
		"squeue", "--noheader",	  "--array",
		"--all",  "--states=all", "--format=%F|%K|%T|%r",
		"--user", user,		  cluster_option(slurm),
		NULL,
	};

	snprintf(user, sizeof(user), "%u", (unsigned)getuid());
	if (!tool_run(argv, "", answer))
		return false;
	memset(slurm->outcome, GONE, slurm->count);
	rest = answer->output;
	while ((line = strsep(&rest, "\n")))
		take_line(slurm, line);
	return true;
}

static bool is_active(const struct slurm *slurm)
{
	for (u32 i = 0; i < slurm->count; i++)
		if (slurm->outcome[i] == ACTIVE)
			return true;
	return false;
}

/* On a terminal only: a line that the next one replaces. */
static void show(const struct slurm *slurm, u32 done)
{
	if (isatty(2))
		fprintf(stderr, "\r\033[K[%u/%u] Slurm's job %s", done, slurm->count, slurm->job);
}

/* Waits until the next question is due: in `pause` ms, or as soon as all results are there. */
static void wait_for_results(struct slurm *slurm, u64 pause)
{
	u64 until = monotonic_ms() + pause;
	u32 done;

	do {
		slurm->stopped = signals_wait(&slurm->signals, &(struct timespec){ .tv_sec = 1 });
		done = count_results(slurm);
		show(slurm, done);
	} while (!slurm->stopped && done < slurm->count && monotonic_ms() < until);
}

static int give_up(const struct slurm *slurm, const char *said)
{
	return failure(STATUS_BROKEN,
		       "Slurm has not answered for %u s (%s). Its job %s may go on: 'vpmu check "
		       "--gather --results %s' compares what it writes",
		       slurm->limits->patience, said, slurm->job, slurm->results);
}

/* Until no task is active. */
static int watch(struct slurm *slurm)
{
	u64 heard = monotonic_ms(), pause = 1000;
	struct tool_answer answer;
	int status = STATUS_OK;

	while (!status && is_active(slurm) && !slurm->stopped) {
		wait_for_results(slurm, pause);
		pause = pause * 5 / 4 < LONGEST_PAUSE ? pause * 5 / 4 : LONGEST_PAUSE;
		if (slurm->stopped)
			break;
		if (ask(slurm, &answer))
			heard = monotonic_ms();
		else if (monotonic_ms() - heard > slurm->limits->patience * 1000ull)
			status = give_up(slurm, answer.said);
		free(answer.output);
	}
	return status;
}

/* --- tasks without a result --- */

static void tidy(const struct slurm *slurm, u32 i)
{
	char path[PATH_MAX];

	if (slurm->outcome[i] >= OTHERS && has_result(slurm, i) && result_is_error(slurm, i)) {
		result_path(slurm, i, path);
		unlink(path);
	}
	log_path(slurm, i, path);
	if (has_result(slurm, i))
		unlink(path);
}

/* One message for all tasks that ended so. */
static int tell_missing(const struct slurm *slurm, enum outcome outcome)
{
	const struct check_case *of;
	char log[PATH_MAX];
	u32 n = 0, first = 0;

	for (u32 i = slurm->count; i--;)
		if (slurm->outcome[i] == outcome && !has_result(slurm, i)) {
			n++;
			first = i;
		}
	if (!n)
		return STATUS_OK;
	of = &slurm->suite->one[slurm->task[first].index];
	log_path(slurm, first, log);
	return failure(
		STATUS_BROKEN,
		"%u of %u tasks of Slurm's job %s left no result: %s. The first is %s on %s, "
		"task %u: see %s. --resume runs what is missing",
		n, slurm->count, slurm->job, outcomes[outcome], of->benchmark->name, of->model,
		first, log);
}

static int finish(const struct slurm *slurm)
{
	int status = STATUS_OK, one;

	count_results(slurm);
	for (u32 i = 0; i < slurm->count; i++)
		tidy(slurm, i);
	for (u32 outcome = GONE; outcome < ARRAY_SIZE(outcomes); outcome++) {
		one = tell_missing(slurm, outcome);
		status = status ?: one;
	}
	return status;
}

/* --- the whole --- */

static int run_job(struct slurm *slurm)
{
	int status = submit(slurm);

	if (status)
		return status;
	status = watch(slurm);
	if (isatty(2))
		fputs("\r\033[K", stderr);
	if (slurm->stopped) {
		cancel(slurm);
		return 128 + slurm->stopped;
	}
	return status ?: finish(slurm);
}

static int slurm_run(const struct check_suite *suite, const struct check_task *task, u32 count,
		     const struct check_limits *limits, const char *results)
{
	struct slurm slurm = { .suite = suite, .task = task, .count = count, .limits = limits };
	int status;

	if (!count)
		return STATUS_OK;
	if (!realpath(results, slurm.results))
		return failure(STATUS_BROKEN, "cannot find %s: %s", results, strerror(errno));
	slurm.outcome = calloc(count, sizeof(*slurm.outcome));
	if (!slurm.outcome)
		return out_of_memory();
	signals_block(&slurm.signals);
	status = run_job(&slurm);
	signals_restore(&slurm.signals);
	free(slurm.outcome);
	return status;
}

const struct check_runner runner_slurm = { "slurm", true, slurm_run };
