/* SPDX-License-Identifier: MIT */
/*
 * Intercepts: which MSR accesses leave the processor and which it does itself, as data that the
 * hypervisor writes and the processor looks at (SDM 3C 24.6.9, APM2 15.11: the MSR bitmaps), and
 * how many there were of each. Without a struct intercepts every access leaves.
 *
 * One look-up by an MSR's index finds all of it: what passes, where it is counted, and which
 * register of the PMU it is. An exit hands the entry on to the hypervisor (cpu->port.exit.msr),
 * which decodes nothing again.
 *
 * The entries belong to the vCPU's lock. Counts are grown by the vCPU thread and read by any
 * thread.
 */
#ifndef CPU_INTERCEPT_H
#define CPU_INTERCEPT_H

#include "base/types.h"
#include "x86/pmu_msrs.h"

enum intercept_access { INTERCEPT_READ, INTERCEPT_WRITE };

/* An MSR. Arrays are by enum intercept_access. */
struct intercept {
	u32 index;
	bool used;
	bool pass[2];	    /* the processor does the access */
	struct pmu_reg pmu; /* of the PMU; row NULL: not of the PMU, or `other` */
	u64 exits[2], passed[2];
};

#define INTERCEPT_MSRS 512 /* a power of two */
/* So many may be used: a search that fails ends at a free one after few steps. */
#define INTERCEPT_MOST (INTERCEPT_MSRS / 4 * 3)

struct intercepts {
	/* By a hash of the index. Those of the PMU are there from the beginning, others since they
	 * were first accessed; MSRs that find no room are counted in `other`. */
	struct intercept msr[INTERCEPT_MSRS], other, rdpmc;
	u32 nused;
	/* The entry found last: an access is looked at twice, or its exit is. */
	struct intercept *recent;
	bool pass_rdpmc;
};

/* Every access leaves, and none has been counted. All registers of the vendor's PMU have entries,
 * and those of the other vendor's that guests may access (struct pmu_row, quiet). */
void intercept_init(struct intercepts *set, bool is_amd);
void intercept_all(struct intercepts *set);
/* Only for registers of the vendor's PMU. */
void intercept_pass(struct intercepts *set, u32 index, enum intercept_access access);

/* The entry of an MSR; `other` if there is no room for another one. vCPU thread. */
struct intercept *intercept_find(struct intercepts *set, u32 index);
/* What is counted so far; NULL: nothing. Any thread. */
const struct intercept *intercept_counted(const struct intercepts *set, u32 index);
bool intercept_has_counted(const struct intercept *msr);

#endif
