/* SPDX-License-Identifier: MIT */
/*
 * The state of the branch predictor of one logical processor: branch.c, tage.c and ittage.c.
 *
 * Path. History is the path of taken near branches, as in Intel's path history register: a branch
 * that is not taken leaves no trace. Each taken branch makes path = path * PATH_FACTOR + foot,
 * where foot hashes its address and its target. A ring keeps the last values, so that the hash of
 * the last n branches alone is path - ring[n ago] * PATH_FACTOR^n: any length for a load, a
 * multiplication and a subtraction, and no folded registers to update when a branch is taken.
 *
 * Sure branches. A branch that went the same way SURE_AFTER times in a row is predicted by its
 * address alone: it neither asks the tables nor trains them, and is mispredicted when it turns.
 * This is a rule of the model and not just a short cut: translated code checks it in line.
 * SURE_AFTER is more than the longest history, so that a loop whose exit the tables can foresee
 * never becomes sure.
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

#define SURE_AFTER     255u
#define SURE_NOT_TAKEN 1u
#define SURE_TAKEN     2u
#define SURE_BITS      13 /* of conditional branches: log2 of the entries */
#define SURE_TARGETS   11 /* of indirect ones */

/* The most that a row of params.def may ask for. */
#define TAGE_TABLES   6
#define TAGE_BITS     12
#define ITTAGE_TABLES 4
#define ITTAGE_BITS   10
#define RSB_MAX	      32u /* of 8 bytes: a byte wraps where they do */

/* Of a CPU model. Lengths are taken branches, in ascending order, less than PATH_RING. */
struct predict_params {
	u8 tables;		/* tagged tables of conditional branches */
	u8 bits[TAGE_TABLES];	/* log2 of their entries */
	u8 length[TAGE_TABLES]; /* of their histories */
	u8 target_tables, target_bits;
	u8 target_length[ITTAGE_TABLES];
	u8 returns;	 /* entries of the return stack */
	bool falls_back; /* a return that finds the stack empty is predicted by its path */
};

/* A conditional branch, by predict_place(). */
struct sure {
	u8 sure;       /* 0, SURE_TAKEN or SURE_NOT_TAKEN */
	u8 run;	       /* equal outcomes in a row, up to SURE_AFTER */
	u8 taken : 1;  /* the last outcome */
	u8 tables : 3; /* only the first so many tagged tables may have an entry for it */
	s8 base;       /* the counter without history, -2 to 1; negative: not taken */
};

/* An indirect branch, by predict_target_place(). */
struct sure_target {
	u64 sure; /* 0: it is not */
	u64 last;
	u8 run;
};

struct tage_entry {
	u16 tag;    /* 0: empty */
	s8 counter; /* -4 to 3; negative: not taken */
	u8 useful;  /* 0 to 3; above 0 the entry is not replaced */
};

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

/* Of a taken branch, for the path; sign-extended. */
static inline s32 predict_foot(u64 from, u64 to)
{
	return (s32)(predict_hash(from) ^ (u32)to);
}

static inline void predict_taken(struct predict *p, u64 from, u64 to)
{
	p->path = p->path * PATH_FACTOR + (u64)(s64)predict_foot(from, to);
	p->ring[++p->path_at] = p->path;
}

/* What the hashes of a branch for all tables begin with. */
static inline u64 predict_key(const struct predict *p, u64 from)
{
	return (p->path + from) * HASH_FACTOR;
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
