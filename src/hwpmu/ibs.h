/* SPDX-License-Identifier: MIT */
/*
 * Instruction-based sampling (APM2 13.3): two counters of their own, for ops and for fetches, which
 * describe the instruction that they end at in registers, interrupt, and wait until software
 * enables them again. Part of struct hwpmu. Owned by the vCPU thread.
 */
#ifndef HWPMU_IBS_H
#define HWPMU_IBS_H

#include "base/types.h"
#include "hwpmu/observe.h"
#include "x86/ibs.h"

/* The instruction with which a count ended. */
struct ibs_sample {
	u64 rip;
	bool branch, taken, is_return, mispredicted;
	u64 target; /* of a branch that was taken */
	struct observed_access access;
};

struct hwpmu_ibs {
	u64 reg[NIBS]; /* as written; the count fields are in count[] */
	u64 count[2];  /* of fetches, of ops, when the tallies were at mark[] */
	u64 mark[2];
	u32 random;
	bool interrupt; /* wanted */
};

/* Enabled, and not waiting for its sample to be read. */
static inline bool ibs_fetch_runs(const struct hwpmu_ibs *ibs)
{
	return (ibs->reg[IBS_FETCH_CTL] & (IBS_FETCH_EN | IBS_FETCH_VAL)) == IBS_FETCH_EN;
}

static inline bool ibs_op_runs(const struct hwpmu_ibs *ibs)
{
	return (ibs->reg[IBS_OP_CTL] & (IBS_OP_EN | IBS_OP_VAL)) == IBS_OP_EN;
}

struct hwpmu;

u64 hwpmu_read_ibs(const struct hwpmu *pmu, enum ibs_register reg);
void hwpmu_write_ibs(struct hwpmu *pmu, enum ibs_register reg, u64 value);
/* What the registers do not show: the low bits of the count of fetches, the state of the random
 * numbers; and the count of ops, since writing its register may add random bits. */
u64 hwpmu_ibs_hidden(const struct hwpmu *pmu);
void hwpmu_set_ibs_hidden(struct hwpmu *pmu, u64 value); /* after the registers */
/* Ticks of the next cycle, where ops are sampled by cycles. */
u32 hwpmu_ibs_part(const struct hwpmu *pmu);
void hwpmu_set_ibs_part(struct hwpmu *pmu, u64 part); /* after hwpmu_set_ibs_hidden() */
bool hwpmu_take_ibs(struct hwpmu *pmu);		      /* an interrupt is to be delivered */

#endif
