/* SPDX-License-Identifier: MIT */
/*
 * The numbers of the timing model: a row each in params.def.
 */
#ifndef TIMING_PARAMS_H
#define TIMING_PARAMS_H

#include "timing/timing.h"

struct timing_tlb_size {
	u16 entries;
	u8 ways;
};

struct timing_params {
	enum model_set set;
	struct timing_tlb_size dtlb, itlb, stlb, istlb;
	u8 directory, upper; /* entries of paging-structure caches: of the last directory, above */
	/* By enum observed_level, from OBSERVED_L1; last, from another processor's cache. */
	u16 latency[5];
	u16 walk, second; /* added by a page walk besides its loads, by asking the second level */
	bool llc_gives;	  /* a line that L2 takes from the last level leaves it; else it stays */
	struct prefetch_params prefetch;
	struct predict_params predict;
};

const struct timing_params *timing_params_of(enum model_set set); /* exactly one bit of it */

#endif
