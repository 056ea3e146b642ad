/* SPDX-License-Identifier: MIT */
/*
 * The parts of `vpmu check`: counts of benchmarks, compared with those of a baseline.
 *
 *   check.c       the command: which steps are run, and the exit code
 *   toml*.c       the files' syntax
 *   suite.c       what a suite says
 *   result.c      results and baselines: one format, read and written
 *   step.c        a step: one benchmark on one model in a deterministic guest, into a file
 *   code_names.c  which function the code of a profile is
 *   options.c     the command line
 *   jobs.c        steps, some at a time
 *   earlier.c     results of an earlier run, which steps replace
 *   slurm.c       steps on a cluster of Slurm's
 *   signals.c     what stops either
 *   tool.c        programs that are asked: Slurm's, and the history's
 *   compare.c     results against a baseline. Pure
 *   history.c     counts for lab/vpmu-history, which keeps them by commit
 *   report*.c     what came of it, in four formats. Pure
 *
 * A step reads the suite and writes a file: whatever starts the steps, here or on other machines,
 * comparing begins with a folder of such files.
 */
#ifndef CLI_CHECK_CHECK_H
#define CLI_CHECK_CHECK_H

#include <limits.h>
#include <stdio.h>

#include "base/types.h"
#include "cli/base/command.h"
#include "cli/check/toml.h"

/* --- suite.c --- */

#define SUITE_FILE    "vpmu-check.toml"
#define DEFAULT_MODEL "icelake"

struct check_event {
	const char *name;
	double tolerance; /* percent by which a count may grow */
};

struct check_benchmark {
	const char *name;
	const char *error;		     /* why it cannot be run; NULL: it can */
	char **command;			     /* NULL-terminated, as the rest of its lists */
	const char *folder, *input, *memory; /* absolute paths; memory as vpmu exec wants it */
	char **environment;		     /* NAME=VALUE */
	char **models;
	struct check_event *event;
	u32 events;
	u32 timeout; /* seconds */
	u32 cpus;
	/* Those of the host that the model has, too; else vpmu exec --baseline. */
	bool host_features;
};

/* A benchmark on a model: what a step runs. */
struct check_case {
	const struct check_benchmark *benchmark;
	const char *model;
};

struct check_suite {
	char path[PATH_MAX];	 /* as it was named */
	char folder[PATH_MAX];	 /* absolute; what the suite names is relative to it */
	char baseline[PATH_MAX]; /* absolute */
	/* Folders, absolute: code in them is what is tested, all other the environment. */
	char **tested;
	struct check_benchmark *benchmark;
	u32 benchmarks;
	struct check_case *one;
	u32 cases;
	struct toml toml; /* owns strings */
	char error[256];
};

/* False: suite->error, with file and line. A benchmark that makes no sense has its own error. */
bool suite_read(struct check_suite *suite, const char *path);
/* The same of a text, for a suite at this path. */
bool suite_parse(struct check_suite *suite, const char *path, const char *text, size_t size);
void suite_free(struct check_suite *suite);

/* --- result.c --- */

#define RESULT_VERSION 1

struct check_count {
	const char *name;
	u64 value;
};

struct check_counts {
	struct check_count *item;
	u32 count;
};

/* A property of the environment, or a file and its build id. */
struct check_fact {
	const char *name, *value;
};

struct check_facts {
	struct check_fact *item;
	u32 count;
};

/* What a step found, or a baseline has. Lists are empty where nothing is known. */
struct check_result {
	const char *name, *model;
	const char *error;	    /* why there are no counts; NULL: there are */
	struct check_facts where;   /* what was run on */
	struct check_counts counts; /* events */
	bool has_functions;
	struct check_counts functions; /* instructions of user code; FILE:FUNCTION */
	struct check_facts files;      /* with code that was executed, and their build ids */
};

struct check_results {
	struct check_result *result;
	u32 count;
	struct toml toml; /* owns strings */
	char error[256];
};

/* False: `error` says why not, with the file and line, and there are no results. results_free() in
 * any case. */
bool results_read(struct check_results *results, const char *path);
bool results_parse(struct check_results *results, const char *path, const char *text, size_t size);
void results_free(struct check_results *results);
/* NULL: there is none. */
const struct check_result *results_find(const struct check_results *results, const char *name,
					const char *model);
/* Writes results, replacing the file in one step. False: errno. */
bool results_write(const char *path, const char *comment, const struct check_result *const *result,
		   u32 count);
const struct check_count *counts_find(const struct check_counts *counts, const char *name);

