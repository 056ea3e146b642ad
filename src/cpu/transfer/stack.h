/* SPDX-License-Identifier: MIT */
/*
 * A stack that frames are pushed on and popped from: the current one, or one that a transfer is
 * about to switch to. Nothing of struct cpu changes before stack_store(). vCPU thread; general
 * registers only.
 */
#ifndef CPU_TRANSFER_STACK_H
#define CPU_TRANSFER_STACK_H

#include "cpu/cpu.h"

struct stack {
	struct segment seg; /* unless 64-bit */
	u64 sp;
	u64 mask;   /* the part of RSP that is the stack pointer: 16, 32 or 64 bits */
	u32 access; /* ACCESS_SYSTEM for a more privileged stack */
	u32 error;  /* of #SS */
};

#define STACK_MASK64 (~0ull)
#define FRAME_MAX    48 /* elements; a call gate copies up to 31 */

/* The stack in use. */
struct stack stack_current(const struct cpu *cpu);
/* A stack to switch to: 64-bit, and segmented. `error` for #SS; accesses have supervisor rights. */
struct stack stack_switch64(u64 rsp, u32 error);
struct stack stack_switch(const struct segment *seg, u64 sp, u32 error);

/* Is there room for `size` bytes more? Raises #SS. */
enum guest_fault stack_room(struct cpu *cpu, const struct stack *s, u32 size);
/* Pushes values[0] first, one by one: a fault leaves those before it in memory, below the stack
 * pointer. */
enum guest_fault stack_push(struct cpu *cpu, struct stack *s, const u64 *values, u32 n, u32 width);
/* Pops values[0] first, each zero-extended. */
enum guest_fault stack_pop(struct cpu *cpu, struct stack *s, u64 *values, u32 n, u32 width);
/* Releases bytes that a return instruction names. */
void stack_skip(struct stack *s, u32 size);

/* Makes s->sp the stack pointer; what the mask leaves out of RSP keeps its value. */
void stack_store(struct cpu *cpu, const struct stack *s);

/* The mask for a stack segment used by such code. */
u64 stack_mask(bool code64, const struct segment *ss);

#endif
