// SPDX-License-Identifier: MIT
/*
 * Which registers a guest may reach without an exit, while it owns the hardware: those that are the
 * same in both. Pure functions on struct pmu.
 *
 * KVM intercepts event selects always; here only a filter needs to see them.
 */
#include "pmu/priv.h"

#include "base/must.h"

static bool same_counters(const struct pmu *pmu)
{
	return pmu->all == pmu_counters(pmu->model->general, pmu->model->fixed);
}

/* The hardware has no transactions, whose bits a guest with them may set. */
bool pmu_passes_selects(const struct pmu *pmu)
{
	return pmu->backend->owns_hardware && !pmu->filter && !pmu->guest.tsx;
}

bool pmu_passes_fixed_ctrl(const struct pmu *pmu)
{
	u64 fixed = pmu_counters(0, pmu->model->fixed);

	return pmu->backend->owns_hardware && !pmu->filter && (pmu->all & fixed) == fixed;
}

static bool passes(const struct pmu *pmu, const struct pmu_row *row)
{
	u64 counters =
		row->per == PER_FIXED ? pmu_counters(0, pmu->fixed) : pmu_counters(pmu->general, 0);

	switch (row->pass) {
	case PASS_COUNTER:
		return !(pmu->narrow & counters) && !(counters & ~pmu->all);
	case PASS_SELECT:
		return pmu_passes_selects(pmu);
	case PASS_FIXED_CTRL:
		return pmu_passes_fixed_ctrl(pmu);
	case PASS_GLOBAL:
		return same_counters(pmu) && !pmu_metrics_denied(pmu);
	case PASS_RECORD:
		return !pmu->filter;
	default:
		return false;
	}
}

u32 pmu_passes(const struct pmu *pmu, struct pmu_pass out[PMU_PASSES])
{
	u32 n = 0;

	if (!pmu->backend->owns_hardware)
		return 0;
	for (u32 r = 0; r < pmu_nrows; r++) {
		const struct pmu_row *row = &pmu_rows[r];
		u32 present = passes(pmu, row) ? pmu_row_present(row, pmu) : 0;

		must(n + present <= PMU_PASSES);
		for (u32 i = 0; i < present; i++)
			out[n++] = (struct pmu_pass){
				.index = pmu_row_index(row, i),
				.read = true,
				.write = true,
			};
	}
	return n;
}

bool pmu_passes_rdpmc(const struct pmu *pmu)
{
	return pmu->backend->owns_hardware && pmu->version && same_counters(pmu) && !pmu->narrow;
}
