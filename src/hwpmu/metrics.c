// SPDX-License-Identifier: MIT
/*
 * PERF_METRICS: slots by what became of them, while GLOBAL_CTRL enables them and fixed counter 3
 * counts slots; at its privileges. As counters are, they are what they were at a mark and what the
 * tallies grew since. Slots that no other class has wait for the back end: so that level 1 is all
 * slots, and one class less is counted. vCPU thread.
 */
#include "hwpmu/priv.h"

#include "base/must.h"

#define SLOTS_COUNTER (PMU_FIXED_BASE + 3)

static const struct hwpmu_counter *slots_counter(const struct hwpmu *pmu)
{
	return &pmu->counter[HWPMU_GENERAL + SLOTS_COUNTER - PMU_FIXED_BASE];
}

static u64 of_class(const struct hwpmu *pmu, enum retire_class class)
{
	struct hwpmu_counter c = *slots_counter(pmu);

	c.class = class;
	return hwpmu_occurrences(pmu, &c);
}

static void tallies(const struct hwpmu *pmu, u64 now[NMETRICS])
{
	now[METRIC_RETIRING] = of_class(pmu, RETIRE_USED_SLOTS);
	now[METRIC_BAD_SPECULATION] = of_class(pmu, RETIRE_BAD_SLOTS);
	now[METRIC_FRONTEND] = of_class(pmu, RETIRE_FRONT_SLOTS);
	now[METRIC_BACKEND] = of_class(pmu, RETIRE_CYCLES) - now[METRIC_RETIRING] -
			      now[METRIC_BAD_SPECULATION] - now[METRIC_FRONTEND];
	now[METRIC_HEAVY] = of_class(pmu, RETIRE_HEAVY_SLOTS);
	now[METRIC_MISPREDICTS] = now[METRIC_BAD_SPECULATION];
	now[METRIC_FETCH_LATENCY] = of_class(pmu, RETIRE_FETCH_LATENCY);
	now[METRIC_MEMORY] = of_class(pmu, RETIRE_MEMORY_SLOTS);
}

retire_wanted hwpmu_metrics_wanted(const struct hwpmu *pmu)
{
	const retire_wanted first = RETIRE_BIT(RETIRE_CYCLES) | RETIRE_BIT(RETIRE_USED_SLOTS) |
				    RETIRE_BIT(RETIRE_BAD_SLOTS) | RETIRE_BIT(RETIRE_FRONT_SLOTS);
	const retire_wanted second = RETIRE_BIT(RETIRE_HEAVY_SLOTS) |
				     RETIRE_BIT(RETIRE_FETCH_LATENCY) |
				     RETIRE_BIT(RETIRE_MEMORY_SLOTS);

	if (!pmu->metrics.runs || !(slots_counter(pmu)->scope & HWPMU_GUEST))
		return 0;
	return pmu->model->metrics > NMETRICS_L1 ? first | second : first;
}

static struct metrics up_to_now(const struct hwpmu *pmu)
{
	struct metrics sum = pmu->metrics.sum;
	u64 now[NMETRICS];

	if (!pmu->metrics.runs)
		return sum;
	tallies(pmu, now);
	for (u32 i = 0; i < NMETRICS; i++)
		now[i] -= pmu->metrics.mark[i];
	metrics_add(&sum, now);
	return sum;
}

static void settle(struct hwpmu *pmu)
{
	if (!pmu->metrics.runs)
		return;
	pmu->metrics.sum = up_to_now(pmu);
	tallies(pmu, pmu->metrics.mark);
}

void hwpmu_pause_metrics(struct hwpmu *pmu)
{
	settle(pmu);
	pmu->metrics.runs = false;
}

void hwpmu_restart_metrics(struct hwpmu *pmu)
{
	settle(pmu);
	pmu->metrics.runs =
		(pmu->global_ctrl & GLOBAL_METRICS) && (pmu->running & BIT(SLOTS_COUNTER));
	if (pmu->metrics.runs)
		tallies(pmu, pmu->metrics.mark);
}

struct metrics hwpmu_metrics(const struct hwpmu *pmu)
{
	return up_to_now(pmu);
}

void hwpmu_set_metrics(struct hwpmu *pmu, const struct metrics *metrics)
{
	must(pmu->model->metrics);
	settle(pmu);
	pmu->metrics.sum = *metrics;
}

u64 hwpmu_read_metrics(const struct hwpmu *pmu)
{
	struct metrics sum = up_to_now(pmu);

	return metrics_value(&sum, pmu->model->metrics);
}

void hwpmu_write_metrics(struct hwpmu *pmu, u64 value)
{
	u64 slots = hwpmu_read(pmu, SLOTS_COUNTER) * pmu_slot_ticks(pmu->model) +
		    hwpmu_part(pmu, SLOTS_COUNTER);

	settle(pmu);
	metrics_write(&pmu->metrics.sum, value, slots);
}
