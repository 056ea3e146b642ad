/* SPDX-License-Identifier: MIT */
/*
 * The state of the branch predictor of one logical processor: branch.c, tage.c and ittage.c.
 *
 * Path. Intel's history is the path of taken near branches (path history register): a branch that
 * is not taken leaves no trace. Each taken branch makes path = path * PATH_FACTOR + foot, where
 * foot hashes its address and its target. A ring keeps the last values, so that the hash of the
 * last n branches alone is path - ring[n ago] * PATH_FACTOR^n: any length for a load, a
 * multiplication and a subtraction, and no folded registers to update when a branch is taken.
 *
 * Outcomes. AMD's history has outcomes of conditional branches, and of a taken branch nothing but
 * two bits of where it is, and nothing of where it goes. Conditional branches that are not taken
 * are part of it if they were ever taken, unless they are sure (see below). Of the last taken
 * branch alone the place in full is known as well: `last`. docs/model.md says how this was found.
 *
 * Sure branches. A branch that went the same way SURE_AFTER times in a row is predicted by its
 * address alone: it neither asks the tables nor trains them, and is mispredicted when it turns.
 * This is a rule of the model and not just a short cut: translated code checks it in line.
 * SURE_AFTER is more than the longest history, so that a loop whose exit the tables can foresee
 * never becomes sure.
 *
 * Plain branches. History does not help with outcomes by chance. So each branch has a three-bit
 * counter of its own beside the tables. If they saved fewer than PLAIN_HELPED misses against it in
 * a window of PLAIN_WINDOW outcomes, the branch is plain: its counter alone predicts it, and the
 * tables do not learn it, until it has missed PLAIN_MISSES << level times. Then the tables learn it
 * for a window, and are judged in those after it. The level rises each time the branch is plain,
 * and falls with each window in which the tables helped. While the counter of a plain branch is
 * saturated the branch is sure too, and history has of it what it has of sure ones: one more such
 * outcome changes nothing, and translated code needs to know no other rule.
 *
 * Counted branches. The branch that closes a loop of few turns is never sure, and the tables would
 * be asked in each turn for what they have long known. If it was taken equally often COUNTED_AFTER
 * times in a row, at least COUNTED_LEAST times each, and the tables foresaw each exit, it is
 * counted: predicted to be taken as often again and then not, until it does otherwise. The tables
 * are not asked meanwhile and do not learn it. Translated code counts in line.
 *
 * All zeroes is the state of a processor that has seen no branch; predict_init() adds constants.
 * Nothing here depends on anything but the branches shown: the same branches leave the same state.
 */
#ifndef TIMING_PREDICT_H
#define TIMING_PREDICT_H

#include "base/types.h"

#define PATH_RING   256u /* entries: a byte wraps where they do */
#define PATH_FACTOR 0x5851f42d
#define HASH_FACTOR 0x9e3779b97f4a7c15ull
#define LAST_FACTOR 0xd6e8feb86659fd93ull

/* Bits of the last taken branch's address that conditional and indirect branches go by. */
#define LAST_OF_CONDITIONAL 0x1fffffu
#define LAST_OF_INDIRECT    0x1ffu

#define SURE_AFTER     255u
#define SURE_NOT_TAKEN 1u
#define SURE_TAKEN     2u
#define SURE_BITS      13 /* of conditional branches: log2 of the entries */
#define SURE_TARGETS   11 /* of indirect ones */

#define PLAIN_WINDOW 1024u
#define PLAIN_HELPED 2
#define PLAIN_MISSES 16u
#define PLAIN_LEVELS 7u /* the highest */

#define COUNTED_LEAST 3u
#define COUNTED_AFTER 8u

/* The most that a row of params.def may ask for. */
#define TAGE_TABLES   6
#define TAGE_BITS     13
#define ITTAGE_TABLES 4
#define ITTAGE_BITS   10
#define RSB_MAX	      32u /* of 8 bytes: a byte wraps where they do */

/* Of a CPU model. Lengths are branches of history, in ascending order, less than PATH_RING. */
struct predict_params {
	u8 tables;		/* tagged tables of conditional branches */
	u8 bits[TAGE_TABLES];	/* log2 of their entries */
	u8 length[TAGE_TABLES]; /* of their histories */
	u8 target_tables, target_bits;
	u8 target_length[ITTAGE_TABLES];
	u8 returns;	 /* entries of the return stack */
	bool falls_back; /* a return that finds the stack empty is predicted by its path */
	bool outcomes;	 /* history is of outcomes, and not of addresses and targets */
};

/* A conditional branch, by predict_place(). */
struct sure {
	u8 sure;       /* 0, SURE_TAKEN or SURE_NOT_TAKEN */
	u8 run;	       /* equal outcomes in a row, up to SURE_AFTER */
	u8 taken : 1;  /* the last outcome */
	u8 tables : 3; /* only the first so many tagged tables may have an entry for it */
	u8 known : 1;  /* it was taken once */
	u8 plain : 1;  /* `own` alone predicts it */
	u8 warm : 1;   /* the tables have learned it for a window */
	s8 base : 4;   /* the tables' counter without history, -2 to 1; negative: not taken */
	u8 level : 4;  /* it is plain for PLAIN_MISSES << level misses */
	s8 own;	       /* a counter for all its outcomes, -4 to 3 */
	s8 helped;     /* misses that the tables saved in this window */
	u16 count;     /* outcomes in this window; of a plain branch: misses */
	u8 trip;       /* how often it was taken in a row the last time */
	u8 streak;     /* times that trip was the same, and what came after it foreseen */
	u8 left; /* of a counted branch: how often it will be taken before it is not; else 0 */
	u8 unused[5];
};

