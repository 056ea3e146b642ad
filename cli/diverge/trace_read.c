// SPDX-License-Identifier: MIT
/*
 * Files of vpmu exec --trace-hash: see cli/diverge/diverge.h. They may come from anywhere: every
 * size in them is compared with what there is, and nothing is taken for a string that has no end.
 */
#include "cli/diverge/diverge.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((format(printf, 2, 3))) static bool refuse(struct trace_file *file, const char *fmt,
							 ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(file->error, sizeof(file->error), fmt, args);
	va_end(args);
	return false;
}

static bool ends(const char *text, size_t size)
{
	return memchr(text, '\0', size);
}

static bool has_magic(const u8 *bytes, size_t size)
{
	u64 magic = 0;

	if (size >= sizeof(magic))
		memcpy(&magic, bytes, sizeof(magic));
	return magic == TRACE_MAGIC;
}

static bool read_header(struct trace_file *file)
{
	struct trace_header *header = &file->header;

	if (!has_magic(file->bytes, file->size))
		return refuse(file, "it is no file of vpmu exec --trace-hash");
	if (file->size < sizeof(*header))
		return refuse(file, "it is truncated");
	memcpy(header, file->bytes, sizeof(*header));
	if (header->version != TRACE_VERSION)
		return refuse(file, "it has version %u of the format, not %u: another vpmu made it",
			      header->version, TRACE_VERSION);
	if (!header->every || !ends(header->vpmu, sizeof(header->vpmu)) ||
	    !ends(header->model, sizeof(header->model)))
		return refuse(file, "its header makes no sense");
	if (header->strings > TRACE_STRINGS_MAX || !header->strings || !header->words ||
	    header->words > TRACE_COUNT_MAX || header->variables > TRACE_COUNT_MAX)
		return refuse(file, "the sizes in its header make no sense");
	if (header->strings > file->size - sizeof(*header))
		return refuse(file, "it is truncated");
	return true;
}

/* A list of `count` strings from *at on, all of which end before `end`; NULL: they do not, or
 * memory is out. */
static char **read_list(char **at, const char *end, u32 count)
{
	char **list = calloc((size_t)count + 1, sizeof(*list));

	for (u32 i = 0; list && i < count; i++) {
		size_t left = end - *at;

		if (!left || !ends(*at, left)) {
			free(list);
			return NULL;
		}
		list[i] = *at;
		*at += strlen(*at) + 1;
	}
	return list;
}

static bool read_strings(struct trace_file *file)
{
	char *at = (char *)file->bytes + sizeof(file->header);
	const char *end = at + file->header.strings;

	if (!ends(at, end - at))
		return refuse(file, "its strings have no end");
	file->folder = at;
	at += strlen(at) + 1;
	file->words = read_list(&at, end, file->header.words);
	if (file->words)
		file->variables = read_list(&at, end, file->header.variables);
	if (!file->variables || at != end)
		return refuse(file, "its strings are not as many as its header says");
	return true;
}

struct trace_record trace_at(const struct trace_file *file, u32 index)
{
	struct trace_record record;

	memcpy(&record, file->bytes + file->record[index], sizeof(record));
	return record;
}

bool trace_detail_at(const struct trace_file *file, u32 index, struct trace_detail *detail)
{
	struct trace_record record = trace_at(file, index);

	if (record.kind != TRACE_STATE)
		return false;
	memcpy(detail, file->bytes + file->record[index] + sizeof(record), sizeof(*detail));
	if (detail->code_size > TRACE_CODE)
		detail->code_size = TRACE_CODE;
	return true;
}

static bool is_last(const struct trace_record *record)
{
	return record->kind == TRACE_END || record->kind == TRACE_STOP;
}

