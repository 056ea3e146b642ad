/* SPDX-License-Identifier: MIT */
/*
 * The registers of both vendors' PMUs: one row each in pmu_msrs_intel.def and pmu_msrs_amd.def, for
 * the virtual PMU, the physical one, the intercepts between them and the lists of MSRs. An index is
 * decoded once, by pmu_reg_find(), into a struct pmu_reg; everything after that takes the register.
 * Freestanding, no state; any thread.
 */
#ifndef X86_PMU_MSRS_H
#define X86_PMU_MSRS_H

#include "base/types.h"
#include "x86/pmu_models.h"
#include "x86/pmu_regs.h"

/* What a register does. Vendors differ in its bits (.reserved) and in who may write it (.flags). */
enum pmu_reg_kind {
	PMU_REG_CAPABILITIES,
	PMU_REG_COUNTER,      /* bits above the width are dropped */
	PMU_REG_COUNTER_LOW,  /* a guest writes 32 bits with sign */
	PMU_REG_COUNTER_FULL, /* bits above the width are reserved */
	PMU_REG_FIXED_COUNTER,
	PMU_REG_METRICS,
	PMU_REG_SELECT,
	PMU_REG_OFFCORE,
	PMU_REG_FIXED_CTRL,
	PMU_REG_GLOBAL_CTRL,
	PMU_REG_STATUS,
	PMU_REG_STATUS_CLEAR,
	PMU_REG_STATUS_SET,
	PMU_REG_INUSE,
	PMU_REG_DS_AREA,
	PMU_REG_PEBS_ENABLE,
	PMU_REG_PEBS_DATA_CFG,
	PMU_REG_PEBS_LD_LAT,
	PMU_REG_LBR_TOP, /* this and the next three are the stack's own, the others control it */
	PMU_REG_LBR_FROM,
	PMU_REG_LBR_TO,
	PMU_REG_LBR_INFO,
	PMU_REG_LBR_SELECT,
	PMU_REG_LBR_DEPTH,
	PMU_REG_LBR_EXTN,
	PMU_REG_IBS,
	NPMU_REG_KINDS
};

/* How many of a row's registers exist: all, or as many as there are counters or branch records. */
enum pmu_row_per { PER_CPU, PER_GENERAL, PER_FIXED, PER_RECORD };

enum pmu_row_flags {
	ROW_LISTED = BIT(0),	   /* KVM_GET_MSR_INDEX_LIST: part of the saved state */
	ROW_FULL_WIDTH = BIT(1),   /* needs PERF_CAPABILITIES[13] */
	ROW_PDCM = BIT(2),	   /* the guest needs PDCM to read it */
	ROW_CORE_EXT = BIT(3),	   /* needs PerfCtrExtCore */
	ROW_PEBS = BIT(4),	   /* needs a PEBS format */
	ROW_BASELINE = BIT(5),	   /* and adaptive records */
	ROW_DS = BIT(6),	   /* needs a debug store, with or without a PMU */
	ROW_IBS = BIT(7),	   /* needs IBS */
	ROW_FEATURE = BIT(8),	   /* a feature MSR on models of both vendors, and listed there */
	ROW_READ_ONLY = BIT(9),	   /* writing it faults */
	ROW_GUEST_READS = BIT(10), /* a write by the guest faults */
	ROW_GUEST_DROPS = BIT(11), /* a write by the guest is dropped */
	ROW_IGNORES = BIT(12),	   /* reserved bits are ignored; without it they fault */
	ROW_METRICS = BIT(13),	   /* needs PERF_CAPABILITIES[15] and fixed counter 3 */
};

/* What a register must have in common with the hardware's for a guest to reach that. */
enum pmu_row_pass {
	PASS_NEVER,
	PASS_COUNTER,	 /* the width */
	PASS_SELECT,	 /* no filter looks at it */
	PASS_FIXED_CTRL, /* no filter looks at it, and all fixed counters */
	PASS_GLOBAL,	 /* all counters, and metrics that no filter denies */
	PASS_RECORD,	 /* no filter looks at it */
};

struct pmu_row {
	const char *name;
	u32 first;
	u8 shift, most; /* registers are at first + (i << shift), i < most */
	bool is_amd;
	enum pmu_reg_kind kind;
	enum pmu_row_per per;
	u8 since;	  /* the version from which on it exists */
	u8 quiet;	  /* that many read as 0 and drop writes where the PMU lacks them */
	enum pmu_lbr lbr; /* exists with this kind of branch records only */
	enum pmu_row_pass pass;
	u32 flags;
	u64 reserved; /* bits that no PMU has; pmu_reserved() knows the others */
};

/* A register: its row, and which one of the row's it is. */
struct pmu_reg {
	const struct pmu_row *row; /* NULL: not a register of any PMU */
	u32 i;
};

extern const struct pmu_row
	pmu_rows[]; /* each vendor's in an order in which they can be restored */
extern const u32 pmu_nrows;

struct pmu_reg pmu_reg_find(u32 index);

static inline u32 pmu_row_index(const struct pmu_row *row, u32 i)
{
	return row->first + (i << row->shift);
}

/* The counter that a register belongs to, by its bit in GLOBAL_CTRL. */
static inline u32 pmu_reg_counter(struct pmu_reg reg)
{
	return (reg.row->per == PER_FIXED ? PMU_FIXED_BASE : 0) + reg.i;
}

/* What of a PMU decides which bits its registers have. */
struct pmu_features {
	u64 counters;	  /* bits of GLOBAL_CTRL */
	u64 general_mask; /* the width of a general counter */
	bool adaptive;	  /* adaptive PEBS records */
	bool tsx;
	bool lbr_freezes; /* GLOBAL_STATUS_LBR_FRZ exists */
	bool metrics;	  /* PERF_METRICS */
};

u64 pmu_reserved(struct pmu_reg reg, const struct pmu_features *has);

enum pmu_write { PMU_WRITE_OK, PMU_WRITE_DROPPED, PMU_WRITE_FAULTS };

/* What becomes of a write, by the guest or by the program that owns the VM. With PMU_WRITE_OK, bits
 * that the register ignores are cleared in *value. */
enum pmu_write pmu_check_write(struct pmu_reg reg, const struct pmu_features *has, bool host,
			       u64 *value);

#endif
