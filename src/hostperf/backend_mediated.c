// SPDX-License-Identifier: MIT
/*
 * The mediated backend: each virtual counter is the physical one of the same number. The physical
 * GLOBAL_CTRL stays all ones and its status is taken over at once: enabling and status are the
 * virtual PMU's. vCPU thread.
 */
#include "hostperf/hostperf.h"

#include "hwpmu/hwpmu.h"

static void set_control(struct hwpmu *hw, u32 counter, u64 control)
{
	if (counter < PMU_FIXED_BASE) {
		hwpmu_write_select(hw, counter, control);
	} else {
		u32 shift = (counter - PMU_FIXED_BASE) * FIXED_CTRL_BITS;
		u64 others = hw->fixed_ctrl & ~(MASK(FIXED_CTRL_BITS - 1, 0) << shift);

		hwpmu_write_fixed_ctrl(hw, others | control << shift);
	}
}

static void start(void *world, u32 counter, u64 control, u64 value)
{
	hwpmu_write(world, counter, value);
	set_control(world, counter, control);
}

/* An overflow that nobody has asked about is void, or it would be the next user's. */
static void stop(void *world, u32 counter)
{
	set_control(world, counter, 0);
	hwpmu_reset_status(world, BIT(counter));
}

static u64 read(const void *world, u32 counter)
{
	return hwpmu_read(world, counter);
}

static u64 overflowed(void *world)
{
	struct hwpmu *hw = world;
	u64 counters;

	hwpmu_retire(hw);
	counters = hw->global_status & hwpmu_all(hw);
	if (counters)
		hwpmu_reset_status(hw, counters);
	return counters;
}

const struct pmu_backend hostperf_mediated = {
	.name = "mediated",
	.start = start,
	.stop = stop,
	.read = read,
	.overflowed = overflowed,
};
