// SPDX-License-Identifier: MIT
/*
 * Creating, configuring and resetting a virtual PMU: what a model offers in CPUID, and what a
 * guest's CPUID makes of it. Also changing its filter and its backend, without losing a count.
 */
#include "pmu/priv.h"

void pmu_init(struct pmu *pmu, const struct pmu_model *model, const struct pmu_backend *backend,
	      void *data)
{
	*pmu = (struct pmu){
		.model = model,
		.vendor = pmu_vendor_of(model),
		.backend = backend,
		.backend_data = data,
		.perf_capabilities = pmu_supported_capabilities(model),
	};
}

static u64 narrow(const struct pmu *pmu)
{
	u64 counters = 0;

	if (pmu->general_mask != BIT(pmu->model->general_width) - 1)
		counters |= pmu_counters(pmu->general, 0);
	if (pmu->fixed_mask != BIT(pmu->model->fixed_width) - 1)
		counters |= pmu_counters(0, pmu->fixed);
	return counters;
}

static void reset(struct pmu *pmu)
{
	for (u32 i = 0; i < PMU_GENERAL; i++)
		pmu->select[i] = 0;
	for (u32 i = 0; i < PMU_COUNTERS; i++)
		pmu->value[i] = pmu->part[i] = 0;
	pmu->fixed_ctrl = pmu->offcore[0] = pmu->offcore[1] = 0;
	/* KVM: not 0, as firmware would leave it to systems that do not know the register. */
	pmu->global_ctrl = pmu->version > 1 ? pmu_counters(pmu->general, 0) : 0;
	pmu->global_status = 0;
	pmu->pmi = false;
	pmu_tell_all(pmu);
}

void pmu_configure(struct pmu *pmu, const struct pmu_guest *guest)
{
	pmu->backend->unload(pmu->backend_data);
	pmu_ibs_reset(pmu);
	pmu->guest = *guest;
	pmu->version = pmu->general = pmu->fixed = pmu->fixed_set = 0;
	pmu->general_mask = pmu->fixed_mask = 0;
	if (!guest->disabled)
		pmu->vendor->derive(pmu);
	pmu->all = pmu_counters(pmu->general, 0) | (u64)pmu->fixed_set << PMU_FIXED_BASE;
	pmu->narrow = narrow(pmu);
	pmu->pass_serial++;
	pmu_metrics_reset(pmu);
	reset(pmu);
	pmu_lbr_reset(pmu);
	pmu_pebs_reset(pmu);
}

static u32 least(u32 a, u32 b)
{
	return a < b ? a : b;
}

static void cpuid_intel(const struct pmu_model *model, u32 regs[4])
{
	u32 general = least(model->general, PMU_GENERAL), fixed = least(model->fixed, PMU_FIXED);

	bool adaptive = model->perf_capabilities & PERF_CAP_BASELINE;
	u32 version = least(model->version, adaptive ? PMU_VERSION_ADAPTIVE : PMU_VERSION);

	regs[0] =
		version | general << 8 | model->general_width << 16 | (u32)model->arch_events << 24;
	regs[2] = version >= 5 ? BIT(fixed) - 1 : 0;
	regs[3] = fixed | model->fixed_width << 5 | 1 << 15; /* AnyThread is deprecated */
}

static void cpuid_amd(const struct pmu_model *model, u32 regs[4])
{
	if (model->version < 2)
		return;
	regs[0] = LEAF_22_V2;
	regs[1] = least(model->general, PMU_GENERAL_AMD);
	if (model->lbr == LBR_AMD) {
		regs[0] |= LEAF_22_LBR | LEAF_22_LBR_FREEZE;
		regs[1] |= model->lbr_depth << 4;
	}
}

/* SDM 3B 18.1.5: depths 8, 16 and 32; all filters; mispredictions, cycles and kinds of branches. */
static void cpuid_arch_lbr(const struct pmu_model *model, u32 regs[4])
{
	if (model->lbr != LBR_ARCH)
		return;
	regs[0] = BIT(0) | BIT(1) | BIT(3);
	regs[1] = regs[2] = MASK(2, 0);
}

/* 8000001BH:EAX: fetch and op sampling, the count's registers and its wide form, branch targets,
 * RIPs that may be invalid (none is), IBS_FETCH_EXTENDED. */
#define IBS_FEATURES	 (MASK(7, 0) | BIT(9))
#define IBS_FEATURE_ZEN4 BIT(11)

void pmu_cpuid(const struct pmu_model *model, u32 leaf, u32 regs[4])
{
	regs[0] = regs[1] = regs[2] = regs[3] = 0;
	if (leaf == 0xa && !model->is_amd)
		cpuid_intel(model, regs);
	if (leaf == 0x1c)
		cpuid_arch_lbr(model, regs);
	if (leaf == 0x8000001b && model->is_amd)
		regs[0] =
			model->set == MODEL_MILAN ? IBS_FEATURES : IBS_FEATURES | IBS_FEATURE_ZEN4;
	if (leaf == 0x80000022 && model->is_amd)
		cpuid_amd(model, regs);
}

u64 pmu_supported_capabilities(const struct pmu_model *model)
{
	return model->is_amd ? 0 : PERF_CAP_FULL_WIDTH | model->perf_capabilities;
}

void pmu_set_filter(struct pmu *pmu, const struct pmu_filter *filter)
{
	/* With another filter the backend may no longer have the guest's event selects. */
	pmu_fetch(pmu);
	pmu->filter = filter;
	pmu_ibs_filter(pmu);
	pmu->lbr_dirty = true;
	pmu->dirty |= pmu->all | PMU_DIRTY_GLOBAL;
	pmu->pass_serial++;
}

void pmu_put(struct pmu *pmu)
{
	pmu_overflow(pmu, pmu->backend->overflowed(pmu->backend_data));
	pmu_fetch(pmu);
	pmu->backend->unload(pmu->backend_data);
	pmu_tell_all(pmu);
}

void pmu_set_backend(struct pmu *pmu, const struct pmu_backend *backend, void *data)
{
	pmu_put(pmu);
	pmu->backend = backend;
	pmu->backend_data = data;
	pmu->pass_serial++;
}
