// SPDX-License-Identifier: MIT
/*
 * The counters: their values, and how the backend comes to count them. Registers are written to
 * struct pmu and marked; pmu_sync() tells the backend, which has the newer values from then on.
 */
#include "pmu/priv.h"

u64 pmu_value(const struct pmu *pmu, u32 counter)
{
	u64 value = pmu->value[pmu_slot(counter)];

	return pmu->narrow & BIT(counter) ? value | ~pmu_mask(pmu, counter) : value;
}

void pmu_set_value(struct pmu *pmu, u32 counter, u64 value)
{
	pmu->value[pmu_slot(counter)] = value & pmu_mask(pmu, counter);
}

u32 pmu_part(const struct pmu *pmu, u32 counter)
{
	return pmu->part[pmu_slot(counter)];
}

void pmu_set_part(struct pmu *pmu, u32 counter, u32 part)
{
	pmu->part[pmu_slot(counter)] = part;
}

void pmu_fetch(struct pmu *pmu)
{
	if (pmu->version)
		pmu->backend->save(pmu->backend_data, pmu);
}

u64 pmu_counter_read(const struct pmu *pmu, u32 counter)
{
	return pmu->value[pmu_slot(counter)];
}

void pmu_counter_write(struct pmu *pmu, u32 counter, u64 value)
{
	pmu_set_value(pmu, counter, value);
	pmu->stale |= BIT(counter);
	/* An overflow that the backend has not reported yet is void: this status is the newest. */
	pmu->dirty |= PMU_DIRTY_STATUS;
}

u32 pmu_read_part(struct pmu *pmu, u32 counter)
{
	pmu_fetch(pmu);
	return pmu_part(pmu, counter);
}

void pmu_write_part(struct pmu *pmu, u32 counter, u32 part)
{
	pmu_fetch(pmu);
	pmu->stale |= BIT(counter);
	pmu_set_part(pmu, counter, part);
}

void pmu_tell_all(struct pmu *pmu)
{
	pmu->dirty = pmu->all | PMU_DIRTY_GLOBAL | PMU_DIRTY_STATUS;
	pmu->stale = pmu->all | (pmu->has_metrics ? GLOBAL_METRICS : 0);
	pmu->lbr_dirty = pmu->pebs_dirty = true;
}

void pmu_sync(struct pmu *pmu)
{
	u64 controls = pmu->dirty & pmu->all, values = pmu->stale;

	if (pmu->lbr_dirty || (pmu->dirty & PMU_DIRTY_STATUS))
		pmu_lbr_sync(pmu);
	if (pmu->pebs_dirty || (pmu->dirty & pmu->all))
		pmu_pebs_sync(pmu);
	if (!(pmu->dirty | pmu->stale))
		return;
	/* Fetch first: what is not newer here is newer in the backend. */
	pmu_fetch(pmu);
	pmu->backend->load(pmu->backend_data, pmu, controls, values);
	pmu->dirty = pmu->stale = 0;
}
