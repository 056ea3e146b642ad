// SPDX-License-Identifier: MIT
/*
 * A step of vpmu check: a benchmark on a model, in a deterministic guest, and a file with what came
 * of it. Counts come from perf in the guest, which knows every event by name and counts from the
 * benchmark's exec to its end; functions from the processor's own profile, in a run of their own,
 * since perf's code would be in it, too.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/memfile.h"
#include "base/profile.h"
#include "base/version.h"
#include "cli/check/guest_command.h"
#include "cli/cli.h"

#define STATUS_TIMEOUT 124
#define PERF_WORKLOAD  255 /* perf: the command could not be started */
#define PERF_USAGE     129 /* perf: the events make no sense */

/* What the guest is, three lines; then perf's. $1 are the events. */
static const char counts_script[] =
	"uname -r; perf --version; grep -m 1 ^flags /proc/cpuinfo; events=$1; shift\n"
	"exec perf stat -x '|' --log-fd 3 -e \"$events\" -- \"$@\" 3>&1 >/dev/null";
/* Those of its arguments that are no events. */
static const char events_script[] =
	"for event; do perf stat -x '|' -e \"$event\" -- true >/dev/null 2>&1 || echo \"'$event'\"; done";
static const char functions_script[] = "exec \"$@\" >/dev/null";

/* --- errors of a benchmark --- */

__attribute__((format(printf, 2, 3))) static bool wrong(struct check_result *result,
							const char *fmt, ...)
{
	va_list args;
	char *error;

	va_start(args, fmt);
	if (vasprintf(&error, fmt, args) >= 0)
		make_printable(error); /* it may be the guest's word */
	else
		error = "out of memory";
	va_end(args);
	result->error = error;
	return false;
}

/* perf tells of a command that a signal has killed in words only. */
static bool was_killed(struct check_guest *guest, const char *command)
{
	const char *said = guest_last_words(guest);
	size_t n = strlen(command);

	if (strncmp(said, command, n) || strncmp(said + n, ": ", 2))
		return false;
	for (int signal = 1; signal < 32; signal++)
		if (!strcmp(said + n + 2, strsignal(signal)))
			return true;
	return false;
}

/* How a guest ended that did not end well. */
static bool explain(const struct check_case *of, struct check_guest *guest,
		    struct check_result *result)
{
	const char *said = guest_last_words(guest);

	if (guest->status == STATUS_TIMEOUT && strstr(said, "the time limit"))
		return wrong(result, "it did not end within %u s", of->benchmark->timeout);
	if (guest->status == PERF_WORKLOAD && strstr(said, "Workload failed: "))
		return wrong(result, "cannot start '%s': %s", of->benchmark->command[0],
			     strstr(said, "Workload failed: ") + strlen("Workload failed: "));
	if (!strncmp(said, "vpmu: ", 6))
		return wrong(result, "%s", said + 6);
	return wrong(result, "it ended with exit code %d%s%s", guest->status, *said ? ": " : "",
		     said);
}

/* --- counts --- */

/* The next line of a text, without its end. NULL: there is none. */
static char *next_line(char **text)
{
	char *line = *text, *end = line ? strchr(line, '\n') : NULL;

	if (end)
		*end = '\0';
	*text = end ? end + 1 : NULL;
	return end ? line : NULL;
}

static bool take_where(struct check_result *result, char **text)
{
	static struct check_fact facts[4];
	char *kernel = next_line(text), *perf = next_line(text), *flags = next_line(text), *hash;
	u64 number = 2166136261u;

	if (!flags)
		return wrong(result, "the guest did not say what it is");
	make_printable(kernel);
	make_printable(perf);
	for (char *c = flags; *c; c++)
		number = (number ^ (u8)*c) * 0x100000001b3ull;
	if (asprintf(&hash, "%016llx", (unsigned long long)number) < 0)
		return wrong(result, "out of memory");
	facts[0] = (struct check_fact){ "vpmu", VPMU_VERSION };
	facts[1] = (struct check_fact){ "kernel", kernel };
	facts[2] = (struct check_fact){ "perf", perf };
	facts[3] = (struct check_fact){ "features", hash };
	result->where = (struct check_facts){ facts, ARRAY_SIZE(facts) };
	return true;
}

/* The next line of perf's that is a count, or NULL. */
static char *next_count(char **text)
{
	char *line;

	do
		line = next_line(text);
	while (line && (*line == '|' || !*line || *line == '#')); /* a metric that perf adds */
	return line;
}

/* COUNT|UNIT|EVENT|TIME|PERCENT|…: perf-stat(1), CSV FORMAT. */
#define FIELDS 5

static bool split(char *line, char *field[FIELDS])
{
	for (u32 i = 0; i < FIELDS; i++)
		field[i] = strsep(&line, "|");
	return field[FIELDS - 1];
}

/* perf may spell an event in another way, as cycles:u for cycles where the kernel may not be
 * counted, but not as another one that was asked for: newer ones sort those of top-down groups.
 * With "name=" an event has any name. */
static bool is_another(const struct check_benchmark *b, const char *event, const char *name)
{
	bool found = false;

	if (strcmp(event, name) && !strstr(event, "name="))
		for (u32 i = 0; i < b->events; i++)
			found = found || !strcmp(b->event[i].name, name);
	return found;
}

