/* SPDX-License-Identifier: MIT */
/*
 * The timing model of one processor, without one. Host addresses are physical ones plus HOST.
 */
#ifndef UNIT_PLAIN_TIMING_H
#define UNIT_PLAIN_TIMING_H

#include "timing/timing.h"

#define HOST 0x7f0000000000ull
#define LINE 64ull

extern u64 count[NRETIRE];
extern struct timing *timing;
extern const struct model *model;

/* For unit/on_models.h. Nothing is prefetched. */
int on_model(void **state);
int done(void **state);

/* Eight bytes on a page of 4 KB. */
struct timing_access access_at(gva_t linear, gpa_t physical);
void load(u64 address);
/* On a page so large that translation plays no part. */
void load_large(u64 address);
void fetch(u64 address);
/* What was counted since it was last asked for. */
u64 taken(enum retire_class class);
/* Does a cache have the line of an address? */
bool holds(const struct timing_sets *s, u64 address);

#endif
