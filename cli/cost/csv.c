// SPDX-License-Identifier: MIT
/*
 * vpmu cost --csv: a block on each line as hexadecimal digits, alone or as the first column; prints
 * them with their cycles. A line that cannot be answered is named on stderr, and the others are
 * answered.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/cost/cost.h"

struct csv {
	const struct cost_options *options;
	const char *name;
	struct pipe_work *work;
	struct cost_block *block;
	u32 line, refused;
};

static void refuse(struct csv *csv, const char *why)
{
	fprintf(stderr, "vpmu cost: %s:%u: %s\n", csv->name, csv->line, why);
	csv->refused++;
}

static void refuse_problems(struct csv *csv)
{
	char text[160];

	for (u32 i = 0; i < csv->block->count; i++)
		if (csv->block->insn[i].status != COST_OK) {
			cost_name_problem(&csv->block->insn[i], text, sizeof(text));
			refuse(csv, text);
			return;
		}
}

static void answer_code(struct csv *csv, const struct cost_code *code, const char *hex, int length)
{
	const struct cost_options *options = csv->options;
	struct pipe_result result;
	char why[64];

	if (!cost_describe(options->core, code, csv->block)) {
		snprintf(why, sizeof(why), "more than %d instructions", PIPE_INSNS);
		refuse(csv, why);
	} else if (csv->block->problems) {
		refuse_problems(csv);
	} else {
		pipe_simulate(options->core, &csv->block->block, options->decoded, csv->work,
			      &result);
		printf("%.*s,%.3f\n", length, hex, (double)result.ticks / PIPE_TICKS);
	}
}

/* A first line whose first column is no number is a header. */
static bool is_header(const struct csv *csv, const char *column, size_t length)
{
	bool digits = true;

	for (size_t i = 0; i < length; i++)
		digits = digits && isxdigit((unsigned char)column[i]);
	return csv->line == 1 && length && !digits;
}

static void answer_line(struct csv *csv, char *line)
{
	char *column = line + strspn(line, " \t\"");
	size_t length = strcspn(column, ",;\" \t\r\n");
	struct cost_code code = { .bytes = NULL };

	if (!length)
		return;
	if (is_header(csv, column, length)) {
		puts("hex,cycles");
		return;
	}
	if (!cost_parse_hex(column, length, &code)) {
		refuse(csv, "the first column is not a block in hexadecimal digits");
		return;
	}
	answer_code(csv, &code, column, length);
	free(code.bytes);
}

static int answer_file(struct csv *csv, FILE *file)
{
	size_t capacity = 0;
	char *line = NULL;

	while (getline(&line, &capacity, file) >= 0) {
		csv->line++;
		answer_line(csv, line);
	}
	free(line);
	if (ferror(file))
		return failure(STATUS_BROKEN, "cannot read %s: %s", csv->name, strerror(errno));
	if (fflush(stdout) || ferror(stdout))
		return failure(STATUS_BROKEN, "cannot write: %s", strerror(errno));
	return csv->refused ? STATUS_BROKEN : STATUS_OK;
}

int cost_csv(const struct cost_options *options)
{
	bool from_stdin = !strcmp(options->csv, "-");
	struct csv csv = {
		.options = options,
		.name = from_stdin ? "standard input" : options->csv,
		.work = malloc(pipe_work_size()),
		.block = malloc(sizeof(*csv.block)),
	};
	FILE *file = from_stdin ? stdin : fopen(options->csv, "r");
	int status;

	if (!csv.work || !csv.block)
		status = out_of_memory();
	else if (!file)
		status =
			failure(STATUS_BROKEN, "cannot open %s: %s", options->csv, strerror(errno));
	else
		status = answer_file(&csv, file);
	if (file && !from_stdin)
		fclose(file);
	free(csv.work);
	free(csv.block);
	return status;
}
