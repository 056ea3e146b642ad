/* SPDX-License-Identifier: MIT */
/*
 * What the processor saw of one instruction: the data access and the branch of the last instruction
 * that was observed. For the description of a sampled instruction: PEBS records (SDM 3B 20.3.4.4),
 * branch records (SDM 3B 18.12), IBS (APM2 13.3).
 *
 * Filled by engine/runtime/observe.c while cpu->port.wanted, or cpu->port.observe, asks for the
 * timing model. Code that runs a block at a time only notes what its fast path does not know: an
 * access that misses the line buffer, a branch that is not predicted with confidence. An
 * instruction that runs alone (MODE_STEP) notes everything, and that is how the one with which a
 * counter overflows is run; so code that describes the instruction only has to clear `access.valid`
 * before it runs.
 *
 * Owned by the vCPU thread.
 */
#ifndef HWPMU_OBSERVE_H
#define HWPMU_OBSERVE_H

#include "base/types.h"

enum observed_level { OBSERVED_L1 = 1, OBSERVED_L2, OBSERVED_LLC, OBSERVED_MEMORY };
/* Another processor's cache: had no part in it, gave the line, gave a line that it had written. */
enum observed_snoop { OBSERVED_SNOOP_NONE, OBSERVED_SNOOP_CLEAN, OBSERVED_SNOOP_MODIFIED };
enum observed_tlb { OBSERVED_TLB_L1 = 1, OBSERVED_TLB_L2, OBSERVED_TLB_WALK };

/* One operand. An instruction with two leaves its last; one that crosses lines leaves its first
 * line's address and the worse of both levels. Devices are not observed. */
struct observed_access {
	bool valid;
	bool store;  /* it wrote; a read-modify-write counts as a store */
	bool modify; /* a read-modify-write */
	u8 level;    /* enum observed_level: where the line was */
	u8 snoop;    /* enum observed_snoop; other caches count as OBSERVED_LLC */
	u8 tlb;	     /* enum observed_tlb: where its translation was */
	u16 size;
	u16 latency; /* cycles by the timing model: level and translation */
	gva_t linear;
	gpa_t physical;
};

struct observed {
	struct observed_access access;
	/* The last near branch was, if it ran alone; else see struct branch_ring. */
	bool mispredicted;
};

#endif
