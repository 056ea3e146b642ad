/* SPDX-License-Identifier: MIT */
/*
 * What the processors of one machine tell each other about code in their common memory.
 *
 * Each translates for itself, and must notice after a serializing instruction or an interrupt that
 * another one, the program or one of its devices has changed what it translated (SDM 3A 8.1.3).
 * Comparing all of it each time would be far too slow. So a page that a processor translated from
 * is claimed: a count per page in its slot, and processors write to claimed pages on their slow
 * paths only. Such a write is counted in `written`; an ioctl, irqfd or anything else that lets the
 * program or a device write is counted in `outside`, but for an irqfd whose device has told that it
 * wrote to pages which nobody claims (vm/irq/written.c). While neither grows, no code has changed.
 *
 * A processor may hold a write tag for a page in its TLB when the page is claimed. Claims are
 * numbered; each processor drops such tags now and then, before it executes anything after a sleep,
 * and after its own serializing instructions, and then acknowledges all claims up to a number.
 * Until all others have done so, the engine compares the page as if it had been written.
 *
 * A slot may show host memory that others show, too (mem_next_alias()). A claim is one of the
 * address that the code was fetched from; who writes looks at the claims of all addresses.
 *
 * A processor that has not joined (shared_join()) is alone: for it only the functions may be called
 * that take a page or an address.
 *
 * Any processor's thread, without locks; general registers only.
 */
#ifndef CPU_MMU_SHARED_CODE_H
#define CPU_MMU_SHARED_CODE_H

#include "cpu/cpu.h"

#define SHARED_CPUS 1024

struct shared_code {
	u64 outside; /* grows when the program or a device may have written memory; any thread */
	u64 written; /* grows when a processor wrote to a page that another one has claimed */
	u64 claims;  /* number of the last claim */
	u32 ncpus;
	struct shared_ack {
		/* The processor has acknowledged claims up to this number, or SHARED_ASLEEP. */
		u64 upto;
	} __attribute__((aligned(64))) ack[SHARED_CPUS];
};

#define SHARED_ASLEEP (~0ull)

/* The program or a device may have written guest memory. Any thread. */
static inline void shared_outside(struct shared_code *shared)
{
	__atomic_add_fetch(&shared->outside, 1, __ATOMIC_SEQ_CST);
}

/* Has `written` or `outside` grown since the last call? */
bool shared_changed(struct cpu *cpu);
/* Would shared_changed() or shared_acknowledge() find anything? Changes nothing. */
bool shared_change_unseen(const struct cpu *cpu);

struct code_page;

/* Claims a page for this processor, and returns the number of the claim, 0 if its slot is not
 * shared; releases it. */
u64 shared_claim(struct cpu *cpu, struct code_page *page);
void shared_release(struct cpu *cpu, struct code_page *page);
bool shared_claimed(struct cpu *cpu, gpa_t gpa); /* by any processor */
/* The memory slot it was made in is gone. */
bool shared_claim_gone(struct cpu *cpu, const struct code_page *page);

/* Drops write tags of pages that were claimed since, and acknowledges the claims. */
void shared_acknowledge(struct cpu *cpu);
/* It has no write tag for the page of its own claim of this number: acknowledges that, if nothing
 * that others claimed comes before it. */
void shared_acknowledge_own(struct cpu *cpu, u64 number);
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
