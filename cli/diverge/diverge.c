// SPDX-License-Identifier: MIT
/*
 * vpmu diverge: compares the traces of two deterministic runs, runs both commands again to look at
 * the first window in which they differ, and again at a smaller one, until it is one instruction.
 *
 * The repeated runs are compared with each other and not with the files: what differs by chance
 * differs in each run. So a pass needs nothing of the pass before but where to look.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/diverge/diverge.h"
#include "exec/exec.h"

#define PARTS	   1000 /* into which a window is divided by one pass */
#define STEPS_MAX  4096 /* a window of so many instructions is looked at one by one */
#define ATTEMPTS   4	/* runs that are the same are repeated so often */
#define MAX_PASSES 24

typedef unsigned long long ull;

/* Records at `from` are the same, those at `to` are not. to == 0: all of the run. */
struct window {
	u64 from, to;
};

struct search {
	struct pair recorded;
	int input;
	struct window window;
	u32 equal;		/* how often they were the same in this window */
	bool widened;		/* in one window they were, and all of the run was looked at */
	struct trace_file a, b; /* the last runs */
};

static struct window window_of(const struct trace_file *a, const struct trace_file *b, u32 index)
{
	u64 in_a = trace_at(a, index).instruction, in_b = trace_at(b, index).instruction;

	return (struct window){ .from = index ? trace_at(a, index - 1).instruction : 0,
				.to = (in_a > in_b ? in_a : in_b) ?: 1 };
}

static u64 step_of(const struct window *window)
{
	u64 width = window->to - window->from;

	return width <= STEPS_MAX ? 1 : width / PARTS;
}

static struct trace_plan plan_for(const struct window *window)
{
	if (!window->to)
		return (struct trace_plan){ 0 };
	return (struct trace_plan){ .from = window->from,
				    .to = window->to,
				    .step = step_of(window) };
}

/* What comes by chance comes a little earlier or later in the next runs. */
static struct window with_margin(struct window window)
{
	u64 width = window.to - window.from;

	window.from -= width < window.from ? width : window.from;
	window.to += width;
	return window;
}

static void say(const char *name, const struct window *window)
{
	if (!isatty(2))
		return;
	if (window->to)
		fprintf(stderr, "vpmu: repeating the run of %s up to instruction %llu\n", name,
			(ull)window->to);
	else
		fprintf(stderr, "vpmu: repeating the run of %s\n", name);
}

static int repeat_both(struct search *search)
{
	const struct pair *recorded = &search->recorded;
	struct trace_plan plan = plan_for(&search->window);
	int status;

	trace_free(&search->a);
	trace_free(&search->b);
	say(recorded->name_a, &search->window);
	status = repeat_run(recorded->a, recorded->name_a, &plan, search->input, &search->a);
	if (status)
		return status;
	say(recorded->name_b, &search->window);
	return repeat_run(recorded->b, recorded->name_b, &plan, search->input, &search->b);
}

/* Whether the runs are what was recorded: if not, chance has a part in it. */
static void compare_with_recorded(const struct search *search, s64 index)
{
	const struct pair *recorded = &search->recorded;
	const struct window *window = &search->window;
	bool a = trace_reproduces(recorded->a, &search->a, window->to);
	bool b = trace_reproduces(recorded->b, &search->b, window->to);
	struct window now;

	if (a && b)
		return;
	printf("Repeated, %s not give the hashes that were recorded: it does not follow from the "
	       "inputs alone.\n",
	       a   ? "the second run does"
	       : b ? "the first run does"
		   : "both runs do");
	if (index < 0)
		return;
	now = window_of(&search->a, &search->b, index);
	if (now.to <= window->from || now.from >= window->to)
		printf("The source of chance struck elsewhere this time: between instructions %llu "
		       "and %llu.\n",
		       (ull)now.from, (ull)now.to);
}

static bool has_detail(const struct trace_file *file, u32 index)
{
	struct trace_detail detail;

	return trace_detail_at(file, index, &detail);
}

/* A window that cannot get smaller, with the states before and after one instruction; a run that
 * has ended has none after it. */
static bool is_found(const struct search *search, const struct window *window, u32 index)
{
	return window->to - window->from <= 1 && (!index || has_detail(&search->a, index - 1)) &&
	       (has_detail(&search->a, index) || has_detail(&search->b, index));
}

static void show_found(const struct search *search, u32 index)
{
	struct pair pair = search->recorded;

	pair.a = &search->a;
	pair.b = &search->b;
	show_difference(&pair, index);
}

/*
 * The runs did not differ. Chance may strike in the next pair, as it did when they were recorded,
 * or elsewhere. False: there is no more to try.
 */
static bool try_again(struct search *search)
{
	const struct window *window = &search->window;

	if (++search->equal < ATTEMPTS)
		return true;
	search->equal = 0;
	if (!window->to) {
		printf("Repeated, the two runs are the same from beginning to end, %u times: the "
		       "source of chance has not struck again.\n",
		       ATTEMPTS);
		return false;
	}
	if (search->widened) {
		printf("The runs differ between instructions %llu and %llu, but not while they are "
		       "looked at there.\n",
		       (ull)window->from, (ull)window->to);
		return false;
	}
	printf("Repeated, the two runs are the same up to instruction %llu, %u times.\n",
	       (ull)window->to, ATTEMPTS);
	search->widened = true;
	search->window = (struct window){ 0 };
	return true;
}

