/* SPDX-License-Identifier: MIT */
/*
 * The timing model of one logical processor: caches, TLBs, branch prediction. Part of the silicon:
 * it is shown lines, pages and branches and says what missed. docs/model.md describes the machine
 * it stands for; params.def has its numbers.
 *
 * It is a function of what it is shown, of the guest's page tables (port.h) and, with full timing,
 * of the bytes of lines that loads missed (penalty.c), and of nothing else, so that the same guest
 * code gives the same counts in whatever slices it runs. Translated code does by itself what
 * changes no state but the fields marked `inline`; the functions here do the same and more, and
 * both may be mixed at will.
 *
 * Line buffers. Lines that are young in their set of a first-level cache need no look-up, and using
 * them changes nothing: first.h. That is a rule of the model and not just a short cut.
 *
 * Freestanding: general registers only, no libc. Owned by the vCPU thread.
 */
#ifndef TIMING_TIMING_H
#define TIMING_TIMING_H

#include "hwpmu/observe.h"
#include "hwpmu/retire.h"
#include "timing/lines.h"
#include "timing/penalty.h"
#include "timing/port.h"
#include "timing/predict.h"
#include "timing/prefetch.h"
#include "x86/models.h"

/* Line buffers of a first-level cache. */
#define PLACE_BITS    12
#define TIMING_PLACES (1u << PLACE_BITS)

#define LINES_ALIKE (1u << 16)

/* Sets of tags, the youngest of a set first, but for those with an order of their own. A tag of 0
 * is an empty way. */
struct timing_sets {
	u64 *tags;
	u32 sets; /* a power of two */
	u8 ways;
	u8 young;   /* first-level caches: how many ways are young */
	u64 *notes; /* first-level caches: as tags[], see first.h */
	/* First-level caches, of each set: see first.h. */
	u64 *order, *prints;
	u8 *youngest; /* second level, of each set: see rings.h */
};

#define LAST_PLACES 16u

/* The last level: see rings.h. A set has LAST_PLACES, of which the first `ways` are used. */
struct timing_last {
	u32 *tags;
	u8 *youngest;
	u64 inverse; /* of a number of sets that is no power of two: 2^64 / sets, rounded up; else 0
		      */
	u32 sets;
	u8 ways;
	u8 shift; /* if they are a power of two, of which number */
};

#define PAGE_HASH_BITS 9
#define PAGE_HASHES    (1u << PAGE_HASH_BITS)

/* What first.h remembers of the pages of one hash. */
struct timing_page {
	u64 lost; /* lines that were looked up before this stamp, or at it, are not settled */
	/* Which groups of places may have lines of them, and which places of each. */
	u64 groups, places;
};

struct timing_pages {
	u64 lost, groups; /* of all pages */
	struct timing_page page[PAGE_HASHES];
};

struct timing_params;
struct coherence;

struct timing {
	/* --- inline --- */
	u64 data_line[TIMING_PLACES]; /* buffers: host addresses of lines; 0: none */
	u64 code_line[TIMING_PLACES]; /* timing_code_key() of lines; 0: none */
	/* With `shared`: of data_line[], those that no other processor holds, which a store needs.
	 * Other threads empty these and data_line[] (coherence.c). */
	u64 store_line[TIMING_PLACES];
	/* --- */
	struct predict predict;		    /* its first fields are inline too */
	const struct timing_params *params; /* NULL: no model; it is shown nothing */
	/* Full timing: what misses and mispredictions cost. NULL: nothing. */
	const struct penalty_params *costs;
	struct penalty penalty;
	u64 *count; /* by enum retire_class: where misses and penalties are added */
	struct observed seen;
	/* Not 0: accesses do not change `seen`; see engine/runtime/observe.c */
	u8 keep_seen;
	u16 slow_cycles; /* a load of more cycles counts in slow_loads; set by the owner */
	struct timing_sets l1d, l1i, l2; /* l1d's tags are marked: prefetched, not yet used */
	struct timing_last llc;
	u8 *l2_alike; /* how many lines l2 has, by the lowest bits of their numbers */
	/* Full timing: neighbours put a line into each set of llc every so many ticks (levels.c);
	 * 0: there are none. And how often they have, by set, as far as its tags show it. */
	u64 llc_period, *llc_aged;
	u64 llc_clock; /* their time: ticks that were observed, up to the last look at llc */
	/* With other processors: NULL without; the others also write stale[], see coherence.c. */
	struct coherence *shared;
	u32 index;   /* of this one */
	u64 storing; /* host address of a line that L2 is asked for to be written */
	u8 snoop;    /* enum observed_snoop: of the last line that L2 was asked for by an access */
	u8 forwards; /* the least enum observed_snoop that load_forwards counts */
	bool stale[TIMING_LINES]; /* the set of l1d may hold lines that were taken away */
	struct prefetch prefetch;
	struct timing_sets dtlb, itlb, stlb, istlb; /* istlb is stlb's where they are one */
	struct timing_sets directory, upper;	    /* paging-structure caches */
	u16 walk_cycles;			    /* of the last page walk */
	const struct timing_port *port;		    /* NULL: walks read nothing */
	void *owner;
	bool observing;	 /* the owner shows accesses and branches */
	bool first_line; /* the next line of code is the first one shown */
	/* timing_code_key() of the line after the first, until it is fetched; 0: none. */
	u64 next_line;
	u64 stamp; /* first.h */
	struct timing_pages data_pages, code_pages;
	u64 shown; /* linear address of the last access that was looked up */
	/* See timing_replay(). */
	u8 replay; /* visits of the owner to translated code that it lasts; 0: there is none */
	bool replay_code;
	u64 replay_upto;
};

