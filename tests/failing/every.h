/* SPDX-License-Identifier: MIT */
/*
 * Runs a scenario once for each call of calls.def that it makes, and has that call fail. Each run
 * is a process of its own: the scenario with the failure, then the same without. The first must end
 * in the errno of the call, unless the caller can do without; the second must succeed, and the
 * process must then hold what one holds in which nothing failed.
 */
#ifndef FAILING_EVERY_H
#define FAILING_EVERY_H

#include "base/types.h"

struct scenario {
	const char *name;
	int (*run)(void); /* 0, or the errno of what failed; undoes what it did */
	bool is_optional; /* the program goes on without what is made here */
};

#define EVERY_WRONG 1000 /* what run() returns for a result that is wrong */

/* The command line: [SCENARIO [N]]. 0, or 1 if anything went wrong. */
int every_failure(const struct scenario *scenarios, u32 count, int argc, char **argv);

#endif
