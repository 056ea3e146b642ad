/* SPDX-License-Identifier: MIT */
/*
 * PEBS records: a sampled instruction as a struct, and as the bytes that each format makes of it
 * (SDM 3B tables 20-57, 20-60; 20.9.2). Pure: pebs_record.c. The assist that writes records to
 * guest memory, pebs.c, is declared in hwpmu.h and priv.h.
 */
#ifndef HWPMU_PEBS_H
#define HWPMU_PEBS_H

#include "base/types.h"
#include "hwpmu/branch.h"
#include "x86/pebs.h"

struct pebs_branch {
	u64 from, to, info;
};

/* The state after the instruction that made a counter overflow. */
struct pebs_sample {
	u64 rflags, rip;
	u64 regs[16];	  /* in the order of instruction encoding: RAX, RCX, RDX, RBX, ... */
	u64 eventing_rip; /* that instruction */
	u64 counters;	  /* those that overflowed */
	u64 tsc;
	u64 address, source, latency; /* of its data access */
	u64 xmm[16][2];
	u32 nbranches; /* the youngest first */
	struct pebs_branch branch[BRANCH_DEPTH];
};

/* At most: all groups, and as many branches as MSR_PEBS_DATA_CFG can ask for. */
#define PEBS_RECORD_MAX (32 + 32 + 144 + 256 + 24 * 256)

/* Formats 4 and 5 obey cfg, as MSR_PEBS_DATA_CFG; 0 makes the basic group alone. */
u32 pebs_record_size(u32 format, u64 cfg);
u32 pebs_record_write(u8 out[PEBS_RECORD_MAX], u32 format, u64 cfg,
		      const struct pebs_sample *sample); /* the size */

#endif
