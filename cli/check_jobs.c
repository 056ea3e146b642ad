// SPDX-License-Identifier: MIT
/*
 * Running steps, some at a time, each in a process of its own: it leaves its result in a file.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "cli.h"

static pid_t start(const struct check_suite *suite, const struct check_task *task,
		   const char *results)
{
	pid_t parent = getpid(), pid = fork();

	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(STATUS_BROKEN);
	_exit(check_run(suite, task->index, task->step, results));
}

/* On a terminal only: a line that the next one replaces. */
static void show(const struct check_suite *suite, const struct check_task *task, u32 number,
		 u32 count)
{
	const struct check_case *of = &suite->one[task->index];

	if (isatty(2))
		fprintf(stderr, "\r\033[K[%u/%u] %s on %s%s", number, count, of->benchmark->name,
			of->model, task->step == STEP_FUNCTIONS ? ": functions" : "");
}

static void show_end(u32 count)
{
	if (isatty(2) && count)
		fputs("\r\033[K", stderr);
}

/* The gravest exit code of those that have ended. */
static int reap(u32 *running)
{
	int status;

	while (wait(&status) < 0)
		if (errno != EINTR)
			return STATUS_BROKEN;
	--*running;
	return WIFEXITED(status) ? WEXITSTATUS(status) : STATUS_BROKEN;
}

int jobs_run(const struct check_suite *suite, const struct check_task *task, u32 count, u32 jobs,
	     const char *results)
{
	u32 running = 0, next = 0;
	int status = STATUS_OK, one;

	fflush(NULL); /* or each process has what is not written yet */
	while (next < count || running) {
		if (next < count && running < jobs) {
			show(suite, &task[next], next + 1, count);
			if (start(suite, &task[next++], results) < 0)
				return failure(STATUS_BROKEN, "cannot start a process: %s",
					       strerror(errno));
			running++;
			continue;
		}
		one = reap(&running);
		status = status ? status : one;
	}
	show_end(count);
	return status;
}
