// SPDX-License-Identifier: MIT
/*
 * What the arguments of perf and rr say: whether a PMU is needed, and which files are read and
 * written. The tables are those of perf 6.1 to 6.12 and rr 5.6 to 5.9.
 */
#include <string.h>

#include "base/types.h"
#include "cli/perf/perf.h"

/* Commands that read files, or describe perf itself. */
static const char *const host_commands[] = {
	"report",  "annotate",	   "script",	    "diff",   "evlist", "inject",  "data",
	"archive", "buildid-list", "buildid-cache", "config", "help",	"version",
};

/* Commands with several verbs, of which these need a PMU: the others read files. */
static const char *const families[] = { "mem", "c2c", "sched", "lock", "kmem", "kvm", "kwork" };
static const char *const live_verbs[] = { "record", "live", "top" };

/* Options of families before the verb whose value is the next word, unless it is in their own. */
static const char family_letters[] = "Ciklostx";
static const char *const family_options[] = {
	"cpu",		 "field-separator",
	"guestkallsyms", "guestmodules",
	"guestmount",	 "guestvmlinux",
	"input",	 "kallsyms",
	"kwork",	 "line",
	"output",	 "sort",
	"time",		 "type",
	"vmlinux",
};

/* Options whose value is the next word, unless it is in their own. */
static const char record_letters[] = "cCDeFGjkmoprtu", stat_letters[] = "CDeGIMoprtx";
static const char rr_letters[] = "cCiopStv";
static const char *const long_options[] = {
	"affinity",
	"branch-filter",
	"call-graph",
	"cgroup",
	"clang-opt",
	"clang-path",
	"clockid",
	"control",
	"count",
	"cpu",
	"cputype",
	"delay",
	"event",
	"field-separator",
	"filter",
	"for-each-cgroup",
	"freq",
	"interval-count",
	"interval-print",
	"log-fd",
	"max-size",
	"metrics",
	"mmap-flush",
	"mmap-pages",
	"num-thread-synthesize",
	"output",
	"output-trace-dir",
	"pid",
	"post",
	"pre",
	"proc-map-timeout",
	"realtime",
	"repeat",
	"switch-max-files",
	"switch-output-event",
	"synth",
	"td-level",
	"tid",
	"timeout",
	"uid",
	"vmlinux",
};

#define is_in(word, list) find_in(word, list, ARRAY_SIZE(list))

static bool find_in(const char *word, const char *const *list, u32 n)
{
	for (u32 i = 0; i < n; i++)
		if (!strcmp(word, list[i]))
			return true;
	return false;
}

/* A word of single letters: the first that has a value takes the rest of the word, or the next
 * one. `value` is that of `wanted`. Returns how many words they are. */
static u32 take_letters(char **word, const char *letters, char wanted, const char **value)
{
	for (const char *at = *word + 1; *at; at++) {
		if (!strchr(letters, *at))
			continue;
		if (*at == wanted)
			*value = at[1] ? at + 1 : word[1];
		return at[1] || !word[1] ? 1 : 2;
	}
	return 1;
}

/* The verb of a family: the first word that is neither an option nor the value of one. "kvm stat"
 * has verbs of its own. */
static int find_verb(char **argv)
{
	const char *value;
	int i = 1;

	while (argv[i] && argv[i][0] == '-')
		if (argv[i][1] != '-')
			i += take_letters(argv + i, family_letters, '\0', &value);
		else
			i += argv[i + 1] && is_in(argv[i] + 2, family_options) ? 2 : 1;
	return i + (argv[i] && !strcmp(argv[0], "kvm") && !strcmp(argv[i], "stat"));
}

bool perf_is_for_host(char **argv)
{
	const char *verb;

	if (!argv[0])
		return false;
	if (!strcmp(argv[0], "script"))
		return !argv[1] || strcmp(argv[1], "record");
	if (!is_in(argv[0], families))
		return is_in(argv[0], host_commands);
	verb = argv[find_verb(argv)];
	return !verb || !is_in(verb, live_verbs);
}

int perf_find_record(char **argv)
{
	int verb = 1;

	if (!argv[0])
		return -1;
	if (!strcmp(argv[0], "record"))
		return 0;
	if (is_in(argv[0], families))
		verb = find_verb(argv);
	else if (strcmp(argv[0], "stat") && strcmp(argv[0], "trace"))
		return -1;
	return argv[verb] && !strcmp(argv[verb], "record") ? verb : -1;
}

/* The value of a long option, if this is it: after '=', or the next word. */
static const char *long_value(char **word, const char *name)
{
	size_t n = strlen(name);

	if (strncmp(*word + 2, name, n))
		return NULL;
	return (*word)[2 + n] == '=' ? *word + 3 + n : (*word)[2 + n] ? NULL : word[1];
}

/* The value of the last -o or --NAME. Options end with "--" or the program that is started. */
static const char *output_option(char **word, const char *letters, const char *name)
{
	const char *value = NULL;

	while (*word && (*word)[0] == '-' && (*word)[1] && strcmp(*word, "--")) {
		if ((*word)[1] != '-') {
			word += take_letters(word, letters, 'o', &value);
			continue;
		}
		value = long_value(word, name) ?: value;
		word += word[1] && is_in(*word + 2, long_options) ? 2 : 1;
	}
	return value;
}

const char *perf_output(char **argv)
{
	int record = perf_find_record(argv);
	bool counts = argv[0] && !strcmp(argv[0], "stat") && record < 0;

	if (!argv[0])
		return NULL;
	return output_option(argv + 1 + (record > 0 ? record : 0),
			     counts ? stat_letters : record_letters, "output");
}

const char *rr_output(char **argv)
{
	if (!argv[0] || strcmp(argv[0], "record"))
		return NULL;
	return output_option(argv + 1, rr_letters, "output-trace-dir");
}

const char *perf_input(char **argv)
{
	const char *value = PERF_DATA;

	for (char **word = argv; *word; word++) {
		if (!strncmp(*word, "--", 2))
			value = long_value(word, "input") ?: value;
		else if (!strncmp(*word, "-i", 2))
			value = (*word)[2] ? *word + 2 : word[1] ?: value;
	}
	return value;
}
