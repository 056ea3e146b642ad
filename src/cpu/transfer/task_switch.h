/* SPDX-License-Identifier: MIT */
/*
 * Hardware task switches (SDM 3A 7), which exist outside long mode only. Each function returns
 * FAULT_NONE with the new task entered; FAULT_RAISED with the registers of the outgoing task
 * untouched, though its TSS may have been written, or, when the fault was met while the new task's
 * segments were loaded, in the context of the new task (SDM 3A 7.3); or FAULT_EXIT. vCPU thread;
 * general registers only.
 */
#ifndef CPU_TRANSFER_TASK_SWITCH_H
#define CPU_TRANSFER_TASK_SWITCH_H

#include "cpu/transfer/descriptor.h"

/* JMP or CALL to a task gate or an available TSS. next_rip: where the outgoing task goes on. */
enum guest_fault task_transfer(struct cpu *cpu, struct descriptor *target, bool call, u64 next_rip);
/* IRET with NT set: back to the task that the current TSS links to. */
enum guest_fault task_return(struct cpu *cpu, u64 next_rip);
/* An event whose gate in the IDT is a task gate with this selector. */
enum guest_fault task_event(struct cpu *cpu, const struct cpu_event *event, u16 selector);

#endif
