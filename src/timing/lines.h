/* SPDX-License-Identifier: MIT */
/*
 * Lines of the timing model's caches.
 */
#ifndef TIMING_LINES_H
#define TIMING_LINES_H

#include "base/types.h"

#define LINE_SHIFT   6
#define LINE_SIZE    64u
#define PAGE_LINES   (PAGE_SIZE / LINE_SIZE)
#define TIMING_LINES 64u /* sets of the first-level caches, on all models */

#endif