/* The record at *at, and the place of the next one; `last` is the instruction of the one before. */
static bool read_record(struct trace_file *file, size_t *at, u64 last, struct trace_record *record)
{
	size_t left = file->size - *at;
	size_t size = sizeof(*record);

	if (left < size)
		return refuse(file, "it is truncated");
	memcpy(record, file->bytes + *at, size);
	if (record->kind < TRACE_HASH || record->kind > TRACE_STOP || record->instruction < last ||
	    record->instruction > TRACE_INSTRUCTION_MAX)
		return refuse(file, "record %u makes no sense", file->records + 1);
	if (record->kind == TRACE_STATE)
		size += sizeof(struct trace_detail);
	if (left < size)
		return refuse(file, "it is truncated");
	file->record[file->records++] = *at;
	*at += size;
	return true;
}

static bool read_records(struct trace_file *file)
{
	size_t at = sizeof(file->header) + file->header.strings;
	struct trace_record record = { 0 };

	file->record = calloc((file->size - at) / sizeof(record) + 1, sizeof(*file->record));
	if (!file->record)
		return refuse(file, "memory is out");
	while (!is_last(&record))
		if (!read_record(file, &at, record.instruction, &record))
			return false;
	return at == file->size || refuse(file, "there is more of it after its end");
}

bool trace_parse(struct trace_file *file, u8 *bytes, size_t size)
{
	*file = (struct trace_file){ .bytes = bytes, .size = size };
	if (read_header(file) && read_strings(file) && read_records(file))
		return true;
	trace_free(file);
	return false;
}

bool trace_load(struct trace_file *file, int fd)
{
	size_t room = 1 << 16, size = 0;
	u8 *bytes = NULL, *more;
	ssize_t n = 1;

	*file = (struct trace_file){ 0 };
	/* A file that is none is not read to its end, which may be far away. */
	while (n > 0 && size < TRACE_FILE_MAX && (size < 8 || has_magic(bytes, size))) {
		if (!bytes || size == room) {
			room *= bytes ? 2 : 1;
			more = realloc(bytes, room);
			if (!more) {
				free(bytes);
				return refuse(file, "memory is out");
			}
			bytes = more;
		}
		n = read(fd, bytes + size, room - size);
		size += n > 0 ? n : 0;
	}
	if (!n || (n > 0 && !has_magic(bytes, size)))
		return trace_parse(file, bytes, size);
	free(bytes);
	return refuse(file, "%s", n < 0 ? strerror(errno) : "it is longer than 1 GiB");
}

void trace_free(struct trace_file *file)
{
	free(file->bytes);
	free(file->words);
	free(file->variables);
	free(file->record);
	file->bytes = NULL;
	file->words = file->variables = NULL;
	file->record = NULL;
}

static bool same_state(const struct trace_record *a, const struct trace_record *b)
{
	return a->vcpu == b->vcpu && a->instruction == b->instruction && a->rip == b->rip &&
	       a->state == b->state && a->inputs == b->inputs;
}

/* A trace is no beginning of another: its last record is of another kind. */
s64 trace_first_difference(const struct trace_file *a, const struct trace_file *b)
{
	for (u32 i = 0; i < a->records && i < b->records; i++) {
		struct trace_record in_a = trace_at(a, i), in_b = trace_at(b, i);

		if (in_a.kind != in_b.kind || !same_state(&in_a, &in_b))
			return i;
	}
	return -1;
}

/* The first record from `at` on with this state; the number of records: there is none. */
static u32 find_record(const struct trace_file *file, u32 at, const struct trace_record *wanted)
{
	for (; at < file->records; at++) {
		struct trace_record found = trace_at(file, at);

		if (same_state(&found, wanted))
			return at;
		if (found.instruction > wanted->instruction)
			break;
	}
	return file->records;
}

bool trace_reproduces(const struct trace_file *recorded, const struct trace_file *repeated,
		      u64 up_to)
{
	u32 at = 0;

	for (u32 i = 0; i < recorded->records; i++) {
		struct trace_record wanted = trace_at(recorded, i);

		if (wanted.instruction > up_to)
			break;
		at = find_record(repeated, at, &wanted);
		if (at == repeated->records)
			return false;
	}
	return true;
}
