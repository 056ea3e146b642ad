/* SPDX-License-Identifier: MIT */
/*
 * Prefetchers of the timing model: prefetch.c. They are trained by lines, not by accesses: by what
 * the first-level data cache misses, by the first use of a line that was prefetched into it, and by
 * what L2 is asked for. None of these happens twice if an instruction is executed again, and none
 * depends on line buffers. A prefetched line is there at once.
 *
 * All zeroes is the state of prefetchers that have seen nothing.
 */
#ifndef TIMING_PREFETCH_H
#define TIMING_PREFETCH_H

#include "hwpmu/observe.h"
#include "timing/lines.h"

/* Kinds, as bits of prefetch_params.kinds. Into L1, trained by loads: */
#define PREFETCH_NEXT	 BIT(0) /* the line after one that follows a recent one */
#define PREFETCH_AROUND	 BIT(1) /* also the line before one that precedes a recent one */
/* Into L2, trained by what L1 asks for: */
#define PREFETCH_STREAM	 BIT(2) /* lines ahead of a sequence on a page */
#define PREFETCH_PAIR	 BIT(3) /* with a line that L2 misses the other one of 128 bytes */
#define PREFETCH_UP_DOWN BIT(4) /* with a line that L2 misses the next in the page's direction */

#define STREAM_RUN     2 /* requests in one direction, after the first of a page, make a stream */
#define STREAM_SETS    8u
#define STREAM_WAYS    4u
#define PREFETCH_LOADS 8u
#define PREFETCH_RATE  4u
#define WAYS_NOTED     8u

/* Of a CPU model. */
struct prefetch_params {
	u8 kinds;
	u8 ahead; /* lines from the last one that L1 asked for to the last that is prefetched */
	u8 rate;  /* lines that are prefetched when L1 asks for one, at most; at most PREFETCH_RATE
		   */
};

/* What L1 asked for on a page of 64 lines. */
struct stream {
	u64 page;     /* its number + 1; 0: none */
	s8 last;      /* the line asked for last */
	s8 front;     /* the last that was prefetched, or asked for */
	s8 direction; /* 1, -1, or 0: not known */
	u8 run;	      /* requests in this direction since the last that was not, up to 255 */
};

struct prefetch {
	u8 kinds;		  /* that are switched on */
	u8 load_at;		  /* the oldest of load[] */
	u64 load[PREFETCH_LOADS]; /* lines that trained the prefetchers of L1, + 1; 0: none */
	/* Of each set of L1, ways that were prefetched into last, by the page: for run.c. */
	u8 way[TIMING_LINES][WAYS_NOTED];
	struct stream stream[STREAM_SETS][STREAM_WAYS]; /* the youngest of a set first */
};

struct timing;

/* The stream of a page that is not the youngest of its set becomes that. A new one begins with the
 * line at hand. */
void prefetch_other_stream(struct stream *set, u64 page, s8 at);

/* The stream of the line's page, which becomes the youngest of its set. */
static inline struct stream *prefetch_stream(struct prefetch *p, u64 line)
{
	u64 number = line / PAGE_LINES;
	struct stream *set = p->stream[(number ^ number >> 3 ^ number >> 6) % STREAM_SETS];

	if (unlikely(set->page != number + 1))
		prefetch_other_stream(set, number + 1, (s8)(line % PAGE_LINES));
	return set;
}

/* Where the way of a line that is prefetched into L1 is noted. */
static inline u8 *prefetch_way(struct prefetch *p, u64 line)
{
	return &p->way[line % TIMING_LINES][line / PAGE_LINES % WAYS_NOTED];
}

/* Has the line trained the prefetchers of L1 lately? */
static inline bool prefetch_knows(const struct prefetch *p, u64 line)
{
	for (u32 i = 0; i < PREFETCH_LOADS; i++)
		if (p->load[i] == line + 1)
			return true;
	return false;
}

static inline void prefetch_learn(struct prefetch *p, u64 line)
{
	p->load[p->load_at++ % PREFETCH_LOADS] = line + 1;
}

/* The first level asked L2 for a line, which was where `level` says. */
void prefetch_requested(struct timing *t, u64 line, enum observed_level level);
/* A load missed the first level, or is the first to use a line that was prefetched into it. */
void prefetch_loaded(struct timing *t, u64 line);

#endif
