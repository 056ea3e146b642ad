/* SPDX-License-Identifier: MIT */
/*
 * Between the files of hwpmu: the meaning of event selects, what changes with the controls, and the
 * parts of PEBS and IBS in hwpmu_retire() and hwpmu_trips().
 */
#ifndef HWPMU_PRIV_H
#define HWPMU_PRIV_H

#include "hwpmu/hwpmu.h"

enum retire_class hwpmu_offcore_class(u64 response);

void hwpmu_update_wanted(struct hwpmu *pmu);
void hwpmu_update_lbr(struct hwpmu *pmu);
u64 hwpmu_pebs_counters(const struct hwpmu *pmu); /* whose overflow is a record */
void hwpmu_pebs_assist(struct hwpmu *pmu);

/* The run ends at this tally at the latest. */
static inline void hwpmu_arm_class(struct retire_trips *trips, enum retire_class class,
				   enum retire_domain domain, u64 at)
{
	u64 *trip = trips->at[class];

	if (!(trips->armed & RETIRE_BIT(class)))
		trip[RETIRE_IN_OS] = trip[RETIRE_IN_USR] = trip[RETIRE_IN_BOTH] = RETIRE_NEVER;
	trips->armed |= RETIRE_BIT(class);
	if (at < trip[domain])
		trip[domain] = at;
}

/* Occurrences of the counter's class up to now. */
u64 hwpmu_occurrences(const struct hwpmu *pmu, const struct hwpmu_counter *c);

/* metrics.c */
retire_wanted hwpmu_metrics_wanted(const struct hwpmu *pmu);
void hwpmu_pause_metrics(struct hwpmu *pmu);   /* before privileges or scope change */
void hwpmu_restart_metrics(struct hwpmu *pmu); /* after that, and what enables them */

/* ibs.c: its part in the functions of hwpmu.h */
retire_wanted hwpmu_ibs_wanted(const struct hwpmu *pmu);
void hwpmu_ibs_arm(const struct hwpmu *pmu, struct retire_trips *trips);
void hwpmu_ibs_retire(struct hwpmu *pmu);

/* shadow.c */
bool hwpmu_is_marker(const struct hwpmu *pmu, u64 select);
void hwpmu_update_window(struct hwpmu *pmu); /* registers that enable counters were written */

#endif
