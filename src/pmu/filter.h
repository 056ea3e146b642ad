/* SPDX-License-Identifier: MIT */
/*
 * The event filter of a VM (KVM_SET_PMU_EVENT_FILTER): which events a guest may count. Immutable
 * once made; any thread may ask it. Its arguments are the program's, and hostile.
 */
#ifndef PMU_FILTER_H
#define PMU_FILTER_H

#include "base/types.h"

#define PMU_FILTER_EVENTS 300

enum pmu_filter_action { PMU_FILTER_ALLOW, PMU_FILTER_DENY };

#define PMU_FILTER_MASKED BIT(0) /* flags: entries are masked events */

/* Masked events: event select in 7:0 and 35:32, unit mask to match in 15:8. */
#define PMU_MASKED_EXCLUDE BIT(55)
#define PMU_MASKED_MASK	   MASK(63, 56)

/* As the program passes it, copied. */
struct pmu_filter_args {
	u32 action, nevents, fixed_bitmap, flags;
	const u64 *events;
};

struct pmu_filter_entry {
	bool exclude;
	u16 event;
	u8 mask, match;
};

struct pmu_filter {
	enum pmu_filter_action action;
	u32 fixed_bitmap;
	u32 nincludes, nentries; /* includes come first; each part is sorted by event */
	struct pmu_filter_entry entry[PMU_FILTER_EVENTS];
};

enum pmu_filter_error { PMU_FILTER_OK, PMU_FILTER_INVALID, PMU_FILTER_TOO_BIG };

/* To know whether nevents may be copied at all. */
enum pmu_filter_error pmu_filter_check(const struct pmu_filter_args *args);
enum pmu_filter_error pmu_filter_make(struct pmu_filter *filter, const struct pmu_filter_args *args,
				      bool is_amd);

/* A NULL filter allows everything. Only the event and unit mask of a select are looked at. */
bool pmu_filter_allows(const struct pmu_filter *filter, u64 select, bool is_amd);
bool pmu_filter_allows_fixed(const struct pmu_filter *filter, u32 i);

#endif
