/* SPDX-License-Identifier: MIT */
/*
 * Programs that a check asks: Slurm's, and the history's.
 */
#ifndef CLI_CHECK_TOOL_H
#define CLI_CHECK_TOOL_H

#include <stdbool.h>

struct tool_answer {
	int status;	/* its exit code; 128 and the number of the signal that ended it */
	char *output;	/* all of it; the caller frees it */
	char said[256]; /* its last line on standard error, printable */
};

/* Runs a program, found as execvp() finds it, with a text as its standard input. False: it could
 * not be started, or has ended with another code than 0; `said` has why. */
bool tool_run(char *const *argv, const char *input, struct tool_answer *answer);

#endif
