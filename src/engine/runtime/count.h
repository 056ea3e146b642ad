/* SPDX-License-Identifier: MIT */
/*
 * Counting: the countdown of translated code (priv.h) against the budget of engine_run(), the other
 * classes against their trips, and the tallies.
 *
 * While guest code runs, what it retires is in the countdown, in priv->packed[] (count_pack.h) and,
 * what grows by more than one or by C code, in priv->live[]: a class begins at minus the number of
 * occurrences up to its nearest trip at this privilege, so that its sign tells of a trip.
 * count_flush() moves it all into the tallies; count_left() starts anew.
 */
#ifndef ENGINE_RUNTIME_COUNT_H
#define ENGINE_RUNTIME_COUNT_H

#include "engine/priv.h"

void count_begin(struct cpu *cpu, u64 budget);
/* May one more instruction retire? To be asked before guest code is entered, when it is known at
 * which privilege. */
bool count_left(struct cpu *cpu);
/* Has work that retires nothing used up the time of the run? */
bool count_exhausted(const struct cpu *cpu);
/* Has a class reached its trip? */
bool count_at_trip(const struct cpu *cpu);
/* Have the tallies? After count_flush(). */
bool count_trip_reached(const struct cpu *cpu);
/* One instruction of code in this mode did not retire after all. */
void count_refund(struct cpu *cpu, u32 mode, bool branch, const struct weight *weight);
/* One instruction retired that is in the tallies already. Behind count_flush(). */
void count_spend(struct cpu *cpu);
void count_refund_block(struct cpu *cpu, const struct block *block);
/* Moves what retired since the last call into the tallies. Before the privilege changes. */
void count_flush(struct cpu *cpu, enum retire_privilege privilege);
/* The same behind an instruction that retired as others do, when the privilege has changed: what is
 * left up to trips stays what it is if it may, and nothing starts anew. */
void count_settle(struct cpu *cpu, enum retire_privilege privilege);
/* Cycles of both privileges, with those of the instruction that C executes. Only while they are
 * counted. */
u64 count_cycles(const struct cpu *cpu);
/* Instructions of both privileges that have retired. */
u64 count_instructions(const struct cpu *cpu);
/* cpu->port.trips are others. Behind count_flush(). */
void count_rearm(struct cpu *cpu);
/* A block asked for more than the slice has: a new slice, or blocks of one instruction. */
void count_renew(struct cpu *cpu, const struct block *block);
/* A block would reach a trip, and has taken nothing back: a slice up to the instruction that does,
 * or that one alone. */
void count_tripped(struct cpu *cpu, const struct block *block);

#endif
