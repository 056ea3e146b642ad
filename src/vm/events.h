/* SPDX-License-Identifier: MIT */
/*
 * Events between the API, the LAPIC and struct cpu: see events.c. vCPU thread, or vCPU lock held.
 */
#ifndef VM_EVENTS_H
#define VM_EVENTS_H

#include "base/types.h"

struct vcpu;

/* Before an entry: puts the event that is due into cpu->port.event and asks for windows for those
 * that wait. */
void events_inject(struct vcpu *vcpu);
/* Before an exception takes its place: an interrupt or NMI that was taken is due again after it. */
void events_set_aside(struct vcpu *vcpu);
/* INIT, start-up, NMI and wake-up messages that the LAPIC took: acts on them. */
void events_accept(struct vcpu *vcpu);
/* Is there something that ends a HLT (or the wait for a start-up IPI)? */
bool events_wake(const struct vcpu *vcpu);
/* Has the LAPIC taken messages that events_accept() would act on? */
bool events_unaccepted(const struct vcpu *vcpu);
bool events_irq_allowed(const struct vcpu *vcpu); /* IF set and no interrupt shadow */
bool events_irq_wanted(const struct vcpu *vcpu);  /* the program asked to know when it may inject */
bool events_ready_for_irq(const struct vcpu *vcpu); /* ready_for_interrupt_injection */
/* An exception that has been raised, but whose delivery has not begun. */
bool events_exception_pending(const struct vcpu *vcpu);
/* Without KVM_CAP_EXCEPTION_PAYLOAD: CR2 and DR6 get a waiting exception's payload now. */
void events_apply_payload(struct vcpu *vcpu);

#endif
