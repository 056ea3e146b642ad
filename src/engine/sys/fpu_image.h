/* SPDX-License-Identifier: MIT */
/*
 * The image of the x87 and vector state in cpu->xsave, for the instructions that save, restore or
 * index into it. All but sys_fpu_image() and sys_fpu_in_use() expect one of these to have been
 * called. vCPU thread.
 */
#ifndef ENGINE_SYS_FPU_IMAGE_H
#define ENGINE_SYS_FPU_IMAGE_H

#include "cpu/fpu.h"
#include "engine/insn.h"

/* Brings the state into cpu->xsave, with x87, SSE and AVX complete: cpu/fpu.h. */
void sys_fpu_image(struct cpu *cpu);
/* The components of XCR0 that are not in their initial state. */
u64 sys_fpu_in_use(struct cpu *cpu);
void sys_fpu_init(struct cpu *cpu, u64 components);
/* How much of a component beyond x87 and SSE this mode accesses: outside 64-bit mode the first 8
 * vector registers (SDM 1 13.5.3, 13.5.6). */
u32 sys_component_bytes(const struct cpu *cpu, u32 component);
u32 sys_vector_count(const struct cpu *cpu); /* vector registers this mode has */

/* Control words and pointers of the x87, in the form the instruction asks for. */
void sys_x87_pack(const struct cpu *cpu, const struct insn *insn, u8 to[XSAVE_MXCSR]);
void sys_x87_unpack(struct cpu *cpu, const struct insn *insn, const u8 from[XSAVE_MXCSR]);

/* The x87's control and status words and the stack's top in the image. */
#define FSW_ES	      BIT(7)
#define FSW_TOP	      (7u << 11)
#define FSW_TOP_SHIFT 11

u16 *sys_x87_fcw(struct cpu *cpu);
u16 *sys_x87_fsw(struct cpu *cpu);
u32 sys_x87_top(struct cpu *cpu);
/* The image has the registers in stack order: they move, so that each keeps its contents. */
void sys_x87_set_top(struct cpu *cpu, u32 top);

/* Vector registers 0 to 31 and opmask registers in the image. What is written is all 64 bytes: an
 * instruction zeroes the bytes beyond its vector length. */
#define VECTOR_MAX 64

void sys_vector_read(struct cpu *cpu, u32 reg, u8 to[VECTOR_MAX]);
void sys_vector_write(struct cpu *cpu, u32 reg, const u8 from[VECTOR_MAX]);
u64 sys_opmask_read(struct cpu *cpu, u32 k);
void sys_opmask_write(struct cpu *cpu, u32 k, u64 value);

bool sys_mxcsr_valid(const struct cpu *cpu, const u8 *area);

#endif
