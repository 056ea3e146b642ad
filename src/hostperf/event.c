// SPDX-License-Identifier: MIT
/*
 * Events of the host: adding and removing them, their values, overflows and enabled and running
 * times, and whose turn is next where flexible ones share counters. Only hostperf_remove() changes
 * controls of counters; sched.c does the rest. vCPU thread.
 */
#include "base/must.h"
#include "hostperf/priv.h"

void hostperf_init(struct hostperf *host, struct hwpmu *hw)
{
	*host = (struct hostperf){ .hw = hw };
}

/* Events of a group fail together and are tried again together. */
static void retry_group(struct hostperf *host, u32 group)
{
	for (u32 i = 0; group && i < host->nevents; i++)
		if (host->event[i]->group == group && host->event[i]->state == HOST_ERROR)
			host->event[i]->state = HOST_WAITING;
}

bool hostperf_add(struct hostperf *host, struct host_event *event)
{
	must(event->state == HOST_OFF);
	if (host->nevents == HOST_EVENTS) {
		event->state = HOST_ERROR;
		return false;
	}
	retry_group(host, event->group);
	host->event[host->nevents++] = event;
	event->state = HOST_WAITING;
	return true;
}

void hostperf_remove(struct hostperf *host, struct host_event *event)
{
	u32 i = 0;

	if (event->state == HOST_OFF)
		return;
	if (event->state == HOST_COUNTING) {
		hostperf_collect(host);
		event->value = hostperf_read(host, event);
		event->part = hostperf_part(host, event);
		hostperf_set_control(host->hw, event->counter, 0);
	}
	event->state = HOST_OFF;
	while (i < host->nevents && host->event[i] != event)
		i++;
	if (i == host->nevents)
		return; /* it found no room */
	for (host->nevents--; i < host->nevents; i++)
		host->event[i] = host->event[i + 1];
}

u64 hostperf_read(const struct hostperf *host, const struct host_event *event)
{
	return event->state == HOST_COUNTING ? hwpmu_read(host->hw, event->counter) : event->value;
}

u32 hostperf_part(const struct hostperf *host, const struct host_event *event)
{
	return event->state == HOST_COUNTING ? hwpmu_part(host->hw, event->counter) : event->part;
}

void hostperf_collect(struct hostperf *host)
{
	u64 counters;

	hwpmu_retire(host->hw);
	counters = hwpmu_take_overflows(host->hw);
	host->store_is_full |= !!(counters & GLOBAL_STATUS_DS);
	for (u32 i = 0; counters && i < host->nevents; i++)
		if (host->event[i]->state == HOST_COUNTING &&
		    (counters & BIT(host->event[i]->counter)))
			host->event[i]->overflows++;
}

void hostperf_advance(struct hostperf *host, u64 now)
{
	u64 passed = now - host->now;

	host->now = now;
	for (u32 i = 0; i < host->nevents; i++) {
		struct host_event *event = host->event[i];

		if (event->state == HOST_ERROR)
			continue;
		event->enabled += passed;
		if (event->state == HOST_COUNTING)
			event->running += passed;
	}
}

bool hostperf_multiplexes(const struct hostperf *host)
{
	for (u32 i = 0; i < host->nevents && !host->yielded; i++)
		if (host->event[i]->state == HOST_WAITING)
			return true;
	return false;
}

void hostperf_rotate(struct hostperf *host)
{
	host->rotation++;
	hostperf_schedule(host);
}
