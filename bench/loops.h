/* SPDX-License-Identifier: MIT */
/*
 * The loops that are measured: position-independent code that runs natively as a C function and,
 * copied, as a guest's.
 */
#ifndef BENCH_LOOPS_H
#define BENCH_LOOPS_H

#define LOOP_MEMORY 0x8000 /* bytes that a loop may touch */

#ifndef __ASSEMBLER__

#include "base/types.h"

/* As the macro LOOP of loops.S lays it out. */
struct loop {
	const char *name;
	const u8 *start, *end; /* void (*)(u64 rounds, void *memory), System V registers */
	u64 per_round;	       /* instructions */
};

extern const struct loop loops[] __attribute__((visibility("hidden")));
extern const struct loop loops_end[] __attribute__((visibility("hidden")));

#endif
#endif
