// SPDX-License-Identifier: MIT
/*
 * Instructions that C executes from within a block, which continues after them: emit_system.c says
 * which. Called by translated code with all registers stored. If the block cannot continue it is
 * left: after the instruction or, if that must be executed again, before it. vCPU thread, guest
 * vector state live: general registers only.
 */
#include "cpu/event.h"
#include "cpu/mmu/mmu.h"
#include "cpu/observe.h"
#include "engine/priv.h"
#include "engine/runtime/count.h"
#include "engine/sys/sys.h"

/* Before the instruction, which is executed again. */
static u64 leave_again(struct cpu *cpu, const u8 *return_pc)
{
	place_leave(cpu, return_pc, FAULT_NONE, false);
	cpu->engine->reexecute = true;
	return SLOW_LEAVE;
}

/* Must the engine act before the next instruction? A device waits, code was written, a trip was
 * reached, or the run has used up its effort. */
static bool has_news(const struct cpu *cpu)
{
	return cpu_priv(cpu)->code->nwritten ||
	       cpu->port.mmio.nwrites != cpu->port.mmio.write_pos || cpu->port.mmio.nreads ||
	       cpu->pending_db || count_exhausted(cpu) || (cpu_observes(cpu) && count_at_trip(cpu));
}

u64 call_insn(struct cpu *cpu, u64 insn, u32 unused, const u8 *return_pc)
{
	enum sys_result result;

	(void)unused;
	if (sys_quick(cpu, (const struct insn *)(uintptr_t)insn)) {
		count_look(cpu);
		return SLOW_DIRECT;
	}
	cpu_effort(cpu, EFFORT_INSN);
	flags_from_aflags(cpu);
	observe_at(cpu, return_pc);
	result = sys_execute(cpu, (const struct insn *)(uintptr_t)insn);
	flags_to_aflags(cpu);
	if (result == SYS_NEXT && !has_news(cpu))
		return SLOW_DIRECT;
	if (result == SYS_NEXT)
		return place_leave(cpu, return_pc, FAULT_NONE, true);
	if (result == SYS_AGAIN)
		return leave_again(cpu, return_pc);
	if (result == SYS_UNKNOWN)
		cpu_raise(cpu, VEC_UD);
	return place_leave(cpu, return_pc, result == SYS_EXIT ? FAULT_EXIT : FAULT_RAISED, false);
}
