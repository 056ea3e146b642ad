/* SPDX-License-Identifier: MIT */
/*
 * Page walks of the timing model: walk.c.
 */
#ifndef TIMING_WALK_H
#define TIMING_WALK_H

#include "timing/timing.h"

/* The walk of an access that no TLB could translate; its cycles are in t->walk_cycles afterwards.
 * Without `counted` the lines that it asks L2 for are not. */
void walk(struct timing *t, const struct timing_access *a, bool counted);

void walk_forget(struct timing *t); /* what the paging-structure caches hold */
void walk_forget_space(struct timing *t, u16 space);

#define SPACE_GLOBAL 0xfffull

/* The address space in a tag: a PCID, of 12 bits. PCID 4095 shares that of PCID 0: its own number
 * marks global pages. */
static inline u64 walk_owner(u16 space)
{
	return space == SPACE_GLOBAL ? 0 : space;
}

/* The number of a page of 1 << shift bytes. */
static inline u64 walk_page(gva_t linear, u8 shift)
{
	return (linear & MASK(56, 0)) >> shift;
}

#endif
