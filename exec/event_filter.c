// SPDX-License-Identifier: MIT
/*
 * Filters of vpmu exec: what the guest may count, by a name or from a file. They become a request
 * of the control socket (docs/control.md), sent to QEMU before the command starts.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/base/client.h"
#include "exec/exec.h"
#include "vm/cpuid/cpuid.h"
#include "x86/events.h"

#define PATIENCE 200 /* times 10 ms until QEMU has opened /dev/kvm */

/* Words as a file has them. The codes of "standard" are those of Linux's hardware cache events. */
#define INTEL_IPC  "instructions cycles r013c "
#define INTEL_ARCH INTEL_IPC "cache-references cache-misses branches branch-misses r01a4 "
#define AMD_IPC	   "instructions cycles r100000120 "
#define AMD_ARCH   AMD_IPC "cache-references cache-misses branches branch-misses "

static const struct preset {
	const char *name, *intel, *amd;
} presets[] = {
	{ "ipc", INTEL_IPC, AMD_IPC },
	{ "architectural", INTEL_ARCH, AMD_ARCH },
	{ "standard", INTEL_ARCH "r81d0 r82d0 r0151 r0283 r0e08 r0e49 r0e85 r2085",
	  AMD_ARCH "r0040 rc860 rff5a r0080 r0081 rff45 rf045 r0084 rff85" },
};

struct request {
	struct event_list events;
	bool deny, has_words;
};

static int add_word(struct request *request, const char *word, const struct model *model)
{
	struct event_wanted event;

	if (event_list_add_fixed(&request->events, word))
		return STATUS_OK;
	if (!event_parse(word, model->name, &event))
		return failure(STATUS_USAGE, "the filter names '%s', which is no event of %s", word,
			       model->name);
	return event_list_add(&request->events, event.select)
		       ? STATUS_OK
		       : failure(STATUS_USAGE, "the filter names more than %u events",
				 PMU_FILTER_EVENTS);
}

static int add_words(struct request *request, char *words, const struct model *model)
{
	char *rest = words, *word;
	int status = STATUS_OK;

	while (!status && (word = strtok_r(rest, " \t\r\n", &rest))) {
		request->has_words = true;
		if (!strcmp(word, "deny") || !strcmp(word, "allow"))
			request->deny = word[0] == 'd';
		else
			status = add_word(request, word, model);
	}
	return status;
}

static int add_file(struct request *request, const char *name, const struct model *model)
{
	FILE *in = fopen(name, "re");
	int status = STATUS_OK;
	char *line = NULL;
	size_t room = 0;

	if (!in)
		return failure(STATUS_USAGE,
			       "'%s' is neither a filter (off, ipc, architectural, standard, full) "
			       "nor a file: %s",
			       name, strerror(errno));
	while (!status && getline(&line, &room, in) >= 0) {
		line[strcspn(line, "#")] = '\0';
		status = add_words(request, line, model);
	}
	if (!status && ferror(in))
		status = failure(STATUS_USAGE, "cannot read '%s': %s", name, strerror(errno));
	else if (!status && !request->has_words)
		status = failure(STATUS_USAGE, "the filter '%s' is empty: 'allow' allows nothing",
				 name);
	free(line);
	fclose(in);
	return status;
}

static void add_all(struct request *request, const struct model *model)
{
	const struct event *event;

	request->events.fixed = 15;
	for (u32 i = 0; (event = event_at(i)); i++)
		if (event->models & model->set)
			event_list_add(&request->events, (event->event & 0xff) |
								 (u64)(event->event >> 8) << 32 |
								 (u64)event->umask << 8);
}

static int add_named(struct request *request, const char *wanted, const struct model *model)
{
	for (u32 i = 0; i < ARRAY_SIZE(presets); i++)
		if (!strcmp(presets[i].name, wanted)) {
			char words[512];

			strcpy(words, model->is_amd ? presets[i].amd : presets[i].intel);
			return add_words(request, words, model);
		}
	if (strcmp(wanted, "full"))
		return add_file(request, wanted, model);
	add_all(request, model);
	return STATUS_OK;
}

int filter_choose(const char *wanted, const char *cpu, char **request)
{
	const struct model *model = cpuid_model(cpu);
	struct request built = { .deny = false };
	int status;

	if (!strcmp(wanted, "off")) {
		*request = strdup("filter off");
		return STATUS_OK;
	}
	if (!model)
		return failure(STATUS_USAGE, "there is no CPU model '%s'", cpu);
	status = add_named(&built, wanted, model);
	if (!status && asprintf(request, "filter %s %#x%s", built.deny ? "deny" : "allow",
				built.events.fixed, built.events.text) < 0)
		status = out_of_memory();
	return status;
}

int filter_apply(const char *request, pid_t qemu)
{
	const struct timespec pause = { .tv_nsec = 10000000 };
	struct client client = { .fd = -1, .vm = 0 };
	int status;

	for (u32 i = 0; !client_open(&client, qemu); i++) {
		if (i == PATIENCE)
			return failure(STATUS_BROKEN,
				       "the guest cannot be told what it may count: it has no "
				       "control socket. Is VPMU_CONTROL off?");
		nanosleep(&pause, NULL);
	}
	client.vm = 0; /* all: there is one */
	status = client_tell(&client, "%s", request);
	client_close(&client);
	return status;
}
