/* SPDX-License-Identifier: MIT */
/*
 * Random bytes as guest code: half of them of any kind, half leaning towards what decodes. Shared
 * by the tests that run them on the bare engine and through the API.
 */
#ifndef FUZZ_GARBAGE_H
#define FUZZ_GARBAGE_H

#include "diff/diff.h"

#define GARBAGE_SIZE 4096

void garbage_fill(struct rng *r, u8 *code); /* GARBAGE_SIZE bytes */
u64 garbage_register(struct rng *r);	    /* often an address that means something in image.h */

#endif
