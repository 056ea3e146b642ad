// SPDX-License-Identifier: MIT
/*
 * Delivery through the vector table of real-address mode (SDM 3B 20.1.4). Error codes are not
 * pushed. vCPU thread; general registers only.
 */
#include "cpu/transfer/deliver.h"

#include "cpu/event.h"
#include "cpu/mmu/mmu.h"
#include "cpu/mode.h"
#include "cpu/transfer/stack.h"

enum guest_fault deliver_real(struct cpu *cpu, const struct cpu_event *event)
{
	u64 frame[3] = { cpu->rflags | FL_FIX1, cpu->seg[CS].sel, cpu->rip };
	struct stack stack = stack_current(cpu);
	u32 offset = event->vector * 4u;
	enum guest_fault fault;
	u16 entry[2]; /* IP, CS */

	if (offset + 3 > cpu->idtr.limit)
		return deliver_gate_fault(cpu, event, VEC_GP);
	fault = cpu_read(cpu, (u32)(cpu->idtr.base + offset), entry, sizeof(entry), ACCESS_SYSTEM);
	if (fault)
		return fault;
	fault = stack_push(cpu, &stack, frame, 3, 2);
	if (fault)
		return fault;
	stack_store(cpu, &stack);
	cpu->seg[CS].sel = entry[1];
	cpu->seg[CS].base = (u64)entry[1] << 4;
	cpu->rip = entry[0];
	cpu->rflags &= ~(FL_IF | FL_TF | FL_AC | FL_RF);
	cpu_update_mode(cpu);
	return FAULT_NONE;
}
