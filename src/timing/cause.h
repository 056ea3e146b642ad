/* SPDX-License-Identifier: MIT */
/*
 * Whom penalties of full timing are blamed on: the slots and stalls of causes.def. Ticks are those
 * that penalty.c has charged, all of them, once.
 *
 * vCPU thread. Freestanding.
 */
#ifndef TIMING_CAUSE_H
#define TIMING_CAUSE_H

#include "timing/timing.h"

/* A load whose line was found at a level (enum observed_level). */
void cause_load(struct timing *t, u64 ticks, u8 level);
void cause_store(struct timing *t, u64 ticks);
void cause_string(struct timing *t, u64 ticks);
/* A line of code and its translation, of which the last `ahead` ticks are a line's that follows the
 * one before it, and was fetched ahead. */
void cause_fetch(struct timing *t, u64 ticks, u64 ahead);
/* A misprediction; `level`: of the load that its branch waited for, or 0. */
void cause_branch(struct timing *t, u64 ticks, u8 level);

#endif
