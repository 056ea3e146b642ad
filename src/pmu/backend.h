/* SPDX-License-Identifier: MIT */
/*
 * How counting gets done. The virtual PMU decides what each of its counters counts and from which
 * value; a backend does it, with a physical counter that the guest owns or with an event of the
 * host. Counters are named by their bit in GLOBAL_CTRL.
 */
#ifndef PMU_BACKEND_H
#define PMU_BACKEND_H

#include "base/types.h"

struct pmu_backend {
	const char *name;

	/*
	 * Counts what `control` says, from `value` on: an event select with EN set for a general
	 * counter, its field of FIXED_CTR_CTRL for a fixed one. The counter is stopped. It
	 * overflows when it wraps at the model's width.
	 */
	void (*start)(void *world, u32 counter, u64 control, u64 value);
	void (*stop)(void *world, u32 counter);
	u64 (*read)(const void *world, u32 counter);

	/* The counters that overflowed since the last call, whatever their INT bits. */
	u64 (*overflowed)(void *world);
};

#endif
