/* SPDX-License-Identifier: MIT */
/*
 * The virtual PMU of one vCPU: what a guest sees. Registers, faults and CPUID are those that KVM
 * 6.12 gives (KVM:), of the Intel or the AMD kind as the model says; Arch LBR, IBS and off-core
 * responses, which KVM does not have, are those of the manuals.
 *
 * Mark, then act: a register write marks counters; pmu_sync() has the backend count what they now
 * say. A turn of the owner's loop is
 *
 *      pmu_enter()  the guest runs  pmu_leave()  pmu_take_requests()  the exit's handler
 *
 * Instructions that the owner completes for the guest are in the same tallies as all others, and so
 * are counted once. Of the two WRMSRs that open and close a stretch of counting one is counted: the
 * opening one if pmu_sync() comes before its completion, as in KVM, otherwise the closing one.
 *
 * Freestanding. Everything belongs to the vCPU thread, or the holder of its lock.
 */
#ifndef PMU_PMU_H
#define PMU_PMU_H

#include "base/types.h"
#include "pmu/backend.h"
#include "pmu/filter.h"
#include "x86/metrics.h"
#include "x86/pmu_models.h"
#include "x86/pmu_msrs.h"
#include "x86/pmu_regs.h"

/* KVM: no guest has more, but for the fourth fixed counter (slots), which later versions give. With
 * it the guest's counters are the hardware's, and software that takes it for granted counts right.
 */
#define PMU_GENERAL	     8
#define PMU_GENERAL_AMD	     6
#define PMU_FIXED	     4
#define PMU_COUNTERS	     (PMU_GENERAL + PMU_FIXED)
/* Adaptive PEBS needs more: where Linux sees less than 5 it uses bits of PEBS_ENABLE for the
 * latency of loads that then belong to fixed counters. */
#define PMU_VERSION	     2
#define PMU_VERSION_ADAPTIVE 5

/* The CPUID of a guest, as far as it makes the PMU. */
struct pmu_guest {
	bool disabled; /* KVM_PMU_CAP_DISABLE: no PMU, whatever CPUID says */
	u32 leaf_a_eax, leaf_a_ecx, leaf_a_edx;
	bool pdcm;     /* 01H:ECX[15] */
	bool tsx;      /* 07H.0:EBX: HLE or RTM */
	bool core_ext; /* 80000001H:ECX[23] */
	u32 leaf_22_eax, leaf_22_ebx;
	bool arch_lbr; /* 07H.0:EDX[19] */
	bool ds;       /* 01H: DS and DTES64 */
	bool la57;     /* 07H.0:ECX[16] */
	bool ibs;      /* 80000001H:ECX[10] */
};

struct pmu_vendor;

#define PMU_DIRTY_GLOBAL BIT(62) /* GLOBAL_CTRL */
#define PMU_DIRTY_STATUS BIT(63) /* GLOBAL_STATUS */

struct pmu {
	const struct pmu_model *model;
	const struct pmu_vendor *vendor;
	const struct pmu_backend *backend;
	void *backend_data;
	const struct pmu_filter *filter;
	struct pmu_guest guest;

	/* What the guest has; version 0: nothing. */
	u8 version, general;
	u8 fixed;     /* up to the last one */
	u8 fixed_set; /* which of them exist: all, unless version 5 says otherwise */
	u64 all;      /* its counters */
	u64 general_mask, fixed_mask;
	u64 narrow; /* counters with fewer bits than the model's */

	u64 select[PMU_GENERAL], fixed_ctrl, global_ctrl, global_status, perf_capabilities;
	u64 value[PMU_COUNTERS]; /* general, then fixed; backend.h says which side has the newest */
	u32 part[PMU_COUNTERS];	 /* pmu_part() */

	bool has_metrics;
	struct metrics metrics; /* PERF_METRICS; backend.h as for values */

	/* Branch records. */
	enum pmu_lbr lbr; /* what the guest has */
	u8 lbr_depth;
	bool lbr_dirty;
	u64 lbr_select, dbg_extn_cfg; /* MSR_LBR_SELECT, IA32_LBR_CTL or LBR_SELECT; AMD */
	u64 debugctl;		      /* as pmu_set_debugctl() has it; a PMI may clear a bit */

	bool has_pebs, pebs_dirty;
	u64 pebs_enable, ds_area, pebs_data_cfg, pebs_ld_lat;
	u64 offcore[2]; /* MSR_OFFCORE_RSP: what the events of that name mean */

	u64 dirty;	 /* what the backend has not been told: controls of counters, PMU_DIRTY_* */
	u64 stale;	 /* counters whose value it has not been told; GLOBAL_METRICS: metrics */
	u32 pass_serial; /* grows when the answer of pmu_passes() may have changed */
	bool pmi;
	bool has_run; /* the guest has run: PERF_CAPABILITIES can no longer change */
};

