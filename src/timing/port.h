/* SPDX-License-Identifier: MIT */
/*
 * What the timing model needs of its owner, the processor: where page walks read (cpu/mmu/walk.c).
 * Called on the vCPU thread while the model is shown an access, and may not call it back.
 */
#ifndef TIMING_PORT_H
#define TIMING_PORT_H

#include "base/types.h"

/* An entry of a page table that a walk reads. */
struct timing_table {
	gpa_t entry;
	u8 shift; /* log2 of what it maps, as a page or by the tables that it points to */
	u8 above; /* tables between it and a page of 4 Kbytes */
};

#define TIMING_TABLES 5

struct timing_port {
	/* The entries that a walk of the address reads, from the first table to the page's, at most
	 * TIMING_TABLES. How many; 0 if there is no walk, or it does not arrive. It depends on the
	 * state of the guest alone. */
	u32 (*tables)(void *owner, gva_t linear, struct timing_table *out);
};

#endif
