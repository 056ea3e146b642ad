// SPDX-License-Identifier: MIT
/*
 * Events as perf writes them: its own names (perf_names.def), the vendors' (x86/events.def), raw
 * codes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/base/client.h"
#include "hostperf/hostperf.h"
#include "x86/events.h"

#define RAW_DIGITS 16

static const struct perf_name names[] = {
#define PERF_NAME(models, event, umask, name) { models, event, umask, name, 0 },
#define PERF_NAME_RSP(models, event, umask, name, response) \
	{ models, event, umask, name, response },
#include "cli/base/perf_names.def"
#undef PERF_NAME
#undef PERF_NAME_RSP
};

const struct perf_name *perf_name_at(u32 i)
{
	return i < ARRAY_SIZE(names) ? &names[i] : NULL;
}

u64 event_select(u32 event, u32 umask)
{
	return (event & 0xff) | (u64)(event >> 8) << 32 | (u64)umask << 8;
}

/* As perf's: strtoull() alone would take signs, blanks and 0x, too. */
static bool parse_raw(const char *name, size_t n, u64 *select)
{
	if (name[0] != 'r' || n < 2 || n > 1 + RAW_DIGITS ||
	    strspn(name + 1, "0123456789abcdefABCDEF") != n - 1)
		return false;
	*select = strtoull(name + 1, NULL, 16) & (MASK(15, 0) | EVENTSEL_EDGE | EVENTSEL_INV |
						  EVENTSEL_CMASK | EVENTSEL_EVENT_HIGH);
	return true;
}

bool event_code(const char *name, size_t n, enum model_set model, u64 *select, u64 *response)
{
	const struct perf_name *own;
	const struct event *event;

	*response = 0;
	for (u32 i = 0; (own = perf_name_at(i)); i++)
		if ((own->models & model) && strlen(own->name) == n &&
		    !strncmp(own->name, name, n)) {
			*select = event_select(own->event, own->umask);
			*response = own->response;
			return true;
		}
	for (u32 i = 0; (event = event_at(i)); i++)
		if ((event->models & model) && strlen(event->name) == n &&
		    !strncasecmp(event->name, name, n)) {
			*select = event_select(event->event, event->umask) | (u64)event->cmask
										     << 24;
			return true;
		}
	return parse_raw(name, n, select);
}

bool event_parse(const char *text, const char *model_name, struct event_wanted *out)
{
	const struct model *model = model_find(model_name);
	size_t n = strcspn(text, ":");
	u64 privileges = 0, response;
	bool host = false, guest = false;

	out->flags = 0;
	if (!model || !event_code(text, n, model->set, &out->select, &response) || response)
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
			host = true;
			break;
		case 'G':
			guest = true;
			break;
		case 'D':
			out->flags |= HOST_PINNED;
			break;
		default:
			return false;
		}
	if (host != guest) /* both letters are both, as none is */
		out->flags |= host ? HOST_EXCLUDE_GUEST : HOST_EXCLUDE_HOST;
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