/* data: handed to the backend. The guest has no PMU before pmu_configure(). */
void pmu_init(struct pmu *pmu, const struct pmu_model *model, const struct pmu_backend *backend,
	      void *data);
/* Gives the guest the PMU of its CPUID, clamped to the model's, and resets its registers,
 * DEBUGCTL's bits included; PERF_CAPABILITIES and the filter stay. */
void pmu_configure(struct pmu *pmu, const struct pmu_guest *guest);

/* Leaves 0AH, 1CH, 8000001BH and 80000022H as KVM_GET_SUPPORTED_CPUID has them; others
 * are zeros. */
void pmu_cpuid(const struct pmu_model *model, u32 leaf, u32 regs[4]);
u64 pmu_supported_capabilities(const struct pmu_model *model);

enum pmu_result {
	PMU_OK,
	PMU_FAULT,   /* #GP(0); a short count for KVM_GET_MSRS, KVM_SET_MSRS */
	PMU_UNKNOWN, /* no register of this PMU: a PMU_FAULT, unless the owner has such an MSR */
};

/* host: on behalf of the program that owns the VM, which may do more than the guest. By the decoded
 * register, and by its index. */
enum pmu_result pmu_read_reg(struct pmu *pmu, struct pmu_reg reg, bool host, u64 *value);
enum pmu_result pmu_write_reg(struct pmu *pmu, struct pmu_reg reg, bool host, u64 value);
enum pmu_result pmu_rdmsr(struct pmu *pmu, u32 index, bool host, u64 *value);
enum pmu_result pmu_wrmsr(struct pmu *pmu, u32 index, bool host, u64 value);
/* allowed: the guest is at CPL 0, in real mode, or has CR4.PCE. */
enum pmu_result pmu_rdpmc(struct pmu *pmu, u32 ecx, bool allowed, u64 *value);

/* The MSRs that make up the state, in an order in which they can be restored. */
struct pmu_msr {
	u32 index;
	u64 value;
};
#define PMU_MSRS 160

u32 pmu_msr_list(const struct pmu_model *model, u32 *out, u32 max); /* number available */
u32 pmu_save(struct pmu *pmu, struct pmu_msr out[PMU_MSRS]);	    /* number of them */
u32 pmu_restore(struct pmu *pmu, const struct pmu_msr *in, u32 n); /* number accepted, then stops */

/* Takes effect on running counters at the next sync. The filter must outlive its use. */
void pmu_set_filter(struct pmu *pmu, const struct pmu_filter *filter);
/* Takes the hardware back until the next sync. No count is lost. */
void pmu_put(struct pmu *pmu);
/* From the next sync on another backend counts. */
void pmu_set_backend(struct pmu *pmu, const struct pmu_backend *backend, void *data);

/*
 * What need not exit: the registers of a backend that owns the hardware, as far as the guest has
 * the same ones. Changes with the filter, the backend and the guest's CPUID.
 */
struct pmu_pass {
	u32 index;
	bool read, write;
};
#define PMU_PASSES 160

u32 pmu_passes(const struct pmu *pmu, struct pmu_pass out[PMU_PASSES]); /* number of them */
bool pmu_passes_rdpmc(const struct pmu *pmu);

/* IA32_DEBUGCTL: the bits that branch records give a meaning, and their value. */
u64 pmu_debugctl_legal(const struct pmu *pmu);
void pmu_set_debugctl(struct pmu *pmu, u64 value);

/* pmu_part() (backend.h), for programs that save and restore. */
u32 pmu_read_part(struct pmu *pmu, u32 counter);
void pmu_write_part(struct pmu *pmu, u32 counter, u32 part);

/* What PERF_METRICS is a view of, for the same. */
u64 pmu_read_metric(struct pmu *pmu, enum metric metric);
void pmu_write_metric(struct pmu *pmu, enum metric metric, u64 ticks);

void pmu_sync(struct pmu *pmu);
void pmu_enter(struct pmu *pmu);
void pmu_leave(struct pmu *pmu);
/* These counters overflowed, or GLOBAL_STATUS_DS: the debug store reached its threshold. Sets
 * status bits, and freezes branch records if DEBUGCTL asks for it; delivers nothing. True: a PMI is
 * wanted. */
bool pmu_overflow(struct pmu *pmu, u64 counters);

/* What the owner has to do: overflows until it asks make one PMI. */
enum pmu_request {
	PMU_REQUEST_PMI = BIT(0),	 /* deliver LVTPC; if it is masked: drop or keep the PMI */
	PMU_REQUEST_MASK_LVTPC = BIT(1), /* set its mask bit, once delivered */
};
u32 pmu_take_requests(struct pmu *pmu);
bool pmu_masks_lvtpc(const struct pmu *pmu); /* delivering a PMI masks LVTPC: the vendor's rule */
bool pmu_tells_overflow(struct pmu *pmu);    /* the status does */

#endif
