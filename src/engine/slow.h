/* SPDX-License-Identifier: MIT */
/*
 * The slow path of a guest memory access. What is called from translated code returns SLOW_*
 * (engine/priv.h). vCPU thread, guest vector state live: general registers only.
 */
#ifndef ENGINE_SLOW_H
#define ENGINE_SLOW_H

#include "engine/priv.h"

/* slow_access.c: called from translated code */
u64 slow_access(struct cpu *cpu, u64 address, u32 desc, const u8 *return_pc);
u64 slow_share(struct cpu *cpu, u64 address, u32 desc, const u8 *return_pc);
u64 slow_commit(struct cpu *cpu, u64 unused, u32 desc, const u8 *return_pc);
u64 slow_beyond(struct cpu *cpu, u64 unused, u32 pushes, const u8 *return_pc);
/* slow_fault.c: the access of slow_access() faults or exits; and what follows once the instruction
 * was executed on the bounce buffer. */
u64 slow_fault_access(struct cpu *cpu, enum guest_fault fault, u64 address, u32 desc,
		      const u8 *return_pc);
enum guest_fault slow_fault_computed(struct cpu *cpu);
/* The rest of slow_access(), for a linear address that segmentation allows. */
u64 slow_span(struct cpu *cpu, gva_t gva, u32 desc, u32 access, const u8 *return_pc);
bool slow_vector_misaligned(u64 address, u32 desc);
/* An address of translated code, with a DESC_* word, to a linear one. */
enum guest_fault slow_linear(struct cpu *cpu, u64 address, u32 desc, u32 access, gva_t *out);
/* For a call with a non-canonical target: would its push fault? Processors that push first do it
 * here. */
enum guest_fault slow_try_push(struct cpu *cpu, u32 size, u64 value);

/* slow_masked.c: slow_access() of an operand under an opmask. */
u64 slow_masked_access(struct cpu *cpu, u64 address, u32 desc, const u8 *return_pc);
/* Which elements are selected; and copies them between the bounce buffer and guest memory. */
void slow_masked_select(const struct cpu *cpu, struct slow_state *pending);
enum guest_fault slow_masked_read(struct cpu *cpu, u32 access);
enum guest_fault slow_masked_write(struct cpu *cpu);
/* Data breakpoints of the selected elements, the first of them at gva. */
void slow_masked_watch(struct cpu *cpu, gva_t gva, u32 access);

#endif
