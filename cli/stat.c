// SPDX-License-Identifier: MIT
/*
 * vpmu stat: what a VM exits for, which accesses of its PMU exit and which pass, and events of the
 * host on its vCPUs' threads. Like perf kvm stat, from outside the guest.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/base/client.h"
#include "cli/cli.h"

#define ROWS	    320
#define MSRS	    1024
#define EVENTS	    16
#define SECONDS_MAX 1e9

#define INTERVAL_WANTED "-I wants a number of milliseconds from 1 to 4294967295, not '%s'"
#define SECONDS_WANTED	"--for wants a number of seconds up to 1000000000, not '%s'"

/* The MSRs' rows that there are always: what has no row is in the second. */
enum { RDPMC, OTHERS, FIRST_MSR };

struct options {
	const char *vm;
	u32 interval_ms;
	double seconds; /* 0: not limited */
	bool live, json;
	u32 nevents;
	const char *event[EVENTS];
};

/* One look at the VM. */
struct look {
	u64 uptime_ns;
	u32 nstats, nmsrs, nevents;
	u64 starved, starvations;
	struct {
		char name[40];
		u64 value;
	} stat[ROWS];
	struct msr_row {
		char name[48], index[16];
		bool pmu;
		u64 exits[2], passed[2]; /* read, write */
	} msr[MSRS];
	struct {
		u64 value, enabled, running;
		char state[12];
	} event[EVENTS];
};

static volatile sig_atomic_t ended;

static void end(int sig)
{
	(void)sig;
	ended = 1;
}

static u64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

/* --- looking --- */

/* Where the counts of a line belong; NULL: it has none. */
static struct msr_row *find_row(struct look *look, const char *line)
{
	struct msr_row row = { 0 };
	char kind[8];

	if (!strncmp(line, "rdpmc ", 6))
		return &look->msr[RDPMC];
	if (!strncmp(line, "msrs besides ", 13))
		return &look->msr[OTHERS];
	if (sscanf(line, "msr %15s %7s %47s", row.index, kind, row.name) != 3)
		return NULL;
	if (look->nmsrs == MSRS)
		return &look->msr[OTHERS];
	row.pmu = !strcmp(kind, "pmu");
	look->msr[look->nmsrs] = row;
	return &look->msr[look->nmsrs++];
}

static void note_msr(struct look *look, const char *line)
{
	const char *counts = strstr(line, " exits ");
	struct msr_row *row = counts ? find_row(look, line) : NULL;
	unsigned long long n[4];

	if (!row ||
	    sscanf(counts, " exits %llu %llu passed %llu %llu", &n[0], &n[1], &n[2], &n[3]) != 4)
		return;
	for (u32 k = 0; k < 2; k++) {
		row->exits[k] += n[k];
		row->passed[k] += n[k + 2];
	}
}

static void note(char *line, void *arg)
{
	struct look *look = arg;
	unsigned long long value;

	if (!strncmp(line, "vm ", 3)) {
		look->uptime_ns = client_number(line, "uptime_ns");
	} else if (!strncmp(line, "vcpu ", 5)) {
		look->starved += __builtin_popcountll(client_number(line, "starved"));
		look->starvations += client_number(line, "starvations");
	} else if (!strncmp(line, "event ", 6) && look->nevents < EVENTS) {
		u32 i = look->nevents++;

		look->event[i].value = client_number(line, "value");
		look->event[i].enabled = client_number(line, "enabled");
		look->event[i].running = client_number(line, "running");
		client_word(line, "state", look->event[i].state, sizeof(look->event[i].state));
	} else if (!strncmp(line, "stat ", 5) && look->nstats < ROWS) {
		if (sscanf(line, "stat %39s %llu", look->stat[look->nstats].name, &value) == 2)
			look->stat[look->nstats++].value = value;
	} else {
		note_msr(look, line);
	}
}

static int by_index(const void *a, const void *b)
{
	u64 x = strtoull(((const struct msr_row *)a)->index, NULL, 16);
	u64 y = strtoull(((const struct msr_row *)b)->index, NULL, 16);

	return x < y ? -1 : x > y;
}

static bool take_look(struct client *client, const struct options *options, struct look *look)
{
	*look = (struct look){
		.nmsrs = FIRST_MSR,
		.msr = { [RDPMC] = { .name = "RDPMC", .index = "-", .pmu = true },
			 [OTHERS] = { .name = "others", .index = "-" } },
	};
	if (!client_ask(client, note, look, "stat"))
		return false;
	qsort(look->msr + FIRST_MSR, look->nmsrs - FIRST_MSR, sizeof(look->msr[0]), by_index);
	for (u32 i = 0; i < options->nevents; i++)
		if (!client_ask(client, note, look, "read %u", i))
			return false;
	return true;
}

