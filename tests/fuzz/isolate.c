// SPDX-License-Identifier: MIT
/*
 * Cases in child processes: see isolate.h. The child notes the case it is at in a shared page; when
 * it dies, the parent reports that case and continues after it with a new child.
 */
#include "fuzz/isolate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/must.h"

#define MAX_FAILURES 20

struct progress {
	u32 at, failures;
};

void isolate_parse(struct isolate *i, int argc, char **argv, u64 default_seed, u32 cases)
{
	i->program = argv[0];
	i->seed = default_seed;
	i->first = 0;
	i->end = cases;
	for (int n = 1; n + 1 < argc; n += 2) {
		u64 value = strtoull(argv[n + 1], NULL, 0);

		if (!strcmp(argv[n], "--seed")) {
			i->seed = value;
		} else if (!strcmp(argv[n], "--cases")) {
			i->end = (u32)value;
		} else if (!strcmp(argv[n], "--case")) {
			i->first = (u32)value;
			i->end = i->first + 1;
		}
	}
	printf("seed %#llx, cases %u to %u\n", (unsigned long long)i->seed, i->first, i->end - 1);
	fflush(stdout);
}

static void report(const struct isolate *i, u32 number, const char *what)
{
	fprintf(stderr, "case %u %s; repeat: %s --seed %#llx --case %u\n", number, what, i->program,
		(unsigned long long)i->seed, number);
}

static void child(const struct isolate *i, struct progress *progress)
{
	if (i->set_up)
		i->set_up();
	for (; progress->at < i->end; progress->at++) {
		alarm(ISOLATE_SECONDS);
		if (i->run(i->seed, progress->at))
			continue;
		report(i, progress->at, "failed");
		if (++progress->failures >= MAX_FAILURES)
			break;
	}
	exit(0); /* with the sanitizers' own checks */
}

static void report_death(const struct isolate *i, u32 number, int status)
{
	char what[40];

	if (WIFSIGNALED(status))
		snprintf(what, sizeof(what), "was killed by signal %d", WTERMSIG(status));
	else
		snprintf(what, sizeof(what), "exited with code %d", WEXITSTATUS(status));
	report(i, number, what);
}

u32 isolate_run(const struct isolate *i)
{
	struct progress *progress = mmap(NULL, sizeof(*progress), PROT_READ | PROT_WRITE,
					 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	u32 failures;

	must(progress != MAP_FAILED);
	progress->at = i->first;
	while (progress->at < i->end && progress->failures < MAX_FAILURES) {
		pid_t pid = fork();
		int status;

		must(pid >= 0);
		if (pid == 0)
			child(i, progress);
		must(waitpid(pid, &status, 0) == pid);
		if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
			break;
		report_death(i, progress->at, status);
		progress->failures++;
		progress->at++;
	}
	failures = progress->failures;
	munmap(progress, sizeof(*progress));
	return failures;
}

int isolate_main(struct isolate *i, int argc, char **argv, u64 default_seed, u32 cases,
		 const char *what)
{
	u32 failures;

	isolate_parse(i, argc, argv, default_seed, cases);
	failures = isolate_run(i);
	printf("%u of %u %s ended wrongly\n", failures, i->end - i->first, what);
	return failures ? 1 : 0;
}
