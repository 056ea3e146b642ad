/* SPDX-License-Identifier: MIT */
/*
 * Full timing: the ticks that misses and mispredictions take beyond the prices of instructions.
 * docs/model.md describes the model, penalty.c its arithmetic; penalties.def has its numbers.
 *
 * A penalty is charged to the instruction at which its event happens, when it happens. It is a
 * function of the events shown and of where in the program they happened: ticks and instructions up
 * to the instruction at hand. The owner says where, by penalty_at(), before it shows them.
 *
 * Owned by the vCPU thread. Freestanding.
 */
#ifndef TIMING_PENALTY_H
#define TIMING_PENALTY_H

#include "base/types.h"
#include "timing/chain.h"
#include "x86/models.h"

struct timing;
struct timing_access;

#define PENALTY_LOADS 4	  /* loads that missed are remembered, with their lines */
#define PENALTY_FILLS 24  /* the most that a row of penalties.def may ask for */
#define LINE_WORDS    8	  /* of 8 bytes */
#define ARRIVALS      256 /* lines that prefetchers asked for are remembered, by their lower bits */
#define ASKED_MOST    16  /* prefetches of one access */

/* Of a CPU model. Cycles, but for sizes and where it says so. */
struct penalty_params {
	enum model_set set;
	u16 reorder; /* instructions that the reorder buffer holds */
	u8 width;    /* instructions that enter it in a cycle */
	u8 fills;    /* lines that the first level waits for at once */
	u8 stores;   /* entries of the store buffer */
	u8 refill;   /* from the end of a mispredicted branch to the next instruction */
	u8 resolve;  /* from its issue to its end, if it waits for no miss */
	u8 line[3];  /* tenths of a cycle, at least, between two lines from L2, the LLC, memory */
	/* A copy whose destination is less than so many bytes above its source, modulo a page,
	 * moves a byte a cycle. */
	u8 alias;
	/* Ticks, which follow from the others: of an instruction at full width, and of a store that
	 * misses for each cycle of its latency. */
	u8 insn, store;
};

/* Times are ticks, as the processor counts them: those of all privileges. */
struct penalty_load {
	u64 insn;  /* which instruction it was */
	u64 value; /* what it loaded, if that is at most 8 bytes; else 0 */
	u8 level;  /* enum observed_level: where its line was */
	u64 word[LINE_WORDS];
};

/* A line that a prefetcher asked for. */
struct arrival {
	u64 line;  /* its number + 1; 0: none */
	u64 ready; /* it is in the cache */
};

struct penalty {
	bool placed; /* penalty_at() has been called since observation began */
	u64 now;     /* up to and with the instruction at hand */
	u64 insns;   /* that many, up to and with it */
	u64 total;   /* penalties so far */
	/* A stall is charged when its load misses, but the instructions that follow it in the
	 * reorder buffer enter before the processor stalls: `early` ticks before their `now`, from
	 * instruction `window` on. */
	u64 window, early;
	/* Ticks of an instruction without penalties, lately. 0, which stands for the width of the
	 * processor, until a reorder buffer's worth of instructions was observed. */
	u64 rate;
	u64 rate_insns;		 /* it is the mean since this instruction */
	u64 rate_ticks;		 /* and this time, without penalties */
	u64 aged;		 /* t->llc_clock counts up to this time */
	u64 stores_done;	 /* the stores that missed have left the store buffer */
	u64 line_free[3];	 /* as penalty_params.line */
	u64 fill[PENALTY_FILLS]; /* when each is free again */
	u32 next_fill, next_load;
	u64 code_line; /* the last one that missed, + 1; 0: none */
	u64 restarted; /* the instruction that was mispredicted last */
	/* Loads up to instruction `lead_until` were executed on a wrong path first, `lead` ticks
	 * before they entered. */
	u64 lead, lead_until;
	u64 copied;		  /* linear address of the last read of more than a line, */
	u64 copier;		  /* and the instruction that read it */
	u64 ready[PENALTY_LOADS]; /* when the data of each of these loads is there */
	struct penalty_load load[PENALTY_LOADS];
	struct chain chain;
	struct arrival arrival[ARRIVALS];
	struct {
		u64 line;
		u8 level;
	} asked[ASKED_MOST]; /* prefetches of the access at hand */
	u32 nasked;
};

/* Nothing is under way: observation begins. */
void penalty_begin(struct timing *t);

/* The instruction at hand: ticks and instructions of both privileges up to and with it. */
void penalty_at(struct timing *t, u64 ticks, u64 insns);

/* Its access to a line, `offset` bytes into the access, takes so many cycles, more than a hit of
 * the first level. */
void penalty_data(struct timing *t, const struct timing_access *a, u32 offset, u8 level,
		  u16 latency);
/* It reads or stores more than a line at once: a string instruction reads, then stores. */
void penalty_bytes(struct timing *t, const struct timing_access *a);
/* Its line of code takes so many cycles more than a hit of the first level, after so many for its
 * translation. */
void penalty_fetch(struct timing *t, u64 line, u8 level, u16 cycles, u16 translation);
/* It is a branch, and was mispredicted. */
void penalty_branch(struct timing *t);

/* A prefetcher asks for a line that is in `level`. It takes its place after the access that made it
 * do so: penalty_prefetch() is called when that has been shown. */
void penalty_ask(struct timing *t, u64 line, u8 level);
void penalty_prefetch(struct timing *t);

const struct penalty_params *penalty_params_of(enum model_set set); /* exactly one bit of it */

#endif
