// SPDX-License-Identifier: MIT
/*
 * vpmu lab: the field's experiments, a program of its own (lab/) that uses the other commands.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static int run(int argc, char **argv)
{
	if (argc < 2)
		return usage_error(&command_lab,
				   "there is no experiment to run; 'vpmu lab list' lists "
				   "them");
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		command_help(&command_lab);
		return STATUS_OK;
	}
	return start_part("lab/vpmu-lab", argv);
}

static void describe(void)
{
	puts("  NAME              an experiment; all; quick: those of about a minute, or, before others,\n"
	     "                    these, in short; list: what there is\n"
	     "  --json FILE       write the figures there\n"
	     "  --html FILE       write a report with plots there, one file that needs no network\n"
	     "  --runner slurm    run experiments as an array job of Slurm's\n"
	     "  --results FOLDER  with it: a folder that all nodes share, for its files\n\n"
	     "Each experiment runs Linux guests with 'vpmu exec', prints published and measured "
	     "figures\n"
	     "side by side, and says whether ours meet what they must. The exit code is 0 if all "
	     "do.\n"
	     "It needs python3, and perf for the guests.");
}

const struct command command_lab = {
	.name = "lab",
	.synopsis = "NAME… [--json FILE] [--html FILE] [--runner slurm --results FOLDER]",
	.summary = "Repeat the field's experiments and compare",
	.run = run,
	.describe = describe,
};
