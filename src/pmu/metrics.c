// SPDX-License-Identifier: MIT
/*
 * PERF_METRICS of a guest (SDM 3B 20.3.9.3; KVM of Linux 6.12 has none): whether there is one,
 * whether it may count, and what reading and writing it does to struct pmu.
 *
 * The filter denies it with fixed counter 3, and if it denies one of the events by which operating
 * systems ask for metrics: those of event 0, which exist nowhere else.
 */
#include "pmu/priv.h"

#define SLOTS (PMU_FIXED_BASE + 3)

/* Unit masks of event 0: slots, and the metrics from this one on. */
#define UMASK_SLOTS   0x04ull
#define UMASK_METRICS 0x80ull

static bool has_metrics(const struct pmu *pmu)
{
	return pmu->model->metrics && pmu->guest.pdcm && (pmu->all & BIT(SLOTS)) &&
	       (pmu->perf_capabilities & PERF_CAP_METRICS);
}

void pmu_metrics_reset(struct pmu *pmu)
{
	pmu->has_metrics = has_metrics(pmu);
	pmu->metrics = (struct metrics){ 0 };
}

/* KVM: a list of what is allowed says nothing of fixed counters. */
static bool listed(const struct pmu *pmu, u64 umask)
{
	return pmu->filter->action == PMU_FILTER_DENY &&
	       !pmu_filter_allows(pmu->filter, umask << 8, false);
}

bool pmu_metrics_denied(const struct pmu *pmu)
{
	bool denied = !pmu_filter_allows_fixed(pmu->filter, SLOTS - PMU_FIXED_BASE);

	if (!pmu->filter)
		return false;
	denied |= listed(pmu, UMASK_SLOTS);
	for (u32 i = 0; i < pmu->model->metrics; i++)
		denied |= listed(pmu, UMASK_METRICS + i);
	return denied;
}

bool pmu_metrics_enabled(const struct pmu *pmu)
{
	return pmu->has_metrics && (pmu->global_ctrl & GLOBAL_METRICS) && !pmu_metrics_denied(pmu);
}

u64 pmu_metrics_read(const struct pmu *pmu, u32 i)
{
	(void)i;
	return metrics_value(&pmu->metrics, pmu->model->metrics);
}

static u64 slots(const struct pmu *pmu)
{
	return pmu_counter_read(pmu, SLOTS) * pmu_slot_ticks(pmu->model) + pmu_part(pmu, SLOTS);
}

/* Is the value what the exact counts give? */
static bool is_view(const struct pmu *pmu, u64 value)
{
	struct metrics metrics = pmu->metrics;

	metrics.counted = true;
	return metrics_value(&metrics, pmu->model->metrics) == value;
}

/* A program that restores a guest writes the register, and what it is a view of, in any order. */
bool pmu_metrics_write(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)i;
	if (host && is_view(pmu, value))
		pmu->metrics.written = value;
	else
		metrics_write(&pmu->metrics, value, slots(pmu));
	pmu->stale |= GLOBAL_METRICS;
	return true;
}

u64 pmu_read_metric(struct pmu *pmu, enum metric metric)
{
	pmu_fetch(pmu);
	return pmu->metrics.ticks[metric];
}

void pmu_write_metric(struct pmu *pmu, enum metric metric, u64 ticks)
{
	if (!pmu->has_metrics)
		return;
	pmu_fetch(pmu);
	pmu->metrics.ticks[metric] = ticks;
	pmu->stale |= GLOBAL_METRICS;
}
