/* SPDX-License-Identifier: MIT */
/*
 * The clock that deadlines are on.
 */
#ifndef CLI_BASE_MONOTONIC_H
#define CLI_BASE_MONOTONIC_H

#include "base/types.h"

/* Milliseconds since some moment; it never goes back and never jumps. */
u64 monotonic_ms(void);

#endif