/* Everything that was printed has been written, now and before. False, with errno. */
bool stream_written(FILE *out);
/* The same, and closes it; to_disk: after a crash it is there, too. */
bool stream_close(FILE *out, bool to_disk);

/* --- step.c --- */

enum check_step { STEP_COUNTS, STEP_FUNCTIONS };

/* Runs a step of a case and writes its result to a file; an exit code of vpmu. What is wrong with
 * the benchmark is in the result. */
int check_run(const struct check_suite *suite, u32 index, enum check_step step,
	      const char *results);
/* Where a step's result is. */
void check_result_path(char path[PATH_MAX], const char *results, u32 index, enum check_step step);

/* --- code_names.c --- */

struct profile;

/*
 * Fills result->functions and result->files. `untold` is a file whose code is left out. False: out
 * of memory. code_free() in any case.
 */
bool code_resolve(const struct check_suite *suite, const struct profile *profile,
		  const char *untold, struct check_result *result);
void code_free(struct check_result *result);

/* --- runners: jobs.c and slurm.c --- */

struct check_task {
	u32 index; /* of the case */
	enum check_step step;
	bool replaces_functions; /* of an earlier run, which explain other counts */
};

struct check_limits {
	u32 jobs;     /* how many tasks run at a time; 0: as many as there are CPUs for */
	u32 patience; /* seconds that a cluster may give no answer */
};

struct check_runner {
	const char *name;
	bool needs_folder; /* of results, which other machines write to */
	/* Runs tasks. An exit code, and the user has been told; of a signal it is 128 and its
	 * number. */
	int (*run)(const struct check_suite *suite, const struct check_task *task, u32 count,
		   const struct check_limits *limits, const char *results);
};

/* earlier.c: results of an earlier run are put aside, then put back or removed. */
void earlier_put_aside(const struct check_task *task, u32 count, const char *results);
void earlier_put_back(const struct check_task *task, u32 count, const char *results);
void earlier_remove(const struct check_task *task, u32 count, const char *results);

/* Here, each in a process. */
extern const struct check_runner runner_local;
/* How many of them run at a time if nobody says so. */
u32 jobs_usual(void);
/* On a cluster, as an array job. */
extern const struct check_runner runner_slurm;

/* --- compare.c --- */

enum check_verdict {
	VERDICT_SAME,
	VERDICT_TOLERATED, /* a change, but within the tolerance */
	VERDICT_BETTER,	   /* fewer than before */
	VERDICT_NEW,	   /* the baseline does not know it */
	VERDICT_OTHER,	   /* the baseline is of another environment: `reason` */
	VERDICT_WORSE,
	VERDICT_FAILED, /* it could not be run: `reason` */
	NVERDICTS,
};

struct check_row {
	const char *event;
	u64 before, after;
	double tolerance;
	enum check_verdict verdict;
};

/* A function whose count differs; 0 where it is new or gone. */
struct check_difference {
	const char *name;
	u64 before, after;
};

struct check_comparison {
	const struct check_case *of;
	enum check_verdict verdict; /* the gravest of its rows */
	char reason[512];
	struct check_row *row;
	u32 rows;
	bool has_functions;		     /* both sides know them */
	struct check_difference *difference; /* largest first */
	u32 differences;
};

/*
 * Compares a case. `counts` and `functions` are what its steps found, NULL where a step was not
 * run, `before` its part of the baseline, NULL if there is none. False: out of memory.
 */
bool compare_case(const struct check_suite *suite, const struct check_case *of,
		  const struct check_result *counts, const struct check_result *functions,
		  const struct check_result *before, struct check_comparison *comparison);
void compare_free(struct check_comparison *comparison);
/* Are there counts that the functions would explain? */
bool compare_is_changed(const struct check_comparison *comparison);

/* --- report*.c --- */

struct check_report {
	const struct check_suite *suite;
	const struct check_comparison *comparison;
	u32 count;
	bool every_function; /* in the text: for --explain */
};

extern const char *const verdict_names[NVERDICTS];

void report_text(FILE *out, const struct check_report *report);
void report_markdown(FILE *out, const struct check_report *report);
void report_json(FILE *out, const struct check_report *report);
void report_junit(FILE *out, const struct check_report *report);
/* As a string of JSON. */
void report_put_string(FILE *out, const char *text);
/* How many have this verdict. */
u32 report_count(const struct check_report *report, enum check_verdict verdict);
/* After minus before. */
s64 row_change(const struct check_row *row);
double row_percent(const struct check_row *row);

#endif
