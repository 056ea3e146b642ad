// SPDX-License-Identifier: MIT
/*
 * The list of perf stat -e: names, codes, terms between slashes, modifiers, groups. What an event
 * of the processor counts is hwpmu's to say; events of software go to the guest's perf as they are.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/client.h"
#include "cli/passes/passes.h"
#include "x86/events.h"

/* The kernel's events and perf's own, that need no counter. */
static const char *const software[] = {
	"alignment-faults",
	"cgroup-switches",
	"context-switches",
	"cpu-clock",
	"cpu-migrations",
	"cs",
	"dummy",
	"duration_time",
	"emulation-faults",
	"faults",
	"major-faults",
	"migrations",
	"minor-faults",
	"page-faults",
	"system_time",
	"task-clock",
	"user_time",
};

struct code {
	u64 select, response;
};

static bool is_software(const char *name, size_t n)
{
	for (u32 i = 0; i < ARRAY_SIZE(software); i++)
		if (strlen(software[i]) == n && !memcmp(software[i], name, n))
			return true;
	return false;
}

/* --- terms: cpu/event=0xc4,umask=0x1/ --- */

/* Names in /sys/devices/cpu/format. */
static const struct term {
	const char *name;
	u64 mask; /* of the select; 0: OFFCORE_RSP */
} terms[] = {
	{ "event", EVENTSEL_EVENT | EVENTSEL_EVENT_HIGH },
	{ "umask", EVENTSEL_UMASK },
	{ "edge", EVENTSEL_EDGE },
	{ "inv", EVENTSEL_INV },
	{ "cmask", EVENTSEL_CMASK },
	{ "offcore_rsp", 0 },
};

/* Puts the bits of a number where the mask has its ones. False: it has more. */
static bool put_bits(u64 *out, u64 mask, u64 value)
{
	*out &= ~mask;
	for (; mask; mask &= mask - 1, value >>= 1)
		if (value & 1)
			*out |= mask & -mask;
	return !value;
}

static bool take_term(const char *text, size_t n, struct code *code)
{
	size_t length = strcspn(text, "=,/");
	bool has_value = length < n;
	u64 value = 1;
	char *end = (char *)text + n;

	if (has_value)
		value = strtoull(text + length + 1, &end, 0);
	if (end != text + n || (has_value && !isxdigit((u8)text[length + 1])))
		return false;
	for (u32 i = 0; i < ARRAY_SIZE(terms); i++) {
		if (strlen(terms[i].name) != length || memcmp(terms[i].name, text, length))
			continue;
		if (terms[i].mask)
			return put_bits(&code->select, terms[i].mask, value);
		code->response = value;
		return true;
	}
	return false;
}

/* What is between the slashes: a name, or terms. */
static bool take_terms(const char *text, size_t n, enum model_set model, struct code *code)
{
	*code = (struct code){ 0 };
	if (event_code(text, n, model, &code->select, &code->response))
		return true;
	while (n) {
		size_t length = strcspn(text, ",/");

		if (!take_term(text, length, code))
			return false;
		n -= length;
		text += length;
		if (n)
			n--, text++;
	}
	return true;
}

/* --- an event --- */

/* u and k count; the others say how a counter is shared, or how precise a sample is. */
static bool take_modifiers(const char *text, size_t n, struct pass_event *event)
{
	for (; n; n--, text++)
		if (*text == 'u')
			event->privileges |= BIT(RETIRE_USR);
		else if (*text == 'k')
			event->privileges |= BIT(RETIRE_OS);
		else if (!strchr("pPDSWeb", *text))
			return false;
	return true;
}

/* Linux's codes for what only fixed counters count: ref-cycles and slots. */
static int fixed_counter(const struct pmu_model *model, u64 select)
{
	int counter = select == 0x300 ? 2 : select == 0x400 ? 3 : -1;

	return counter < model->fixed ? counter : -1;
}

static struct hwpmu_event event_of(const struct pmu_model *model, const struct code *code)
{
	const u64 offcore[2] = { code->response, code->response };
	int fixed = fixed_counter(model, code->select);

	return fixed < 0 ? hwpmu_event(model, code->select, offcore)
			 : hwpmu_fixed_event(model, fixed);
}

static bool decode(const struct code *code, const struct model *model, struct pass_event *event)
{
	event->event = event_of(pmu_model_of(model->set), code);
	/* MEM_TRANS_RETIRED.LOAD_LATENCY: no threshold is set, which every load exceeds. */
	if (event->event.class == RETIRE_SLOW_LOADS)
		event->event.class = RETIRE_LOADS;
	return !event->event.unknown;
}

