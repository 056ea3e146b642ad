// SPDX-License-Identifier: MIT
/*
 * Branch records as the guest has them: the registers of the three kinds of stack, the bits of
 * IA32_DEBUGCTL that control them, what is recorded now, and how a PMI freezes them. The entries
 * are the backend's, and a write reaches them at once; controls are marked, and pmu_lbr_sync()
 * tells the backend.
 *
 * KVM passes registers of the stack through to the hardware, so that any value may be written. The
 * event filter applies: a guest that may not count branches does not get records of them, and
 * one that may not count cycles reads 0 for them in INFO.
 */
#include "pmu/priv.h"

#define LBR_DEPTHS (8 | 16 | 32) /* of Arch LBR */

/* What a guest with this CPUID has of the model's. */
enum pmu_lbr pmu_lbr_of(const struct pmu *pmu)
{
	enum pmu_lbr has = pmu->model->lbr;

	if (!pmu->version || !pmu->backend->record)
		return LBR_NONE;
	switch (has) {
	case LBR_LEGACY:
		return pmu->guest.pdcm && (pmu->perf_capabilities & PERF_CAP_LBR_FORMAT) ? has
											 : LBR_NONE;
	case LBR_ARCH:
		return pmu->guest.arch_lbr ? has : LBR_NONE;
	case LBR_AMD:
		return pmu->guest.leaf_22_eax & LEAF_22_LBR ? has : LBR_NONE;
	default:
		return LBR_NONE;
	}
}

void pmu_lbr_reset(struct pmu *pmu)
{
	if (pmu->lbr && pmu->backend->clear_records)
		pmu->backend->clear_records(pmu->backend_data);
	pmu->lbr = pmu_lbr_of(pmu);
	pmu->lbr_select = pmu->dbg_extn_cfg = pmu->debugctl = 0;
	pmu->lbr_depth = pmu->model->lbr_depth;
	pmu_lbr_sync(pmu); /* entries are found by the depth, also before the first run */
}

/* --- what is recorded --- */

static bool allowed(const struct pmu *pmu, u64 intel, u64 amd)
{
	return pmu_filter_allows(pmu->filter, pmu->model->is_amd ? amd : intel, pmu->model->is_amd);
}

static bool enabled(const struct pmu *pmu)
{
	/* Hardware looks at its own status. */
	bool frozen = !pmu->backend->owns_hardware && (pmu->global_status & GLOBAL_STATUS_LBR_FRZ);

	if (frozen || !allowed(pmu, 0xc4, 0xc2))
		return false;
	switch (pmu->lbr) {
	case LBR_LEGACY:
		return pmu->debugctl & DEBUGCTL_LBR;
	case LBR_ARCH:
		return pmu->lbr_select & LBR_CTL_EN;
	case LBR_AMD:
		return pmu->dbg_extn_cfg & DBG_EXTN_CFG_LBR;
	default:
		return false;
	}
}

/* SDM 3B 17.4.7, 20.2.4: until version 4 the enable is cleared, then a status bit holds records. */
static bool freezes_by_status(const struct pmu *pmu)
{
	return pmu->lbr == LBR_ARCH || pmu->lbr == LBR_AMD ||
	       (pmu->lbr == LBR_LEGACY && pmu->version >= 4);
}

void pmu_lbr_sync(struct pmu *pmu)
{
	struct lbr_control control = { .enabled = enabled(pmu),
				       .freezes = freezes_by_status(pmu),
				       .select = pmu->lbr_select,
				       .depth = pmu->lbr_depth };

	pmu->lbr_dirty = false;
	if (pmu->model->lbr && pmu->backend->record)
		pmu->backend->record(pmu->backend_data, &control);
}

u64 pmu_lbr_status_bits(const struct pmu *pmu)
{
	return freezes_by_status(pmu) ? GLOBAL_STATUS_LBR_FRZ : 0;
}