_Static_assert(sizeof(struct sure) == 16, "none lies on two lines of the host's cache");

/* An indirect branch, by predict_target_place(). */
struct sure_target {
	u64 sure; /* 0: it is not */
	u64 last;
	u8 run;
};

struct tage_entry {
	u16 tag;	       /* 0: empty */
	s8 counter;	       /* -4 to 3; negative: not taken */
	u8 useful;	       /* 0 to 3; above 0 the entry is not replaced */
} __attribute__((aligned(4))); /* a line of the host holds it whole */

struct ittage_entry {
	u64 target;
	u32 tag;	/* 0: empty */
	u16 confidence; /* 0 to 3; above 0 the target is not replaced */
	u16 useful;	/* 0 to 3; above 0 the entry is not */
};

/* Of one tagged table. */
struct history {
	u64 factor; /* PATH_FACTOR^length * HASH_FACTOR */
	u32 mask;   /* of the table's indices */
	u8 length;
};

struct predict {
	/* --- inline --- */
	u64 path;
	u8 path_at; /* ring[path_at] is path */
	u8 rsb_top; /* offset in rsb[] of the return address to come */
	u32 last;   /* address of the last taken branch; 0 if history is not of outcomes */
	u64 ring[PATH_RING];
	u64 rsb[RSB_MAX]; /* 0: empty */
	struct sure sure[1u << SURE_BITS];
	struct sure_target sure_target[1u << SURE_TARGETS];
	/* --- */
	const struct predict_params *params;
	struct history history[TAGE_TABLES], target_history[ITTAGE_TABLES];
	u32 shift_register;	     /* for predict_draw() */
	u32 updates, target_updates; /* of the tagged tables: from time to time entries age */
	s8 trust_alternate; /* -8 to 7; not negative: the second match rather than a new entry */
	struct tage_entry tage[TAGE_TABLES][1u << TAGE_BITS];
	struct ittage_entry ittage[ITTAGE_TABLES][1u << ITTAGE_BITS];
};

void predict_init(struct predict *p, const struct predict_params *params);

/* An indirect branch that is not sure, or a return, before it is part of the path: learns its
 * target, and says if it was mispredicted. `last` is its last target, if known. */
bool ittage_missed(struct predict *p, u64 from, u64 to, u64 last);

/* What the address of a branch contributes to a hash. */
static inline u32 predict_hash(u64 from)
{
	return (u32)from * 0x9e3779b1u;
}

static inline u32 predict_place(u64 from)
{
	return predict_hash(from) >> (32 - SURE_BITS);
}

static inline u32 predict_target_place(u64 from)
{
	return predict_hash(from) >> (32 - SURE_TARGETS);
}

enum foot {
	FOOT_NOT_TAKEN = 1,
	FOOT_CONDITIONAL, /* and taken: four, by place */
	FOOT_OTHER = FOOT_CONDITIONAL + 4,
};

static inline s32 predict_outcome(u32 foot)
{
	return (s32)(foot * 0x9e3779b1u);
}

/* Of a taken branch, for the path; sign-extended. `other`: not a conditional one. */
static inline s32 predict_foot(const struct predict_params *params, u64 from, u64 to, bool other)
{
	if (params->outcomes)
		return predict_outcome((other ? FOOT_OTHER : FOOT_CONDITIONAL) + (from >> 2 & 3));
	return (s32)(predict_hash(from) ^ (u32)to);
}

static inline void predict_step(struct predict *p, s32 foot)
{
	p->path = p->path * PATH_FACTOR + (u64)(s64)foot;
	p->ring[++p->path_at] = p->path;
}

static inline void predict_taken(struct predict *p, u64 from, u64 to, bool other)
{
	predict_step(p, predict_foot(p->params, from, to, other));
	if (p->params->outcomes)
		p->last = (u32)from;
}

/* What the hashes of a branch for all tables begin with. */
static inline u64 predict_key(const struct predict *p, u64 from, u32 last_bits)
{
	return (p->path + from + (p->last & last_bits) * LAST_FACTOR) * HASH_FACTOR;
}

/* A hash of the branch and of the path of that length before it: their sum, times HASH_FACTOR. Its
 * upper bits are the best. */
static inline u64 predict_hash_path(const struct predict *p, const struct history *h, u64 key)
{
	return key - p->ring[(u8)(p->path_at - h->length)] * h->factor;
}

static inline u64 predict_index(u64 hash, u32 bits)
{
	return hash >> (64 - bits);
}

static inline u16 predict_tag(u64 hash)
{
	return (u16)(hash >> 32) | 1; /* 0 is an empty entry */
}

/* Pseudo-random bits. Feedback polynomial x^32 + x^30 + x^26 + x^25 + 1. */
static inline u32 predict_draw(struct predict *p)
{
	u32 r = p->shift_register;

	return p->shift_register = r >> 1 ^ (r & 1 ? 0xa3000000u : 0);
}

#endif
