// SPDX-License-Identifier: MIT
/*
 * vpmu flame: a program of its own (lab/vpmu-flame), which runs vpmu perf twice: record in a guest,
 * script on the host.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static int run(int argc, char **argv)
{
	if (argc < 2)
		return usage_error(&command_flame, "there is no command to run");
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		command_help(&command_flame);
		return STATUS_OK;
	}
	return start_part("lab/vpmu-flame", argv);
}

static void describe(void)
{
	puts("options:\n"
	     "  -o, --output FILE   where to write the graph (flame.html)\n"
	     "  -e, --event EVENT   what to sample, as perf names it (cycles)\n"
	     "  -F, --frequency HZ  how many samples a second (999)\n"
	     "  --count N           a sample every N events instead\n"
	     "  --call-graph MODE   how callers are found: dwarf, fp or lbr, as perf record has it (dwarf)\n"
	     "  --folded            write stacks in lines, for other tools, and no page (flame.folded)\n"
	     "  --speedscope        write a profile for speedscope (flame.speedscope.json)\n"
	     "  --cpu, --cpus, --memory, --rw, --net and others of vpmu exec, in their long "
	     "form\n\n"
	     "The page needs no network: click to zoom, type to search. Frames of the kernel end\n"
	     "with _[k]. The exit code is the command's.\n\n"
	     "examples:\n"
	     "  vpmu flame -- ./my-program\n"
	     "  vpmu flame -e instructions -o sort.html -- sort big-file");
}

const struct command command_flame = {
	.name = "flame",
	.synopsis = "[OPTIONS] [--] COMMAND [ARGUMENTS]",
	.summary = "Draw a flame graph of a program, user and kernel",
	.run = run,
	.describe = describe,
};
