// SPDX-License-Identifier: MIT
/*
 * Running steps, some at a time, each in a process of its own: it leaves its result in a file.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/check/check.h"
#include "cli/check/signals.h"
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

struct jobs {
	pid_t *pid; /* 0: none */
	u32 most, running;
	int stopped; /* by this signal; 0: by none */
	struct check_signals signals;
};

/* --- processes --- */

static pid_t start(const struct check_suite *suite, const struct check_task *task,
		   const struct jobs *jobs, const char *results)
{
	pid_t parent = getpid(), pid = fork();

	if (pid)
		return pid;
	signals_unblock(&jobs->signals);
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

/* A signal to us ends all of them. Waits for one, or for the end of a process, at most so long;
 * NULL: without limit. */
static void take_signal(struct jobs *jobs, const struct timespec *most)
{
	int signal = signals_wait(&jobs->signals, most);

	if (!signal)
		return;
	jobs->stopped = signal;
	end_all(jobs);
}

/* An exit code, of one that has ended. A process that ends after waitpid() has looked, like any
 * signal, is pending when take_signal() waits. */
static int reap(struct jobs *jobs)
{
	pid_t pid, *slot;
	int status;

	take_signal(jobs, &(struct timespec){ 0 });
	while ((pid = waitpid(-1, &status, WNOHANG)) == 0)
		take_signal(jobs, NULL);
	if (pid < 0) {
		jobs->running = 0;
		return STATUS_BROKEN;
	}
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

	while ((next < count && !jobs->stopped) || jobs->running) {
		if (next < count && jobs->running < jobs->most && !jobs->stopped) {
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
	return jobs->stopped ? 128 + jobs->stopped : status;
}

/* CPUs that this process may run on, by its affinity and its cpuset. */
u32 jobs_usual(void)
{
	cpu_set_t set[8]; /* 8192, as many as Linux can have */

	if (sched_getaffinity(0, sizeof(set), set))
		return sysconf(_SC_NPROCESSORS_ONLN);
	return CPU_COUNT_S(sizeof(set), set);
}

static int jobs_run(const struct check_suite *suite, const struct check_task *task, u32 count,
		    const struct check_limits *limits, const char *results)
{
	u32 most = limits->jobs ?: jobs_usual();
	struct jobs jobs = { .pid = calloc(most, sizeof(*jobs.pid)), .most = most };
	int status;

	if (!jobs.pid)
		return out_of_memory();
	earlier_put_aside(task, count, results);
	earlier_remove(task, count, results);
	fflush(NULL); /* or each process has what is not written yet */
	signals_block(&jobs.signals);
	status = run_all(suite, task, count, &jobs, results);
	signals_restore(&jobs.signals);
	show_end(count);
	free(jobs.pid);
	return status;
}

const struct check_runner runner_local = { "local", false, jobs_run };
