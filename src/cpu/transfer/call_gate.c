// SPDX-License-Identifier: MIT
/*
 * Call gates (SDM 3A 5.8.3 to 5.8.5): 64-bit ones in long mode, 32- and 16-bit ones elsewhere, with
 * the switch to an inner stack. vCPU thread; general registers only.
 */
#include "cpu/transfer/far.h"

#include "cpu/event.h"

/* Element size that a gate implies. */
static u8 gate_width(const struct cpu *cpu, const struct descriptor *gate)
{
	if (cpu_long_mode(cpu))
		return 8;
	return descriptor_type(gate) == TYPE_CALL_GATE ? 4 : 2;
}

static u64 gate_target(const struct cpu *cpu, const struct descriptor *gate)
{
	if (cpu_long_mode(cpu))
		return gate_offset64(gate->lo, gate->hi);
	return far_truncate(gate_offset(gate->lo), gate_width(cpu, gate));
}

static enum guest_fault check_gate(struct cpu *cpu, struct descriptor *gate)
{
	u8 dpl = descriptor_dpl(gate);

	if (dpl < cpu->cpl || dpl < (gate->sel & SEL_RPL))
		return descriptor_fault(cpu, VEC_GP, gate->sel, 0);
	if (!(gate->attr & SEG_P))
		return descriptor_fault(cpu, VEC_NP, gate->sel, 0);
	return cpu_long_mode(cpu) ? descriptor_extend(cpu, gate) : FAULT_NONE;
}

/* May this code be reached? Only a call goes to a more privileged level. */
static bool reachable(const struct cpu *cpu, const struct descriptor *cs, bool call)
{
	u8 dpl = descriptor_dpl(cs);

	if (!descriptor_is_code(cs) || dpl > cpu->cpl)
		return false;
	/* In long mode a call gate leads to 64-bit code only. */
	if (cpu_long_mode(cpu) && (cs->attr & (SEG_L | SEG_DB)) != SEG_L)
		return false;
	return call || descriptor_is_conforming(cs) || dpl == cpu->cpl;
}

static enum guest_fault read_code(struct cpu *cpu, const struct descriptor *gate, bool call,
				  struct descriptor *cs)
{
	u16 sel = gate_selector(gate->lo);
	enum guest_fault fault;

	if (selector_null(sel))
		return cpu_raise_error(cpu, VEC_GP, 0);
	fault = descriptor_read(cpu, sel, VEC_GP, 0, cs);
	if (fault)
		return fault;
	if (!reachable(cpu, cs, call))
		return descriptor_fault(cpu, VEC_GP, sel, 0);
	if (!(cs->attr & SEG_P))
		return descriptor_fault(cpu, VEC_NP, sel, 0);
	return descriptor_mark_accessed(cpu, cs);
}

enum guest_fault gate_jump(struct cpu *cpu, struct descriptor *gate)
{
	struct descriptor cs;
	enum guest_fault fault;
	u64 rip;

	fault = check_gate(cpu, gate);
	if (fault)
		return fault;
	fault = read_code(cpu, gate, false, &cs);
	if (fault)
		return fault;
	rip = gate_target(cpu, gate);
	fault = descriptor_target(cpu, &cs, &rip, 0);
	if (!fault)
		far_enter(cpu, &cs, cpu->cpl, rip);
	return fault;
}

/* Long mode: RSP from the TSS, a null SS, nothing copied. */
static enum guest_fault inner_stack64(struct cpu *cpu, u8 cpl, struct stack *s)
{
	enum guest_fault fault;
	u64 rsp;

	fault = tss64_read(cpu, TSS64_RSP(cpl), 0, &rsp);
	if (fault)
		return fault;
	*s = stack_switch64(rsp, 0);
	s->seg = segment_null(cpl);
	return FAULT_NONE;
}

static enum guest_fault inner_stack(struct cpu *cpu, u8 cpl, struct stack *s)
{
	struct segment seg;
	struct descriptor ss;
	enum guest_fault fault;
	u32 esp;
	u16 sel;

	if (cpu_long_mode(cpu))
		return inner_stack64(cpu, cpl, s);
	fault = tss_read_stack(cpu, cpl, 0, &esp, &sel);
	if (fault)
		return fault;
	if (selector_null(sel))
		return cpu_raise_error(cpu, VEC_TS, 0);
	fault = descriptor_read_stack(cpu, sel, cpl, VEC_TS, 0, &ss);
	if (fault)
		return fault;
	seg = descriptor_segment(&ss);
	*s = stack_switch(&seg, esp, sel & ERROR_INDEX);
	return FAULT_NONE;
}

/* Parameters are copied from the caller's stack in their order. *n: the number of elements. */
static enum guest_fault build_frame(struct cpu *cpu, const struct descriptor *gate, u64 next_rip,
				    u64 frame[FRAME_MAX], u32 *n)
{
	struct stack caller = stack_current(cpu);
	u32 params = cpu_long_mode(cpu) ? 0 : gate_params(gate->lo);
	enum guest_fault fault = FAULT_NONE;
	u64 copied[32];

	if (params)
		fault = stack_pop(cpu, &caller, copied, params, gate_width(cpu, gate));
	if (fault)
		return fault;
	*n = 0;
	frame[(*n)++] = cpu->seg[SS].sel;
	frame[(*n)++] = cpu->regs[RSP];
	while (params)
		frame[(*n)++] = copied[--params];
	frame[(*n)++] = cpu->seg[CS].sel;
	frame[(*n)++] = next_rip;
	return FAULT_NONE;
}

static enum guest_fault call_inner(struct cpu *cpu, const struct descriptor *gate,
				   struct descriptor *cs, u64 next_rip)
{
	u8 cpl = descriptor_dpl(cs), width = gate_width(cpu, gate);
	u64 rip = gate_target(cpu, gate);
	u64 frame[FRAME_MAX];
	enum guest_fault fault;
	struct stack stack;
	u32 n;

	fault = inner_stack(cpu, cpl, &stack);
	if (fault)
		return fault;
	fault = build_frame(cpu, gate, next_rip, frame, &n);
	if (fault)
		return fault;
	fault = stack_room(cpu, &stack, n * width);
	if (fault)
		return fault;
	fault = descriptor_target(cpu, cs, &rip, 0);
	if (fault)
		return fault;
	fault = stack_push(cpu, &stack, frame, n, width);
	if (fault)
		return fault;
	cpu->seg[SS] = stack.seg;
	stack_store(cpu, &stack);
	far_enter(cpu, cs, cpl, rip);
	return FAULT_NONE;
}

enum guest_fault gate_call(struct cpu *cpu, struct descriptor *gate, u64 next_rip)
{
	struct descriptor cs;
	enum guest_fault fault;

	fault = check_gate(cpu, gate);
	if (fault)
		return fault;
	fault = read_code(cpu, gate, true, &cs);
	if (fault)
		return fault;
	if (!descriptor_is_conforming(&cs) && descriptor_dpl(&cs) < cpu->cpl)
		return call_inner(cpu, gate, &cs, next_rip);
	return far_call_same(cpu, &cs, gate_target(cpu, gate), gate_width(cpu, gate), next_rip);
}