/* Whether a row is what is now, as a size, and no count. */
static bool is_now(const char *name)
{
	enum { CUMULATIVE, INSTANT };
	static const struct {
		const char *name;
		int type;
	} rows[] = {
#define VM_STAT(stat, type, unit)
#define VCPU_STAT(stat, type, unit) { #stat, type },
#include "vm/stat.def"
#undef VM_STAT
#undef VCPU_STAT
	};

	for (u32 i = 0; i < ARRAY_SIZE(rows); i++)
		if (!strcmp(rows[i].name, name))
			return rows[i].type == INSTANT;
	return false;
}

/* What happened between two looks: rows only come to exist. */
static void subtract(struct look *now, const struct look *before)
{
	now->starvations -= before->starvations;
	for (u32 i = 0; i < now->nstats && i < before->nstats; i++)
		if (!is_now(now->stat[i].name))
			now->stat[i].value -= before->stat[i].value;
	for (u32 i = 0; i < now->nmsrs; i++)
		for (u32 j = 0; j < before->nmsrs; j++) {
			if (strcmp(now->msr[i].name, before->msr[j].name) ||
			    strcmp(now->msr[i].index, before->msr[j].index))
				continue;
			for (u32 k = 0; k < 2; k++) {
				now->msr[i].exits[k] -= before->msr[j].exits[k];
				now->msr[i].passed[k] -= before->msr[j].passed[k];
			}
		}
	for (u32 i = 0; i < now->nevents && i < before->nevents; i++) {
		now->event[i].value -= before->event[i].value;
		now->event[i].enabled -= before->event[i].enabled;
		now->event[i].running -= before->event[i].running;
	}
}

/* --- showing --- */

static void show_events(const struct options *options, const struct look *look)
{
	if (look->nevents)
		puts("\n  events of the host");
	for (u32 i = 0; i < look->nevents; i++) {
		u64 enabled = look->event[i].enabled, running = look->event[i].running;

		if (!strcmp(look->event[i].state, "error"))
			printf("  %20s  %s\n", "<no counter>", options->event[i]);
		else
			printf("  %20llu  %-28s %5.1f %% of the time\n",
			       (unsigned long long)look->event[i].value, options->event[i],
			       enabled ? 100.0 * running / enabled : 0.0);
	}
}

static void show_msr(const struct look *look, u32 i)
{
	printf("  %-26s %12s %9llu %9llu %9llu %9llu\n", look->msr[i].name, look->msr[i].index,
	       (unsigned long long)look->msr[i].exits[0], (unsigned long long)look->msr[i].exits[1],
	       (unsigned long long)look->msr[i].passed[0],
	       (unsigned long long)look->msr[i].passed[1]);
}

static void show_msrs(const struct look *look, bool pmu)
{
	u64 exits = 0, passed = 0;

	printf("\n  %-26s %12s %9s %9s %9s %9s\n", pmu ? "accesses of the PMU" : "other MSRs",
	       "MSR", "exits: rd", "wr", "passed: rd", "wr");
	for (u32 i = 0; i < look->nmsrs; i++) {
		u64 all = look->msr[i].exits[0] + look->msr[i].exits[1];

		if (look->msr[i].pmu != pmu)
			continue;
		exits += all;
		passed += look->msr[i].passed[0] + look->msr[i].passed[1];
		if (all + look->msr[i].passed[0] + look->msr[i].passed[1])
			show_msr(look, i);
	}
	printf("  %-26s %12s %9llu exits, %llu passed\n", "all", "", (unsigned long long)exits,
	       (unsigned long long)passed);
}

/* Without neighbours, or of a VM that knows of none, 0. */
static unsigned long long llc_life(const struct client *client)
{
	return strtoull(client->llc_life, NULL, 10);
}

static void show(const struct client *client, const struct options *options,
		 const struct look *look, double seconds)
{
	if (options->live)
		fputs("\033[H\033[2J", stdout);
	printf("VM %d.%u, %s, pmu %s, accounting %s, timing %s, llc %s", client->pid, client->vm,
	       client->model, client->mode, client->accounting, client->timing, client->llc);
	if (llc_life(client))
		printf(" for %llu cycles", llc_life(client));
	printf(", %.3f s\n\n", seconds);
	for (u32 i = 0; i < look->nstats; i++)
		if (look->stat[i].value)
			printf("  %20llu  %s\n", (unsigned long long)look->stat[i].value,
			       look->stat[i].name);
	show_events(options, look);
	show_msrs(look, true);
	show_msrs(look, false);
	if (look->starved || look->starvations)
		printf("\n  %llu counters of the guest starve: the host has no physical counter "
		       "for "
		       "them (%llu times)\n",
		       (unsigned long long)look->starved, (unsigned long long)look->starvations);
	fflush(stdout);
}

