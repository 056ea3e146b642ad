/* SPDX-License-Identifier: MIT */
/*
 * The round-robin schedule of vCPUs on virtual time (vm/time/vm_time.h, docs/clock.md).
 *
 * Threads that run side by side access shared memory in an order that the host chooses. vCPUs on
 * virtual time run in turns instead, as if they shared one physical processor:
 *
 * 1. Only one vCPU, the *holder*, executes guest code. Virtual time passes with its cycles and with
 *    no others'.
 * 2. A turn ends when it has taken `quantum` cycles, when the vCPU halts, and when it has sent an
 *    interprocessor interrupt or asked to yield. Nothing else ends it: a holder that leaves
 *    KVM_RUN, for a device of the program or for a signal, holds its turn until it is back.
 * 3. The next holder is the next vCPU, in the order of creation, that is ready: runnable, or halted
 *    with an event that wakes it. Events between vCPUs wait for the turn of the one they are for.
 * 4. If no vCPU is ready, time skips to the first timer that wakes one. If there is no such timer
 *    no vCPU holds a turn, and time stands still, until an event comes from outside of the guest.
 *
 * So the order depends on the guest's state alone. A VM with one vCPU is scheduled by the same
 * rules; its turns do not end.
 *
 * A program that does not run a vCPU whose turn it is for ten seconds would stop all others. Unless
 * that is what it wants (base/turns.h, endless), the vCPU is passed over until its next KVM_RUN; if
 * it then completes an access and leaves again, that one instruction is executed without a turn.
 */
#ifndef VM_TIME_SCHEDULE_H
#define VM_TIME_SCHEDULE_H

#include <pthread.h>

#include "base/types.h"

struct vcpu;
struct vm;

#define SCHEDULE_QUANTUM 100000u /* cycles; VPMU_QUANTUM sets others */

struct vm_schedule {
	pthread_mutex_t lock;
	u64 quantum;
	struct vcpu *holder; /* changed under the lock, read anywhere; NULL: none */
	u32 last;	     /* index of the last holder, or one below the first */
	u64 begun;	     /* virtual time at which the turn began */
	bool yielded;	     /* the turn ends before the next instruction; the holder's */
	u64 missed_ns; /* clock_ns() since when a holder outside of KVM_RUN is waited for, or 0 */
};

void schedule_init(struct vm *vm); /* from VPMU_QUANTUM */
void schedule_destroy(struct vm *vm);

bool schedule_holds(const struct vcpu *vcpu);
/* KVM_RUN begins. */
void schedule_enter(struct vcpu *vcpu);
/* Does the vCPU hold a turn, or can it take a free one? */
bool schedule_take(struct vcpu *vcpu);

/* Of the holder, which may not be it afterwards: */

u64 schedule_end(const struct vcpu *vcpu); /* virtual time at which its turn ends, or TIME_NEVER */
bool schedule_is_over(const struct vcpu *vcpu);
/* Gives the turn to the next vCPU that is ready, or begins another one. */
void schedule_pass(struct vcpu *vcpu);
/* It halts outside of KVM_RUN, where the program waits for its interrupts: it has no turn until the
 * program runs it again. */
void schedule_leave(struct vcpu *vcpu);
/* It has nothing to execute: gives the turn away, or skips time for that. */
void schedule_rest(struct vcpu *vcpu);
/* The turn ends with this instruction. */
void schedule_yield(struct vcpu *vcpu);

#endif
