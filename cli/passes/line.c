// SPDX-License-Identifier: MIT
/*
 * The arguments of perf stat, as far as --passes understands them, and those that the guest's perf
 * gets instead.
 */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/passes/passes.h"
#include "exec/wire.h"

#define UNDERSTOOD "-e, -x, -j, -o, --append, -i, -B, --all-user and --all-kernel"

enum { OPTION_APPEND = 256, OPTION_USER, OPTION_KERNEL, OPTION_PLAIN };

static const struct option options[] = {
	{ "event", required_argument, NULL, 'e' },
	{ "field-separator", required_argument, NULL, 'x' },
	{ "json-output", no_argument, NULL, 'j' },
	{ "output", required_argument, NULL, 'o' },
	{ "append", no_argument, NULL, OPTION_APPEND },
	{ "no-inherit", no_argument, NULL, 'i' },
	{ "big-num", no_argument, NULL, 'B' },
	{ "no-big-num", no_argument, NULL, OPTION_PLAIN },
	{ "all-user", no_argument, NULL, OPTION_USER },
	{ "all-kernel", no_argument, NULL, OPTION_KERNEL },
	{ 0 },
};

/* Lists are read when --all-user is known. */
struct lists {
	const char *text[64];
	u32 count;
};

static int not_understood(const char *word)
{
	return usage_error(&command_exec,
			   "perf stat's '%s' is not understood with --passes: " UNDERSTOOD " are",
			   word);
}

static int take(struct pass_line *line, struct lists *lists, int option, const char *word)
{
	switch (option) {
	case 'e':
		if (lists->count == ARRAY_SIZE(lists->text))
			return usage_error(&command_exec, "-e is given more than %zu times",
					   ARRAY_SIZE(lists->text));
		lists->text[lists->count++] = optarg;
		return STATUS_OK;
	case 'x':
		line->separator = strcmp(optarg, "\\t") ? optarg : "\t";
		return STATUS_OK;
	case 'j':
		line->format = FORMAT_JSON;
		return STATUS_OK;
	case 'o':
		line->output = strcmp(optarg, "-") ? optarg : NULL; /* as perf */
		return STATUS_OK;
	case 'i':
		line->no_inherit = true;
		return STATUS_OK;
	case 'B':
	case OPTION_PLAIN:
		return STATUS_OK; /* the table has no separators of thousands */
	case OPTION_APPEND:
		line->append = true;
		return STATUS_OK;
	case OPTION_USER:
	case OPTION_KERNEL:
		line->only = option == OPTION_USER ? "--all-user" : "--all-kernel";
		return STATUS_OK;
	case ':':
		return usage_error(&command_exec, "perf stat's '%s' needs a value", word);
	default:
		return not_understood(word);
	}
}

static bool is_perf_stat(char **words)
{
	const char *slash = strrchr(words[0], '/');

	return !strcmp(slash ? slash + 1 : words[0], "perf") && words[1] &&
	       !strcmp(words[1], "stat");
}

static int read_options(struct pass_line *line, struct lists *lists, int count, char **words)
{
	int option, status = STATUS_OK;

	optind = 0;
	opterr = 0;
	while (!status) {
		int at = optind ?: 1;

		option = getopt_long(count, words, "+:e:x:jo:iB", options, NULL);
		if (option == -1)
			break;
		status = take(line, lists, option, words[at]);
	}
	return status;
}

/* perf takes "rec" for "record", too. */
static bool is_verb(const char *word)
{
	return word && strlen(word) > 2 &&
	       (!strncmp("record", word, strlen(word)) || !strncmp("report", word, strlen(word)));
}

static int check(struct pass_line *line, const struct lists *lists)
{
	if (!lists->count)
		return usage_error(&command_exec,
				   "--passes needs the events: 'perf stat -e EVENTS COMMAND'");
	if (line->separator && line->format == FORMAT_JSON)
		return usage_error(&command_exec, "perf stat's -x and -j are two formats");
	if (is_verb(line->command[0]))
		return not_understood(line->command[0]);
	if (!line->command[0])
		return usage_error(&command_exec, "perf stat has no command to measure");
	if (line->separator)
		line->format = FORMAT_CSV;
	return STATUS_OK;
}

static int read_events(struct pass_line *line, const struct lists *lists, const struct model *model)
{
	for (u32 i = 0; i < lists->count; i++)
		if (!pass_events_add(&line->events, lists->text[i], model, line->only))
			return STATUS_USAGE;
	return line->events.count ? STATUS_OK
				  : usage_error(&command_exec, "perf stat's -e has no events");
}

/* --- the guest's --- */

/* The marker, and the events of software. NULL: out of memory. */
static char *guest_list(const struct pass_events *events)
{
	size_t size;
	char *text;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	fputs(SHADOW_MARKER_NAME ":D", out); /* pinned: the command may use counters, too */
	for (u32 i = 0; i < events->count; i++)
		if (events->item[i].is_software)
			fprintf(out, ",%s", events->item[i].name);
	return fclose(out) ? NULL : text;
}

static int make_guest(struct pass_line *line, const char *perf)
{
	const char *const first[] = {
		perf,	    "stat",
		"-x",	    "|",
		"--log-fd", COUNTS_FD_NAME,
		"-e",	    line->guest_list = guest_list(&line->events),
		line->only, line->no_inherit ? "-i" : NULL,
		"--",
	};
	size_t n = 0, count = 0;

	while (line->command[count])
		count++;
	line->guest = calloc(ARRAY_SIZE(first) + count + 1, sizeof(*line->guest));
	if (!line->guest || !line->guest_list)
		return out_of_memory();
	for (u32 i = 0; i < ARRAY_SIZE(first); i++)
		if (first[i])
			line->guest[n++] = (char *)first[i];
	memcpy(line->guest + n, line->command, count * sizeof(*line->guest));
	return STATUS_OK;
}

int pass_line_read(struct pass_line *line, char **words, const struct model *model)
{
	struct lists lists = { .count = 0 };
	int count = 0, status;

	*line = (struct pass_line){ .separator = NULL };
	if (!is_perf_stat(words))
		return usage_error(&command_exec,
				   "--passes is for 'perf stat -e EVENTS COMMAND', not '%s'",
				   words[0]);
	while (words[count])
		count++;
	status = read_options(line, &lists, count - 1, words + 1);
	line->command = words + 1 + optind;
	if (!status)
		status = check(line, &lists);
	if (!status)
		status = read_events(line, &lists, model);
	return status ? status : make_guest(line, words[0]);
}

void pass_line_free(struct pass_line *line)
{
	pass_events_free(&line->events);
	free(line->guest_list);
	free(line->guest);
}