/* A string of JSON's: a guest may have taken over the process that says it. All of it is printable
 * already. */
static void put_string(const char *text)
{
	putchar('"');
	for (; *text; text++) {
		if (*text == '"' || *text == '\\')
			putchar('\\');
		putchar(*text);
	}
	putchar('"');
}

static void put_member(const char *name, const char *text)
{
	printf("\"%s\": ", name);
	put_string(text);
	fputs(", ", stdout);
}

static void put_stats(const struct look *look)
{
	fputs("\"stats\": {", stdout);
	for (u32 i = 0; i < look->nstats; i++) {
		fputs(i ? ", " : "", stdout);
		put_string(look->stat[i].name);
		printf(": %llu", (unsigned long long)look->stat[i].value);
	}
	fputs("}, ", stdout);
}

static void put_msrs(const struct look *look)
{
	fputs("\"msrs\": [", stdout);
	for (u32 i = 0; i < look->nmsrs; i++) {
		const struct msr_row *row = &look->msr[i];

		fputs(i ? ", {" : "{", stdout);
		put_member("name", row->name);
		put_member("msr", row->index);
		printf("\"pmu\": %s, \"exits\": [%llu, %llu], \"passed\": [%llu, %llu]}",
		       row->pmu ? "true" : "false", (unsigned long long)row->exits[0],
		       (unsigned long long)row->exits[1], (unsigned long long)row->passed[0],
		       (unsigned long long)row->passed[1]);
	}
	fputs("], ", stdout);
}

static void put_events(const struct options *options, const struct look *look)
{
	fputs("\"events\": [", stdout);
	for (u32 i = 0; i < look->nevents; i++) {
		fputs(i ? ", {" : "{", stdout);
		put_member("name", options->event[i]);
		printf("\"value\": %llu, \"enabled\": %llu, \"running\": %llu, \"state\": ",
		       (unsigned long long)look->event[i].value,
		       (unsigned long long)look->event[i].enabled,
		       (unsigned long long)look->event[i].running);
		put_string(look->event[i].state);
		putchar('}');
	}
	fputs("]", stdout);
}

static void show_json(const struct client *client, const struct options *options,
		      const struct look *look, double seconds)
{
	printf("{\"vm\": \"%d.%u\", ", client->pid, client->vm);
	put_member("model", client->model);
	put_member("pmu", client->mode);
	put_member("accounting", client->accounting);
	put_member("timing", client->timing);
	put_member("llc", client->llc);
	printf("\"llc_life\": %llu, \"seconds\": %.6f, \"starved\": %llu, \"starvations\": %llu, ",
	       llc_life(client), seconds, (unsigned long long)look->starved,
	       (unsigned long long)look->starvations);
	put_stats(look);
	put_msrs(look);
	put_events(options, look);
	puts("}");
	fflush(stdout);
}

/* --- counting --- */

static int open_events(struct client *client, const struct options *options)
{
	for (u32 i = 0; i < options->nevents; i++) {
		struct event_wanted event;
		int status;

		if (!event_parse(options->event[i], client->model, &event))
			return usage_error(&command_stat,
					   "there is no event '%s' on %s: vpmu events lists them, "
					   "rUUEE is a raw one",
					   options->event[i], client->model);
		status = client_tell(client, "open %u %#llx %u 0", i,
				     (unsigned long long)event.select, event.flags);
		if (status)
			return status;
	}
	return STATUS_OK;
}

static void pause_ns(u64 ns)
{
	struct timespec ts = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };

	nanosleep(&ts, NULL); /* a signal ends it */
}

/* Until a signal, the end of the time, or the VM's. */
static int watch(struct client *client, const struct options *options)
{
	static struct look looks[3];
	struct look *before = &looks[0], *now = &looks[1], *last = &looks[2];
	u64 step = (options->interval_ms ? options->interval_ms : 100) * 1000000ull;
	u64 begun = now_ns(), at = begun;
	u64 until = options->seconds ? begun + (u64)(options->seconds * 1e9) : ~0ull;
	bool ok = take_look(client, options, before);

	if (!ok)
		return client_failed(client);
	*last = *before;
	for (; !ended && at < until; at = now_ns()) {
		pause_ns(step < until - at ? step : until - at);
		ok = take_look(client, options, now);
		if (!ok)
			break;
		*last = *now;
		if (!options->interval_ms)
			continue;
		subtract(now, before);
		*before = *last;
		(options->json ? show_json : show)(client, options, now, (now_ns() - begun) / 1e9);
	}
	if (!options->interval_ms) {
		subtract(last, before);
		(options->json ? show_json : show)(client, options, last, (now_ns() - begun) / 1e9);
	}
	return ok || (ended && !client->refused) ? STATUS_OK : client_failed(client);
}

