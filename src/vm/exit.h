/* SPDX-License-Identifier: MIT */
/*
 * Why the processor stopped, and what is done about it. All return 1 to go on, 0 when vcpu->run
 * tells the program what to do, or -errno. vCPU thread, inside a section.
 */
#ifndef VM_EXIT_H
#define VM_EXIT_H

#include "cpu/cpu.h"

struct vcpu;

int exit_handle(struct vcpu *vcpu, enum exit_reason reason);
/* The program is back from an exit that it had to answer. *again: the instruction is still to be
 * executed. */
int exit_complete(struct vcpu *vcpu, bool *again);
/* KVM_EXIT_DEBUG, if the instruction that is over raised a #DB that the program asked for: at once,
 * as in KVM, before a signal can end KVM_RUN. */
int exit_to_debugger(struct vcpu *vcpu);
/* KVM_EXIT_SHUTDOWN. */
int exit_shutdown(struct vcpu *vcpu);
int exit_ioapic_eoi(struct vcpu *vcpu);

#endif
