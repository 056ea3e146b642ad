/* SPDX-License-Identifier: MIT */
/*
 * For fuzz targets of the KVM API: a guest that does a little of everything, and KVM_RUNs that a
 * signal ends.
 */
#ifndef FUZZ_BUSY_GUEST_H
#define FUZZ_BUSY_GUEST_H

#include "guest/kvm_guest.h"

#define BUSY_SIGNAL SIGVTALRM

enum busy_flag { BUSY_IRQCHIP = 1, BUSY_PIT = 2, BUSY_TWO = 4 }; /* two vCPUs */

void busy_set_up(void); /* once: the signal and its timer */
void busy_create(struct kvm_guest *g, u8 flags);
void busy_run(struct kvm_guest *g, u8 vcpu); /* a few milliseconds at most */

/* Descriptors of this process. */
u32 busy_count_fds(void);

#endif
