/* SPDX-License-Identifier: MIT */
/*
 * The caches of several processors as one system: they share the last level, and a line that one
 * writes leaves the caches of the others. coherence.c has the protocol.
 *
 * A processor that is alone (timing.shared is NULL) comes here for nothing. Any vCPU's thread;
 * general registers only, but for coherence_create() and coherence_destroy(), which are the owner's
 * (coherence_memory.c).
 */
#ifndef TIMING_COHERENCE_H
#define TIMING_COHERENCE_H

#include "timing/timing.h"

#define COHERENCE_CPUS 64u /* that share one last level, at most: a bit of `holders` each */

/* The directory: sets and ways, as a cache of 64 Mbytes would have. A line that falls out of it
 * leaves all private caches, as it does from the snoop filter of a processor. */
#define COHERENCE_SETS 65536u
#define COHERENCE_WAYS 16u

/* A line that private caches hold. */
struct coherence_entry {
	u64 tag;     /* levels_tag() of the line; COHERENCE_MODIFIED; 0: none */
	u64 holders; /* the processors whose first or second level has it */
};

#define COHERENCE_MODIFIED BIT(63) /* the one holder has written it */

struct coherence_lock {
	u32 holder; /* index of a processor + 1; 0: free. Atomic */
} __attribute__((aligned(64)));

/* Zeroed when it is made. */
struct coherence {
	u32 ncpus; /* processors of the machine; atomic */
	/* Once there is memory for it, atomic: the directory, then the last level's tags, then its
	 * llc_aged[] and where the youngest of each set is. */
	void *memory;
	size_t size;
	struct timing *cpu[COHERENCE_CPUS]; /* those that have joined; written before any entry */
	/* Each guards what belongs to the lines of one set of the first level: of all other levels
	 * and of the directory, too, since their sets are whole multiples. */
	struct coherence_lock lock[TIMING_LINES];
};

/* A processor is added to the machine, before it runs. */
static inline void coherence_add_cpu(struct coherence *c)
{
	__atomic_add_fetch(&c->ncpus, 1, __ATOMIC_RELEASE);
}

/* Are there several? It never becomes false again. */
static inline bool coherence_needed(const struct coherence *c)
{
	return __atomic_load_n(&c->ncpus, __ATOMIC_ACQUIRE) > 1;
}

/* Memory for the last level and the directory, if there is none yet. 0 or -ENOMEM. */
int coherence_create(struct coherence *c, const struct model *model);
void coherence_destroy(struct coherence *c);

/* From now on the processor shares the last level. Lines that it had are forgotten. */
void coherence_join(struct coherence *c, struct timing *t, u32 index);

/* As levels_fill(). t->storing: to be written, by the host address of the line. t->snoop says
 * which other cache took part. */
enum observed_level coherence_fill(struct timing *t, u64 line);
/* The processor, which holds the line, writes it. True: others held it, too. */
bool coherence_own(struct timing *t, u64 line, u64 host);
/* Before a look-up in the first level: takes out what others have written. */
void coherence_refresh(struct timing *t, u32 set);
/* The first level has lost a line, by its tag; 0: none. */
void coherence_lost(struct timing *t, u64 tag);
/* Enters the line in data_line[], unless it was taken away meanwhile. */
void coherence_set_buffer(struct timing *t, u64 host);

void coherence_drop(struct timing *t, u64 line); /* out of the last level and of all others' */
void coherence_empty(struct timing *t); /* the last level; and the processor holds nothing */

#endif
