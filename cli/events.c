// SPDX-License-Identifier: MIT
/*
 * vpmu events: lists what the counters of a CPU model can count, from x86/events.def, or describes
 * an event: what it counts, exactly or by the timing model, and how perf names it.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cli/base/client.h"
#include "cli/cli.h"
#include "hwpmu/retire.h"
#include "x86/event_units.h"
#include "x86/events.h"

static const char *const kinds[] = {
	[EVENT_EXACT] = "exact",
	[EVENT_MODELLED] = "modelled",
};

/* --- what is counted --- */

static const char *const class_texts[NRETIRE + 1] = {
#define TEXT(class, text) [RETIRE_##class] = text,
#include "cli/event_text.def"
#undef TEXT
};

static const struct {
	u8 class, unit;
} counted[] = {
#define EVENT(models, event, umask, name, class, unit, kind, where) { RETIRE_##class, unit },
#include "x86/events.def"
#undef EVENT
};

/* Of the row `i` of x86/events.def. */
static const char *text_of(u32 i)
{
	if (counted[i].unit == SLOTS)
		return "issue slots of the cycles in which the processor was not halted";
	if (counted[i].unit == TIME)
		return "cycles in which the front end delivered nothing";
	if (counted[i].unit == OFFCORE_0 || counted[i].unit == OFFCORE_1)
		return "requests of the core to the last-level cache that MSR_OFFCORE_RSP chooses";
	return class_texts[counted[i].class];
}

/* --- the list --- */

static void list_row(const struct event *event)
{
	printf("  0x%03x  0x%02x  %-8s  %-38s  %s\n", event->event, event->umask,
	       kinds[event->kind], event->name, event->where);
}

static void list_head(const char *title)
{
	printf("%s:\n  event umask  kind      %-38s  where documented\n", title, "name");
}

static void list(const struct model *model)
{
	const struct event *event;

	list_head(model->name);
	for (u32 i = 0; (event = event_at(i)); i++)
		if (event->models & model->set)
			list_row(event);
}

/* --- one event --- */

/* What the user asks for: a name, for these models. */
struct wanted {
	const char *name;
	size_t length; /* without modifiers */
	enum model_set models;
};

static bool is_name(const struct wanted *wanted, const char *name)
{
	return strlen(name) == wanted->length && !strncasecmp(name, wanted->name, wanted->length);
}

/* The models on which that is perf's own name for the event. */
static enum model_set named_by_perf(const struct wanted *wanted, const struct event *event)
{
	const struct perf_name *own;
	enum model_set models = 0;

	for (u32 i = 0; (own = perf_name_at(i)); i++)
		if (own->event == event->event && own->umask == event->umask &&
		    is_name(wanted, own->name))
			models |= own->models;
	return models;
}

/* The raw code that counts it. */
static u64 code_of(const struct event *event)
{
	return event_select(event->event, event->umask) | (u64)event->cmask << 24;
}

static bool has_code(const struct wanted *wanted, const struct event *event)
{
	u64 select, response;

	/* Of no model there are only raw codes. */
	return event_code(wanted->name, wanted->length, 0, &select, &response) &&
	       select == code_of(event);
}

static void print_models(enum model_set models)
{
	printf("  models      ");
	for (u32 i = 0; model_at(i); i++)
		if (models & model_at(i)->set)
			printf(" %s", model_at(i)->name);
	puts("");
}

/* Names that a perf in the guest takes: its own, the vendor's, the code. */
static void print_perf_names(const struct event *event, enum model_set models)
{
	const struct perf_name *own;

	printf("  perf         ");
	for (u32 i = 0; (own = perf_name_at(i)); i++)
		if ((own->models & models) && own->event == event->event &&
		    own->umask == event->umask)
			printf("%s%s, ", own->name, own->response ? " (with OFFCORE_RSP)" : "");
	printf("r%04llx\n", (unsigned long long)code_of(event));
}

