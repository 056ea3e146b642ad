// SPDX-License-Identifier: MIT
/*
 * Counts for the history: rows of JSON for lab/vpmu-history, which keeps them in an SQLite file.
 */
#include <stdlib.h>
#include <string.h>

#include "cli/check/options.h"
#include "cli/check/tool.h"
#include "cli/cli.h"

#define PROGRAM "lab/vpmu-history"

/* What the program says is for the user, and begins as our own messages do. */
static int start(char **argv, const char *rows)
{
	struct tool_answer answer;
	char program[PATH_MAX];
	int status = need_part(PROGRAM, program);

	if (status)
		return status;
	argv[0] = program;
	if (!tool_run(argv, rows, &answer))
		status = failure(STATUS_BROKEN, "no history is written: %s",
				 strncmp(answer.said, "vpmu: ", 6) ? answer.said : answer.said + 6);
	free(answer.output);
	return status;
}

/* What to do, with the file, the suite and, if it was named, the commit. */
static int history(const char *action, const struct check_options *options,
		   const struct check_suite *suite, const char *rows)
{
	char *argv[] = { NULL,
			 (char *)action,
			 (char *)options->history,
			 (char *)suite->path,
			 (char *)options->commit,
			 NULL };

	return start(argv, rows);
}

int history_probe(const struct check_options *options, const struct check_suite *suite)
{
	return history("probe", options, suite, "");
}

/* [benchmark, model, event, count, {what was run on}] */
static void put_row(FILE *out, const struct check_result *result, const struct check_count *count)
{
	fputc('[', out);
	report_put_string(out, result->name);
	fputs(", ", out);
	report_put_string(out, result->model);
	fputs(", ", out);
	report_put_string(out, count->name);
	fprintf(out, ", %llu, {", (unsigned long long)count->value);
	for (u32 i = 0; i < result->where.count; i++) {
		fputs(i ? ", " : "", out);
		report_put_string(out, result->where.item[i].name);
		fputs(": ", out);
		report_put_string(out, result->where.item[i].value);
	}
	fputs("}]\n", out);
}

static char *make_rows(const struct check_result *const *result, u32 count)
{
	char *rows = NULL;
	size_t size;
	FILE *out = open_memstream(&rows, &size);

	if (!out)
		return NULL;
	for (u32 i = 0; i < count; i++)
		for (u32 j = 0; !result[i]->error && j < result[i]->counts.count; j++)
			put_row(out, result[i], &result[i]->counts.item[j]);
	return fclose(out) ? NULL : rows;
}

int history_add(const struct check_options *options, const struct check_suite *suite,
		const struct check_result *const *result, u32 count)
{
	char *rows = make_rows(result, count);
	int status = !rows   ? out_of_memory()
		     : *rows ? history("add", options, suite, rows)
			     : STATUS_OK;

	free(rows);
	return status;
}
