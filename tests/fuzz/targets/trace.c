// SPDX-License-Identifier: MIT
/*
 * Any bytes as a file of vpmu exec --trace-hash: it is taken or refused with a reason; what is
 * taken is within its bytes, ends once, and can be shown.
 *
 * Input: the file.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/must.h"
#include "cli/diverge/diverge.h"
#include "fuzz/fuzz.h"

/* What is shown goes nowhere. */
void fuzz_set_up(void)
{
	must(freopen("/dev/null", "w", stdout));
}

static void check_records(const struct trace_file *file)
{
	struct trace_detail detail;

	for (u32 i = 0; i < file->records; i++) {
		struct trace_record record = trace_at(file, i);
		bool last = record.kind == TRACE_END || record.kind == TRACE_STOP;

		if (last != (i + 1 == file->records))
			fuzz_fail("record %u of %u has kind %u", i, file->records, record.kind);
		if (trace_detail_at(file, i, &detail) && detail.code_size > TRACE_CODE)
			fuzz_fail("%u bytes of code", detail.code_size);
	}
}

static void check_strings(const struct trace_file *file)
{
	size_t length = strlen(file->folder);

	for (u32 i = 0; i < file->header.words; i++)
		length += strlen(file->words[i]);
	for (u32 i = 0; i < file->header.variables; i++)
		length += strlen(file->variables[i]);
	if (length > file->header.strings)
		fuzz_fail("strings of %zu bytes", length);
}

void fuzz_one(struct fuzz_input *in)
{
	size_t size = fuzz_left(in);
	u8 *bytes = malloc(size ?: 1);
	struct trace_file file;
	struct pair pair = { &file, &file, "a", "b" };

	must(bytes);
	fuzz_take(in, bytes, size);
	if (!trace_parse(&file, bytes, size)) {
		if (!*file.error)
			fuzz_fail("no reason is given");
		return;
	}
	check_records(&file);
	check_strings(&file);
	if (trace_first_difference(&file, &file) >= 0 || !trace_reproduces(&file, &file, ~0ull))
		fuzz_fail("a file differs from itself");
	show_inputs(&pair);
	for (u32 i = 0; i < file.records; i++)
		show_difference(&pair, i);
	trace_free(&file);
}
