// SPDX-License-Identifier: MIT
/*
 * Overflows: the status they leave, the interrupt they ask for, with which branch records may
 * freeze, and the two moments at which the backend is asked about them: before an entry and after
 * it. An overflow of a counter that was written since is void.
 */
#include "pmu/priv.h"

bool pmu_overflow(struct pmu *pmu, u64 counters)
{
	bool asked = pmu->pmi, store = counters & GLOBAL_STATUS_DS;

	/* Overflows from before the guest wrote the counter are void. */
	counters &= pmu->all & ~pmu->stale;
	if (!counters && !store)
		return pmu->pmi;
	pmu_fetch(pmu);
	if (pmu->version > 1)
		pmu->global_status |= counters;
	if (store) {
		pmu->global_status |= GLOBAL_STATUS_DS;
		pmu->pmi = true;
	}
	/* After an overflow, narrow counters start again with their invisible upper bits set. */
	pmu->stale |= counters & pmu->narrow;
	while (counters)
		pmu->pmi |= pmu_event_wants_pmi(pmu, pmu_next(&counters));
	if (pmu->pmi && !asked)
		pmu_lbr_freeze(pmu);
	return pmu->pmi;
}

void pmu_enter(struct pmu *pmu)
{
	pmu->has_run = true;
	/* The instruction that the owner completed may have been the one to overflow. */
	pmu_overflow(pmu, pmu->backend->overflowed(pmu->backend_data));
	pmu_sync(pmu);
}

void pmu_leave(struct pmu *pmu)
{
	pmu_overflow(pmu, pmu->backend->overflowed(pmu->backend_data));
}

u32 pmu_take_requests(struct pmu *pmu)
{
	if (!pmu->pmi)
		return 0;
	pmu->pmi = false;
	return PMU_REQUEST_PMI | (pmu_masks_lvtpc(pmu) ? PMU_REQUEST_MASK_LVTPC : 0);
}

bool pmu_masks_lvtpc(const struct pmu *pmu)
{
	return pmu->vendor->masks_lvtpc;
}

bool pmu_tells_overflow(struct pmu *pmu)
{
	pmu_fetch(pmu);
	return pmu->global_status & (pmu->all | GLOBAL_STATUS_DS);
}
