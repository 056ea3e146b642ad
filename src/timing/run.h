/* SPDX-License-Identifier: MIT */
/*
 * The next line of a run: run.c.
 */
#ifndef TIMING_RUN_H
#define TIMING_RUN_H

#include "timing/timing.h"

/* A load of a line, `offset` bytes into the access, which was prefetched into a way of the first
 * level and has not been used since; its page's tag in the TLB. False: nothing was done, and it is
 * to be looked up as any other access. */
bool run_next(struct timing *t, const struct timing_access *a, u32 offset, u32 way, u64 page_tag);

#endif
