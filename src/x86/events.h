/* SPDX-License-Identifier: MIT */
/*
 * The events of the models, as events.def lists them, for commands that show and parse their names.
 * The classes that they count are looked up by hwpmu/event.c, from the same rows.
 */
#ifndef X86_EVENTS_H
#define X86_EVENTS_H

#include "x86/models.h"

/* Sets of models that rows of events.def name. */
#define INTEL_SLOTS   (MODEL_ICELAKE | MODEL_SAPPHIRERAPIDS)
#define INTEL_OLD_TLB (MODEL_SKYLAKE | MODEL_ICELAKE)
#define INTEL_L2_ALL  (MODEL_SKYLAKE | MODEL_SAPPHIRERAPIDS)

enum event_kind { EVENT_EXACT, EVENT_MODELLED };

struct event {
	enum model_set models;
	u16 event; /* 12 bits */
	u8 umask;
	u8 cmask; /* that the name stands for; 0: none */
	enum event_kind kind;
	const char *name;
	const char *where; /* documented */
};

const struct event *event_at(u32 i); /* for lists; NULL after the last */
const struct event *event_find(enum model_set model, u32 event, u32 umask); /* NULL: unknown */

#endif
