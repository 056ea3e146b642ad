/* SPDX-License-Identifier: MIT */
/*
 * Delivery of one event in each kind of mode, for deliver.c. Each returns FAULT_NONE with the
 * handler entered, or FAULT_RAISED with the second exception in cpu->port.event and nothing else
 * changed (but see cpu/transfer/task_switch.h), or FAULT_EXIT. vCPU thread; general registers only.
 */
#ifndef CPU_TRANSFER_DELIVER_H
#define CPU_TRANSFER_DELIVER_H

#include "cpu/transfer/descriptor.h"

enum guest_fault deliver_long(struct cpu *cpu, const struct cpu_event *event);
enum guest_fault deliver_protected(struct cpu *cpu, const struct cpu_event *event);
enum guest_fault deliver_real(struct cpu *cpu, const struct cpu_event *event);

/* EXT: the event does not come from an INT instruction of the program. */
u32 deliver_ext(const struct cpu_event *event);
/* Raises an exception that names the gate. */
enum guest_fault deliver_gate_fault(struct cpu *cpu, const struct cpu_event *event,
				    enum vector vector);
/* What gates have in common: type (a bit in `types`), DPL against INT n, present. */
enum guest_fault deliver_check_gate(struct cpu *cpu, const struct cpu_event *event, u32 attr,
				    u32 types);
/* Reads and checks the handler's code segment. *cpl: the privilege it will run at. */
enum guest_fault deliver_read_code(struct cpu *cpu, const struct cpu_event *event, u16 sel,
				   struct descriptor *cs, u8 *cpl);
/* RFLAGS as they are pushed. */
u64 deliver_flags_image(const struct cpu *cpu, const struct cpu_event *event);
/* Enters the handler: CS, RIP, privilege and flags. */
void deliver_enter(struct cpu *cpu, const struct descriptor *cs, u8 cpl, u64 rip,
		   bool interrupt_gate);

#endif
