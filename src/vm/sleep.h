/* SPDX-License-Identifier: MIT */
/*
 * Where KVM_RUN waits: for an interrupt, for the vCPU's turn on virtual time, for devices. Each
 * returns at the latest when vcpu_interrupted(). The vCPU's thread, with its lock held, outside of
 * a section.
 */
#ifndef VM_SLEEP_H
#define VM_SLEEP_H

#include "vm/vm.h"

/* Until an event is to be accepted or wakes the vCPU. Not on virtual time. */
void sleep_until_woken(struct vcpu *vcpu);
/* HALTED, or waiting for INIT or a start-up IPI: until mp_state may have changed. Virtual time is
 * skipped, not waited for. */
void sleep_halted(struct vcpu *vcpu);
/* On virtual time, until it is the vCPU's turn. False: a signal came first. */
bool sleep_until_turn(struct vcpu *vcpu);
/* On virtual time, until devices have done what the guest asked for. False: a signal came first. */
bool sleep_until_outside(struct vcpu *vcpu);

#endif
