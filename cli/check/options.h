/* SPDX-License-Identifier: MIT */
/*
 * The command line of `vpmu check`.
 */
#ifndef CLI_CHECK_OPTIONS_H
#define CLI_CHECK_OPTIONS_H

#include "cli/check/check.h"

#define MAX_FORMATS 8

struct check_format {
	const char *name;
	void (*write)(FILE *out, const struct check_report *report);
};

struct check_options {
	const char *suite, *baseline, *explain, *results;
	const char *run_one;	      /* the index of a case */
	const char *history, *commit; /* NULL: no history; the commit that git names */
	enum check_step step;
	bool update, gather, resume;
	const struct check_runner *runner;
	struct check_limits limits;
	struct {
		const struct check_format *format;
		const char *file; /* NULL: standard output */
	} output[MAX_FORMATS];
	u32 outputs; /* at least one */
};

/* An exit code, and the user has been told. argv[0] is no option. */
int options_parse(struct check_options *options, int argc, char **argv);
/* The help text. */
void options_describe(void);

/* --- history.c: exit codes, and the user has been told --- */

/* Whether counts can be added later. */
int history_probe(const struct check_options *options, const struct check_suite *suite);
/* Adds the counts of results; those that are errors have none. */
int history_add(const struct check_options *options, const struct check_suite *suite,
		const struct check_result *const *result, u32 count);

#endif
