// SPDX-License-Identifier: MIT
/*
 * IRET from every mode (SDM 2A, IRET operation; SDM 3A 6.14.3). It ends the blocking of NMIs even
 * when it faults (SDM 3A 6.7.1); all other state a faulting IRET leaves alone, unless it had
 * switched tasks. vCPU thread; general registers only.
 */
#include "cpu/transfer/segment.h"

#include "cpu/event.h"
#include "cpu/mode.h"
#include "cpu/transfer/far.h"
#include "cpu/transfer/task_switch.h"

#define FL_ALWAYS (FL_ARITH | FL_TF | FL_DF | FL_NT)
#define FL_UPPER  (FL_RF | FL_AC | FL_ID) /* not with 16-bit operands */

enum { FRAME_RIP, FRAME_CS, FRAME_FLAGS, FRAME_RSP, FRAME_SS, FRAME_SIZE };

/* Which flags the frame may change depends on the privilege before the return. */
static u64 writable_flags(const struct cpu *cpu, u8 opsize)
{
	u32 iopl = (cpu->rflags & FL_IOPL) >> FL_IOPL_SHIFT;
	u64 mask = FL_ALWAYS;

	if (opsize > 2)
		mask |= FL_UPPER;
	if (cpu->cpl <= iopl)
		mask |= FL_IF;
	if (cpu->cpl == 0)
		mask |= FL_IOPL | (opsize > 2 ? FL_VIF | FL_VIP : 0);
	return mask;
}

/* The last step of each kind of IRET; `mask` from before the privilege changed. */
static void finish(struct cpu *cpu, u64 image, u64 mask)
{
	cpu->rflags = (cpu->rflags & ~mask) | (image & mask) | FL_FIX1;
	if (mask & FL_RF)
		cpu_priv(cpu)->begun |= BEGUN_RF;
	cpu_update_mode(cpu);
}

/* Real-address and virtual-8086 mode; IOPL and the virtual flags stay in the latter. */
static enum guest_fault iret_real(struct cpu *cpu, u8 opsize)
{
	u64 mask = FL_ALWAYS | FL_IF | (opsize > 2 ? FL_UPPER : 0);
	struct stack stack = stack_current(cpu);
	enum guest_fault fault;
	u64 frame[3];

	if (!(cpu->rflags & FL_VM))
		mask |= FL_IOPL;
	else if ((cpu->rflags & FL_IOPL) != FL_IOPL)
		return cpu_raise_error(cpu, VEC_GP, 0);
	fault = stack_pop(cpu, &stack, frame, 3, opsize);
	if (fault)
		return fault;
	if (frame[FRAME_RIP] > cpu->seg[CS].limit)
		return cpu_raise_error(cpu, VEC_GP, 0);
	stack_store(cpu, &stack);
	cpu->seg[CS].sel = frame[FRAME_CS];
	cpu->seg[CS].base = (frame[FRAME_CS] & 0xffff) << 4;
	cpu->rip = frame[FRAME_RIP];
	finish(cpu, frame[FRAME_FLAGS], mask);
	return FAULT_NONE;
}

/* From privilege level 0 into virtual-8086 mode: six more elements. */
static enum guest_fault iret_to_vm86(struct cpu *cpu, struct stack *stack, const u64 frame[3])
{
	static const enum seg order[] = { SS, ES, DS, FS, GS };
	u64 mask = writable_flags(cpu, 4) | FL_VM;
	enum guest_fault fault;
	u64 more[6]; /* ESP, then the selectors */

	fault = stack_pop(cpu, stack, more, 6, 4);
	if (fault)
		return fault;
	if (frame[FRAME_RIP] > 0xffff)
		return cpu_raise_error(cpu, VEC_GP, 0);
	for (u32 i = 0; i < ARRAY_SIZE(order); i++)
		cpu->seg[order[i]] = segment_vm86(more[i + 1]);
	cpu->seg[CS] = segment_vm86(frame[FRAME_CS]);
	cpu->regs[RSP] = more[0];
	cpu->rip = frame[FRAME_RIP];
	cpu->cpl = 3;
	finish(cpu, frame[FRAME_FLAGS], mask);
	return FAULT_NONE;
}

/* RSP and SS are in the frame. */
static enum guest_fault return_with_stack(struct cpu *cpu, const u64 frame[FRAME_SIZE],
					  const struct descriptor *cs, u8 opsize)
{
	u64 rip = frame[FRAME_RIP], mask = writable_flags(cpu, opsize);
	enum guest_fault fault;
	struct segment ss;

	fault = far_read_return_stack(cpu, frame[FRAME_SS], cs, &ss);
	if (fault)
		return fault;
	fault = descriptor_target(cpu, cs, &rip, 0);
	if (fault)
		return fault;
	far_return_to(cpu, cs, rip, &ss, frame[FRAME_RSP]);
	finish(cpu, frame[FRAME_FLAGS], mask);
	return FAULT_NONE;
}

static enum guest_fault return_same(struct cpu *cpu, const struct stack *stack,
				    const u64 frame[FRAME_SIZE], const struct descriptor *cs,
				    u8 opsize)
{
	u64 rip = frame[FRAME_RIP], mask = writable_flags(cpu, opsize);
	enum guest_fault fault = descriptor_target(cpu, cs, &rip, 0);

	if (fault)
		return fault;
	stack_store(cpu, stack);
	far_enter(cpu, cs, cpu->cpl, rip);
	finish(cpu, frame[FRAME_FLAGS], mask);
	return FAULT_NONE;
}

/* 64-bit code pops all five; others pop RSP and SS only when the privilege changes. */
static enum guest_fault iret_protected(struct cpu *cpu, u8 opsize)
{
	struct stack stack = stack_current(cpu);
	bool with_stack = cpu_code64(cpu);
	struct descriptor cs;
	enum guest_fault fault;
	u64 frame[FRAME_SIZE];

	fault = stack_pop(cpu, &stack, frame, with_stack ? FRAME_SIZE : 3, opsize);
	if (fault)
		return fault;
	if (!cpu_long_mode(cpu) && cpu->cpl == 0 && opsize == 4 && (frame[FRAME_FLAGS] & FL_VM))
		return iret_to_vm86(cpu, &stack, frame);
	fault = far_read_return_code(cpu, frame[FRAME_CS], &cs);
	if (fault)
		return fault;
	if (!with_stack && (cs.sel & SEL_RPL) != cpu->cpl) {
		fault = stack_pop(cpu, &stack, &frame[FRAME_RSP], 2, opsize);
		if (fault)
			return fault;
		with_stack = true;
	}
	if (with_stack)
		return return_with_stack(cpu, frame, &cs, opsize);
	return return_same(cpu, &stack, frame, &cs, opsize);
}

static enum guest_fault iret_in_mode(struct cpu *cpu, u8 opsize, u64 next_rip)
{
	if (!cpu_has_descriptors(cpu))
		return iret_real(cpu, opsize);
	if (!(cpu->rflags & FL_NT))
		return iret_protected(cpu, opsize);
	/* A nested task: long mode has none. */
	return cpu_long_mode(cpu) ? cpu_raise_error(cpu, VEC_GP, 0) : task_return(cpu, next_rip);
}

enum guest_fault cpu_iret(struct cpu *cpu, u8 opsize, u64 next_rip)
{
	enum guest_fault fault = iret_in_mode(cpu, opsize, next_rip);

	if (fault != FAULT_EXIT)
		cpu->nmi_masked = false;
	return fault;
}
