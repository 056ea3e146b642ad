// SPDX-License-Identifier: MIT
/*
 * Steps of vpmu check with guests that say what a test wants: execv() is this file's, so that what
 * would become `vpmu exec` answers instead, and no guest is booted.
 */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "cli/check/check.h"

#define SUITE "/tmp/vpmu-check.toml" /* a path whose folder exists */
#define WHERE "6.12\nperf version 6.1\nflags : fpu\n"

/* What a guest says, and how it ends: the one that counts, and the one that is asked for names of
 * events that perf does not know. */
struct answer {
	const char *output, *error;
	int status;
};

static struct answer counting, naming;
static int orphans = -1; /* a pipe's end: children lose their parent, and tell of what they do */

static bool asks_for_names(char *const *words)
{
	for (; *words; words++)
		if (!strncmp(*words, "for event;", 10))
			return true;
	return false;
}

static void say(int fd, const char *text)
{
	if (text && write(fd, text, strlen(text)) < 0)
		_exit(99);
}

int execv(const char *path, char *const words[])
{
	const struct answer *answer = asks_for_names(words) ? &naming : &counting;

	(void)path;
	if (orphans >= 0)
		say(orphans, "started");
	say(1, answer->output);
	say(2, answer->error);
	_exit(answer->status);
}

/* As if the parent had been killed just before. */
int prctl(int option, ...)
{
	va_list args;
	unsigned long value;

	va_start(args, option);
	value = va_arg(args, unsigned long);
	va_end(args);
	if (orphans >= 0) {
		pid_t parent = getppid();

		say(orphans, "begun ");
		kill(parent, SIGKILL);
		while (getppid() == parent)
			usleep(1000);
	}
	return syscall(SYS_prctl, option, value, 0, 0, 0);
}

/* --- counts --- */

/* A benchmark with these events, an array of TOML. */
static void parse(struct check_suite *suite, const char *events)
{
	char text[512];

	snprintf(text, sizeof(text),
		 "[[benchmark]]\nname = \"x\"\ncommand = [\"true\"]\nfolder = \"/\"\nevents = %s\n",
		 events);
	if (!suite_parse(suite, SUITE, text, strlen(text)))
		fail_msg("%s", suite->error);
}

/* An exit code. A step has a process of its own, whose end frees its memory. */
static int run_step(const struct check_suite *suite, const char *folder)
{
	int status = 0;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid)
		_exit(check_run(suite, 0, STEP_COUNTS, folder));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The step's result. */
static void count(const char *events, const struct answer *first, struct check_results *results)
{
	char folder[] = "/tmp/vpmu-check-step-XXXXXX", path[PATH_MAX];
	struct check_suite suite;

	parse(&suite, events);
	assert_non_null(mkdtemp(folder));
	counting = *first;
	assert_int_equal(run_step(&suite, folder), 0);
	check_result_path(path, folder, 0, STEP_COUNTS);
	if (!results_read(results, path))
		fail_msg("%s", results->error);
	unlink(path);
	rmdir(folder);
	suite_free(&suite);
	assert_int_equal(results->count, 1);
}

static void expect_error(const char *events, const struct answer *first, const char *error)
{
	struct check_results results;

	count(events, first, &results);
	if (!results.result[0].error || !strstr(results.result[0].error, error))
		fail_msg("%s: %s", events, results.result[0].error ?: "no error");
	results_free(&results);
}

static void expect_count(const char *output, const char *event, u64 value)
{
	struct check_results results;
	const struct check_count *found;

	count("[\"instructions:u\", \"cycles:u\"]", &(struct answer){ output, NULL, 0 }, &results);
	if (results.result[0].error)
		fail_msg("%s: %s", output, results.result[0].error);
	found = counts_find(&results.result[0].counts, event);
	assert_non_null(found);
	assert_int_equal(found->value, value);
	results_free(&results);
}

#define LINE(count, event) #count "||" event "|1000|100.00||\n"

static void counts_are_those_of_their_events(void **state)
{
	(void)state;
	expect_count(WHERE LINE(7, "instructions:u") LINE(5, "cycles:u"), "cycles:u", 5);
	/* Metrics and comments belong to no event. */
	expect_count(WHERE
		     "# started\n\n" LINE(7, "instructions:u") "|||||1.40|insn per cycle\n" LINE(
			     5, "cycles:u") "|||||2|GHz\n",
		     "cycles:u", 5);
	/* Another spelling, as perf has it where the kernel may not be counted. */
	expect_count(WHERE LINE(7, "cpu/instructions/u") LINE(5, "cycles:uu"), "cycles:u", 5);
}

static void a_count_that_was_not_asked_for_fails_the_benchmark(void **state)
{
	static const char two[] = "[\"sched:*\", \"cycles:u\"]";

	(void)state;
	/* An event that perf expands: the counts after it are those of others. */
	expect_error(two,
		     &(struct answer){ WHERE LINE(7, "sched:a") LINE(6, "sched:b")
					       LINE(5, "cycles:u"),
				       NULL, 0 },
		     "perf counted 'cycles:u' as well: one of the events stands for several");
	expect_error("[\"sched:*\"]",
		     &(struct answer){ WHERE LINE(7, "sched:a") "\n#\n|||\n" LINE(6, "sched:b"),
				       NULL, 0 },
		     "perf counted 'sched:b' as well");
}

