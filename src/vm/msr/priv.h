/* SPDX-License-Identifier: MIT */
/*
 * What a row of msr.def says about an MSR, and how msr.c obeys it.
 */
#ifndef VM_MSR_PRIV_H
#define VM_MSR_PRIV_H

#include "irq/lapic.h"
#include "vm/msr/msr.h"
#include "x86/metrics.h"

enum msr_flags {
	LIST_INTEL = BIT(0), /* in KVM_GET_MSR_INDEX_LIST of an Intel, of an AMD model */
	LIST_AMD = BIT(1),
	LISTED = LIST_INTEL | LIST_AMD,
	INTEL = BIT(2), /* exists only on models of this vendor */
	AMD = BIT(3),
	FEATURE = BIT(4), /* a feature MSR: .value is what KVM_GET_MSRS on the system fd answers */
	FROZEN = BIT(5),  /* cannot be changed once the vCPU has run */
	READ_ONLY = BIT(6),   /* writing it is like writing no MSR at all */
	WRITE_ONLY = BIT(7),  /* and the reverse */
	DROP_WRITES = BIT(8), /* any value is accepted and forgotten */
	HOST_WRITES = BIT(9), /* #GP when the guest writes it */
	LAPIC = BIT(10),      /* #GP without an in-kernel local APIC */
};

/* The CPUID feature that a guest needs to have the MSR. */
enum msr_gate {
	GATE_NONE,
	GATE_SPEC_CTRL,
	GATE_PRED_CMD,
	GATE_FLUSH_CMD,
	GATE_ARCH_CAPABILITIES,
	GATE_XSAVES,
	GATE_TSC_AUX,
	GATE_VIRT_SSBD,
	GATE_OSVW,
	NGATES
};

/* Where the value lives. Ranges are arrays of u64. */
enum msr_home { HOME_NONE, HOME_OWN, HOME_CPU, HOME_CLOCK };

struct msr_row {
	u32 first, last;
	const char *name;
	u32 flags;
	enum msr_gate gate;
	u8 pv; /* KVM_FEATURE_* plus one */
	enum msr_home home;
	u32 offset;
	u64 value;		    /* what reads give without a home; a feature MSR's at reset */
	u64 amd_value, intel_value; /* value on models of that vendor, if not 0 */
	u64 reserved;		    /* bits that neither guest nor program may set */

	/* May change the value to be stored; false is #GP. */
	bool (*check)(struct vcpu *vcpu, u32 index, bool host, u64 *value);
	/* Instead of the home. False is #GP. */
	bool (*read)(struct vcpu *vcpu, u32 index, bool host, u64 *value);
	bool (*write)(struct vcpu *vcpu, u32 index, bool host, u64 value);
};

/* MSRs of our own, by their offset from MSR_HIDDEN: hidden_state.c. */
#define MSR_HIDDEN 0x56504d00u /* "VPM" */
enum msr_hidden {
	HIDDEN_MODEL, /* which model and version of the state this is: no other is accepted */
	HIDDEN_BRANCH_TICKS, /* hwpmu_branch_ticks() */
	HIDDEN_PMI_HELD,     /* a PMI that waits for LVTPC to be unmasked */
	HIDDEN_IBS,	     /* hwpmu_ibs_hidden() */
	HIDDEN_IBS_PART,     /* hwpmu_ibs_part() */
	HIDDEN_PARTS,	     /* pmu_part() of the general counters, a byte each */
	HIDDEN_FIXED_PARTS,  /* and of the fixed counters */
	HIDDEN_EILVT,	     /* the extended local vectors, for which KVM_GET_LAPIC has no room */
	HIDDEN_LAST = HIDDEN_EILVT + LAPIC_EILVTS - 1,
	HIDDEN_METRICS, /* pmu_read_metric() */
	HIDDEN_METRICS_LAST = HIDDEN_METRICS + NMETRICS - 1,
};

bool msr_read_hidden(struct vcpu *vcpu, u32 index, bool host, u64 *value);
bool msr_write_hidden(struct vcpu *vcpu, u32 index, bool host, u64 value);

extern const struct msr_row msr_rows[]; /* sorted by first */
extern const u32 msr_nrows;

const struct msr_row *msr_find(u32 index);
u64 *msr_home(struct vcpu *vcpu, const struct msr_row *row, u32 index); /* NULL: HOME_NONE */

static inline u64 msr_value(const struct msr_row *row, bool amd)
{
	u64 own = amd ? row->amd_value : row->intel_value;

	return own ? own : row->value;
}

#endif
