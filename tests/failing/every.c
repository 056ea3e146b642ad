// SPDX-License-Identifier: MIT
/*
 * Every failure once: see every.h.
 */
#include "failing/every.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/must.h"
#include "failing/fail.h"

#define RUN_SECONDS 20
#define SETTLE_MS   5000 /* for threads that end on their own */
#define MAX_CALLS   2000

/* What a run tells its parent, in shared memory: a run may die. */
struct told {
	struct failure failure;
	struct holdings held;
	int with, without; /* what run() returned with the failure, and without */
};

static struct told *told;
static bool quiet; /* what the library says on standard error is of no interest */

static bool same_holdings(const struct holdings *a, const struct holdings *b)
{
	return a->blocks == b->blocks && a->mapped == b->mapped &&
	       a->descriptors == b->descriptors && a->threads == b->threads;
}

/* Waits until the process holds what is expected, if it ever does. */
static void settle(const struct holdings *expected)
{
	for (u32 ms = 0; ms < SETTLE_MS; ms++) {
		fail_holdings(&told->held);
		if (!expected || same_holdings(&told->held, expected))
			return;
		usleep(1000);
	}
}

static void child(const struct scenario *scenario, u32 n, const struct holdings *expected)
{
	if (quiet)
		dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 2);
	alarm(RUN_SECONDS);
	fail_arm(n);
	told->with = scenario->run();
	told->failure = fail_disarm().failure;
	told->without = scenario->run();
	settle(expected);
	exit(0); /* with the sanitizers' own checks */
}

/* How the process ended, as waitpid() says. */
static int run_child(const struct scenario *scenario, u32 n, const struct holdings *expected)
{
	pid_t pid;
	int status;

	*told = (struct told){ .failure = { .call = NFAIL_CALLS }, .without = EVERY_WRONG };
	fflush(stdout);
	pid = fork();
	must(pid >= 0);
	if (!pid)
		child(scenario, n, expected);
	must(waitpid(pid, &status, 0) == pid);
	return status;
}

static const char *describe_error(int error)
{
	return error == EVERY_WRONG ? "a wrong result" : error ? strerror(error) : "success";
}

static bool complain(const struct scenario *scenario, u32 n, const char *fmt, int number,
		     const char *text)
{
	char where[600] = "nothing failed";

	if (told->failure.call != NFAIL_CALLS)
		fail_describe(&told->failure, where, sizeof(where));
	printf("%s, call %u (%s): ", scenario->name, n, where);
	printf(fmt, number, text);
	printf("\n\trepeat: %s %s %u\n", program_invocation_name, scenario->name, n);
	return false;
}

static bool right_end(const struct scenario *scenario, u32 n)
{
	const struct failure *failure = &told->failure;

	if (told->with == failure->error ||
	    (!told->with && (failure->is_optional || scenario->is_optional)) ||
	    (scenario->is_optional && told->with != EVERY_WRONG))
		return true;
	return complain(scenario, n, "error %d: %s", told->with, describe_error(told->with));
}

static bool kept_nothing(const struct scenario *scenario, u32 n, const struct holdings *expected)
{
	const struct holdings *held = &told->held;

	if (same_holdings(held, expected))
		return true;
	complain(scenario, n, "left something behind%.0d%s", 0, ":");
	printf("\tblocks %+lld, mapped bytes %+lld, descriptors %+d, threads %+d\n",
	       (long long)(held->blocks - expected->blocks),
	       (long long)(held->mapped - expected->mapped),
	       (int)(held->descriptors - expected->descriptors),
	       (int)(held->threads - expected->threads));
	return false;
}

/* Sets *reached: there was an n-th call. */
static bool one_failure(const struct scenario *scenario, u32 n, const struct holdings *expected,
			bool *reached)
{
	int status = run_child(scenario, n, expected);

	*reached = told->failure.call != NFAIL_CALLS || status;
	if (WIFSIGNALED(status))
		return complain(scenario, n, "killed by signal %d%s", WTERMSIG(status),
				WTERMSIG(status) == SIGALRM ? ": it hung" : "");
	if (status)
		return complain(scenario, n, "exited with code %d%s", WEXITSTATUS(status), "");
	if (!*reached)
		return true;
	if (told->without)
		return complain(scenario, n, "and then, with nothing failing: error %d: %s",
				told->without, describe_error(told->without));
	return right_end(scenario, n) && kept_nothing(scenario, n, expected);
}

/* What a process holds after two runs in which nothing fails. */
static bool measure(const struct scenario *scenario, struct holdings *out)
{
	int status = run_child(scenario, 0, NULL);

	*out = told->held;
	if (!status && !told->with && !told->without)
		return true;
	return complain(scenario, 0, "error %d: %s", told->with, describe_error(told->with));
}

static u32 each_failure(const struct scenario *scenario, u32 only)
{
	struct holdings expected;
	u32 n = only ? only : 1, failures = 0;
	bool reached = true;

	if (!measure(scenario, &expected))
		return 1;
	for (; reached && n <= MAX_CALLS; n++) {
		failures += !one_failure(scenario, n, &expected, &reached);
		if (only)
			break;
	}
	if (only)
		return failures;
	n -= 1 + !reached;
	printf("%s: %u calls failed, %u of them ended wrongly\n", scenario->name, n, failures);
	if (!n || reached)
		printf("%s: %s\n", scenario->name, n ? "it makes more calls" : "it makes none");
	return failures + (!n || reached);
}

int every_failure(const struct scenario *scenarios, u32 count, int argc, char **argv)
{
	u32 failures = 0, run = 0, only = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;

	told = mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(told != MAP_FAILED);
	quiet = !only;
	for (u32 i = 0; i < count; i++) {
		if (argc > 1 && strcmp(argv[1], scenarios[i].name))
			continue;
		failures += each_failure(&scenarios[i], only);
		run++;
	}
	return failures || !run ? 1 : 0;
}
