/* SPDX-License-Identifier: MIT */
/*
 * Runs numbered cases in child processes, so that one that crashes or hangs is found, named and
 * does not hide the others. The command line of such a test: [--seed N] [--cases N] [--case N],
 * where --case repeats one of them.
 */
#ifndef FUZZ_ISOLATE_H
#define FUZZ_ISOLATE_H

#include "base/types.h"

#define ISOLATE_SECONDS 60 /* the time limit of one case, on a machine that is busy */

struct isolate {
	const char *program; /* argv[0] */
	u64 seed;
	u32 first, end;			   /* cases [first, end) */
	void (*set_up)(void);		   /* in each child, before its first case; may be NULL */
	bool (*run)(u64 seed, u32 number); /* false, with a line on stderr: failed */
};

/* Fills program, seed, first and end from the command line; prints the seed. */
void isolate_parse(struct isolate *i, int argc, char **argv, u64 default_seed, u32 cases);
u32 isolate_run(const struct isolate *i); /* the number of cases that failed */
/* Both of these, for main(): says how many of what ended wrongly. */
int isolate_main(struct isolate *i, int argc, char **argv, u64 default_seed, u32 cases,
		 const char *what);

#endif
