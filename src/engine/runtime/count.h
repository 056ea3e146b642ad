/* SPDX-License-Identifier: MIT */
/*
 * Counting: the countdown of translated code (priv.h) against the budget of engine_run(), the other
 * classes against their trips, and the tallies. count.c has the problem, the idea and the
 * invariants.
 *
 * While guest code runs, what it retires is in the countdown, in priv->packed[] (count_pack.h) and,
 * for classes that grow by more than one or in C, in priv->live[]: a class starts at minus the
 * distance to its nearest trip at this privilege, so that it becomes 0 at the trip. count_flush()
 * moves all of it into the tallies; count_may_run() starts the next slice.
 */
#ifndef ENGINE_RUNTIME_COUNT_H
#define ENGINE_RUNTIME_COUNT_H

#include "engine/priv.h"

/* Takes the first class out of the set. */
static inline u32 count_next_class(retire_wanted *classes)
{
	u32 class = retire_first(*classes);

	*classes &= *classes - 1;
	return class;
}

static inline u64 count_slice_left(const struct cpu *cpu)
{
	return -((s64)cpu_priv(cpu)->spill[SPILL_R14] >> COUNT_SHIFT) - 1;
}

/* Of a class of priv->live[], in this slice. */
static inline u64 count_grown(const struct cpu *cpu, enum retire_class class)
{
	return cpu_priv(cpu)->live[class] - cpu->engine->live_start[class];
}

/* Instructions of both privileges that have retired. */
static inline u64 count_instructions(const struct cpu *cpu)
{
	const struct engine *eng = cpu->engine;

	return cpu_retired(cpu) + (eng->counting ? eng->slice - count_slice_left(cpu) : 0);
}

/* As count_cycles(), in ticks. */
static inline u64 count_ticks(const struct cpu *cpu)
{
	const u64 *ticks = cpu->port.tally.cycles;
	u64 live = cpu->engine->counting ? count_grown(cpu, RETIRE_CYCLES) : 0;

	return ticks[RETIRE_OS] + ticks[RETIRE_USR] + live;
}

/* A trip, or a full field: the caller flushes, and starts the fields again if it was the latter. */
static inline bool count_guard_set(const struct cpu *cpu)
{
	u64 any = 0;

	for (u32 i = 0; i < PACK_WORDS; i++)
		any |= cpu_priv(cpu)->packed[i];
	return any & cpu_priv(cpu)->guards;
}

/* Has a class reached its trip? */
static inline bool count_at_trip(const struct cpu *cpu)
{
	for (retire_wanted left = cpu->engine->live_classes; left;)
		if (cpu_priv(cpu)->live[count_next_class(&left)] >= 0)
			return true;
	return cpu->engine->packed_classes && count_guard_set(cpu);
}

/* What C takes for guest code, at most or nearly: for cpu_effort(). */
enum effort {
	EFFORT_VISIT = 16,  /* to find a block */
	EFFORT_ACCESS = 16, /* an access that the soft TLB does not serve, without the walk */
	EFFORT_INSN = 64,   /* an instruction; the longest are those on vector state */
	EFFORT_BLOCK = 512, /* to translate one */
};

/* Has other work than plain instructions (cpu->port.effort) used up the run? */
static inline bool count_exhausted(const struct cpu *cpu)
{
	return cpu->port.effort - cpu->engine->effort_start >= cpu->engine->effort_limit;
}

/* C was called by a block that goes on: if that has used up the run, a loop ends with its turn. */
static inline void count_look(struct cpu *cpu)
{
	if (unlikely(count_exhausted(cpu)) && cpu_run_is_timed(cpu))
		cpu_call_attention(cpu, ATTENTION_ENGINE);
}

void count_begin(struct cpu *cpu, u64 budget);
/* May one more instruction retire? Asked before guest code is entered; starts a slice for the
 * current privilege if none is running. */
bool count_may_run(struct cpu *cpu);
/*
 * Does something come before the next instruction: the interrupt of a timer that has just expired,
 * the end of the run? Then its page is not walked to, and no exception raised in its place: whether
 * translated code or the main loop gets there first depends on which blocks there are.
 */
bool count_stops_here(struct cpu *cpu);
/* No number is left for a set of classes: drops all blocks, and with them all numbers in use. */
void count_renew_sets(struct cpu *cpu);
/* A run that ends by the clock ends before the next instruction: there is no telling how long the
 * last one took. */
void count_end_timed(struct cpu *cpu);
/* Has a tally reached its trip? After count_flush(). */
bool count_trip_reached(const struct cpu *cpu);
/* Takes back one instruction of code in this mode that was counted and did not retire. */
void count_refund(struct cpu *cpu, u32 mode, bool branch, const struct weight *weight);
/* Takes one instruction, which C has added to the tallies, off the budget. After count_flush(). */
void count_one_retired(struct cpu *cpu);
void count_refund_block(struct cpu *cpu, const struct block *block);
/* Moves what retired since the last call into the tallies. Before the privilege changes. */
void count_flush(struct cpu *cpu, enum retire_privilege privilege);
/* As count_flush(), after an instruction that changed the privilege. Keeps the slice where the
 * distances to trips are still valid (count.c, invariant 5). */
void count_flush_keeping_slice(struct cpu *cpu, enum retire_privilege privilege);
/* Cycles of both privileges, including those of the instruction that C executes. Only while cycles
 * are counted. */
u64 count_cycles(const struct cpu *cpu);
/* cpu->port.trips have changed. After count_flush(). */
void count_rearm(struct cpu *cpu);
/* A block was left at its head, and is refunded. If it has more instructions than are left of the
 * slice, starts a new slice, or switches to blocks of one instruction; false: it has not. */
bool count_next_slice(struct cpu *cpu, const struct block *block);
/* A block would reach a trip; its weights are still added. Takes them back and starts a slice up to
 * the instruction that reaches the trip, or makes that instruction the next block. */
void count_stop_at_trip(struct cpu *cpu, const struct block *block);

#endif
