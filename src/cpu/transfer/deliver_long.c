// SPDX-License-Identifier: MIT
/*
 * Delivery through the IDT in long mode, from 64-bit and compatibility mode alike (SDM 3A 6.14; INT
 * n operation in SDM 2A; APM2 8.9). vCPU thread; general registers only.
 */
#include "cpu/transfer/deliver.h"

#include "cpu/event.h"
#include "cpu/mmu/mmu.h"
#include "cpu/transfer/stack.h"

struct gate {
	u64 lo, hi;
};

#define GATE_TYPES (1u << TYPE_INT_GATE | 1u << TYPE_TRAP_GATE)

static enum guest_fault read_gate(struct cpu *cpu, const struct cpu_event *event, struct gate *gate)
{
	u32 offset = event->vector * 16u;
	enum guest_fault fault;

	if (offset + 15 > cpu->idtr.limit)
		return deliver_gate_fault(cpu, event, VEC_GP);
	fault = cpu_read(cpu, cpu->idtr.base + offset, gate, sizeof(*gate), ACCESS_SYSTEM);
	if (fault)
		return fault;
	return deliver_check_gate(cpu, event, descriptor_attr(gate->lo), GATE_TYPES);
}

/* The handler must be 64-bit code. */
static enum guest_fault read_code(struct cpu *cpu, const struct cpu_event *event, u16 sel,
				  struct descriptor *cs, u8 *cpl)
{
	enum guest_fault fault = deliver_read_code(cpu, event, sel, cs, cpl);

	if (fault)
		return fault;
	if ((cs->attr & (SEG_L | SEG_DB)) != SEG_L)
		return descriptor_fault(cpu, VEC_GP, sel, deliver_ext(event));
	return descriptor_mark_accessed(cpu, cs);
}

/* The interrupt stack table wins over the privilege change; then the frame is aligned. */
static enum guest_fault choose_stack(struct cpu *cpu, u32 ist, u8 cpl, u32 ext, struct stack *s)
{
	u64 rsp = cpu->regs[RSP];
	enum guest_fault fault = FAULT_NONE;

	if (ist)
		fault = tss64_read(cpu, TSS64_IST(ist), ext, &rsp);
	else if (cpl != cpu->cpl)
		fault = tss64_read(cpu, TSS64_RSP(cpl), ext, &rsp);
	if (fault)
		return fault;
	*s = stack_switch64(rsp & ~15ull, ext);
	if (cpl ==
	    cpu->cpl) /* not the processor's own access, but one as the code's (SDM 3A 4.6.1) */
		s->access = ACCESS_READ;
	return FAULT_NONE;
}

static enum guest_fault push_frame(struct cpu *cpu, const struct cpu_event *event, struct stack *s)
{
	u64 frame[6] = {
		cpu->seg[SS].sel, cpu->regs[RSP], deliver_flags_image(cpu, event),
		cpu->seg[CS].sel, cpu->rip,	  event->error,
	};

	return stack_push(cpu, s, frame, event->has_error ? 6 : 5, 8);
}

enum guest_fault deliver_long(struct cpu *cpu, const struct cpu_event *event)
{
	u32 ext = deliver_ext(event);
	struct descriptor cs;
	struct stack stack;
	struct gate gate;
	enum guest_fault fault;
	u64 rip;
	u8 cpl;

	fault = read_gate(cpu, event, &gate);
	if (fault)
		return fault;
	fault = read_code(cpu, event, gate_selector(gate.lo), &cs, &cpl);
	if (fault)
		return fault;
	fault = choose_stack(cpu, gate_ist(gate.lo), cpl, ext, &stack);
	if (fault)
		return fault;
	fault = stack_room(cpu, &stack, event->has_error ? 48 : 40);
	if (fault)
		return fault;
	rip = gate_offset64(gate.lo, gate.hi);
	fault = descriptor_target(cpu, &cs, &rip, ext);
	if (fault)
		return fault;
	fault = push_frame(cpu, event, &stack);
	if (fault)
		return fault;
	if (cpl != cpu->cpl)
		cpu->seg[SS] = segment_null(cpl);
	stack_store(cpu, &stack);
	deliver_enter(cpu, &cs, cpl, rip, (descriptor_attr(gate.lo) & SEG_TYPE) == TYPE_INT_GATE);
	return FAULT_NONE;
}