void pmu_lbr_freeze(struct pmu *pmu)
{
	if (!(pmu->debugctl & DEBUGCTL_FREEZE_LBRS))
		return;
	if (freezes_by_status(pmu)) {
		pmu_put_status(pmu, pmu->global_status | GLOBAL_STATUS_LBR_FRZ);
	} else {
		pmu->debugctl &= ~DEBUGCTL_LBR;
	}
	pmu->lbr_dirty = true;
}

u64 pmu_debugctl_legal(const struct pmu *pmu)
{
	switch (pmu->lbr) {
	case LBR_LEGACY:
		return DEBUGCTL_LBR | DEBUGCTL_FREEZE_LBRS;
	case LBR_ARCH:
		return DEBUGCTL_FREEZE_LBRS;
	case LBR_AMD:
		return pmu->guest.leaf_22_eax & LEAF_22_LBR_FREEZE ? DEBUGCTL_FREEZE_LBRS : 0;
	default:
		return 0;
	}
}

void pmu_set_debugctl(struct pmu *pmu, u64 value)
{
	if (value != pmu->debugctl)
		pmu->lbr_dirty = true;
	pmu->debugctl = value;
}

/* --- registers --- */

u64 pmu_lbr_read_select(const struct pmu *pmu, u32 i)
{
	(void)i;
	return pmu->lbr_select;
}

bool pmu_lbr_write_select(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)i, (void)host;
	pmu->lbr_select = value;
	pmu->lbr_dirty = true;
	return true;
}

u64 pmu_lbr_read_depth(const struct pmu *pmu, u32 i)
{
	(void)i;
	return pmu->lbr_depth;
}

/* SDM 3B 18.1.1.2: also the depth that it has clears all entries. */
bool pmu_lbr_write_depth(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)i, (void)host;
	if (!value || (value & (value - 1)) || (value & ~(u64)LBR_DEPTHS))
		return false;
	pmu->lbr_depth = value;
	pmu->lbr_dirty = true;
	pmu->backend->clear_records(pmu->backend_data);
	pmu_lbr_sync(pmu); /* entries are found by the depth */
	return true;
}

u64 pmu_lbr_read_extn(const struct pmu *pmu, u32 i)
{
	(void)i;
	return pmu->dbg_extn_cfg;
}

bool pmu_lbr_write_extn(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)i, (void)host;
	pmu->dbg_extn_cfg = value;
	pmu->lbr_dirty = true;
	return true;
}

static u64 read_entry(const struct pmu *pmu, enum lbr_field field, u32 i)
{
	return i < pmu->lbr_depth ? pmu->backend->read_record(pmu->backend_data, field, i) : 0;
}

static bool write_entry(struct pmu *pmu, enum lbr_field field, u32 i, u64 value)
{
	if (i < pmu->lbr_depth)
		pmu->backend->write_record(pmu->backend_data, field, i, value);
	return true;
}

u64 pmu_lbr_read_from(const struct pmu *pmu, u32 i)
{
	return read_entry(pmu, LBR_FROM, i);
}

bool pmu_lbr_write_from(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)host;
	return write_entry(pmu, LBR_FROM, i, value);
}

u64 pmu_lbr_read_to(const struct pmu *pmu, u32 i)
{
	return read_entry(pmu, LBR_TO, i);
}

bool pmu_lbr_write_to(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)host;
	return write_entry(pmu, LBR_TO, i, value);
}

u64 pmu_lbr_read_info(const struct pmu *pmu, u32 i)
{
	u64 info = read_entry(pmu, LBR_INFO, i);

	return allowed(pmu, 0x3c, 0x76) ? info : info & ~LBR_INFO_CYCLES;
}

bool pmu_lbr_write_info(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)host;
	return write_entry(pmu, LBR_INFO, i, value);
}

u64 pmu_lbr_read_top(const struct pmu *pmu, u32 i)
{
	(void)i;
	return read_entry(pmu, LBR_TOP, 0);
}

bool pmu_lbr_write_top(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)i, (void)host;
	return write_entry(pmu, LBR_TOP, 0, value);
}
