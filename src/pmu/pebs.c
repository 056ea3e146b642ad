// SPDX-License-Identifier: MIT
/*
 * PEBS as the guest has it: its registers, and what the backend is told of them with pmu_sync().
 * The physical PMU writes the records. A counter that the event filter denies does not count, and
 * so makes no records.
 */
#include "pmu/priv.h"

bool pmu_pebs_adaptive(const struct pmu *pmu)
{
	return pmu->has_pebs && (pmu->perf_capabilities & PERF_CAP_BASELINE);
}

void pmu_pebs_reset(struct pmu *pmu)
{
	pmu->has_pebs = pmu->version > 1 && pmu->backend->pebs && pmu->guest.pdcm &&
			pmu->guest.ds && (pmu->perf_capabilities & PERF_CAP_PEBS_FORMAT);
	pmu->pebs_enable = pmu->ds_area = pmu->pebs_data_cfg = pmu->pebs_ld_lat = 0;
	pmu->pebs_dirty = true;
}

void pmu_pebs_sync(struct pmu *pmu)
{
	struct pebs_control control = { 0 };

	pmu->pebs_dirty = false;
	if (!pmu->backend->pebs)
		return;
	if (pmu->has_pebs)
		control = (struct pebs_control){ .enable = pmu->pebs_enable,
						 .ds_area = pmu->ds_area,
						 .data_cfg = pmu->pebs_data_cfg,
						 .latency = pmu->pebs_ld_lat,
						 .general_hidden = ~pmu->general_mask,
						 .fixed_hidden = ~pmu->fixed_mask,
						 .adaptive = pmu_pebs_adaptive(pmu),
						 .has_latency_bits = pmu->version < 5 };
	pmu->backend->pebs(pmu->backend_data, &control);
}

/* --- registers --- */

u64 pmu_pebs_read_enable(const struct pmu *pmu, u32 i)
{
	(void)i;
	return pmu->pebs_enable;
}

bool pmu_pebs_write_enable(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)i, (void)host;
	pmu->pebs_enable = value;
	pmu->pebs_dirty = true;
	return true;
}

u64 pmu_pebs_read_ds_area(const struct pmu *pmu, u32 i)
{
	(void)i;
	return pmu->ds_area;
}

static bool canonical(const struct pmu *pmu, u64 address)
{
	u32 shift = pmu->guest.la57 ? 64 - 57 : 64 - 48;

	return (u64)((s64)(address << shift) >> shift) == address;
}

bool pmu_pebs_write_ds_area(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)i, (void)host;
	if (!canonical(pmu, value))
		return false;
	pmu->ds_area = value;
	pmu->pebs_dirty = true;
	return true;
}

u64 pmu_pebs_read_data_cfg(const struct pmu *pmu, u32 i)
{
	(void)i;
	return pmu->pebs_data_cfg;
}

bool pmu_pebs_write_data_cfg(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)i, (void)host;
	pmu->pebs_data_cfg = value;
	pmu->pebs_dirty = true;
	return true;
}

u64 pmu_pebs_read_ld_lat(const struct pmu *pmu, u32 i)
{
	(void)i;
	return pmu->pebs_ld_lat;
}

bool pmu_pebs_write_ld_lat(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)i, (void)host;
	pmu->pebs_ld_lat = value;
	pmu->pebs_dirty = true;
	return true;
}
