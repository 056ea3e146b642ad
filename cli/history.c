// SPDX-License-Identifier: MIT
/*
 * vpmu history: a program of its own (lab/vpmu-history), which vpmu check --history starts, too.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static int run(int argc, char **argv)
{
	if (argc < 2)
		return usage_error(&command_history, "there is no file to show");
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		command_help(&command_history);
		return STATUS_OK;
	}
	return start_part("lab/vpmu-history", argv - 1);
}

static void describe(void)
{
	puts("  FILE          of vpmu check --history: an SQLite file\n"
	     "  -o PAGE       where to write the plots, one HTML file that needs no network (history.html)\n"
	     "  --suite NAME  of this suite alone, as the page names it\n\n"
	     "Prints each count that differs from that of the commit before: commit, benchmark, event,\n"
	     "counts, and what else is new there, such as another kernel of the guest. A commit with a +\n"
	     "had changes that were not committed. It needs python3.\n\n"
	     "examples:\n"
	     "  vpmu check --history counts.db\n"
	     "  vpmu history counts.db");
}

const struct command command_history = {
	.name = "history",
	.synopsis = "[-o PAGE] [--suite NAME] FILE",
	.summary = "Draw counts over commits, and find where one changed",
	.run = run,
	.describe = describe,
};
