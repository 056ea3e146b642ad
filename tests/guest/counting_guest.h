/* SPDX-License-Identifier: MIT */
/*
 * A guest that counts its branches while a test does something to its VM from outside, and that is
 * exact in the end. For tests that `vpmu kvm` runs; there is one at a time.
 */
#ifndef GUEST_COUNTING_GUEST_H
#define GUEST_COUNTING_GUEST_H

#include <sys/types.h>

#include "guest/kvm_guest.h"

#define COUNT_OS	     (BIT(17) | BIT(22))
#define COUNTING_RBP	     (IMAGE_DATA + 16) /* what the guest loads into RBP */
#define COUNTING_PATIENCE_MS 20000

extern struct kvm_guest counting_guest;

/* Set-up and tear-down of a test: the guest runs in a thread of its own; it has counted each of its
 * branches, and no look at its counter has found it smaller. */
int counting_guest_start(void **state);
int counting_guest_finish(void **state);

/* The guest goes on: it makes a thousand rounds. */
bool counting_guest_runs(void);
pid_t counting_guest_thread(void);

#endif
