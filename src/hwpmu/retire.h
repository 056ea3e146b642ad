/* SPDX-License-Identifier: MIT */
/*
 * What the processor counted: the only thing the physical PMU sees of the engine. Tallies only
 * grow; a counter is a base plus a difference of tallies. Owned by the vCPU thread.
 *
 * Branches are the instructions of SDM 3B "BR_INST_RETIRED.ALL_BRANCHES": Jcc (taken or not), JMP,
 * CALL, RET, near and far, LOOPcc, JrCXZ, INT n, INT3, INTO, IRET, SYSCALL, SYSRET, SYSENTER,
 * SYSEXIT.
 */
#ifndef HWPMU_RETIRE_H
#define HWPMU_RETIRE_H

#include "base/types.h"

enum retire_privilege { RETIRE_OS, RETIRE_USR }; /* CPL 0; CPL 1 to 3 */

struct retire_tally {
	u64 instructions[2]; /* by enum retire_privilege */
	u64 branches[2];
};

#endif
