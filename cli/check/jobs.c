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

#include "cli/check/check.h"
#include "cli/cli.h"

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

/* --- signals --- */

static const int caught[] = { SIGINT, SIGTERM, SIGHUP };

static volatile sig_atomic_t stopped; /* by this signal */

static void stop(int signal)
{
	stopped = signal;
}

struct jobs {
	pid_t *pid; /* 0: none */
	u32 most, running;
	struct sigaction before[ARRAY_SIZE(caught)];
};

/* What is ignored stays so, as with nohup(1). Without SA_RESTART: wait() ends. */
static void catch_signals(struct jobs *jobs)
{
	const struct sigaction action = { .sa_handler = stop };

	for (u32 i = 0; i < ARRAY_SIZE(caught); i++)
		if (!sigaction(caught[i], NULL, &jobs->before[i]) &&
		    jobs->before[i].sa_handler != SIG_IGN)
			sigaction(caught[i], &action, NULL);
}

static void restore_signals(const struct jobs *jobs)
{
	for (u32 i = 0; i < ARRAY_SIZE(caught); i++)
		sigaction(caught[i], &jobs->before[i], NULL);
}

/* --- processes --- */

static pid_t start(const struct check_suite *suite, const struct check_task *task,
		   const struct jobs *jobs, const char *results)
{
	pid_t parent = getpid(), pid = fork();

	if (pid)
		return pid;
	restore_signals(jobs);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(STATUS_BROKEN);
	_exit(check_run(suite, task->index, task->step, results));
}

static pid_t *slot_of(const struct jobs *jobs, pid_t pid)
{
	u32 i = 0;

	while (i < jobs->most && jobs->pid[i] != pid)
		i++;
	return i < jobs->most ? &jobs->pid[i] : NULL;
}

static void end_all(const struct jobs *jobs)
{
	for (u32 i = 0; i < jobs->most; i++)
		if (jobs->pid[i])
			kill(jobs->pid[i], SIGTERM);
}

/* An exit code, of one that has ended; a signal to us ends all of them. */
static int reap(struct jobs *jobs)
{
	pid_t pid, *slot;
	int status;

	do {
		if (stopped)
			end_all(jobs);
		pid = wait(&status);
	} while (pid < 0 && errno == EINTR);
	if (pid < 0)
		return STATUS_BROKEN;
	slot = slot_of(jobs, pid);
	if (slot)
		*slot = 0;
	jobs->running--;
	return WIFEXITED(status) ? WEXITSTATUS(status) : STATUS_BROKEN;
}

static int run_all(const struct check_suite *suite, const struct check_task *task, u32 count,
		   struct jobs *jobs, const char *results)
{
	int status = STATUS_OK, one;
	u32 next = 0;

	while ((next < count && !stopped) || jobs->running) {
		if (next < count && jobs->running < jobs->most && !stopped) {
			pid_t pid = start(suite, &task[next], jobs, results);

			if (pid > 0) {
				show(suite, &task[next], next + 1, count);
				next++;
				*slot_of(jobs, 0) = pid;
				jobs->running++;
				continue;
			}
			status = failure(STATUS_BROKEN, "cannot start a process: %s",
					 strerror(errno));
			count = next;
			continue;
		}
		one = reap(jobs);
		status = status ? status : one;
	}
	return stopped ? 128 + stopped : status;
}

int jobs_run(const struct check_suite *suite, const struct check_task *task, u32 count, u32 most,
	     const char *results)
{
	struct jobs jobs = { .pid = calloc(most, sizeof(*jobs.pid)), .most = most };
	int status;

	if (!jobs.pid)
		return out_of_memory();
	fflush(NULL); /* or each process has what is not written yet */
	catch_signals(&jobs);
	status = run_all(suite, task, count, &jobs, results);
	restore_signals(&jobs);
	show_end(count);
	free(jobs.pid);
	return status;
}
