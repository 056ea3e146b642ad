// SPDX-License-Identifier: MIT
/*
 * The counters: where their values are, and how the backend comes to count them. A value is in
 * pmu->value[], or with the backend while it counts; the guest's write of a counter that the
 * backend counts makes the backend's value stale until the next sync.
 */
#include "pmu/priv.h"

/* Where in value[]. */
static u32 slot(u32 counter)
{
	return pmu_is_fixed(counter) ? counter - PMU_FIXED_BASE + PMU_GENERAL : counter;
}

static bool with_backend(const struct pmu *pmu, u32 counter)
{
	return pmu->counting & ~pmu->stale & BIT(counter);
}

u64 pmu_counter_read(const struct pmu *pmu, u32 counter)
{
	if (with_backend(pmu, counter))
		return pmu->backend->read(pmu->world, counter) & pmu_mask(pmu, counter);
	return pmu->value[slot(counter)];
}

void pmu_counter_write(struct pmu *pmu, u32 counter, u64 value)
{
	pmu->value[slot(counter)] = value & pmu_mask(pmu, counter);
	pmu->stale |= pmu->counting & BIT(counter);
	pmu->dirty |= BIT(counter);
}

static void stop(struct pmu *pmu, u32 counter)
{
	pmu->value[slot(counter)] = pmu_counter_read(pmu, counter);
	pmu->backend->stop(pmu->world, counter);
	pmu->counting &= ~BIT(counter);
	pmu->stale &= ~BIT(counter);
}

/* The backend's counter has all bits that the model's has: those the guest's lacks are set, so that
 * both wrap at once. */
static u64 widened(const struct pmu *pmu, u32 counter, u64 value)
{
	return pmu->narrow & BIT(counter) ? value | ~pmu_mask(pmu, counter) : value;
}

static void start(struct pmu *pmu, u32 counter)
{
	u64 value = widened(pmu, counter, pmu->value[slot(counter)]);

	pmu->backend->start(pmu->world, counter, pmu_event_control(pmu, counter), value);
	pmu->counting |= BIT(counter);
}

void pmu_counters_stop(struct pmu *pmu)
{
	for (u64 left = pmu->counting; left;)
		stop(pmu, pmu_next(&left));
}

void pmu_sync(struct pmu *pmu)
{
	while (pmu->dirty) {
		u32 counter = pmu_next(&pmu->dirty);

		if (pmu->counting & BIT(counter))
			stop(pmu, counter);
		if (pmu_event_enabled(pmu, counter))
			start(pmu, counter);
	}
}
