// SPDX-License-Identifier: MIT
/*
 * Results and baselines: the same text, a line for every number, so that a change of one is a
 * change of one line. What a step writes is a baseline of one case.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/check/check.h"

/* --- reading --- */

struct reader {
	struct check_results *results;
	const char *path;
};

__attribute__((format(printf, 3, 4))) static bool wrong(struct reader *r, u32 line, const char *fmt,
							...)
{
	char *error = r->results->error;
	size_t room = sizeof(r->results->error);
	va_list args;
	int n;

	n = line ? snprintf(error, room, "%.80s:%u: ", r->path, line)
		 : snprintf(error, room, "%.80s: ", r->path);
	va_start(args, fmt);
	vsnprintf(error + n, room - n, fmt, args);
	va_end(args);
	make_printable(error);
	return false;
}

/* Text of a file as reports may have it, on a terminal or in the log of a CI service. The file's
 * own copy is changed: it belongs to results->toml, where nothing looks for this text again. */
static const char *printable(const char *text)
{
	make_printable((char *)text);
	return text;
}

/* As it is: names are compared with the suite's, and never printed. */
static bool take_string(struct reader *r, const struct toml_value *in, const char *key,
			const char **string)
{
	const struct toml_value *value = toml_find(in->table, key);

	if (!value)
		return true;
	if (value->type != TOML_STRING)
		return wrong(r, value->line, "'%s' is no string", key);
	*string = value->string;
	return true;
}

static bool take_table(struct reader *r, const struct toml_value *in, const char *key,
		       const struct toml_table **table)
{
	const struct toml_value *value = toml_find(in->table, key);

	*table = NULL;
	if (!value)
		return true;
	if (value->type != TOML_TABLE)
		return wrong(r, value->line, "'%s' is no table", key);
	*table = value->table;
	return true;
}

static bool take_counts(struct reader *r, const struct toml_value *in, const char *key,
			struct check_counts *counts)
{
	const struct toml_table *table;

	if (!take_table(r, in, key, &table) || !table || !table->count)
		return !*r->results->error;
	counts->item = calloc(table->count, sizeof(*counts->item));
	if (!counts->item)
		return wrong(r, 0, "out of memory");
	for (u32 i = 0; i < table->count; i++) {
		const struct toml_member *member = &table->member[i];

		if (member->value.type != TOML_INTEGER || member->value.integer < 0)
			return wrong(r, member->value.line,
				     "the count of '%.60s' is no whole number", member->key);
		counts->item[counts->count++] =
			(struct check_count){ printable(member->key), member->value.integer };
	}
	return true;
}

static bool take_facts(struct reader *r, const struct toml_value *in, const char *key,
		       struct check_facts *facts)
{
	const struct toml_table *table;

	if (!take_table(r, in, key, &table) || !table || !table->count)
		return !*r->results->error;
	facts->item = calloc(table->count, sizeof(*facts->item));
	if (!facts->item)
		return wrong(r, 0, "out of memory");
	for (u32 i = 0; i < table->count; i++) {
		const struct toml_member *member = &table->member[i];

		if (member->value.type != TOML_STRING)
			return wrong(r, member->value.line, "'%.60s' is no string", member->key);
		facts->item[facts->count++] =
			(struct check_fact){ printable(member->key),
					     printable(member->value.string) };
	}
	return true;
}

static bool take_case(struct reader *r, const struct toml_value *in, struct check_result *result)
{
	const struct toml_table *functions;

	if (!take_string(r, in, "name", &result->name) ||
	    !take_string(r, in, "model", &result->model) ||
	    !take_string(r, in, "error", &result->error) ||
	    !take_facts(r, in, "where", &result->where) ||
	    !take_counts(r, in, "counts", &result->counts) ||
	    !take_counts(r, in, "functions", &result->functions) ||
	    !take_table(r, in, "functions", &functions) ||
	    !take_facts(r, in, "files", &result->files))
		return false;
	if (result->error)
		printable(result->error);
	result->has_functions = functions != NULL;
	return (result->name && result->model) ||
	       wrong(r, in->line, "a case has no name or no model");
}

static bool take_cases(struct reader *r)
{
	struct check_results *results = r->results;
	const struct toml_value *list = toml_find(&results->toml.root, "case");

	if (!list)
		return true;
	if (!list->of_tables)
		return wrong(r, list->line, "'case' is not an array of tables");
	results->result = calloc(list->array.count, sizeof(*results->result));
	if (!results->result)
		return wrong(r, 0, "out of memory");
	for (u32 i = 0; i < list->array.count; i++)
		if (!take_case(r, &list->array.item[i], &results->result[results->count++]))
			return false;
	return true;
}

static bool understand(struct reader *r)
{
	const struct toml_value *version = toml_find(&r->results->toml.root, "version");

	if (!version || version->type != TOML_INTEGER)
		return wrong(r, 1, "there is no version: this is no baseline of vpmu check");
	if (version->integer != RESULT_VERSION)
		return wrong(r, version->line,
			     "it is of version %lld, and this vpmu has %u: write it again with "
			     "--update",
			     (long long)version->integer, RESULT_VERSION);
	return take_cases(r);
}

