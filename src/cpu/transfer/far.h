/* SPDX-License-Identifier: MIT */
/*
 * What far.c, call_gate.c and iret.c share: the checks of returns, and entering a code segment.
 * vCPU thread; general registers only.
 */
#ifndef CPU_TRANSFER_FAR_H
#define CPU_TRANSFER_FAR_H

#include "cpu/transfer/descriptor.h"
#include "cpu/transfer/stack.h"

/* Loads CS, RIP and the privilege level. */
void far_enter(struct cpu *cpu, const struct descriptor *cs, u8 cpl, u64 rip);
u64 far_truncate(u64 offset, u8 opsize);
/* A call that stays at its privilege, with the code segment already checked. */
enum guest_fault far_call_same(struct cpu *cpu, const struct descriptor *cs, u64 rip, u8 opsize,
			       u64 next_rip);

/* The checks of a return address' CS, and of the SS that comes with it. */
enum guest_fault far_read_return_code(struct cpu *cpu, u16 selector, struct descriptor *cs);
enum guest_fault far_read_return_stack(struct cpu *cpu, u16 selector, const struct descriptor *cs,
				       struct segment *ss);
/* Returns to cs:rip with ss:rsp; drops data segments if that is an outer level. */
void far_return_to(struct cpu *cpu, const struct descriptor *cs, u64 rip, const struct segment *ss,
		   u64 rsp);

/* Through a call gate (call_gate.c). */
enum guest_fault gate_jump(struct cpu *cpu, struct descriptor *gate);
enum guest_fault gate_call(struct cpu *cpu, struct descriptor *gate, u64 next_rip);

#endif
