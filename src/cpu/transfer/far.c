// SPDX-License-Identifier: MIT
/*
 * Far jumps, calls and returns (SDM 3A 5.8; JMP, CALL and RET operations in SDM 2): direct, between
 * 64-bit and compatibility mode, and back to an outer privilege level. Call gates are in
 * call_gate.c, task switches in task_switch.c. vCPU thread; general registers only.
 */
#include "cpu/transfer/far.h"

#include "cpu/event.h"
#include "cpu/mode.h"
#include "cpu/transfer/segment.h"
#include "cpu/transfer/task_switch.h"

void far_enter(struct cpu *cpu, const struct descriptor *cs, u8 cpl, u64 rip)
{
	cpu->seg[CS] = descriptor_segment(cs);
	cpu->seg[CS].sel = (cs->sel & ~SEL_RPL) | cpl;
	cpu->cpl = cpl;
	cpu->rip = rip;
	cpu_update_mode(cpu);
}

u64 far_truncate(u64 offset, u8 opsize)
{
	return opsize == 2 ? (u16)offset : opsize == 4 ? (u32)offset : offset;
}

/* Not a mixture of 64- and 32-bit code, and present. */
static enum guest_fault check_code(struct cpu *cpu, const struct descriptor *cs)
{
	if (descriptor_is_code64(cpu, cs) && (cs->attr & SEG_DB))
		return descriptor_fault(cpu, VEC_GP, cs->sel, 0);
	if (!(cs->attr & SEG_P))
		return descriptor_fault(cpu, VEC_NP, cs->sel, 0);
	return FAULT_NONE;
}

/* A direct transfer never changes privilege. */
static enum guest_fault check_direct(struct cpu *cpu, struct descriptor *cs)
{
	u8 dpl = descriptor_dpl(cs), rpl = cs->sel & SEL_RPL;
	enum guest_fault fault;
	bool ok;

	if (descriptor_is_conforming(cs))
		ok = dpl <= cpu->cpl;
	else
		ok = dpl == cpu->cpl && rpl <= cpu->cpl;
	if (!ok)
		return descriptor_fault(cpu, VEC_GP, cs->sel, 0);
	fault = check_code(cpu, cs);
	return fault ? fault : descriptor_mark_accessed(cpu, cs);
}

enum target_kind { TARGET_CODE, TARGET_GATE, TARGET_TASK };

/* What a far pointer names; #GP(selector) for what no transfer can go to. */
static enum guest_fault read_target(struct cpu *cpu, u16 selector, struct descriptor *d,
				    enum target_kind *kind)
{
	const u32 gates = 1u << TYPE_CALL_GATE | (cpu_long_mode(cpu) ? 0 : 1u << TYPE_CALL_GATE16);
	const u32 tasks = 1u << TYPE_TASK_GATE | 1u << TYPE_TSS | 1u << TYPE_TSS16;
	enum guest_fault fault;

	if (selector_null(selector))
		return cpu_raise_error(cpu, VEC_GP, 0);
	fault = descriptor_read(cpu, selector, VEC_GP, 0, d);
	if (fault)
		return fault;
	if (descriptor_is_code(d))
		*kind = TARGET_CODE;
	else if (!(d->attr & SEG_S) && gates >> descriptor_type(d) & 1)
		*kind = TARGET_GATE;
	else if (!(d->attr & SEG_S) && tasks >> descriptor_type(d) & 1 && !cpu_long_mode(cpu))
		*kind = TARGET_TASK;
	else
		return descriptor_fault(cpu, VEC_GP, selector, 0);
	return FAULT_NONE;
}

/* Real-address and virtual-8086 mode: the selector is the base. */
static enum guest_fault real_transfer(struct cpu *cpu, u16 selector, u64 rip)
{
	if (rip > cpu->seg[CS].limit)
		return cpu_raise_error(cpu, VEC_GP, 0);
	cpu->seg[CS].sel = selector;
	cpu->seg[CS].base = (u64)selector << 4;
	cpu->rip = rip;
	return FAULT_NONE;
}

static enum guest_fault jump_code(struct cpu *cpu, struct descriptor *cs, u64 rip)
{
	enum guest_fault fault = check_direct(cpu, cs);

	if (fault)
		return fault;
	fault = descriptor_target(cpu, cs, &rip, 0);
	if (!fault)
		far_enter(cpu, cs, cpu->cpl, rip);
	return fault;
}

