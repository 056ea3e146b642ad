// SPDX-License-Identifier: MIT
/*
 * Looking up the rows of events.def.
 */
#include "x86/events.h"

#include "x86/event_units.h"

static const struct event events[] = {
#define EVENT(models, event, umask, name, class, unit, kind, where)                    \
	{ models,	event, umask, (unit) > NAMED_CMASK ? (unit) - NAMED_CMASK : 0, \
	  EVENT_##kind, name,  where },
#include "x86/events.def"
#undef EVENT
};

const struct event *event_at(u32 i)
{
	return i < ARRAY_SIZE(events) ? &events[i] : NULL;
}

const struct event *event_find(enum model_set model, u32 event, u32 umask)
{
	for (u32 i = 0; i < ARRAY_SIZE(events); i++)
		if ((events[i].models & model) && events[i].event == event &&
		    events[i].umask == umask)
			return &events[i];
	return NULL;
}
