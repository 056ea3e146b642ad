// SPDX-License-Identifier: MIT
/*
 * Architectural performance monitoring (SDM 3B 20.2) as a struct pmu_vendor: what CPUID gives a
 * guest, which counter RDPMC reads, whether a PMI masks LVTPC; and two registers that Intel alone
 * has, PERF_CAPABILITIES and GLOBAL_INUSE. Writing the former configures the PMU again.
 */
#include "pmu/priv.h"

/* --- IA32_PERF_CAPABILITIES: part of the CPU model, the program's to choose --- */

u64 pmu_read_capabilities(const struct pmu *pmu, u32 i)
{
	(void)i;
	return pmu->perf_capabilities;
}

/* A format is the model's, or none. */
static bool capabilities_legal(const struct pmu *pmu, u64 value)
{
	u64 supported = pmu_supported_capabilities(pmu->model);
	u64 lbr = value & PERF_CAP_LBR_FORMAT, pebs = value & PERF_CAP_PEBS;

	if ((value & ~supported) || (lbr && lbr != (supported & PERF_CAP_LBR_FORMAT)))
		return false;
	if (!(value & PERF_CAP_PEBS_FORMAT))
		return true;
	return pebs == (supported & PERF_CAP_PEBS) && pmu->guest.ds;
}

bool pmu_write_capabilities(struct pmu *pmu, u32 i, u64 value, bool host)
{
	struct pmu_guest guest = pmu->guest;

	(void)i, (void)host;
	if (!capabilities_legal(pmu, value))
		return false;
	if (value == pmu->perf_capabilities)
		return true;
	if (pmu->has_run || (value && !pmu->version))
		return false;
	pmu->perf_capabilities = value;
	pmu_configure(pmu, &guest);
	return true;
}

/* --- IA32_PERF_GLOBAL_INUSE --- */

/* SDM 3B 20.2.4.3: the counters that software uses. Bit 63 is the interrupt. */
u64 pmu_read_inuse(const struct pmu *pmu, u32 i)
{
	u64 inuse = 0;

	for (i = 0; i < pmu->general; i++) {
		inuse |= pmu->select[i] & EVENTSEL_EVENT ? BIT(i) : 0;
		inuse |= pmu->select[i] & EVENTSEL_INT ? BIT(63) : 0;
	}
	for (i = 0; i < pmu->fixed; i++) {
		u64 control = fixed_ctrl_field(pmu->fixed_ctrl, i);

		inuse |= control & (FIXED_CTRL_OS | FIXED_CTRL_USR) ? BIT(PMU_FIXED_BASE + i) : 0;
		inuse |= control & FIXED_CTRL_PMI ? BIT(63) : 0;
	}
	return pmu->pebs_enable ? inuse | BIT(63) : inuse;
}

/* --- what CPUID.0AH gives --- */

static u32 field(u32 reg, u32 high, u32 low)
{
	return (reg & MASK(high, low)) >> low;
}

static u32 least(u32 a, u32 b)
{
	return a < b ? a : b;
}

static void derive(struct pmu *pmu)
{
	const struct pmu_model *model = pmu->model;
	u32 eax = pmu->guest.leaf_a_eax, edx = pmu->guest.leaf_a_edx;
	u32 most = least(model->fixed, PMU_FIXED);

	pmu->version = field(eax, 7, 0);
	if (!pmu->version)
		return;
	pmu->general = least(field(eax, 15, 8), least(model->general, PMU_GENERAL));
	pmu->general_mask = BIT(least(field(eax, 23, 16), model->general_width)) - 1;
	if (pmu->version < 2)
		return;
	pmu->fixed_set = BIT(least(field(edx, 4, 0), most)) - 1;
	/* KVM: a version above the one that is offered behaves as that one. */
	if (pmu->version >= 5 && (model->perf_capabilities & PERF_CAP_BASELINE))
		pmu->fixed_set |= pmu->guest.leaf_a_ecx & (BIT(most) - 1);
	while (pmu->fixed_set >> pmu->fixed)
		pmu->fixed++;
	pmu->fixed_mask = BIT(least(field(edx, 12, 5), model->fixed_width)) - 1;
}

/* The type is in 31:16 (4000H: fixed, 2000H: metrics), the number in 15:0. The "fast" bit 31 is a
 * type we lack. */
static bool rdpmc_counter(const struct pmu *pmu, u32 ecx, u32 *counter)
{
	u32 type = ecx >> 16, i = ecx & 0xffff;

	if (ecx == RDPMC_METRICS) {
		*counter = PMU_METRICS_BIT;
		return pmu->has_metrics;
	}
	*counter = type ? PMU_FIXED_BASE + i : i;
	return type == 0x4000 ? i < pmu->fixed && (pmu->fixed_set >> i & 1)
			      : !type && i < pmu->general;
}

const struct pmu_vendor pmu_intel = {
	.name = "Intel",
	.masks_lvtpc = true, /* SDM 3A 10.5.1 */
	.derive = derive,
	.rdpmc_counter = rdpmc_counter,
};