enum guest_fault cpu_far_jump(struct cpu *cpu, u16 selector, u64 offset, u8 opsize, u64 next_rip)
{
	u64 rip = far_truncate(offset, opsize);
	enum target_kind kind;
	enum guest_fault fault;
	struct descriptor d;

	if (!cpu_has_descriptors(cpu))
		return real_transfer(cpu, selector, rip);
	fault = read_target(cpu, selector, &d, &kind);
	if (fault)
		return fault;
	switch (kind) {
	case TARGET_CODE:
		return jump_code(cpu, &d, rip);
	case TARGET_GATE:
		return gate_jump(cpu, &d);
	default:
		return task_transfer(cpu, &d, false, next_rip);
	}
}

static enum guest_fault real_call(struct cpu *cpu, u16 selector, u64 rip, u8 opsize, u64 next_rip)
{
	struct stack stack = stack_current(cpu);
	u64 frame[2] = { cpu->seg[CS].sel, next_rip };
	enum guest_fault fault;

	if (rip > cpu->seg[CS].limit)
		return cpu_raise_error(cpu, VEC_GP, 0);
	fault = stack_push(cpu, &stack, frame, 2, opsize);
	if (fault)
		return fault;
	stack_store(cpu, &stack);
	return real_transfer(cpu, selector, rip);
}

/* From 64-bit to compatibility mode the frame goes where the latter's ESP points (seen on Zen
 * 4). */
static struct stack stack_of_target(const struct cpu *cpu, const struct descriptor *cs)
{
	struct stack stack = stack_current(cpu);

	if (cpu_code64(cpu) && !descriptor_is_code64(cpu, cs)) {
		stack.mask = 0xffffffff;
		stack.seg = (struct segment){ .limit = 0xffffffff };
	}
	return stack;
}

enum guest_fault far_call_same(struct cpu *cpu, const struct descriptor *cs, u64 rip, u8 opsize,
			       u64 next_rip)
{
	struct stack stack = stack_of_target(cpu, cs);
	u64 frame[2] = { cpu->seg[CS].sel, next_rip };
	enum guest_fault fault;

	fault = stack_room(cpu, &stack, 2 * opsize);
	if (fault)
		return fault;
	fault = descriptor_target(cpu, cs, &rip, 0);
	if (fault)
		return fault;
	fault = stack_push(cpu, &stack, frame, 2, opsize);
	if (fault)
		return fault;
	stack_store(cpu, &stack);
	far_enter(cpu, cs, cpu->cpl, rip);
	return FAULT_NONE;
}

enum guest_fault cpu_far_call(struct cpu *cpu, u16 selector, u64 offset, u8 opsize, u64 next_rip)
{
	u64 rip = far_truncate(offset, opsize);
	enum target_kind kind;
	enum guest_fault fault;
	struct descriptor d;

	if (!cpu_has_descriptors(cpu))
		return real_call(cpu, selector, rip, opsize, next_rip);
	fault = read_target(cpu, selector, &d, &kind);
	if (fault)
		return fault;
	switch (kind) {
	case TARGET_CODE:
		fault = check_direct(cpu, &d);
		return fault ? fault : far_call_same(cpu, &d, rip, opsize, next_rip);
	case TARGET_GATE:
		return gate_call(cpu, &d, next_rip);
	default:
		return task_transfer(cpu, &d, true, next_rip);
	}
}

enum guest_fault far_read_return_code(struct cpu *cpu, u16 selector, struct descriptor *cs)
{
	u8 rpl = selector & SEL_RPL;
	enum guest_fault fault;
	bool ok;

	if (selector_null(selector))
		return cpu_raise_error(cpu, VEC_GP, 0);
	fault = descriptor_read(cpu, selector, VEC_GP, 0, cs);
	if (fault)
		return fault;
	if (descriptor_is_conforming(cs))
		ok = descriptor_dpl(cs) <= rpl;
	else
		ok = descriptor_is_code(cs) && descriptor_dpl(cs) == rpl;
	if (!ok || rpl < cpu->cpl)
		return descriptor_fault(cpu, VEC_GP, selector, 0);
	fault = check_code(cpu, cs);
	return fault ? fault : descriptor_mark_accessed(cpu, cs);
}

enum guest_fault far_read_return_stack(struct cpu *cpu, u16 selector, const struct descriptor *cs,
				       struct segment *ss)
{
	u8 cpl = cs->sel & SEL_RPL;
	enum guest_fault fault;
	struct descriptor d;

