/* SPDX-License-Identifier: MIT */
/*
 * What the processors of one machine tell each other about code in their common memory.
 *
 * Each translates for itself, and must notice behind a serializing instruction or an interrupt that
 * another one, the program or one of its devices has changed what it translated (SDM 3A 8.1.3).
 * Comparing all of it each time would be far too slow. So a page that somebody translated from is
 * claimed: one count a page in its slot, and no processor writes to it without noticing. Such a
 * write is counted in `written`; what comes from outside is counted in `outside`. While neither
 * grows, nothing has changed.
 *
 * A processor may hold the right to write to a page when it is claimed. Claims are numbered; each
 * processor gives up such rights now and then, before it executes anything after a sleep, and
 * behind its own serializing instructions, and then acknowledges all claims up to a number. Until
 * all others have done so, the engine compares the page as if it had been written.
 *
 * Any processor's thread, without locks; general registers only.
 */
#ifndef CPU_MMU_SHARED_CODE_H
#define CPU_MMU_SHARED_CODE_H

#include "cpu/cpu.h"

#define SHARED_CPUS 1024

struct shared_code {
	u64 outside; /* grows when the program or a device may have written memory */
	u64 written; /* grows when a processor wrote to a page that another one has claimed */
	u64 claims;  /* how many there have been */
	u32 ncpus;
	struct shared_ack {
		u64 upto; /* claims up to this are known to the processor, or SHARED_ASLEEP */
	} __attribute__((aligned(64))) ack[SHARED_CPUS];
};

#define SHARED_ASLEEP (~0ull)

/* The program or a device has had its turn. Any thread. */
static inline void shared_outside(struct shared_code *shared)
{
	__atomic_add_fetch(&shared->outside, 1, __ATOMIC_SEQ_CST);
}

/* Has anything been counted since the last call? */
bool shared_news(struct cpu *cpu);
/* Would shared_news() or shared_acknowledge() find anything? Changes nothing. */
bool shared_unseen(const struct cpu *cpu);

struct code_page;

/* Claims a page for this processor, with the number of the claim; releases it. */
u64 shared_claim(struct cpu *cpu, struct code_page *page);
void shared_release(struct cpu *cpu, struct code_page *page);
bool shared_claimed(struct cpu *cpu, gpa_t gpa);		       /* by any processor */
bool shared_claim_gone(struct cpu *cpu, const struct code_page *page); /* its slot has changed */

/* Gives up the right to write to what has been claimed meanwhile. */
void shared_acknowledge(struct cpu *cpu);
/* Up to which number have all others acknowledged? */
u64 shared_acknowledged(const struct cpu *cpu);
/* For the owner: this is the machine's processor of that number, counted without gaps; asleep. */
void shared_join(struct cpu *cpu, struct shared_code *shared, u32 index);
/* The processor executes nothing until it has acknowledged; it may again. */
void shared_sleep(struct cpu *cpu);
void shared_wake(struct cpu *cpu);

/* Would a write to these bytes be noticed by a translator? And: it has been made. */
bool shared_watched(struct cpu *cpu, gpa_t gpa, u32 size);
void shared_written(struct cpu *cpu, gpa_t gpa, u32 size);

#endif
