/* SPDX-License-Identifier: MIT */
/*
 * The host's side of performance monitoring: who owns the physical counters, and when. A struct
 * hostperf is the perf core of one logical CPU: it places events on the counters of a struct hwpmu.
 *
 * Events rank as in Linux: pinned ones of the CPU, pinned ones of the task (the vCPU's thread),
 * flexible ones of the CPU, flexible ones of the task. A pinned event that finds no counter goes to
 * an error state and stays there until it is added again. Flexible ones share what is left by
 * turns, and their times tell how much of it they had.
 *
 * A logical CPU here is what a vCPU's thread runs on: each vCPU has one of its own, with its own
 * physical PMU. Freestanding; everything belongs to the vCPU thread.
 */
#ifndef HOSTPERF_HOSTPERF_H
#define HOSTPERF_HOSTPERF_H

#include "hwpmu/hwpmu.h"
#include "pmu/backend.h"
#include "pmu/pmu.h"

#define HOST_EVENTS 48

enum host_event_flags {
	HOST_PINNED = BIT(0),
	HOST_TASK = BIT(1), /* of the vCPU's thread, not of the CPU */
	HOST_EXCLUDE_HOST = BIT(2),
	HOST_EXCLUDE_GUEST = BIT(3),
};

enum host_event_state { HOST_OFF, HOST_WAITING, HOST_COUNTING, HOST_ERROR };

struct host_event {
	/* What the owner wants, before it adds the event. */
	u64 select; /* event, unit mask, CMASK, INV, EDGE, OS and USR */
	u32 flags;
	u32 group;     /* not 0: events of the same number count together or not at all */
	u64 preferred; /* counters to try first */

	u64 value; /* modulo the counters' width; of one that counts: hostperf_read() */
	u32 part;  /* hwpmu_part() of it; of one that counts: hostperf_part() */
	enum host_event_state state;
	u32 counter;	      /* where it counts */
	u64 enabled, running; /* times, in units of the owner's clock */
	u64 overflows;
};

struct hostperf {
	struct hwpmu *hw;
	u32 nevents, rotation;
	struct host_event *event[HOST_EVENTS]; /* in the order in which they were added */
	u64 now;
	bool yielded;	    /* a guest owns the hardware: events are scheduled out */
	bool store_is_full; /* the guest's PEBS store reached its threshold */
};

void hostperf_init(struct hostperf *host, struct hwpmu *hw);

/* Take effect with hostperf_schedule(). False: there are too many events, and this is in error. A
 * group in error is tried again when an event joins it. */
bool hostperf_add(struct hostperf *host, struct host_event *event);
void hostperf_remove(struct hostperf *host, struct host_event *event);
void hostperf_schedule(struct hostperf *host);

u64 hostperf_read(const struct hostperf *host, const struct host_event *event);
u32 hostperf_part(const struct hostperf *host, const struct host_event *event);
/* Notes overflows in the events that they belong to. Before counters are written. */
void hostperf_collect(struct hostperf *host);

/* The owner's clock, whenever it has one to tell: times of events grow by what passed. */
void hostperf_advance(struct hostperf *host, u64 now);
/* Does some event wait for its turn? Then its owner calls hostperf_rotate() now and then. */
bool hostperf_multiplexes(const struct hostperf *host);
void hostperf_rotate(struct hostperf *host);

/* Gives the hardware away, with every event scheduled out, and takes it back. */
void hostperf_yield(struct hostperf *host);
void hostperf_resume(struct hostperf *host);

/*
 * Mediated: the guest owns the physical PMU while it runs. Its backend data is a struct hwpmu of
 * the same model.
 */
extern const struct pmu_backend hostperf_mediated;

/*
 * Event: each counter of the guest is a pinned event of the vCPU's task, which excludes the host.
 * Its backend data is a struct hostperf_guest.
 */
extern const struct pmu_backend hostperf_event;

struct hostperf_guest {
	struct hostperf *host;
	struct host_event event[PMU_COUNTERS]; /* general, then fixed */
	struct pebs_control pebs;	       /* as the guest has it */
	u64 latency;			       /* counters whose select is that of load latency */
	bool metrics;			       /* the guest's PERF_METRICS may count */
};

/* The guest's counters that should count and have no physical one. KVM leaves that unsaid. */
u64 hostperf_starved(const struct hostperf_guest *guest);
/* To be called when events of the host have come or gone: no record is made of theirs, and metrics
 * do not count them. */
void hostperf_settle_guest(struct hostperf_guest *guest);

#endif
