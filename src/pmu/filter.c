// SPDX-License-Identifier: MIT
/*
 * The event filter. Plain entries become masked ones that compare the whole unit mask; entries are
 * kept sorted, so that a look-up is a search for the event and a scan of its neighbours. Any
 * thread.
 */
#include "pmu/filter.h"

#include "x86/pmu_regs.h"

#define MATCH	   EVENTSEL_UMASK
#define EVENT_BITS (EVENTSEL_EVENT | EVENTSEL_EVENT_HIGH)

enum pmu_filter_error pmu_filter_check(const struct pmu_filter_args *args)
{
	if (args->action > PMU_FILTER_DENY || (args->flags & ~PMU_FILTER_MASKED))
		return PMU_FILTER_INVALID;
	return args->nevents > PMU_FILTER_EVENTS ? PMU_FILTER_TOO_BIG : PMU_FILTER_OK;
}

static u16 event_of(u64 select, bool is_amd)
{
	return eventsel_code(select, is_amd) & MASK(11, 0);
}

static u8 umask_of(u64 select)
{
	return (select & EVENTSEL_UMASK) >> 8;
}

static u64 event_bits(bool is_amd)
{
	return is_amd ? EVENT_BITS : EVENTSEL_EVENT;
}

/* Before which entry does it belong: includes first, then by event. */
static bool comes_before(const struct pmu_filter_entry *a, const struct pmu_filter_entry *b)
{
	return a->exclude != b->exclude ? b->exclude : a->event < b->event;
}

static void insert(struct pmu_filter *filter, struct pmu_filter_entry entry)
{
	u32 i = filter->nentries++;

	for (; i && comes_before(&entry, &filter->entry[i - 1]); i--)
		filter->entry[i] = filter->entry[i - 1];
	filter->entry[i] = entry;
	filter->nincludes += !entry.exclude;
}

/* KVM: an entry with bits besides event and unit mask is accepted and never matches. */
static bool add_plain(struct pmu_filter *filter, u64 event, bool is_amd)
{
	struct pmu_filter_entry entry = {
		.event = event_of(event, is_amd),
		.mask = 0xff,
		.match = umask_of(event),
	};

	if (!(event & ~(event_bits(is_amd) | EVENTSEL_UMASK)))
		insert(filter, entry);
	return true;
}

static bool add_masked(struct pmu_filter *filter, u64 event, bool is_amd)
{
	struct pmu_filter_entry entry = {
		.exclude = event & PMU_MASKED_EXCLUDE,
		.event = event_of(event, is_amd),
		.mask = (event & PMU_MASKED_MASK) >> 56,
		.match = umask_of(event),
	};

	if (event & ~(event_bits(is_amd) | MATCH | PMU_MASKED_EXCLUDE | PMU_MASKED_MASK))
		return false;
	insert(filter, entry);
	return true;
}

enum pmu_filter_error pmu_filter_make(struct pmu_filter *filter, const struct pmu_filter_args *args,
				      bool is_amd)
{
	enum pmu_filter_error error = pmu_filter_check(args);

	if (error)
		return error;
	filter->action = args->action;
	filter->fixed_bitmap = args->fixed_bitmap;
	filter->nincludes = filter->nentries = 0;
	for (u32 i = 0; i < args->nevents; i++) {
		u64 event = args->events[i];

		if (!(args->flags & PMU_FILTER_MASKED ? add_masked(filter, event, is_amd)
						      : add_plain(filter, event, is_amd)))
			return PMU_FILTER_INVALID;
	}
	return PMU_FILTER_OK;
}

/* Does any of the sorted entries [first, last) match? */
static bool matches(const struct pmu_filter *filter, u32 first, u32 last, u16 event, u8 umask)
{
	const struct pmu_filter_entry *entry = filter->entry;
	u32 low = first, high = last;

	while (low < high) {
		u32 mid = (low + high) / 2;

		if (entry[mid].event < event)
			low = mid + 1;
		else
			high = mid;
	}
	for (; low < last && entry[low].event == event; low++)
		if ((umask & entry[low].mask) == entry[low].match)
			return true;
	return false;
}

bool pmu_filter_allows(const struct pmu_filter *filter, u64 select, bool is_amd)
{
	u16 event = event_of(select, is_amd);
	u8 umask = umask_of(select);
	bool listed;

	if (!filter)
		return true;
	listed = matches(filter, 0, filter->nincludes, event, umask) &&
		 !matches(filter, filter->nincludes, filter->nentries, event, umask);
	return listed == (filter->action == PMU_FILTER_ALLOW);
}

bool pmu_filter_allows_fixed(const struct pmu_filter *filter, u32 i)
{
	if (!filter)
		return true;
	return (filter->fixed_bitmap >> i & 1) == (filter->action == PMU_FILTER_ALLOW);
}