/* Counts come in the order in which events were asked for. */
static bool take_count(const struct check_benchmark *b, struct check_result *result,
		       const char *event, char *line)
{
	struct check_count *count = &result->counts.item[result->counts.count];
	char *field[FIELDS], *end;

	if (!line || !split(line, field))
		return wrong(result, "perf did not count '%s'", event);
	if (is_another(b, event, field[2]))
		return wrong(result, "perf counted '%.60s' in the place of '%s'", field[2], event);
	if (!strcmp(field[0], "<not supported>"))
		return wrong(result, "the model '%s' has no counter for '%s'", result->model,
			     event);
	if (field[0][0] == '<')
		return wrong(result, "'%s' is %.40s: there may be more events than counters", event,
			     field[0]);
	errno = 0;
	*count = (struct check_count){ event, strtoull(field[0], &end, 10) };
	if (*end || end == field[0] || errno || count->value > INT64_MAX)
		return wrong(result, "'%s' is no count: %.40s", event, field[0]);
	if (strcmp(field[4], "100.00"))
		return wrong(result,
			     "'%s' was counted for %s %% of the time: there are more events than "
			     "counters",
			     event, field[4]);
	result->counts.count++;
	return true;
}

/* An event that stands for several has moved the counts of those after it. */
static bool take_end(struct check_result *result, char *text)
{
	char *line, *field[FIELDS];

	while ((line = next_count(&text)))
		if (split(line, field))
			return wrong(result,
				     "perf counted '%.60s' as well: one of the events stands for "
				     "several",
				     field[2]);
	return true;
}

static bool take_counts(const struct check_benchmark *b, struct check_result *result, char *text)
{
	result->counts.item = calloc(b->events, sizeof(*result->counts.item));
	if (!result->counts.item)
		return wrong(result, "out of memory");
	for (u32 i = 0; i < b->events; i++)
		if (!take_count(b, result, b->event[i].name, next_count(&text)))
			return false;
	return take_end(result, text);
}

/* perf tells of events that it does not know in words, and cuts their names. If it knows them all,
 * the exit code is the benchmark's own. */
static bool blame_events(const struct check_case *of, struct check_guest *counting,
			 struct check_result *result)
{
	const struct check_benchmark *b = of->benchmark;
	char **names = calloc(b->events + 1ull, sizeof(*names));
	struct check_guest guest;

	for (u32 i = 0; names && i < b->events; i++)
		names[i] = (char *)b->event[i].name;
	if (!names || !guest_run(of, events_script, names, -1, &guest) || guest.status)
		return wrong(result, "perf does not know its events");
	if (!guest.output_size)
		return explain(of, counting, result);
	guest.output[guest.output_size - 1] = '\0'; /* a line end */
	for (char *c = guest.output; *c; c++)
		if (*c == '\n')
			*c = ' ';
	return wrong(result, "the model '%s' has no event %s", of->model, guest.output);
}

/* "a,b,c", then the command. */
static char **counts_words(const struct check_benchmark *b)
{
	size_t size, n = 0;
	char **words, *events;
	FILE *out = open_memstream(&events, &size);

	while (b->command[n])
		n++;
	words = calloc(n + 2, sizeof(*words));
	for (u32 i = 0; out && i < b->events; i++)
		fprintf(out, "%s%s", i ? "," : "", b->event[i].name);
	if (!words || !out || fclose(out))
		return NULL;
	words[0] = events;
	memcpy(words + 1, b->command, n * sizeof(*words));
	return words;
}

static bool count(const struct check_case *of, struct check_result *result)
{
	char **words = counts_words(of->benchmark), *text;
	struct check_guest guest;

	if (!words || !guest_run(of, counts_script, words, -1, &guest))
		return wrong(result, "cannot run it: %s", strerror(errno));
	if (guest.status == PERF_USAGE)
		return blame_events(of, &guest, result);
	if (guest.status)
		return explain(of, &guest, result);
	if (was_killed(&guest, of->benchmark->command[0]))
		return wrong(result, "it was killed: %s", guest_last_words(&guest));
	text = guest.output;
	return take_where(result, &text) && take_counts(of->benchmark, result, text);
}

/* --- functions --- */

static int make_profile(struct profile **profile)
{
	int fd = memfile_fixed("profile", sizeof(**profile));

	*profile = fd < 0 ? NULL : memfile_map(fd, sizeof(**profile));
	return *profile ? fd : -1;
}

static bool profile(const struct check_suite *suite, const struct check_case *of,
		    struct check_result *result)
{
	char init[PATH_MAX];
	struct check_guest guest;
	struct profile *profile;
	int fd = make_profile(&profile);

	if (fd < 0 || !guest_run(of, functions_script, of->benchmark->command, fd, &guest))
		return wrong(result, "cannot run it: %s", strerror(errno));
	if (guest.status)
		return explain(of, &guest, result);
	/* The guest's first process is no part of the benchmark. */
	if (!find_part("vpmu-init", init))
		return wrong(result, "cannot find vpmu-init: %s", strerror(errno));
	return code_resolve(suite, profile, init, result) || wrong(result, "out of memory");
}

/* --- a step --- */

void check_result_path(char path[PATH_MAX], const char *results, u32 index, enum check_step step)
{
	snprintf(path, PATH_MAX, "%.*s/%u.%s", PATH_MAX - 32, results, index,
		 step == STEP_COUNTS ? "counts" : "functions");
}

int check_run(const struct check_suite *suite, u32 index, enum check_step step, const char *results)
{
	const struct check_case *of = &suite->one[index];
	struct check_result result = { .name = of->benchmark->name, .model = of->model };
	const struct check_result *list[] = { &result };
	char path[PATH_MAX];

	if (of->benchmark->error)
		wrong(&result, "%s", of->benchmark->error);
	else if (step == STEP_COUNTS)
		count(of, &result);
	else
		profile(suite, of, &result);
	check_result_path(path, results, index, step);
	if (!results_write(path, "A result of vpmu check.", list, 1))
		return failure(STATUS_BROKEN, "cannot write %s: %s", path, strerror(errno));
	return STATUS_OK;
}