	if (selector_null(selector)) {
		bool allowed =
			descriptor_is_code64(cpu, cs) && cpl != 3 && (selector & SEL_RPL) == cpl;

		*ss = segment_null(selector);
		return allowed ? FAULT_NONE : cpu_raise_error(cpu, VEC_GP, 0);
	}
	fault = descriptor_read_stack(cpu, selector, cpl, VEC_GP, 0, &d);
	if (!fault)
		*ss = descriptor_segment(&d);
	return fault;
}

/* A null selector loses its RPL; the base of FS and GS in 64-bit mode is not its own. */
static void forget_rpl(struct segment *s)
{
	u64 base = s->base;

	*s = segment_null(0);
	s->base = base;
}

/* SDM 3A 5.8.6, 2B RET: data segments that the outer level may not use become null. */
static void drop_inner_segments(struct cpu *cpu)
{
	static const enum seg data[] = { ES, FS, GS, DS };

	for (u32 i = 0; i < ARRAY_SIZE(data); i++) {
		struct segment *s = &cpu->seg[data[i]];
		bool conforming = (s->attr & TYPE_CODE) && (s->attr & TYPE_CONFORMING);

		if (selector_null(s->sel))
			forget_rpl(s);
		else if (!conforming && (s->attr & SEG_DPL) >> SEG_DPL_SHIFT < cpu->cpl)
			*s = segment_null(0);
	}
}

void far_return_to(struct cpu *cpu, const struct descriptor *cs, u64 rip, const struct segment *ss,
		   u64 rsp)
{
	struct stack stack = {
		.sp = rsp,
		.mask = stack_mask(descriptor_is_code64(cpu, cs), ss),
	};
	bool outer = (cs->sel & SEL_RPL) != cpu->cpl;

	cpu->seg[SS] = *ss;
	stack_store(cpu, &stack);
	far_enter(cpu, cs, cs->sel & SEL_RPL, rip);
	if (!outer)
		return;
	drop_inner_segments(cpu);
	cpu_update_mode(cpu);
}

static enum guest_fault return_outer(struct cpu *cpu, struct stack *stack,
				     const struct descriptor *cs, u64 rip, u8 opsize, u16 pop)
{
	enum guest_fault fault;
	struct segment ss;
	u64 frame[2]; /* RSP, SS */

	stack_skip(stack, pop);
	fault = stack_pop(cpu, stack, frame, 2, opsize);
	if (fault)
		return fault;
	fault = far_read_return_stack(cpu, frame[1], cs, &ss);
	if (fault)
		return fault;
	fault = descriptor_target(cpu, cs, &rip, 0);
	if (!fault)
		far_return_to(cpu, cs, rip, &ss, frame[0] + pop);
	return fault;
}

static enum guest_fault real_return(struct cpu *cpu, u8 opsize, u16 pop)
{
	struct stack stack = stack_current(cpu);
	enum guest_fault fault;
	u64 frame[2]; /* RIP, CS */

	fault = stack_pop(cpu, &stack, frame, 2, opsize);
	if (fault)
		return fault;
	fault = real_transfer(cpu, frame[1], frame[0]);
	if (fault)
		return fault;
	stack_skip(&stack, pop);
	stack_store(cpu, &stack);
	return FAULT_NONE;
}

enum guest_fault cpu_far_return(struct cpu *cpu, u8 opsize, u16 pop)
{
	struct stack stack = stack_current(cpu);
	struct descriptor cs;
	enum guest_fault fault;
	u64 frame[2]; /* RIP, CS */

	if (!cpu_has_descriptors(cpu))
		return real_return(cpu, opsize, pop);
	fault = stack_pop(cpu, &stack, frame, 2, opsize);
	if (fault)
		return fault;
	fault = far_read_return_code(cpu, frame[1], &cs);
	if (fault)
		return fault;
	if ((frame[1] & SEL_RPL) != cpu->cpl)
		return return_outer(cpu, &stack, &cs, frame[0], opsize, pop);
	fault = descriptor_target(cpu, &cs, &frame[0], 0);
	if (fault)
		return fault;
	stack_skip(&stack, pop);
	stack_store(cpu, &stack);
	far_enter(cpu, &cs, cpu->cpl, frame[0]);
	return FAULT_NONE;
}