/* One pass: true if it was the last one. */
static bool look_closer(struct search *search, u32 pass)
{
	s64 index = trace_first_difference(&search->a, &search->b);
	struct window window;

	if (!pass)
		compare_with_recorded(search, index);
	if (index < 0)
		return !try_again(search);
	window = window_of(&search->a, &search->b, index);
	if (is_found(search, &window, index)) {
		show_found(search, index);
		return true;
	}
	search->window = search->window.to ? with_margin(window) : window;
	search->equal = 0;
	return false;
}

/* Runs that differ have been compared, whatever is found of them: 1. */
static int narrow_down(struct search *search)
{
	for (u32 pass = 0; pass < MAX_PASSES; pass++) {
		int status = repeat_both(search);

		if (status || look_closer(search, pass))
			return STATUS_BROKEN;
	}
	printf("Each time the runs differ somewhere else; last between instructions %llu and "
	       "%llu.\n",
	       (ull)search->window.from, (ull)search->window.to);
	return STATUS_BROKEN;
}

static int search_and_show(const struct pair *recorded, const struct window *window)
{
	struct search search = { .recorded = *recorded, .window = *window };
	int status = repeat_input(recorded->a, recorded->b, &search.input);

	if (!status)
		status = narrow_down(&search);
	trace_free(&search.a);
	trace_free(&search.b);
	close(search.input);
	return status;
}

/* --- the command line --- */

/* A trace is a command with its environment: others' are not run. */
static int check_owner(const char *name, int fd)
{
	struct distrust distrust;
	struct stat st;

	if (fstat(fd, &st))
		return failure(STATUS_USAGE, "cannot read '%s': %s", name, strerror(errno));
	if (trust_attributes(name, &st, &distrust))
		return STATUS_OK;
	return failure(STATUS_USAGE, "%s: its command is not run; --no-run compares only",
		       distrust.why);
}

static int load(const char *name, bool will_run, struct trace_file *file)
{
	int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY), status = STATUS_OK;

	if (fd < 0)
		return failure(STATUS_USAGE, "cannot read '%s': %s", name, strerror(errno));
	if (will_run)
		status = check_owner(name, fd);
	if (!status && !trace_load(file, fd))
		status = failure(STATUS_USAGE, "cannot use '%s': %s", name, file->error);
	close(fd);
	return status;
}

static int compare(const struct pair *pair, bool will_run)
{
	struct window window;
	s64 index;

	if (pair->a->header.every != pair->b->header.every)
		return failure(STATUS_USAGE,
			       "'%s' has hashes after every %llu instructions, '%s' after every "
			       "%llu: record both with one --trace-every",
			       pair->name_a, (ull)pair->a->header.every, pair->name_b,
			       (ull)pair->b->header.every);
	show_inputs(pair);
	index = trace_first_difference(pair->a, pair->b);
	if (index < 0) {
		printf("The traces are the same: %llu instructions, %u hashes.\n",
		       (ull)trace_at(pair->a, pair->a->records - 1).instruction, pair->a->records);
		return STATUS_OK;
	}
	window = window_of(pair->a, pair->b, index);
	printf("The runs differ first between instructions %llu and %llu.\n", (ull)window.from,
	       (ull)window.to);
	fflush(stdout);
	return will_run ? search_and_show(pair, &window) : STATUS_BROKEN;
}

static int load_and_compare(char **names, bool will_run)
{
	struct trace_file a = { 0 }, b = { 0 };
	struct pair pair = { &a, &b, names[0], names[1] };
	int status = load(names[0], will_run, &a);

	if (!status)
		status = load(names[1], will_run, &b);
	if (!status)
		status = compare(&pair, will_run);
	trace_free(&a);
	trace_free(&b);
	return status;
}

static int run(int argc, char **argv)
{
	bool will_run = true;
	int i = 1;

	open_standard_files();
	for (; i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
		if (!strcmp(argv[i], "--")) {
			i++;
			break;
		}
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			command_help(&command_diverge);
			return STATUS_OK;
		}
		if (strcmp(argv[i], "--no-run") && strcmp(argv[i], "-n"))
			return usage_error(&command_diverge, "unknown option '%s'", argv[i]);
		will_run = false;
	}
	if (argc - i != 2)
		return usage_error(&command_diverge,
				   "two files of vpmu exec --trace-hash are "
				   "compared, not %d",
				   argc - i);
	return load_and_compare(argv + i, will_run);
}

static void describe(void)
{
	puts("options:\n"
	     "  -n, --no-run   compare the files, and run nothing\n\n"
	     "Both runs are recorded with 'vpmu exec --deterministic --trace-hash FILE'. Where they\n"
	     "differ, their commands are run again, as they were and where they were, up to the\n"
	     "first instruction that makes a difference: its address, bytes and disassembly, the\n"
	     "registers that differ, and the interrupts and exits that came in are shown.\n"
	     "Standard input, if the runs had one, is to be given again.\n\n"
	     "exit codes: 0 the runs are the same, 1 they differ, 2 wrong usage or no such files\n\n"
	     "examples:\n"
	     "  vpmu exec --deterministic --trace-hash a -- make </dev/null\n"
	     "  vpmu exec --deterministic --trace-hash b -- make </dev/null\n"
	     "  vpmu diverge a b");
}

const struct command command_diverge = {
	.name = "diverge",
	.synopsis = "[--no-run] A B",
	.summary = "Find the instruction with which two runs begin to differ",
	.run = run,
	.describe = describe,
};
