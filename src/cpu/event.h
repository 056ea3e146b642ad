/* SPDX-License-Identifier: MIT */
/*
 * Exceptions and interrupts: raising (event.c) and delivery through the IDT (transfer/deliver.c;
 * SDM 3A 6), and what completes an instruction. Cold code; vCPU thread; general registers only.
 */
#ifndef CPU_EVENT_H
#define CPU_EVENT_H

#include "cpu/cpu.h"

/* Raise: put an exception into cpu->port.event, to be delivered before the next instruction. Return
 * FAULT_RAISED. */
enum guest_fault cpu_raise(struct cpu *cpu, enum vector vector);
enum guest_fault cpu_raise_error(struct cpu *cpu, enum vector vector, u32 error);
enum guest_fault cpu_raise_pf(struct cpu *cpu, gva_t addr, u32 error);
enum guest_fault cpu_raise_db(struct cpu *cpu, u32 dr6_bits);

/* KVM: a debugger that steps or has breakpoints gets every #DB that the guest causes. */
static inline bool cpu_debugger_claims(const struct cpu *cpu)
{
	return cpu->port.debug.single_step || cpu->port.debug.hardware_bp;
}

/* Does EXIT_DEBUG wait to be told? It is no exception of the guest's, and not part of its state. */
static inline bool cpu_debug_exit_waits(const struct cpu *cpu)
{
	return cpu->port.event.kind == EVENT_EXCEPTION && cpu->port.event.for_debugger;
}

/*
 * Delivers cpu->port.event: gate, stack switch, IST, error code, flags; combines with faults met on
 * the way into #DF and triple fault (SDM 3A 6.15, table 6-5). FAULT_NONE: delivered (or none
 * pending). FAULT_EXIT: cpu->port.exit is EXIT_TRIPLE_FAULT or EXIT_DEBUG (guest debugging claims
 * #DB/#BP); or memory needs the hypervisor or, with EXIT_BUDGET, deliveries fault without end: then
 * the event is kept in cpu->port.event.
 */
enum guest_fault cpu_deliver(struct cpu *cpu);

/*
 * INT n, INT3 (EVENT_SOFT_EXC, VEC_BP), INTO and INT1 (EVENT_EXCEPTION, VEC_DB), whole: delivers at
 * once, with RIP moved to the next instruction. FAULT_NONE: RIP is the handler's; the caller counts
 * the instruction, as insn.def says, at the privilege before, and finishes it.
 * FAULT_RAISED: cpu->port.event holds the fault, RIP stands at the instruction. FAULT_EXIT: as
 * cpu_deliver(); EXIT_DEBUG has RIP at an INT3 or INT1.
 */
enum guest_fault cpu_int(struct cpu *cpu, enum event_kind kind, u8 vector, u8 insn_len);

/*
 * Begins an interrupt shadow, to be called while STI (SHADOW_STI), MOV SS or POP SS (SHADOW_SS)
 * executes: it lasts until the next instruction finishes.
 */
void cpu_begin_shadow(struct cpu *cpu, u8 shadow);

/*
 * Completes the instruction that caused an exit: RIP forward by exit.insn_len, one instruction and
 * its modelled cycles counted at the current privilege (none is a branch), shadow and RF cleared,
 * pending traps (TF, data breakpoints) raised.
 */
void cpu_complete(struct cpu *cpu);

/*
 * The bookkeeping shared by all completions done in C; the caller has set RIP and counted.
 * `trap_flag_was_set`: EFLAGS.TF before the instruction. Ends the interrupt shadow and RF that an
 * earlier instruction began, and puts #DB into cpu->port.event for a single step (the guest's or
 * the debugger's) and for data breakpoints noted in pending_db. After MOV SS and POP SS no trap is
 * taken: what is pending waits for the end of the next instruction (SDM 3A 6.8.3).
 */
void cpu_finish_instruction(struct cpu *cpu, bool trap_flag_was_set);

#endif
