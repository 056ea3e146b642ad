/* SPDX-License-Identifier: MIT */
/*
 * Counting: the countdown of translated code (priv.h) against the budget of engine_run(), and the
 * tallies.
 */
#ifndef ENGINE_COUNT_H
#define ENGINE_COUNT_H

#include "engine/priv.h"

void count_begin(struct cpu *cpu, u64 budget);
bool count_left(struct cpu *cpu); /* may one more instruction retire? Renews the slice */
/* One instruction of code in this mode did not retire after all. */
void count_refund(struct cpu *cpu, u32 mode, bool branch, const struct weight *weight);
/* One instruction retired that is in the tallies already. */
void count_spend(struct cpu *cpu);
void count_refund_block(struct cpu *cpu, const struct block *block);
/* Moves what retired since the last call into the tallies. Before the privilege changes. */
void count_flush(struct cpu *cpu, enum retire_privilege privilege);
/* A block asked for more than the slice has: a new slice, or single steps for the rest of the
 * budget. */
void count_renew(struct cpu *cpu, const struct block *block);

#endif
