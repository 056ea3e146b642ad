// SPDX-License-Identifier: MIT
/*
 * The mediated backend: the guest owns the physical PMU while it runs, and its registers are the
 * physical ones of the same number. What the hypervisor's filter denies has its EN bit, or its
 * field of FIXED_CTR_CTRL, cleared in the hardware's copy; GLOBAL_CTRL and status are the guest's.
 *
 * Loading and saving are lazy: registers stay in the hardware over exits, only what was written in
 * between is loaded, and only a reader saves. So no event of the host may be on the counters
 * (hostperf_yield()), and unloading resets them all. vCPU thread.
 */
#include "hostperf/priv.h"

static u64 fixed_ctrl_copy(const struct pmu *pmu)
{
	u64 copy = 0;

	for (u32 i = 0; i < pmu->fixed; i++)
		copy |= pmu_hardware_control(pmu, PMU_FIXED_BASE + i) << FIXED_CTRL_BITS * i |
			(pmu->fixed_ctrl & FIXED_CTRL_ADAPTIVE(i));
	return copy;
}

static u64 global_ctrl_copy(const struct pmu *pmu)
{
	if (pmu->version < 2)
		return pmu->all;
	return (pmu->global_ctrl & ~GLOBAL_METRICS) |
	       (pmu_metrics_enabled(pmu) ? GLOBAL_METRICS : 0);
}

static void load_status(struct hwpmu *hw, u64 status)
{
	if (hw->global_status & ~status)
		hwpmu_reset_status(hw, hw->global_status & ~status);
	if (status & ~hw->global_status)
		hwpmu_set_status(hw, status & ~hw->global_status);
}

/* After the controls, which say how large a part may be. */
static void load_values(struct hwpmu *hw, const struct pmu *pmu, u64 values)
{
	for (u64 left = values & ~GLOBAL_METRICS; left;) {
		u32 counter = next_bit(&left);

		hwpmu_write(hw, counter, pmu_value(pmu, counter));
		hwpmu_write_part(hw, counter, pmu_part(pmu, counter));
	}
	if (values & GLOBAL_METRICS)
		hwpmu_set_metrics(hw, &pmu->metrics);
}

static void load(void *data, struct pmu *pmu, u64 controls, u64 values)
{
	struct hwpmu *hw = data;

	hw->hides_metrics = !pmu->has_metrics;
	hostperf_load_offcore(hw, pmu);
	for (u64 left = controls & MASK(PMU_FIXED_BASE - 1, 0); left;) {
		u32 counter = next_bit(&left);

		hwpmu_write_select(hw, counter, pmu_hardware_control(pmu, counter));
	}
	if (hw->fixed_ctrl != fixed_ctrl_copy(pmu))
		hwpmu_write_fixed_ctrl(hw, fixed_ctrl_copy(pmu));
	load_values(hw, pmu, values);
	if (pmu->version > 1)
		load_status(hw, pmu->global_status);
	if (hw->global_ctrl != global_ctrl_copy(pmu))
		hwpmu_write_global_ctrl(hw, global_ctrl_copy(pmu));
}

static void save_selects(const struct hwpmu *hw, struct pmu *pmu)
{
	for (u32 i = 0; i < pmu->general; i++)
		if (!(pmu->dirty & BIT(i)))
			pmu->select[i] = hw->select[i];
}

/* The bit of GLOBAL_CTRL that the guest has and its copy lacks. */
static u64 denied_metrics(const struct pmu *pmu)
{
	return pmu_metrics_enabled(pmu) ? 0 : pmu->global_ctrl & GLOBAL_METRICS;
}

static void save(void *data, struct pmu *pmu)
{
	const struct hwpmu *hw = data;

	for (u64 left = pmu->all & ~pmu->stale; left;) {
		u32 counter = next_bit(&left);

		pmu_set_value(pmu, counter, hwpmu_read(hw, counter));
		pmu_set_part(pmu, counter, hwpmu_part(hw, counter));
	}
	if (pmu->has_metrics && !(pmu->stale & GLOBAL_METRICS))
		pmu->metrics = hwpmu_metrics(hw);
	if (pmu_passes_selects(pmu))
		save_selects(hw, pmu);
	if (pmu_passes_fixed_ctrl(pmu) && !(pmu->dirty & pmu->all & ~MASK(PMU_FIXED_BASE - 1, 0)))
		pmu->fixed_ctrl = hw->fixed_ctrl;
	if (pmu->version < 2)
		return;
	if (!(pmu->dirty & PMU_DIRTY_GLOBAL))
		pmu->global_ctrl = hw->global_ctrl | denied_metrics(pmu);
	if (!(pmu->dirty & PMU_DIRTY_STATUS))
		pmu->global_status = hw->global_status;
}

static void unload(void *data)
{
	hwpmu_reset(data);
}

static u64 overflowed(void *data)
{
	hwpmu_retire(data);
	return hwpmu_take_overflows(data);
}

const struct pmu_backend hostperf_mediated = {
	.name = "mediated",
	.owns_hardware = true,
	.load = load,
	.save = save,
	.unload = unload,
	.overflowed = overflowed,
	.record = hostperf_record,
	.read_record = hostperf_read_record,
	.write_record = hostperf_write_record,
	.clear_records = hostperf_clear_records,
	.pebs = hostperf_pebs,
	.read_ibs = hostperf_read_ibs,
	.write_ibs = hostperf_write_ibs,
};
