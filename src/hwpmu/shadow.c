// SPDX-License-Identifier: MIT
/*
 * Counting beside the counters: see shadow.h. A window is open while a counter with the marker
 * runs; when it closes, what the tallies grew meanwhile is added to the shared counts. vCPU thread.
 */
#include "hwpmu/shadow.h"

#include "hwpmu/priv.h"

static u64 *cell(struct retire_tally *tally, enum retire_class class,
		 enum retire_privilege privilege)
{
	return &((u64 *)tally)[2 * class + privilege];
}

static void open_class(struct hwpmu *pmu, enum retire_class class, enum retire_privilege privilege)
{
	*cell(&pmu->window.mark, class, privilege) = retire_count(pmu->tally, class, privilege);
}

/* Other processors of the machine add to the same counts. */
static void close_class(struct hwpmu *pmu, enum retire_class class, enum retire_privilege privilege)
{
	u64 grown = retire_count(pmu->tally, class, privilege) -
		    retire_count(&pmu->window.mark, class, privilege);

	__atomic_fetch_add(cell(&pmu->window.shadow->counts, class, privilege), grown,
			   __ATOMIC_RELAXED);
}

static void switch_window(struct hwpmu *pmu, bool open)
{
	for (retire_wanted left = pmu->window.classes; left; left &= left - 1)
		for (enum retire_privilege p = RETIRE_OS; p <= RETIRE_USR; p++)
			(open ? open_class : close_class)(pmu, retire_first(left), p);
	pmu->window.is_open = open;
}

bool hwpmu_is_marker(const struct hwpmu *pmu, u64 select)
{
	u32 code = eventsel_code(select, pmu->model->is_amd);

	return pmu->window.shadow && code == eventsel_code(SHADOW_MARKER, pmu->model->is_amd);
}

void hwpmu_update_window(struct hwpmu *pmu)
{
	bool frozen = pmu->global_status & GLOBAL_STATUS_CTR_FRZ;
	bool open = !frozen && (pmu->window.counters & pmu->global_ctrl);

	if (open != pmu->window.is_open)
		switch_window(pmu, open);
}

void hwpmu_attach_shadow(struct hwpmu *pmu, struct hwpmu_shadow *shadow)
{
	pmu->window = (struct hwpmu_window){ .shadow = shadow };
	if (shadow)
		pmu->window.classes = shadow->classes & RETIRE_ALL;
}