static void drop_cases(struct check_results *results)
{
	for (u32 i = 0; i < results->count; i++) {
		free(results->result[i].where.item);
		free(results->result[i].counts.item);
		free(results->result[i].functions.item);
		free(results->result[i].files.item);
	}
	free(results->result);
	results->result = NULL;
	results->count = 0;
}

/* Of a file that is refused nothing is kept but the reason: the last case may lack its name. */
static bool finish(struct reader *r, bool parsed)
{
	bool ok = parsed ? understand(r)
			 : wrong(r, r->results->toml.line, "%s", r->results->toml.error);

	if (!ok)
		drop_cases(r->results);
	return ok;
}

bool results_read(struct check_results *results, const char *path)
{
	struct reader r = { results, path };

	*results = (struct check_results){ 0 };
	return finish(&r, toml_read(&results->toml, path));
}

bool results_parse(struct check_results *results, const char *path, const char *text, size_t size)
{
	struct reader r = { results, path };

	*results = (struct check_results){ 0 };
	return finish(&r, toml_parse(&results->toml, text, size));
}

void results_free(struct check_results *results)
{
	drop_cases(results);
	toml_free(&results->toml);
	*results = (struct check_results){ 0 };
}

const struct check_result *results_find(const struct check_results *results, const char *name,
					const char *model)
{
	for (u32 i = 0; i < results->count; i++)
		if (!strcmp(results->result[i].name, name) &&
		    !strcmp(results->result[i].model, model))
			return &results->result[i];
	return NULL;
}

const struct check_count *counts_find(const struct check_counts *counts, const char *name)
{
	for (u32 i = 0; i < counts->count; i++)
		if (!strcmp(counts->item[i].name, name))
			return &counts->item[i];
	return NULL;
}

/* --- writing --- */

static void write_pair(FILE *out, const char *key, const char *value)
{
	fprintf(out, "%s = ", key);
	toml_write_string(out, value);
	fputc('\n', out);
}

static void write_counts(FILE *out, const char *title, const struct check_counts *counts)
{
	fprintf(out, "\n[case.%s]\n", title);
	for (u32 i = 0; i < counts->count; i++) {
		toml_write_string(out, counts->item[i].name);
		fprintf(out, " = %llu\n", (unsigned long long)counts->item[i].value);
	}
}

static void write_facts(FILE *out, const char *title, const struct check_facts *facts)
{
	if (!facts->count)
		return;
	fprintf(out, "\n[case.%s]\n", title);
	for (u32 i = 0; i < facts->count; i++) {
		toml_write_string(out, facts->item[i].name);
		fputs(" = ", out);
		toml_write_string(out, facts->item[i].value);
		fputc('\n', out);
	}
}

static void write_case(FILE *out, const struct check_result *result)
{
	fputs("\n[[case]]\n", out);
	write_pair(out, "name", result->name);
	write_pair(out, "model", result->model);
	if (result->error)
		write_pair(out, "error", result->error);
	write_facts(out, "where", &result->where);
	write_facts(out, "files", &result->files);
	if (result->counts.count)
		write_counts(out, "counts", &result->counts);
	if (result->has_functions)
		write_counts(out, "functions", &result->functions);
}

bool stream_written(FILE *out)
{
	if (fflush(out))
		return false;
	if (ferror(out))
		errno = EIO; /* which error it was is no longer known, but there is a gap */
	return !ferror(out);
}

bool stream_close(FILE *out, bool to_disk)
{
	bool ok = stream_written(out) && (!to_disk || !fsync(fileno(out)));
	int error = errno;

	if (fclose(out) && ok)
		return false;
	errno = error;
	return ok;
}

/* That of the file which is replaced, or of any new one. */
static mode_t mode_of(const char *path)
{
	struct stat st;
	mode_t mask;

	if (!stat(path, &st))
		return st.st_mode & 0777;
	mask = umask(0);
	umask(mask);
	return 0666 & ~mask;
}

bool results_write(const char *path, const char *comment, const struct check_result *const *result,
		   u32 count)
{
	char temporary[PATH_MAX + 16];
	int fd, error;
	FILE *out;

	snprintf(temporary, sizeof(temporary), "%s.XXXXXX", path);
	fd = mkostemp(temporary, O_CLOEXEC);
	out = fd < 0 ? NULL : fdopen(fd, "w");
	if (!out)
		return false;
	fprintf(out, "# %s\nversion = %u\n", comment, RESULT_VERSION);
	for (u32 i = 0; i < count; i++)
		write_case(out, result[i]);
	/* To the disk: a file that replaces another must not be empty after a crash. */
	if (fchmod(fd, mode_of(path)) || !stream_close(out, true) || rename(temporary, path)) {
		error = errno;
		unlink(temporary);
		errno = error;
		return false;
	}
	return true;
}
