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

#include "base/must.h"
#include "base/types.h"
#include "timing/chain.h"
#include "hwpmu/observe.h"
#include "x86/models.h"
#include "x86/pmu_models.h" /* TICKS_PER_CYCLE */

_Static_assert(TICKS_PER_CYCLE % 10 == 0, "nothing is lost by dividing first");

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

/* When the instruction at hand entered the reorder buffer. */
static inline u64 penalty_entered(struct penalty *p, const struct penalty_params *costs)
{
	if (p->insns - p->window >= costs->reorder) {
		p->window = p->insns;
		p->early = 0;
	}
	return p->now - p->early;
}

/* When a line that was prefetched is there; 0: long ago. */
static inline u64 penalty_arrival(const struct penalty *p, u64 line)
{
	const struct arrival *a = &p->arrival[line % ARRIVALS];

	return a->line == line + 1 ? a->ready : 0;
}

/* When the load at hand was first executed. */
static inline u64 penalty_begun(struct penalty *p, const struct penalty_params *costs)
{
	u64 at = penalty_entered(p, costs);

	return at - (p->insns < p->lead_until ? p->lead : 0);
}

/* When a line that is asked for at a time begins to come, after those before it. */
static inline u64 penalty_line_begins(struct penalty *p, const struct penalty_params *costs,
				      u8 level, u64 at)
{
	u64 *free = &p->line_free[level - OBSERVED_L2];

	if (at < *free)
		at = *free;
	*free = at + costs->line[level - OBSERVED_L2] * (u64)(TICKS_PER_CYCLE / 10);
	return at;
}

/* A line that a prefetcher asked for at a time comes to L2 first, if it is not there, and may be on
 * its way already. `begins`: when the load did. `latency`: of the CPU model. */
static inline void penalty_arrives(struct penalty *p, const struct penalty_params *costs,
				   const u16 *latency, u64 line, u8 level, u64 begins, u64 at)
{
	u64 ready = penalty_line_begins(p, costs, level, begins), before = penalty_arrival(p, line);

	if (ready < at)
		ready = at;
	ready += latency[level - OBSERVED_L1] * (u64)TICKS_PER_CYCLE;
	p->arrival[line % ARRIVALS] =
		(struct arrival){ .line = line + 1, .ready = ready < before ? before : ready };
}

/* Is a line that was prefetched there when the instruction at hand needs it? */
static inline bool penalty_in_time(struct penalty *p, const struct penalty_params *costs, u64 line)
{
	return penalty_arrival(p, line) <= penalty_entered(p, costs);
}

/* Its access to a line, `offset` bytes into the access, takes so many cycles, more than a hit of
 * the first level or, as the line is still on its way, as many. */
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
 * do so: if any did, penalty_prefetched() is called when that has been shown. */
static inline void penalty_ask(struct penalty *p, u64 line, u8 level)
{
	must(p->nasked < ASKED_MOST);
	p->asked[p->nasked].line = line;
	p->asked[p->nasked++].level = level;
}

void penalty_prefetched(struct timing *t);

const struct penalty_params *penalty_params_of(enum model_set set); /* exactly one bit of it */

#endif