/* An access on one page. */
struct timing_access {
	gva_t linear;
	gpa_t physical;
	u64 host;      /* address of it: the line buffer's name for the line */
	u16 size;      /* at most to the end of the page */
	u8 page_shift; /* of the guest's page */
	bool global;   /* the translation is every address space's */
	bool store;
	bool modify; /* with `store`: it reads first */
	u16 space;   /* address space: PCID */
};

/* How many bytes of zeroed memory the tags of this model take. */
size_t timing_memory(const struct model *model);
void timing_init(struct timing *t, const struct model *model, void *memory, u64 *count);

/* After that: the last level has no more than so many Kbytes, in as many ways as the model's and in
 * fewer sets, whole multiples of TIMING_LINES. */
void timing_set_last(struct timing *t, u32 kbytes);
/* And with full timing a line that it was not asked for in so many cycles is gone. */
void timing_set_life(struct timing *t, u32 cycles);

/*
 * The owner shows accesses and branches from now on, or until now. A processor has fetched the line
 * that it executes, and the next of the page, before: both are filled in uncounted when they come.
 * Without a model `look` is false.
 */
void timing_observe(struct timing *t, bool look);

/* Before it is observed: do misses and mispredictions take time? If so, the owner calls
 * penalty_at() before it shows accesses, and penalty_branch() after a misprediction. */
void timing_set_full(struct timing *t, bool full);

/*
 * The instruction whose access, or fetch, was shown last is going to be executed again. What it
 * shows again, up to that access, changes nothing. The owner calls timing_visit() before that
 * execution, and before the next.
 */
void timing_replay(struct timing *t, bool code);

static inline void timing_visit(struct timing *t)
{
	if (unlikely(t->replay))
		t->replay--;
}

/* False: nothing was counted. */
bool timing_data(struct timing *t, const struct timing_access *a);
/* The line that an instruction's bytes lie on. `host` and `size` play no part. */
bool timing_fetch(struct timing *t, const struct timing_access *a);

/* CLFLUSH, CLFLUSHOPT: the line is in no cache. */
void timing_flush_line(struct timing *t, gpa_t physical);
/* WBINVD, INVD. */
void timing_flush_caches(struct timing *t);

/* INVLPG, INVPCID: the page of any size, in all address spaces. */
void timing_flush_page(struct timing *t, gva_t linear);
void timing_flush_space(struct timing *t, u16 space); /* but not what is global */
void timing_flush_tlbs(struct timing *t);
/* MOV to CR3 that keeps what the TLBs hold. */
void timing_switch_space(struct timing *t);
/* Host addresses may stand for other lines from now on. Changes no count of these that stay. */
void timing_forget_hosts(struct timing *t);

/*
 * Near branches, at the address of the instruction, in the order in which they retire. Of those
 * that are predicted: was it mispredicted? A call is shown by timing_call() first, then as a jump
 * or as an indirect branch.
 */
bool timing_taken(struct timing *t, u64 from, u64 to); /* conditional */
bool timing_not_taken(struct timing *t, u64 from);
bool timing_indirect(struct timing *t, u64 from, u64 to);
bool timing_return(struct timing *t, u64 from, u64 to);
void timing_jump(struct timing *t, u64 from, u64 to); /* direct */
void timing_call(struct timing *t, u64 next);
void timing_forget_branches(struct timing *t); /* IBPB: indirect branches and returns */

static inline bool timing_conditional(struct timing *t, u64 from, u64 to, bool taken)
{
	return taken ? timing_taken(t, from, to) : timing_not_taken(t, from);
}

/* For translated code. */

static inline u32 timing_set(u64 address)
{
	return address >> LINE_SHIFT & (TIMING_LINES - 1);
}

/* Where the line buffers have a line. */
static inline u32 timing_place(u64 address)
{
	return address >> LINE_SHIFT & (TIMING_PLACES - 1);
}

static inline u64 timing_code_key(gpa_t line)
{
	return (line >> LINE_SHIFT) + 1;
}

#endif
