// SPDX-License-Identifier: MIT
/*
 * Delivery through the IDT in protected mode without long mode: 16- and 32-bit gates, from
 * virtual-8086 mode too (SDM 3A 6.12; INT n operation in SDM 2A). vCPU thread; general
 * registers only.
 */
#include "cpu/transfer/deliver.h"

#include "cpu/event.h"
#include "cpu/mmu/mmu.h"
#include "cpu/transfer/stack.h"
#include "cpu/transfer/task_switch.h"

#define GATE_TYPES                                                               \
	(1u << TYPE_TASK_GATE | 1u << TYPE_INT_GATE16 | 1u << TYPE_TRAP_GATE16 | \
	 1u << TYPE_INT_GATE | 1u << TYPE_TRAP_GATE)

static enum guest_fault read_gate(struct cpu *cpu, const struct cpu_event *event, u64 *gate)
{
	u32 offset = event->vector * 8u;
	enum guest_fault fault;

	if (offset + 7 > cpu->idtr.limit)
		return deliver_gate_fault(cpu, event, VEC_GP);
	fault = cpu_read(cpu, (u32)(cpu->idtr.base + offset), gate, 8, ACCESS_SYSTEM);
	if (fault)
		return fault;
	return deliver_check_gate(cpu, event, descriptor_attr(*gate), GATE_TYPES);
}

/* From virtual-8086 mode an event must go to privilege level 0. */
static enum guest_fault read_code(struct cpu *cpu, const struct cpu_event *event, u16 sel,
				  struct descriptor *cs, u8 *cpl)
{
	enum guest_fault fault = deliver_read_code(cpu, event, sel, cs, cpl);

	if (fault)
		return fault;
	if ((cpu->rflags & FL_VM) && *cpl != 0)
		return descriptor_fault(cpu, VEC_GP, sel, deliver_ext(event));
	return descriptor_mark_accessed(cpu, cs);
}

/* The stack of the inner level, checked; the faults are #TS. */
static enum guest_fault inner_stack(struct cpu *cpu, u8 cpl, u32 ext, struct stack *s)
{
	struct segment seg;
	struct descriptor ss;
	enum guest_fault fault;
	u32 esp;
	u16 sel;

	fault = tss_read_stack(cpu, cpl, ext, &esp, &sel);
	if (fault)
		return fault;
	if (selector_null(sel))
		return cpu_raise_error(cpu, VEC_TS, ext);
	fault = descriptor_read_stack(cpu, sel, cpl, VEC_TS, ext, &ss);
	if (fault)
		return fault;
	seg = descriptor_segment(&ss);
	*s = stack_switch(&seg, esp, (sel & ERROR_INDEX) | ext);
	return FAULT_NONE;
}

/* Returns the number of elements. */
static u32 build_frame(const struct cpu *cpu, const struct cpu_event *event, bool switched,
		       u64 frame[10])
{
	static const enum seg vm86_order[] = { GS, FS, DS, ES };
	u32 n = 0;

	if (cpu->rflags & FL_VM)
		for (u32 i = 0; i < ARRAY_SIZE(vm86_order); i++)
			frame[n++] = cpu->seg[vm86_order[i]].sel;
	if (switched) {
		frame[n++] = cpu->seg[SS].sel;
		frame[n++] = cpu->regs[RSP];
	}
	frame[n++] = deliver_flags_image(cpu, event);
	frame[n++] = cpu->seg[CS].sel;
	frame[n++] = cpu->rip;
	if (event->has_error)
		frame[n++] = event->error;
	return n;
}

static void leave_vm86(struct cpu *cpu)
{
	static const enum seg data[] = { DS, ES, FS, GS };

	for (u32 i = 0; i < ARRAY_SIZE(data); i++)
		cpu->seg[data[i]] = segment_null(0);
}

static enum guest_fault enter_handler(struct cpu *cpu, const struct cpu_event *event, u64 gate,
				      const struct descriptor *cs, u8 cpl)
{
	u32 ext = deliver_ext(event), type = descriptor_attr(gate) & SEG_TYPE;
	bool wide = type >= TYPE_INT_GATE, switched = cpl != cpu->cpl || (cpu->rflags & FL_VM);
	u64 rip = wide ? gate_offset(gate) : gate_offset(gate) & 0xffff;
	struct stack stack = stack_current(cpu);
	enum guest_fault fault = FAULT_NONE;
	u64 frame[10];
	u32 n;

	stack.error = ext;
	if (switched)
		fault = inner_stack(cpu, cpl, ext, &stack);
	if (fault)
		return fault;
	n = build_frame(cpu, event, switched, frame);
	fault = stack_room(cpu, &stack, n * (wide ? 4 : 2));
	if (fault)
		return fault;
	fault = descriptor_target(cpu, cs, &rip, ext);
	if (fault)
		return fault;
	fault = stack_push(cpu, &stack, frame, n, wide ? 4 : 2);
	if (fault)
		return fault;
	if (cpu->rflags & FL_VM)
		leave_vm86(cpu);
	cpu->seg[SS] = stack.seg;
	stack_store(cpu, &stack);
	deliver_enter(cpu, cs, cpl, rip, type == TYPE_INT_GATE || type == TYPE_INT_GATE16);
	return FAULT_NONE;
}

enum guest_fault deliver_protected(struct cpu *cpu, const struct cpu_event *event)
{
	struct descriptor cs;
	enum guest_fault fault;
	u64 gate;
	u8 cpl;

	fault = read_gate(cpu, event, &gate);
	if (fault)
		return fault;
	if ((descriptor_attr(gate) & SEG_TYPE) == TYPE_TASK_GATE)
		return task_event(cpu, event, gate_selector(gate));
	fault = read_code(cpu, event, gate_selector(gate), &cs, &cpl);
	if (fault)
		return fault;
	return enter_handler(cpu, event, gate, &cs, cpl);
}