static void describe_event(u32 i, enum model_set models)
{
	const struct event *event = event_at(i);

	printf("%s\n  counts       %s\n  kind         %s\n", event->name, text_of(i),
	       event->kind == EVENT_EXACT
		       ? "exact: a property of the instructions that retired, the same in each run"
		       : "modelled: from the timing model (docs/model.md), no measurement of "
			 "hardware");
	print_perf_names(event, models);
	print_models(models);
	printf("  code         event 0x%03x, umask 0x%02x; %s\n", event->event, event->umask,
	       event->where);
}

/* How many rows have that name; each is described. */
static u32 describe_all(const struct wanted *wanted)
{
	const struct event *event;
	u32 found = 0;

	for (u32 i = 0; (event = event_at(i)); i++) {
		enum model_set models = event->models & wanted->models;

		if (!is_name(wanted, event->name) && !has_code(wanted, event))
			models &= named_by_perf(wanted, event);
		if (!models)
			continue;
		if (found++)
			puts("");
		describe_event(i, models);
	}
	return found;
}

static bool is_part(const struct wanted *wanted, const char *name)
{
	char part[64];

	snprintf(part, sizeof(part), "%.*s", (int)wanted->length, wanted->name);
	return strcasestr(name, part);
}

/* Rows, and names of perf's, that the word is part of. */
static u32 list_similar(const struct wanted *wanted)
{
	const struct perf_name *own;
	const struct event *event;
	u32 found = 0;

	for (u32 i = 0; (event = event_at(i)); i++)
		if ((event->models & wanted->models) && is_part(wanted, event->name)) {
			if (!found++)
				list_head("events with this in their names");
			list_row(event);
		}
	for (u32 i = 0; (own = perf_name_at(i)); i++)
		if ((own->models & wanted->models) && is_part(wanted, own->name)) {
			printf("  0x%03x  0x%02x  %-8s  %s\n", own->event, own->umask, "perf's",
			       own->name);
			found++;
		}
	return found;
}

static int explain(const char *name, const struct model *model)
{
	struct wanted wanted = {
		.name = name,
		.length = strcspn(name, ":"),
		.models = model ? model->set : MODELS_ALL,
	};

	if (!wanted.length)
		return usage_error(&command_events, "'%s' names no event", name);
	if (describe_all(&wanted) || list_similar(&wanted))
		return STATUS_OK;
	return failure(STATUS_USAGE, "%s has %s event '%.*s': it would count nothing",
		       model ? model->name : "no model", model ? "no" : "an", (int)wanted.length,
		       name);
}

/* --- the command line --- */

static int run(int argc, char **argv)
{
	const char *name = NULL, *cpu = NULL;
	const struct model *model;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
			command_help(&command_events);
			return STATUS_OK;
		}
		if (!strcmp(argv[i], "--cpu") && argv[i + 1])
			cpu = argv[++i];
		else if (!strncmp(argv[i], "--cpu=", 6))
			cpu = argv[i] + 6;
		else if (!strcmp(argv[i], "--cpu"))
			return usage_error(&command_events, "--cpu needs the name of a model");
		else if (argv[i][0] != '-' && !name)
			name = argv[i];
		else
			return usage_error(&command_events, "cannot make sense of '%s'", argv[i]);
	}
	model = cpu ? model_find(cpu) : NULL;
	if (cpu && !model)
		return usage_error(&command_events, "there is no CPU model '%s'", cpu);
	if (name)
		return explain(name, model);
	for (u32 i = 0; model_at(i); i++)
		if (!model || model == model_at(i))
			list(model_at(i));
	return STATUS_OK;
}

static void describe(void)
{
	puts("  NAME         describe this event: a name of perf's (branch-misses), of the "
	     "vendor's\n"
	     "               (BR_MISP_RETIRED.COND), or a raw code (r00c5); a part of a name "
	     "lists\n"
	     "               the events that have it\n\n"
	     "options:\n"
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
	.synopsis = "[--cpu MODEL] [NAME]",
	.summary = "List the events that guests can count, or describe one",
	.run = run,
	.describe = describe,
};
