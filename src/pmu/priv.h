/* SPDX-License-Identifier: MIT */
/*
 * Between the files of pmu: what a vendor is, what its registers do, and the counters. What
 * takes a struct pmu runs on the vCPU thread, or with the vCPU's lock held.
 */
#ifndef PMU_PRIV_H
#define PMU_PRIV_H

#include "pmu/pmu.h"

/* --- registers: rows of x86/pmu_msrs_*.def, functions of registers.c --- */

/* 80000022H:EAX */
#define LEAF_22_V2	   BIT(0)
#define LEAF_22_LBR	   BIT(1)
#define LEAF_22_LBR_FREEZE BIT(2)

/* Of the i-th register of a row. A write comes after pmu_check_write(). */
typedef u64 pmu_read_register(const struct pmu *pmu, u32 i);
typedef bool pmu_write_register(struct pmu *pmu, u32 i, u64 value, bool host); /* false: #GP */

struct pmu_reg_ops {
	pmu_read_register *read;   /* NULL: 0 */
	pmu_write_register *write; /* NULL: ROW_READ_ONLY */
};

extern const struct pmu_reg_ops pmu_reg_ops[NPMU_REG_KINDS];

/* How many of a row's registers there are in a model, and in a guest. */
u32 pmu_row_offered(const struct pmu_row *row, const struct pmu_model *model);
u32 pmu_row_present(const struct pmu_row *row, const struct pmu *pmu);

struct pmu_vendor {
	const char *name;
	bool masks_lvtpc; /* when a PMI is delivered */
	/* Fills version, general, fixed and the masks from pmu->guest. */
	void (*derive)(struct pmu *pmu);
	bool (*rdpmc_counter)(const struct pmu *pmu, u32 ecx, u32 *counter); /* false: #GP */
};

extern const struct pmu_vendor pmu_intel, pmu_amd;

static inline const struct pmu_vendor *pmu_vendor_of(const struct pmu_model *model)
{
	return model->is_amd ? &pmu_amd : &pmu_intel;
}

/* --- counters --- */

static inline bool pmu_is_fixed(u32 counter)
{
	return counter >= PMU_FIXED_BASE;
}

static inline u64 pmu_counters(u32 general, u32 fixed)
{
	return (BIT(general) - 1) | (BIT(fixed) - 1) << PMU_FIXED_BASE;
}

/* Takes the lowest bit out of a set of counters. */
static inline u32 pmu_next(u64 *counters)
{
	u32 counter = __builtin_ctzll(*counters);

	*counters &= *counters - 1;
	return counter;
}

static inline u64 pmu_mask(const struct pmu *pmu, u32 counter)
{
	return pmu_is_fixed(counter) ? pmu->fixed_mask : pmu->general_mask;
}

/* Where a counter is in value[]. */
static inline u32 pmu_slot(u32 counter)
{
	return pmu_is_fixed(counter) ? counter - PMU_FIXED_BASE + PMU_GENERAL : counter;
}

/* Registers in struct pmu: up to date after pmu_fetch(). */
void pmu_fetch(struct pmu *pmu);

/* --- registers.c --- */

void pmu_put_status(struct pmu *pmu, u64 value);

/* --- intel.c: PERF_CAPABILITIES and GLOBAL_INUSE --- */

pmu_read_register pmu_read_capabilities, pmu_read_inuse;
pmu_write_register pmu_write_capabilities;

/* --- metrics.c --- */

void pmu_metrics_reset(struct pmu *pmu);
bool pmu_metrics_denied(const struct pmu *pmu); /* by the filter */
pmu_read_register pmu_metrics_read;
pmu_write_register pmu_metrics_write;

/* --- lbr.c --- */

enum pmu_lbr pmu_lbr_of(const struct pmu *pmu);
void pmu_lbr_reset(struct pmu *pmu);
void pmu_lbr_sync(struct pmu *pmu);
void pmu_lbr_freeze(struct pmu *pmu); /* a PMI is asked for */
u64 pmu_lbr_status_bits(const struct pmu *pmu);

pmu_read_register pmu_lbr_read_select, pmu_lbr_read_depth, pmu_lbr_read_extn, pmu_lbr_read_from,
	pmu_lbr_read_to, pmu_lbr_read_info, pmu_lbr_read_top;
pmu_write_register pmu_lbr_write_select, pmu_lbr_write_depth, pmu_lbr_write_extn,
	pmu_lbr_write_from, pmu_lbr_write_to, pmu_lbr_write_info, pmu_lbr_write_top;

/* --- ibs.c --- */

pmu_read_register pmu_ibs_read;
pmu_write_register pmu_ibs_write;
void pmu_ibs_filter(struct pmu *pmu); /* the filter is another one */
void pmu_ibs_reset(struct pmu *pmu);

/* --- pebs.c --- */

void pmu_pebs_reset(struct pmu *pmu);
void pmu_pebs_sync(struct pmu *pmu);
bool pmu_pebs_adaptive(const struct pmu *pmu); /* the guest has adaptive records */

pmu_read_register pmu_pebs_read_enable, pmu_pebs_read_ds_area, pmu_pebs_read_data_cfg,
	pmu_pebs_read_ld_lat;
pmu_write_register pmu_pebs_write_enable, pmu_pebs_write_ds_area, pmu_pebs_write_data_cfg,
	pmu_pebs_write_ld_lat;

u64 pmu_counter_read(const struct pmu *pmu, u32 counter);
void pmu_counter_write(struct pmu *pmu, u32 counter, u64 value);
/* Marks everything dirty: the backend has been told nothing. */
void pmu_tell_all(struct pmu *pmu);

bool pmu_event_wants_pmi(const struct pmu *pmu, u32 counter);

#endif
