/* SPDX-License-Identifier: MIT */
/*
 * Between the files of hostperf: what both backends do to the physical PMU.
 */
#ifndef HOSTPERF_PRIV_H
#define HOSTPERF_PRIV_H

#include "hostperf/hostperf.h"

static inline u32 next_bit(u64 *bits)
{
	u32 bit = __builtin_ctzll(*bits);

	*bits &= *bits - 1;
	return bit;
}

/* sched.c: has a counter count what an event select says, or with 0 nothing. */
void hostperf_set_control(struct hwpmu *hw, u32 counter, u64 select);
/* What a fixed counter counts: event and unit mask of a select. */
u64 hostperf_fixed_event(u32 i);

/* guest_only.c: the functions of struct pmu_backend, on a struct hwpmu. */
void hostperf_record(void *data, const struct lbr_control *control);
u64 hostperf_read_record(const void *data, enum lbr_field field, u32 i);
void hostperf_write_record(void *data, enum lbr_field field, u32 i, u64 value);
void hostperf_clear_records(void *data);
u64 hostperf_read_ibs(const void *data, enum ibs_register reg);
void hostperf_write_ibs(void *data, enum ibs_register reg, u64 value);
void hostperf_pebs(void *data, const struct pebs_control *control);
/* Off-core responses: before event selects are, which depend on them. */
void hostperf_load_offcore(struct hwpmu *hw, const struct pmu *pmu);

#endif
