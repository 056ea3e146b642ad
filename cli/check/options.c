// SPDX-License-Identifier: MIT
/*
 * The command line of vpmu check: a table of options, and which of them go together.
 */
#include "cli/check/options.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define MAX_JOBS     1024
#define MAX_PATIENCE 1000000 /* seconds: days */

static const struct check_format formats[] = {
	{ "text", report_text },
	{ "json", report_json },
	{ "junit", report_junit },
	{ "markdown", report_markdown },
};

static const struct check_runner *const runners[] = { &runner_local, &runner_slurm };

/* --- values --- */

static int add_format(struct check_options *options, const char *value)
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

static int set_number(u32 *number, const char *name, const char *value, u32 most)
{
	char *end;
	unsigned long n = strtoul(value, &end, 10);

	*number = n;
	return *value >= '0' && *value <= '9' && !*end && n >= 1 && n <= most
		       ? STATUS_OK
		       : usage_error(&command_check, "--%s wants a number from 1 to %u, not '%s'",
				     name, most, value);
}

static int set_jobs(struct check_options *options, const char *value)
{
	return set_number(&options->limits.jobs, "jobs", value, MAX_JOBS);
}

static int set_patience(struct check_options *options, const char *value)
{
	return set_number(&options->limits.patience, "patience", value, MAX_PATIENCE);
}

static int set_runner(struct check_options *options, const char *value)
{
	for (u32 i = 0; i < ARRAY_SIZE(runners); i++)
		if (!strcmp(runners[i]->name, value)) {
			options->runner = runners[i];
			return STATUS_OK;
		}
	return usage_error(&command_check, "--runner is local or slurm, not '%s'", value);
}

static int set_step(struct check_options *options, const char *value)
{
	options->step = strcmp(value, "functions") ? STEP_COUNTS : STEP_FUNCTIONS;
	return !strcmp(value, "functions") || !strcmp(value, "counts")
		       ? STATUS_OK
		       : usage_error(&command_check, "--step is counts or functions, not '%s'",
				     value);
}

#define STRING(field)                                                            \
	static int set_##field(struct check_options *options, const char *value) \
	{                                                                        \
		options->field = value;                                          \
		return STATUS_OK;                                                \
	}

STRING(baseline)
STRING(explain)
STRING(results)
STRING(run_one)
STRING(history)
STRING(commit)

#define FLAG(field)                                                              \
	static int set_##field(struct check_options *options, const char *value) \
	{                                                                        \
		(void)value;                                                     \
		options->field = true;                                           \
		return STATUS_OK;                                                \
	}

FLAG(update)
FLAG(gather)
FLAG(resume)

/* --- the table --- */

static const struct option {
	const char *name, *value, *text;
	int (*set)(struct check_options *options, const char *value);
} table[] = {
	{ "update", NULL, "write the baseline, with what this run counts", set_update },
	{ "explain", "NAME", "run this benchmark alone, and list all functions that changed",
	  set_explain },
	{ "baseline", "FILE", "the baseline (SUITE.baseline, beside the suite)", set_baseline },
	{ "format", "F[=FILE]", "text, json, junit or markdown, to a file; may be given again",
	  add_format },
	{ "jobs", "N", "how many guests run at a time (as many as there are CPUs)", set_jobs },
	{ "history", "FILE", "add the counts to this file, for vpmu history", set_history },
	{ "commit", "NAME", "what they are of, in the history (what git says)", set_commit },
	{ "runner", "RUNNER", "local; slurm: an array job, with --results on a shared disk",
	  set_runner },
	{ "patience", "SECONDS", "how long a cluster may give no answer (600)", set_patience },
	{ "results", "FOLDER", "keep the steps' results there", set_results },
	{ "resume", NULL, "run only steps that have no result in --results", set_resume },
	{ "gather", NULL, "run nothing: compare what is in --results", set_gather },
	{ "run-one", "INDEX", "run one step, into --results, and compare nothing", set_run_one },
	{ "step", "STEP", "which one: counts or functions (counts)", set_step },
};

static const struct option *find_option(const char *word)
{
	size_t length = strcspn(word + 2, "=");

	for (u32 i = 0; i < ARRAY_SIZE(table); i++)
		if (!strncmp(word, "--", 2) && !strncmp(table[i].name, word + 2, length) &&
		    !table[i].name[length])
			return &table[i];
	return NULL;
}

static int take_option(struct check_options *options, char **argv, int *i)
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

/* --- the whole --- */

static int check_options(const struct check_options *options)
{
	const char *needy = options->gather				       ? "gather"
			    : options->run_one				       ? "run-one"
			    : options->resume				       ? "resume"
			    : options->runner && options->runner->needs_folder ? "runner slurm"
									       : NULL;

	if (options->update && options->explain)
		return usage_error(&command_check, "--update and --explain do not go together");
	if (options->commit && !options->history)
		return usage_error(&command_check, "--commit needs --history");
	if (needy && !options->results)
		return usage_error(&command_check, "--%s needs --results", needy);
	return STATUS_OK;
}

static void set_defaults(struct check_options *options)
{
	options->suite = options->suite ?: SUITE_FILE;
	options->runner = options->runner ?: &runner_local;
	options->limits.patience = options->limits.patience ?: 600;
	if (!options->outputs)
		options->output[options->outputs++].format = &formats[0];
}

int options_parse(struct check_options *options, int argc, char **argv)
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
	status = status ?: check_options(options);
	set_defaults(options);
	return status;
}

void options_describe(void)
{
	puts("options:");
	for (u32 i = 0; i < ARRAY_SIZE(table); i++) {
		char name[64];

		snprintf(name, sizeof(name), "--%s%s%s", table[i].name, table[i].value ? " " : "",
			 table[i].value ?: "");
		printf("  %-20s %s\n", name, table[i].text);
	}
	puts("\nThe suite (" SUITE_FILE
	     ") names benchmarks: man vpmu-check, docs/check.md. The baseline\n"
	     "belongs into the repository. Guests are deterministic: every run counts the same.\n\n"
	     "exit codes: 1 a count has grown by more than its tolerance; 2 a benchmark could not be\n"
	     "run, or the suite or the baseline cannot be used\n\n"
	     "examples:\n"
	     "  vpmu check --update\n"
	     "  vpmu check --format text --format junit=check.xml\n"
	     "  vpmu check --explain sort\n"
	     "  vpmu check --runner slurm --results ~/steps --history counts.db");
}
