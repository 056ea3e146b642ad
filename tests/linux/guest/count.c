// SPDX-License-Identifier: MIT
/*
 * Runs a program some times and counts the instructions and branches that it retires in user mode,
 * from its first instruction to its last, as `perf stat -e instructions:u,branches:u` does. Prints
 * both; fails unless all runs count the same.
 *
 * usage: count RUNS PROGRAM [ARGUMENTS]
 */
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct counts {
	uint64_t instructions, branches;
};

static int open_event(uint64_t config, pid_t pid, int group)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HARDWARE,
		.size = sizeof(attr),
		.config = config,
		.disabled = group < 0,
		.enable_on_exec = group < 0,
		.exclude_kernel = 1,
		.exclude_hv = 1,
	};
	int fd = syscall(SYS_perf_event_open, &attr, pid, -1, group, 0);

	if (fd < 0) {
		perror("count: perf_event_open");
		exit(1);
	}
	return fd;
}

static uint64_t value(int fd)
{
	uint64_t v;

	if (read(fd, &v, sizeof(v)) != sizeof(v))
		exit(1);
	close(fd);
	return v;
}

static struct counts count(char **argv)
{
	struct counts counts;
	int start[2], status, instructions, branches;
	pid_t child;
	char byte;

	if (pipe(start))
		exit(1);
	child = fork();
	if (!child) {
		close(start[1]);
		if (read(start[0], &byte, 1) == 0)
			execv(argv[0], argv);
		_exit(127);
	}
	instructions = open_event(PERF_COUNT_HW_INSTRUCTIONS, child, -1);
	branches = open_event(PERF_COUNT_HW_BRANCH_INSTRUCTIONS, child, instructions);
	close(start[0]);
	close(start[1]);
	if (waitpid(child, &status, 0) < 0 || status) {
		printf("count: %s ended with status %#x\n", argv[0], status);
		exit(1);
	}
	counts.instructions = value(instructions);
	counts.branches = value(branches);
	return counts;
}

int main(int argc, char **argv)
{
	struct counts first;

	if (argc < 3)
		return 2;
	first = count(argv + 2);
	for (int i = 1; i < atoi(argv[1]); i++) {
		struct counts again = count(argv + 2);

		if (again.instructions != first.instructions || again.branches != first.branches) {
			printf("count: run %d: %lu instructions and %lu branches, not %lu and %lu\n",
			       i + 1, again.instructions, again.branches, first.instructions,
			       first.branches);
			return 1;
		}
	}
	printf("%lu %lu\n", first.instructions, first.branches);
	return 0;
}
