/* SPDX-License-Identifier: MIT */
/*
 * Accesses to the program's memory that may fault on the host (unmapped, truncated file,
 * PROT_NONE). Each returns false instead of dying, provided the signal handler calls
 * guarded_fixup(); a part of the access may have been done then. General registers only. Sizes 1,
 * 2, 4, 8 at natural alignment are single-copy atomic.
 */
#ifndef BASE_GUARDED_H
#define BASE_GUARDED_H

#include "base/types.h"

bool guarded_read(void *dst, const void *src, size_t n);
bool guarded_write(void *dst, const void *src, size_t n);
bool guarded_read_line(void *dst, const void *src); /* 64 bytes */
/* Repeats the 8 bytes of `pattern` over n bytes. */
bool guarded_fill(void *dst, u64 pattern, size_t n);
/* Are these two lines of 64 bytes readable and equal? */
bool guarded_same_line(const void *a, const void *b);
/* *ptr: if it equals *expected store desired, else set *expected; *done tells which. Locked. */
bool guarded_cmpxchg64(u64 *ptr, u64 *expected, u64 desired, bool *done);
bool guarded_cmpxchg32(u32 *ptr, u32 *expected, u32 desired, bool *done);

/* For signal handlers: if the fault at *rip lies in a guarded access, moves *rip to its failure
 * exit. */
bool guarded_fixup(u64 *rip);

#endif
