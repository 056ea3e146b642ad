// SPDX-License-Identifier: MIT
/*
 * Saving and restoring: the rows that are listed, read and written as the program would. What no
 * register shows is not here: see vm/msr/hidden_state.c.
 */
#include "pmu/priv.h"

#include "base/must.h"

u32 pmu_msr_list(const struct pmu_model *model, u32 *out, u32 max)
{
	u32 n = 0;

	for (u32 r = 0; r < pmu_nrows; r++) {
		const struct pmu_row *row = &pmu_rows[r];
		u32 count = row->flags & ROW_LISTED ? pmu_row_offered(row, model) : 0;

		for (u32 i = 0; i < count; i++, n++)
			if (n < max)
				out[n] = pmu_row_index(row, i);
	}
	return n;
}

u32 pmu_save(struct pmu *pmu, struct pmu_msr out[PMU_MSRS])
{
	u32 list[PMU_MSRS], n = pmu_msr_list(pmu->model, list, PMU_MSRS);

	must(n <= PMU_MSRS);
	for (u32 i = 0; i < n; i++) {
		out[i].index = list[i];
		must(pmu_rdmsr(pmu, list[i], true, &out[i].value) == PMU_OK);
	}
	return n;
}

u32 pmu_restore(struct pmu *pmu, const struct pmu_msr *in, u32 n)
{
	u32 i = 0;

	while (i < n && pmu_wrmsr(pmu, in[i].index, true, in[i].value) == PMU_OK)
		i++;
	return i;
}