static void counts_in_another_order_fail_the_benchmark(void **state)
{
	(void)state;
	expect_error(
		"[\"topdown-retiring\", \"slots\"]",
		&(struct answer){ WHERE LINE(7, "slots") LINE(5, "topdown-retiring"), NULL, 0 },
		"perf counted 'slots' in the place of 'topdown-retiring'");
	/* But an event may be called like another. */
	expect_error("[\"cpu/event=0xc0,name=slots/\", \"slots\"]",
		     &(struct answer){ WHERE LINE(7, "slots") "<not supported>||slots|0|0.00||\n",
				       NULL, 0 },
		     "has no counter for 'slots'");
}

/* --- how it ended --- */

#define USAGE 129 /* perf's exit code if it does not know an event, and any benchmark's */

static void an_exit_code_like_perfs_is_the_benchmarks_if_perf_knows_its_events(void **state)
{
	static const char events[] = "[\"instructions:u\"]";
	static const struct answer ended = { WHERE, NULL, USAGE };

	(void)state;
	naming = (struct answer){ "", NULL, 0 };
	expect_error(events, &ended, "it ended with exit code 129");
	naming = (struct answer){ "'instructions:u'\n", NULL, 0 };
	expect_error(events, &ended, "has no event 'instructions:u'");
	naming = (struct answer){ "", "vpmu: no\n", 1 };
	expect_error(events, &ended, "perf does not know its events");
}

/* --- its file --- */

static struct rlimit usual; /* for the sizes of files */

static void lift_limit(int number)
{
	(void)number;
	setrlimit(RLIMIT_FSIZE, &usual);
}

/* The disk is full for one write, and has room again for those after it. An errno. */
static int write_with_a_gap(const char *path, const struct check_result *result)
{
	int error;

	getrlimit(RLIMIT_FSIZE, &usual);
	signal(SIGXFSZ, lift_limit);
	setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 4096, usual.rlim_max });
	error = results_write(path, "a test", &result, 1) ? 0 : errno;
	lift_limit(0);
	signal(SIGXFSZ, SIG_DFL);
	return error;
}

static void a_file_with_a_gap_replaces_none(void **state)
{
	static struct check_count counts[2000];
	const struct check_result result = { .name = "x",
					     .model = "icelake",
					     .counts = { counts, ARRAY_SIZE(counts) } };
	char folder[] = "/tmp/vpmu-check-step-XXXXXX", path[PATH_MAX];
	int error;

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(counts); i++)
		counts[i] = (struct check_count){ "instructions:u", i };
	assert_non_null(mkdtemp(folder));
	check_result_path(path, folder, 0, STEP_COUNTS);
	error = write_with_a_gap(path, &result);
	unlink(path);
	assert_int_equal(rmdir(folder), 0); /* no part of it is there */
	assert_int_equal(error, EIO);
}

/* --- how many at a time --- */

/* A container or a job of a cluster often has fewer than the machine. */
static void jobs_are_as_many_as_the_process_has_cpus(void **state)
{
	cpu_set_t before, one;
	u32 count;

	(void)state;
	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	assert_int_equal(jobs_usual(), CPU_COUNT(&before));
	CPU_ZERO(&one);
	for (u32 i = 0; !CPU_COUNT(&one); i++)
		if (CPU_ISSET(i, &before))
			CPU_SET(i, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	count = jobs_usual();
	sched_setaffinity(0, sizeof(before), &before);
	assert_int_equal(count, 1);
}

/* --- a parent that is killed --- */

static void a_guest_whose_step_was_killed_is_not_started(void **state)
{
	struct check_suite suite;
	char said[64] = "";
	int ends[2], status;
	size_t size = 0;
	ssize_t n;
	pid_t pid;

	(void)state;
	parse(&suite, "[\"cycles\"]");
	assert_int_equal(pipe(ends), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		orphans = ends[1];
		_exit(check_run(&suite, 0, STEP_COUNTS, "/no/such/folder"));
	}
	close(ends[1]);
	alarm(60);
	while ((n = read(ends[0], said + size, sizeof(said) - 1 - size)) > 0)
		size += n; /* until the last process that could say anything has ended */
	alarm(0);
	close(ends[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	suite_free(&suite);
	assert_string_equal(said, "begun ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(counts_are_those_of_their_events),
		cmocka_unit_test(a_count_that_was_not_asked_for_fails_the_benchmark),
		cmocka_unit_test(counts_in_another_order_fail_the_benchmark),
		cmocka_unit_test(
			an_exit_code_like_perfs_is_the_benchmarks_if_perf_knows_its_events),
		cmocka_unit_test(a_file_with_a_gap_replaces_none),
		cmocka_unit_test(jobs_are_as_many_as_the_process_has_cpus),
		cmocka_unit_test(a_guest_whose_step_was_killed_is_not_started),
	};

	return cmocka_run_group_tests_name("check_step", tests, NULL, NULL);
}