static int since_the_beginning(struct client *client, const struct options *options)
{
	static struct look look;

	if (!take_look(client, options, &look))
		return client_failed(client);
	(options->json ? show_json : show)(client, options, &look, look.uptime_ns / 1e9);
	return STATUS_OK;
}

static int count(const struct options *options)
{
	struct sigaction action = { .sa_handler = end };
	struct client client;
	int status = client_find(&client, &command_stat, options->vm);

	if (status)
		return status;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	status = open_events(&client, options);
	if (status)
		return status;
	if (!options->nevents && !options->interval_ms && !options->seconds)
		return since_the_beginning(&client, options);
	return watch(&client, options);
}

/* --- the command line --- */

/* False: there are too many. */
static bool add_events(struct options *options, char *list)
{
	char *save = NULL, *name;

	while ((name = strtok_r(list, ",", &save))) {
		if (options->nevents == EVENTS)
			return false;
		options->event[options->nevents++] = name;
		list = NULL;
	}
	return true;
}

/* What is wrong with an argument that was not taken. */
static const char *needs(const char *arg)
{
	if (!strcmp(arg, "-e"))
		return "a list of events is missing after";
	if (!strcmp(arg, "-I"))
		return "a number of milliseconds is missing after";
	if (!strcmp(arg, "--for"))
		return "a number of seconds is missing after";
	return "cannot make sense of";
}

static bool parse_interval(const char *text, u32 *ms)
{
	char *end;
	unsigned long long value = strtoull(text, &end, 10);

	*ms = value;
	return *text >= '0' && *text <= '9' && !*end && value && value <= UINT32_MAX;
}

static bool parse_seconds(const char *text, double *seconds)
{
	char *end;

	*seconds = strtod(text, &end);
	return !*end && *seconds > 0 && *seconds <= SECONDS_MAX;
}

static int run(int argc, char **argv)
{
	struct options options = { 0 };

	for (int i = 1; i < argc; i++) {
		const char *arg = argv[i];
		char *value = argv[i + 1];

		if (!strcmp(arg, "--help") || !strcmp(arg, "-h")) {
			command_help(&command_stat);
			return STATUS_OK;
		}
		if (!strcmp(arg, "--live")) {
			options.live = true;
			options.interval_ms = options.interval_ms ? options.interval_ms : 1000;
		} else if (!strcmp(arg, "--json")) {
			options.json = true;
		} else if (!strcmp(arg, "-e") && value) {
			if (!add_events(&options, argv[++i]))
				return usage_error(&command_stat, "-e takes at most %u events",
						   EVENTS);
		} else if (!strcmp(arg, "-I") && value) {
			if (!parse_interval(argv[++i], &options.interval_ms))
				return usage_error(&command_stat, INTERVAL_WANTED, value);
		} else if (!strcmp(arg, "--for") && value) {
			if (!parse_seconds(argv[++i], &options.seconds))
				return usage_error(&command_stat, SECONDS_WANTED, value);
		} else if (arg[0] != '-' && !options.vm) {
			options.vm = arg;
		} else {
			return usage_error(&command_stat, "%s '%s'", needs(arg), arg);
		}
	}
	return count(&options);
}

static void describe(void)
{
	puts("options:\n"
	     "  -e EVENTS       events of the host on the VM's vCPUs: names as for perf, with :u "
	     ":k,\n"
	     "                  :H (the host only), :G (the guest only), :D (pinned)\n"
	     "  -I MS           print what happened, every so many milliseconds\n"
	     "  --live          the same, once a second in place\n"
	     "  --for SECONDS   end after this time; without it, with Ctrl-C\n"
	     "  --json          for programs: one object a look\n\n"
	     "Without options: everything since the VM was created. VM may be left out if there is "
	     "one\n"
	     "only.\n\n"
	     "examples:\n"
	     "  vpmu stat 1234\n"
	     "  vpmu stat 1234 -I 1000\n"
	     "  vpmu stat 1234 -e instructions:H,cycles:H --for 10");
}

const struct command command_stat = {
	.name = "stat",
	.synopsis = "[-e EVENTS] [-I MS] [--live] [--for SECONDS] [--json] [VM]",
	.summary = "Show what a running VM exits for, and events of the host",
	.run = run,
	.describe = describe,
};
