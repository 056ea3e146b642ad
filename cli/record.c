// SPDX-License-Identifier: MIT
/*
 * vpmu record and vpmu report: a program of its own (lab/vpmu-profile), which talks to the control
 * socket as the other commands do.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

#define PROGRAM "lab/vpmu-profile"

static int run_record(int argc, char **argv)
{
	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		command_help(&command_record);
		return STATUS_OK;
	}
	return start_part(PROGRAM, argv - 1);
}

static void describe_record(void)
{
	puts("options:\n"
	     "  -o FILE        where to write the samples (vpmu.data)\n"
	     "  --format perf  write perf.data, for perf, hotspot and others; so are files named so\n"
	     "  -F HZ          how many a second, of each vCPU (499)\n"
	     "  -g             callers too, of 64-bit code that keeps frame pointers\n"
	     "  --for SECONDS  without it, until Ctrl-C\n\n"
	     "A sample says where a vCPU's thread is: in the guest (address, privilege, address "
	     "space),\n"
	     "in the hypervisor (for which exit; engine: on the way to the next instruction), in "
	     "the VMM\n"
	     "(for which access), or idle. The guest is not told, and its counters are not used. Of "
	     "a\n"
	     "Linux guest, processes, libraries and functions have their names.");
}

const struct command command_record = {
	.name = "record",
	.synopsis = "[-o FILE] [--format perf] [-F HZ] [-g] [--for SECONDS] [VM]",
	.summary = "Sample what a VM's vCPUs do, from outside of the guest",
	.run = run_record,
	.describe = describe_record,
};

static int run_report(int argc, char **argv)
{
	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		command_help(&command_report);
		return STATUS_OK;
	}
	return start_part(PROGRAM, argv - 1);
}

static void describe_report(void)
{
	puts("options:\n"
	     "  -i FILE          the samples (vpmu.data)\n"
	     "  --kallsyms FILE  names of the guest's kernel: its /proc/kallsyms, read by its "
	     "root, or\n"
	     "                   a System.map\n"
	     "  --elf FILE       names of a program or library in the guest, if this host has it "
	     "elsewhere\n"
	     "  --folded         print stacks in lines, for other tools\n"
	     "  --script         print samples as perf script does\n"
	     "  --html FILE      write a page there, one file that needs no network: flame graph, call\n"
	     "                   tree, functions, assembly, time of each vCPU\n"
	     "  --serve          show that page at an address of 127.0.0.1, until Ctrl-C; --port N\n"
	     "  --pprof FILE     write a profile for pprof there\n"
	     "  --perf FILE      write perf.data there, for perf, hotspot and others\n"
	     "  --speedscope FILE  write a profile of each vCPU for speedscope there");
}

const struct command command_report = {
	.name = "report",
	.synopsis =
		"[-i FILE] [--kallsyms FILE] [--elf FILE] [--folded|--script|--serve] [--html FILE]",
	.summary = "Show a profile: guest user and kernel, hypervisor and VMM",
	.run = run_report,
	.describe = describe_report,
};
