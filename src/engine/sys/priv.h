/* SPDX-License-Identifier: MIT */
/*
 * What the files that execute system instructions share: the handlers (SYS in the rows of
 * insn.def), their operands, and the short ways to raise and to exit. vCPU thread; general
 * registers only, but after fpu_save().
 */
#ifndef ENGINE_SYS_PRIV_H
#define ENGINE_SYS_PRIV_H

#include "cpu/cpu.h"
#include "cpu/event.h"
#include "cpu/mmu/mmu.h"
#include "cpu/mode.h"
#include "engine/insn.h"
#include "engine/sys/sys.h"

typedef enum sys_result sys_fn(struct cpu *cpu, const struct insn *insn);

#define SYS(handler, gates, feature) sys_fn sys_##handler;
#define INSN(mnemonic, ways, ...)    ways
#include "engine/insn.def"

/* avx512_gather.c: gathers with an opmask, for sys_gather(); of one element, the size of its index
 * and its offset in the segment. */
sys_fn sys_gather_masked;
u32 sys_vsib_index_size(const struct insn *insn);
u64 sys_vsib_offset(const struct cpu *cpu, const struct insn *insn, const struct operand *op,
		    const u8 *index);

/* control.c: MOV to and from control and debug registers. */
sys_fn sys_mov_cr, sys_mov_dr;

static inline enum sys_result sys_done(enum guest_fault fault)
{
	if (likely(fault == FAULT_NONE))
		return SYS_NEXT;
	return fault == FAULT_RAISED ? SYS_FAULT : SYS_EXIT;
}

/* For instructions that set RIP. */
static inline enum sys_result sys_jumped(enum guest_fault fault)
{
	return fault == FAULT_NONE ? SYS_JUMP : sys_done(fault);
}

static inline enum sys_result sys_raise(struct cpu *cpu, enum vector vector)
{
	return sys_done(cpu_raise(cpu, vector));
}

static inline enum guest_fault sys_gp(struct cpu *cpu)
{
	return cpu_raise_error(cpu, VEC_GP, 0);
}

static inline enum sys_result sys_exit(struct cpu *cpu, enum exit_reason reason)
{
	cpu->port.exit.reason = reason;
	return SYS_EXIT;
}

static inline bool sys_code64(const struct cpu *cpu)
{
	return cpu_priv(cpu)->mode & MODE_CODE64;
}

static inline bool sys_virtual_8086(const struct cpu *cpu)
{
	return cpu->rflags & FL_VM;
}

static inline u32 sys_iopl(const struct cpu *cpu)
{
	return (cpu->rflags & FL_IOPL) >> FL_IOPL_SHIFT;
}

static inline u64 sys_next_rip(const struct cpu *cpu, const struct insn *insn)
{
	u64 next = cpu->rip + insn->len;

	return sys_code64(cpu) ? next : (u32)next;
}

static inline u64 sys_mask(u32 size)
{
	return ~0ull >> (64 - 8 * size);
}

static inline void sys_set_flag(struct cpu *cpu, u64 flag, bool on)
{
	cpu->rflags = on ? cpu->rflags | flag : cpu->rflags & ~flag;
}

/* Is a trap due after each instruction, and after each iteration of a REP? */
static inline bool sys_steps(const struct cpu *cpu)
{
	return (cpu->rflags & FL_TF) || cpu->port.debug.single_step;
}

/* string.c: what a REP returns that has not reached its last iteration. */
enum sys_result sys_between_iterations(struct cpu *cpu);

/* Registers: sizes 1 to 8; a 4-byte write clears the upper half. */
static inline u64 sys_reg(const struct cpu *cpu, u32 reg, u32 size)
{
	return cpu->regs[reg] & sys_mask(size);
}

static inline void sys_set_reg(struct cpu *cpu, u32 reg, u32 size, u64 value)
{
	u64 mask = sys_mask(size);

	if (size == 4)
		cpu->regs[reg] = (u32)value;
	else
		cpu->regs[reg] = (cpu->regs[reg] & ~mask) | (value & mask);
}

/* operand.c */
u64 sys_edx_eax(const struct cpu *cpu);
void sys_set_edx_eax(struct cpu *cpu, u64 value);

/* The offset that a memory operand names, in the address size of the instruction. */
u64 sys_offset(const struct cpu *cpu, const struct insn *insn, const struct operand *op);
/* The same through its segment, with the checks for an access of `size` bytes. */
enum guest_fault sys_address(struct cpu *cpu, const struct insn *insn, const struct operand *op,
			     u32 size, u32 access, gva_t *out);
/* Register, memory or immediate; at most 8 bytes. */
enum guest_fault sys_load(struct cpu *cpu, const struct insn *insn, const struct operand *op,
			  u32 size, u64 *value);
enum guest_fault sys_store(struct cpu *cpu, const struct insn *insn, const struct operand *op,
			   u32 size, u64 value);
/* The bytes from `at` of a memory operand that is read in parts: bounds, far pointers. */
enum guest_fault sys_load_part(struct cpu *cpu, const struct insn *insn, const struct operand *op,
			       u32 at, u32 size, u64 *value);
/* m16:n: the offset, then the selector. */
enum guest_fault sys_load_pointer(struct cpu *cpu, const struct insn *insn,
				  const struct operand *op, u16 *selector, u64 *offset);
/* Would an access to these bytes, on at most two pages, fault? Accessed and dirty bits are set. */
enum guest_fault sys_probe(struct cpu *cpu, gva_t gva, u32 size, u32 access);

/* The stack: offsets wrap at the width of the stack pointer. */
u32 sys_stack_width(const struct cpu *cpu);
enum guest_fault sys_stack_read(struct cpu *cpu, u64 sp, u32 size, u64 *value);
enum guest_fault sys_stack_write(struct cpu *cpu, u64 sp, u32 size, u64 value);
enum guest_fault sys_push(struct cpu *cpu, u32 size, u64 value);

#endif
