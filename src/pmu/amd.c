// SPDX-License-Identifier: MIT
/*
 * The core performance counters of AMD64 (APM2 13.2) as a struct pmu_vendor: what CPUID gives a
 * guest, which counter RDPMC reads, whether a PMI masks LVTPC. Registers are rows of
 * x86/pmu_msrs_amd.def.
 */
#include "pmu/priv.h"

#define K7_COUNTERS 4

static u32 counters_of(const struct pmu_guest *guest)
{
	if (guest->leaf_22_eax & LEAF_22_V2)
		return guest->leaf_22_ebx & MASK(3, 0);
	return guest->core_ext ? PMU_GENERAL_AMD : K7_COUNTERS;
}

static void derive(struct pmu *pmu)
{
	u32 counters = counters_of(&pmu->guest), most = PMU_GENERAL_AMD;

	if (pmu->model->general < most)
		most = pmu->model->general;
	pmu->version = pmu->guest.leaf_22_eax & LEAF_22_V2 ? 2 : 1;
	pmu->general = counters < most ? counters : most;
	pmu->general_mask = BIT(pmu->model->general_width) - 1;
}

static bool rdpmc_counter(const struct pmu *pmu, u32 ecx, u32 *counter)
{
	*counter = ecx;
	return ecx < pmu->general;
}

const struct pmu_vendor pmu_amd = {
	.name = "AMD",
	/* Linux never unmasks LVTPC on PerfMonV2: it would see a single PMI. */
	.masks_lvtpc = false,
	.derive = derive,
	.rdpmc_counter = rdpmc_counter,
};
