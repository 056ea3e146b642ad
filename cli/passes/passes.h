/* SPDX-License-Identifier: MIT */
/*
 * vpmu exec --passes: a perf stat of any number of events, all counted in one run of a
 * deterministic guest (docs/clock.md). The guest's perf has the marker of hwpmu/shadow.h as its
 * only hardware event, whatever was asked for; what was asked for is counted beside it, and printed
 * here.
 */
#ifndef CLI_PASSES_PASSES_H
#define CLI_PASSES_PASSES_H

#include <stdio.h>

#include "cli/base/command.h"
#include "exec/exec.h"
#include "hwpmu/hwpmu.h"
#include "x86/models.h"

/* An event of the list, counted by the processor or, if it is of software, by the guest's kernel.
 */
struct pass_event {
	char *name; /* as perf prints it */
	bool is_software;
	struct hwpmu_event event;
	u8 privileges; /* bits of enum retire_privilege */
};

struct pass_events {
	struct pass_event *item;
	u32 count;
};

enum pass_format { FORMAT_TABLE, FORMAT_CSV, FORMAT_JSON };

/* What the arguments of perf stat say. */
struct pass_line {
	enum pass_format format;
	const char *separator; /* of CSV */
	const char *output;    /* a file; NULL: standard error */
	bool append, no_inherit;
	const char *only; /* "--all-user", "--all-kernel" or NULL */
	struct pass_events events;
	char **command;	  /* what is measured */
	char *guest_list; /* of events */
	char **guest;	  /* the command for the guest */
};

/* What the guest's perf says of an event. */
struct pass_count {
	const char *value, *unit, *time, *percent;
};

/* --- events.c --- */

/* Adds the events of a list to those there are. False: one cannot be had, and the user has been
 * told. */
bool pass_events_add(struct pass_events *events, const char *list, const struct model *model,
		     const char *only);
void pass_events_free(struct pass_events *events);

/* --- line.c --- */

/* Takes "perf stat …" apart, and makes the guest's command. An exit code. */
int pass_line_read(struct pass_line *line, char **words, const struct model *model);
void pass_line_free(struct pass_line *line);

/* --- report.c --- */

/*
 * Prints all counts. `said` is what the guest's perf has written, and is changed. False: it has not
 * counted. `is_partial`: it has not counted all of the time.
 */
bool pass_report(FILE *out, const struct pass_line *line, const struct hwpmu_shadow *shadow,
		 char *said, bool *is_partial);

/* --- passes.c --- */

/* Of vpmu exec: runs options->command by run(). An exit code. */
int passes_run(struct exec_options *options, int (*run)(const struct exec_options *options));

#endif
