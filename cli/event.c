// SPDX-License-Identifier: MIT
/*
 * Events as perf writes them: the generic names, the vendor's names of x86/events.def, raw codes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "client.h"
#include "hostperf/hostperf.h"
#include "x86/events.h"

/* As Linux encodes them. */
static const struct {
	const char *name;
	u64 intel, amd;
} generic[] = {
	{ "instructions", 0xc0, 0xc0 },		{ "cycles", 0x3c, 0x76 },
	{ "cpu-cycles", 0x3c, 0x76 },		{ "branches", 0xc4, 0xc2 },
	{ "branch-instructions", 0xc4, 0xc2 },	{ "branch-misses", 0xc5, 0xc3 },
	{ "cache-references", 0x4f2e, 0xff60 }, { "cache-misses", 0x412e, 0x0964 },
};

static bool find_code(const char *name, size_t n, const struct model *model, u64 *select)
{
	const struct event *event;

	for (u32 i = 0; i < ARRAY_SIZE(generic); i++)
		if (strlen(generic[i].name) == n && !strncmp(generic[i].name, name, n)) {
			*select = model->is_amd ? generic[i].amd : generic[i].intel;
			return true;
		}
	for (u32 i = 0; (event = event_at(i)); i++)
		if ((event->models & model->set) && strlen(event->name) == n &&
		    !strncasecmp(event->name, name, n)) {
			*select = (event->event & 0xff) | (u64)(event->event >> 8) << 32 |
				  (u64)event->umask << 8;
			return true;
		}
	if (name[0] == 'r' && n > 1) {
		char *end;

		*select =
			strtoull(name + 1, &end, 16) & (MASK(15, 0) | EVENTSEL_EDGE | EVENTSEL_INV |
							EVENTSEL_CMASK | EVENTSEL_EVENT_HIGH);
		return end == name + n;
	}
	return false;
}

bool event_parse(const char *text, const char *model_name, struct event_wanted *out)
{
	const struct model *model = model_find(model_name);
	size_t n = strcspn(text, ":");
	u64 privileges = 0;

	out->flags = 0;
	if (!model || !find_code(text, n, model, &out->select))
		return false;
	for (const char *m = text + n + !!text[n]; *m; m++)
		switch (*m) {
		case 'u':
			privileges |= EVENTSEL_USR;
			break;
		case 'k':
			privileges |= EVENTSEL_OS;
			break;
		case 'H':
			out->flags |= HOST_EXCLUDE_GUEST;
			break;
		case 'G':
			out->flags |= HOST_EXCLUDE_HOST;
			break;
		case 'D':
			out->flags |= HOST_PINNED;
			break;
		default:
			return false;
		}
	out->select |= privileges ? privileges : EVENTSEL_OS | EVENTSEL_USR;
	return true;
}

/* What Intel's fixed counters count, as event and unit mask: on a general counter, and as Linux
 * names those that only a fixed counter has. AMD has no fixed counters; a bit for one says nothing
 * there. */
static const struct {
	u16 code;
	u8 counter;
} fixed_events[] = {
	{ 0x00c0, 0 }, { 0x003c, 1 }, { 0x013c, 2 }, { 0x0300, 2 }, { 0x01a4, 3 }, { 0x0400, 3 },
};

bool event_list_add(struct event_list *list, u64 select)
{
	size_t used = strlen(list->text);
	u64 code = select & (MASK(15, 0) | EVENTSEL_EVENT_HIGH);

	if (list->count == PMU_FILTER_EVENTS)
		return false;
	list->count++;
	snprintf(list->text + used, sizeof(list->text) - used, " %#llx", (unsigned long long)code);
	for (u32 i = 0; i < ARRAY_SIZE(fixed_events); i++)
		if (fixed_events[i].code == code)
			list->fixed |= 1u << fixed_events[i].counter;
	return true;
}

bool event_list_add_fixed(struct event_list *list, const char *word)
{
	if (strncmp(word, "fixed", 5) || word[5] < '0' || word[5] > '3' || word[6])
		return false;
	list->fixed |= 1u << (word[5] - '0');
	return true;
}
