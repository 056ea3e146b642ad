/* SPDX-License-Identifier: MIT */
/*
 * The guest's stack, for samples of the control socket.
 */
#ifndef VM_CONTROL_STACK_WALK_H
#define VM_CONTROL_STACK_WALK_H

#include "vm/vm.h"

/*
 * Return addresses on the stack of 64-bit code that keeps frame pointers, innermost first; as many
 * as there are up to `most`. `code` is in the address space and at the privilege of the processor
 * now. vCPU thread, inside a section.
 */
u32 vcpu_frames(struct vcpu *vcpu, const struct engine_where *code, u64 *out, u32 most);

#endif
