/* SPDX-License-Identifier: MIT */
/*
 * Intercepts: which MSR accesses leave the processor and which it does itself, as data that the
 * hypervisor writes and the processor looks at (SDM 3C 24.6.9, APM2 15.11: the MSR bitmaps), and
 * what came of them. Without a struct intercepts everything leaves.
 *
 * The maps belong to the vCPU's lock. The counts are grown by the vCPU thread and read by anyone.
 */
#ifndef CPU_INTERCEPT_H
#define CPU_INTERCEPT_H

#include "base/types.h"

/* The three ranges of 8192 MSRs that a bitmap covers; all others are always intercepted. */
#define INTERCEPT_RANGES 3
#define INTERCEPT_MSRS	 8192
#define INTERCEPT_WORDS	 (INTERCEPT_MSRS / 64)

enum intercept_access { INTERCEPT_READ, INTERCEPT_WRITE };

/* Accesses of one MSR, by enum intercept_access. */
struct intercept_count {
	u32 index;
	bool used;
	u64 exits[2], passed[2];
};

#define INTERCEPT_COUNTS 256 /* a power of two */

struct intercepts {
	u64 pass[INTERCEPT_RANGES][2][INTERCEPT_WORDS];
	bool pass_rdpmc;

	/* By a hash of the index; those that find no room are in `other`. */
	struct intercept_count count[INTERCEPT_COUNTS], other, rdpmc;
};

void intercept_all(struct intercepts *set);
/* Only for MSRs that the maps cover. */
void intercept_pass(struct intercepts *set, u32 index, enum intercept_access access);
bool intercept_passes(const struct intercepts *set, u32 index, enum intercept_access access);

/* Where accesses of an MSR are counted. vCPU thread. */
struct intercept_count *intercept_count(struct intercepts *set, u32 index);
/* What is counted so far, or NULL. Any thread. */
const struct intercept_count *intercept_counted(const struct intercepts *set, u32 index);

#endif
