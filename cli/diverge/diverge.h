/* SPDX-License-Identifier: MIT */
/*
 * vpmu diverge: where two deterministic runs differ first (docs/clock.md).
 *
 *   diverge.c     the command: compares two traces, narrows the window down, says what was found
 *   trace_read.c  a file of vpmu exec --trace-hash, which may be anything
 *   repeat.c      runs the command of a trace again, up to an instruction
 *   show.c        an instruction, the registers that differ, the events that came in
 */
#ifndef CLI_DIVERGE_DIVERGE_H
#define CLI_DIVERGE_DIVERGE_H

#include <stdio.h>

#include "base/trace.h"

/* --- trace_read.c --- */

#define TRACE_FILE_MAX (1ull << 30) /* bytes that are read of one */

struct trace_file {
	u8 *bytes; /* all of it, from malloc() */
	size_t size;
	struct trace_header header;
	const char *folder;
	char **words, **variables; /* of vpmu exec, without its name; each list ends with NULL */
	size_t *record;		   /* where records are */
	u32 records;		   /* at least one, the last of which ends the trace */
	char error[160];	   /* why it is refused */
};

/* Takes over `bytes`. False: file->error says why, and there is nothing to free. */
bool trace_parse(struct trace_file *file, u8 *bytes, size_t size);
bool trace_load(struct trace_file *file, int fd); /* as trace_parse(), of a descriptor's file */
void trace_free(struct trace_file *file);
struct trace_record trace_at(const struct trace_file *file, u32 index);
/* False: the record has no state. */
bool trace_detail_at(const struct trace_file *file, u32 index, struct trace_detail *detail);

/* Of two traces of one plan: the index of the first record that differs; -1: none does. */
s64 trace_first_difference(const struct trace_file *a, const struct trace_file *b);
/* Whether `repeated` has the records of `recorded` up to an instruction, among others. */
bool trace_reproduces(const struct trace_file *recorded, const struct trace_file *repeated,
		      u64 up_to);

/* --- repeat.c --- */

/* Standard input for the repeated runs: ours, if one of both had any. An exit code. */
int repeat_input(const struct trace_file *a, const struct trace_file *b, int *input);
/* Runs the command of `recorded` again. An exit code; it has said what went wrong. */
int repeat_run(const struct trace_file *recorded, const char *name, const struct trace_plan *plan,
	       int input, struct trace_file *repeated);

/* --- show.c --- */

/* What a message calls the two runs. */
struct pair {
	const struct trace_file *a, *b;
	const char *name_a, *name_b;
};

/* Inputs of the two runs that are known to differ; how many. */
u32 show_inputs(const struct pair *pair);
/* The first difference is between record index - 1, which is the same in both, and this one. */
void show_difference(const struct pair *pair, u32 index);

#endif
