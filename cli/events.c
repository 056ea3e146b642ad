// SPDX-License-Identifier: MIT
/*
 * vpmu events: lists what the counters of a CPU model can count, from x86/events.def.
 */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "x86/events.h"

static void list(const struct model *model)
{
	static const char *const kinds[] = {
		[EVENT_EXACT] = "exact",
		[EVENT_MODELLED] = "modelled",
	};
	const struct event *event;

	printf("%s:\n  event umask  kind      %-38s  where documented\n", model->name, "name");
	for (u32 i = 0; (event = event_at(i)); i++)
		if (event->models & model->set)
			printf("  0x%03x  0x%02x  %-8s  %-38s  %s\n", event->event, event->umask,
			       kinds[event->kind], event->name, event->where);
}

static int list_one(const char *name)
{
	const struct model *model = name ? model_find(name) : NULL;

	if (!name)
		return usage_error(&command_events, "--cpu needs the name of a model");
	if (!model)
		return usage_error(&command_events, "there is no CPU model '%s'", name);
	list(model);
	return STATUS_OK;
}

static int run(int argc, char **argv)
{
	if (argc < 2) {
		for (u32 i = 0; model_at(i); i++)
			list(model_at(i));
		return STATUS_OK;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
		command_help(&command_events);
		return STATUS_OK;
	}
	if (!strcmp(argv[1], "--cpu") && argc <= 3)
		return list_one(argv[2]);
	if (!strncmp(argv[1], "--cpu=", 6) && argc == 2)
		return list_one(argv[1] + 6);
	return usage_error(&command_events, "cannot make sense of '%s'", argv[argc - 1]);
}

static void describe(void)
{
	puts("options:\n"
	     "  --cpu MODEL  only the events of this model\n\n"
	     "Exact events are properties of the instructions that retired. Modelled ones\n"
	     "(cycles, caches, TLBs, mispredictions) come from a timing model. An event that is\n"
	     "not listed counts nothing.\n\n"
	     "documents:\n"
	     "  SDM            Intel SDM 3B 20.2.1.2, the architectural events\n"
	     "  SKX, ICX, SPR  perfmon-events.intel.com\n"
	     "  PPR            AMD 55898 (milan), 55901 (genoa)\n"
	     "  Linux          arch/x86/events: what its cache events ask for");
}

const struct command command_events = {
	.name = "events",
	.synopsis = "[--cpu MODEL]",
	.summary = "List the events that guests can count",
	.run = run,
	.describe = describe,
};
