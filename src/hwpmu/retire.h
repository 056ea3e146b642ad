/* SPDX-License-Identifier: MIT */
/*
 * What the processor counted: all that the counters of the physical PMU see of the engine. Tallies
 * only grow; a counter is a base plus a difference of tallies. Owned by the vCPU thread.
 *
 * Branches are the instructions of SDM 3B "BR_INST_RETIRED.ALL_BRANCHES": Jcc (taken or not), JMP,
 * CALL, RET, near and far, LOOPcc, JrCXZ, INT n, INT3, INTO, IRET, SYSCALL, SYSRET, SYSENTER,
 * SYSEXIT. The other classes are rows of retire.def.
 */
#ifndef HWPMU_RETIRE_H
#define HWPMU_RETIRE_H

#include "base/types.h"
#include "x86/pmu_models.h" /* TICKS_PER_CYCLE */

enum retire_privilege { RETIRE_OS, RETIRE_USR }; /* CPL 0; CPL 1 to 3 */

enum retire_class {
#define RETIRE(field, NAME, most) RETIRE_##NAME,
#include "hwpmu/retire.def"
#undef RETIRE
	NRETIRE,
	RETIRE_NOTHING = NRETIRE /* the class of an event that is never counted */
};

/* A set of classes: those that are counted now. Only these need to grow. */
__extension__ typedef unsigned __int128 retire_wanted;
/* A set of exact classes, which come first. */
typedef u32 retire_exact;

#define RETIRE_BIT(class)	((class) < NRETIRE ? (retire_wanted)1 << (class) : 0)
/* All from one class to another. */
#define RETIRE_RANGE(high, low) (((retire_wanted)2 << (high)) - ((retire_wanted)1 << (low)))
#define RETIRE_ALL		RETIRE_RANGE(NRETIRE - 1, 0)

/* The first class of a set that is not empty. */
static inline u32 retire_first(retire_wanted set)
{
	u64 low = (u64)set;

	return low || NRETIRE <= 64 ? __builtin_ctzll(low) : 64 + __builtin_ctzll((u64)(set >> 64));
}

struct retire_tally {
#define RETIRE(field, NAME, most) u64 field[2]; /* by enum retire_privilege */
#include "hwpmu/retire.def"
#undef RETIRE
};

static inline u64 retire_count(const struct retire_tally *tally, enum retire_class class,
			       enum retire_privilege privilege)
{
	return ((const u64 *)tally)[2 * class + privilege];
}

/*
 * Where the processor has to stop: after the instruction with which a tally reaches a
 * value. A counter of both privileges stops at a value of their sum.
 */
enum retire_domain { RETIRE_IN_OS, RETIRE_IN_USR, RETIRE_IN_BOTH, NRETIRE_DOMAINS };

#define RETIRE_NEVER (~0ull)

struct retire_trips {
	retire_wanted armed; /* the others are not looked at */
	u64 at[NRETIRE][NRETIRE_DOMAINS];
};

_Static_assert(sizeof(struct retire_tally) == NRETIRE * 2 * sizeof(u64), "no holes");
_Static_assert(NRETIRE < 128, "a class is a bit of retire_wanted");
_Static_assert(RETIRE_INTERRUPTS < 32, "the exact classes are bits of retire_exact");

#endif
