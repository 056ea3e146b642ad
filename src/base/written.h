/* SPDX-License-Identifier: MIT */
/*
 * What a device in another process has written to guest memory: a ring in memory that the process
 * of the VM shares with the server of its files (exec/share).
 *
 * After an interrupt of a device a processor must execute the code that the device has written
 * (cpu/mmu/shared_code.h). What one wrote is not known, in general, so that all code is compared;
 * a program that reads many files spends a tenth of its time on that. This device tells. It notes
 * the pages of an answer before it signals the eventfd of its interrupt, and adds WRITTEN_SIGNAL to
 * that instead of 1. A reader that finds nothing but such signals in an eventfd knows from the ring
 * all that was written before (vm/irq/written.c).
 *
 * One process adds, one reads. Neither is harmed by what the other may do to the ring: a wrong one
 * makes the guest execute code as it was, or compares more than needed.
 */
#ifndef BASE_WRITTEN_H
#define BASE_WRITTEN_H

#include "base/types.h"

#define WRITTEN_RANGES 4096

struct written {
	u64 next; /* ranges that were ever added */
	/* Address of a page, in the bits below it the number of pages that follow; WRITTEN_ALL. */
	u64 range[WRITTEN_RANGES];
};

#define WRITTEN_ALL    (~0ull)
#define WRITTEN_SIGNAL (1ull << 32 | 1)

/* Is it a sum of WRITTEN_SIGNALs alone? */
static inline bool written_told(u64 signals)
{
	return signals && signals >> 32 == (u32)signals;
}

/* After the bytes were written. */
static inline void written_add(struct written *ring, gpa_t gpa, u64 size)
{
	u64 at = ring->next, more = (gpa % PAGE_SIZE + size - 1) / PAGE_SIZE;

	if (!size)
		return;
	__atomic_store_n(&ring->range[at % WRITTEN_RANGES],
			 more < PAGE_SIZE ? (gpa & PAGE_MASK) | more : WRITTEN_ALL,
			 __ATOMIC_RELAXED);
	__atomic_store_n(&ring->next, at + 1, __ATOMIC_RELEASE);
}

#endif
