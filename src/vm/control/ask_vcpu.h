/* SPDX-License-Identifier: MIT */
/*
 * Questions to a vCPU from other threads, about state that belongs to its lock: KVM_RUN holds that
 * for as long as it runs, so that the vCPU's thread answers between two entries.
 */
#ifndef VM_CONTROL_ASK_VCPU_H
#define VM_CONTROL_ASK_VCPU_H

#include "base/types.h"

struct vcpu;

typedef void vcpu_question(struct vcpu *vcpu, void *arg);

/*
 * Has question(vcpu, arg) answered, on the vCPU's thread or on this one if it is not in KVM_RUN.
 * False: it did not find the time, and will not. Any thread that is not inside a vCPU; one at a
 * time (vm->ask_lock).
 */
bool vcpu_ask(struct vcpu *vcpu, vcpu_question *question, void *arg);

/* The vCPU's thread, between entries: answers a pending question, if any. */
void vcpu_answer(struct vcpu *vcpu);

#endif