/* Where the modifiers begin: after the last slash, or the first colon. */
static size_t name_length(const char *text, size_t n, bool *has_terms)
{
	const char *first = memchr(text, '/', n), *last = first ? memrchr(text, '/', n) : NULL;
	const char *colon = memchr(text, ':', n);

	*has_terms = first && last > first;
	if (*has_terms)
		return last + 1 - text;
	return colon ? (size_t)(colon - text) : n;
}

/* False: there is no such event. */
static bool read_event(const char *text, size_t n, const struct model *model,
		       struct pass_event *event)
{
	bool has_terms;
	size_t length = name_length(text, n, &has_terms), rest = n - length;
	size_t skip = rest && text[length] == ':' ? 1 : 0;
	struct code code;

	if (!take_modifiers(text + length + skip, rest - skip, event))
		return false;
	event->is_software = is_software(text, length);
	if (event->is_software)
		return true;
	if (has_terms)
		return !strncmp(text, "cpu/", 4) &&
		       take_terms(text + 4, length - 5, model->set, &code) &&
		       decode(&code, model, event);
	return event_code(text, length, model->set, &code.select, &code.response) &&
	       decode(&code, model, event);
}

/* --- the list --- */

static bool no_event(const char *text, size_t n, const struct model *model)
{
	failure(STATUS_USAGE,
		"there is no event '%.*s' on %s: 'vpmu events --cpu %s' lists those that --passes "
		"can count",
		(int)n, text, model->name, model->name);
	return false;
}

/* perf's name for an event of a group with modifiers has these, too. */
static char *full_name(const char *text, size_t n, const char *group, size_t group_size)
{
	char *name;
	bool has_own = memchr(text, ':', n) || (n && text[n - 1] == '/');

	if (asprintf(&name, "%.*s%s%.*s", (int)n, text, group_size && !has_own ? ":" : "",
		     (int)group_size, group) < 0)
		return NULL;
	return name;
}

/* Takes the name over. */
static bool add(struct pass_events *events, const struct pass_event *event)
{
	struct pass_event *item = realloc(events->item, (events->count + 1) * sizeof(*item));

	if (!item) {
		free(event->name);
		out_of_memory();
		return false;
	}
	events->item = item;
	item[events->count++] = *event;
	return true;
}

static bool add_event(struct pass_events *events, const char *text, size_t n, const char *group,
		      size_t group_size, const struct model *model, const char *only)
{
	struct pass_event event = { .name = full_name(text, n, group, group_size) };

	if (!event.name) {
		out_of_memory();
		return false;
	}
	if (!read_event(event.name, strlen(event.name), model, &event)) {
		free(event.name);
		return no_event(text, n, model);
	}
	if (only)
		event.privileges = BIT(strcmp(only, "--all-user") ? RETIRE_OS : RETIRE_USR);
	if (!event.privileges)
		event.privileges = BIT(RETIRE_OS) | BIT(RETIRE_USR);
	return add(events, &event);
}

/* Up to a comma that is not between slashes, or a brace. */
static size_t event_length(const char *text)
{
	bool in_terms = false;
	size_t n = 0;

	for (; text[n] && (in_terms || !strchr(",{}", text[n])); n++)
		in_terms ^= text[n] == '/';
	return n;
}

/* The modifiers after the brace that closes a group: "{a,b}:u,c". */
static size_t group_modifiers(const char *list, const char **modifiers)
{
	while (*list && *list != '}')
		list += event_length(list) ?: 1;
	if (*list != '}' || list[1] != ':')
		return 0;
	*modifiers = list + 2;
	return strcspn(list + 2, ",");
}

bool pass_events_add(struct pass_events *events, const char *list, const struct model *model,
		     const char *only)
{
	const char *group = "";
	size_t group_size = 0, n;

	for (const char *at = list; *at; at += n) {
		n = 1;
		if (*at == '{') {
			group_size = group_modifiers(at + 1, &group);
		} else if (*at == '}') {
			n += group_size ? 1 + group_size : 0;
			group_size = 0;
		} else if (*at != ',') {
			n = event_length(at);
			if (!add_event(events, at, n, group, group_size, model, only))
				return false;
		}
	}
	return true;
}

void pass_events_free(struct pass_events *events)
{
	for (u32 i = 0; i < events->count; i++)
		free(events->item[i].name);
	free(events->item);
	*events = (struct pass_events){ 0 };
}
