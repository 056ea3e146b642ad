/* SPDX-License-Identifier: MIT */
/*
 * Counting beside the counters: while software has a counter enabled whose event select names the
 * marker, all classes that the owner asked for are counted, in any number and at both privileges.
 * Software sees nothing of them: the marker itself counts nothing, so that a guest reads the same
 * and does the same whatever is counted beside it (docs/clock.md, "Any number of events").
 *
 * Freestanding. One struct hwpmu_shadow is shared by all processors of a machine, and may be shared
 * with another process.
 */
#ifndef HWPMU_SHADOW_H
#define HWPMU_SHADOW_H

#include "hwpmu/retire.h"

struct hwpmu;

/* Event 0xff, unit mask 0xff: an event of no model, which the operating system may put on any
 * general counter. */
#define SHADOW_MARKER	   0xffffull
#define SHADOW_MARKER_NAME "rffff" /* perf's */

struct hwpmu_shadow {
	retire_wanted classes;	    /* what to count */
	struct retire_tally counts; /* complete while no counter with the marker is enabled */
};

/* A processor's part in it. */
struct hwpmu_window {
	struct hwpmu_shadow *shadow; /* NULL: none */
	retire_wanted classes;	     /* the shadow's, as far as there are such */
	u64 counters;		     /* whose select names the marker, and are enabled there */
	bool is_open;		     /* one of them runs */
	struct retire_tally mark;    /* of the classes, when it was opened */
};

/* Before software enables counters: a window that was open is forgotten. NULL: the marker is an
 * event like any other that the model does not have. */
void hwpmu_attach_shadow(struct hwpmu *pmu, struct hwpmu_shadow *shadow);

#endif
