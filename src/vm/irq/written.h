/* SPDX-License-Identifier: MIT */
/*
 * Interrupts of a device that says what it has written (base/written.h): code is compared after
 * them only if it was on one of these pages. The ring is a file that VPMU_WRITTEN names
 * (base/inherited.h).
 */
#ifndef VM_IRQ_WRITTEN_H
#define VM_IRQ_WRITTEN_H

#include "base/types.h"

struct vm;
struct written;

struct vm_written {
	const struct written *ring; /* NULL: none */
	u64 seen;		    /* of ring->next; of the thread that takes signals of irqfds */
};

void written_environment(struct vm *vm); /* sets vm->written; before the VM has vCPUs */
void written_destroy(struct vm *vm);
/* An irqfd was signalled; this was read from it. */
void written_signalled(struct vm *vm, u64 signals);

#endif
