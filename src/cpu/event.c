// SPDX-License-Identifier: MIT
/*
 * Raising exceptions, and the end of an instruction: interrupt shadow, RF, single step and data
 * breakpoints (SDM 3A 6.8, 3B 17.3.1). An instruction that the hypervisor completes is counted
 * here, at a fixed price. vCPU thread; general registers only.
 */
#include "cpu/event.h"

#include "cpu/private.h"

enum guest_fault cpu_raise(struct cpu *cpu, enum vector vector)
{
	cpu->port.event = (struct cpu_event){ .kind = EVENT_EXCEPTION, .vector = vector };
	return FAULT_RAISED;
}

enum guest_fault cpu_raise_error(struct cpu *cpu, enum vector vector, u32 error)
{
	cpu->port.event = (struct cpu_event){
		.kind = EVENT_EXCEPTION,
		.vector = vector,
		.has_error = true,
		.error = error,
	};
	return FAULT_RAISED;
}

enum guest_fault cpu_raise_pf(struct cpu *cpu, gva_t addr, u32 error)
{
	cpu_raise_error(cpu, VEC_PF, error);
	cpu->port.event.has_payload = true;
	cpu->port.event.payload = addr;
	return FAULT_RAISED;
}

enum guest_fault cpu_raise_db(struct cpu *cpu, u32 dr6_bits)
{
	cpu_raise(cpu, VEC_DB);
	cpu->port.event.has_payload = true;
	cpu->port.event.payload = dr6_bits;
	cpu->port.event.for_debugger = cpu_debugger_claims(cpu);
	return FAULT_RAISED;
}

void cpu_begin_shadow(struct cpu *cpu, u8 shadow)
{
	cpu->shadow = shadow;
	cpu_priv(cpu)->begun |= BEGUN_SHADOW;
}

/* The debugger steps over whatever the guest does with TF. */
static bool stepped(const struct cpu *cpu, bool trap_flag_was_set, u8 fresh)
{
	bool trap_flag = fresh & BEGUN_TF ? cpu->rflags & FL_TF : trap_flag_was_set;

	return cpu->port.debug.single_step || trap_flag;
}

void cpu_finish_instruction(struct cpu *cpu, bool trap_flag_was_set)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	u8 fresh = priv->begun;
	u32 traps = cpu->pending_db;

	priv->begun = 0;
	if (!(fresh & BEGUN_SHADOW))
		cpu->shadow = 0;
	if (!(fresh & BEGUN_RF))
		cpu->rflags &= ~FL_RF;
	if (cpu->shadow & SHADOW_SS)
		return;
	if (stepped(cpu, trap_flag_was_set, fresh))
		traps |= DR6_BS;
	/* An event that waits goes first; the traps then come after its handler's first
	 * instruction. */
	if (!traps || cpu->port.event.kind != EVENT_NONE)
		return;
	cpu->pending_db = 0;
	cpu_raise_db(cpu, traps);
}

/* The price of an instruction that the hypervisor completes: docs/model.md. */
#define COMPLETE_TICKS (16 * TICKS_PER_CYCLE)

static void tally_completed(struct cpu *cpu)
{
	u32 slot = TICKS_PER_CYCLE / cpu_priv(cpu)->issue_slots;
	const struct {
		enum retire_class class;
		u32 ticks;
	} rows[] = {
		{ RETIRE_CYCLES, COMPLETE_TICKS },
		{ RETIRE_REF_CYCLES, COMPLETE_TICKS },
		{ RETIRE_STALLS, COMPLETE_TICKS - TICKS_PER_CYCLE },
		{ RETIRE_BACKEND_STALLS, COMPLETE_TICKS - TICKS_PER_CYCLE },
		{ RETIRE_USED_SLOTS, slot },
		{ RETIRE_ISSUED_SLOTS, slot },
		{ RETIRE_BACKEND_SLOTS, COMPLETE_TICKS - slot },
	};

	cpu_tally(cpu, cpu_privilege(cpu), RETIRE_BIT(RETIRE_INSTRUCTIONS), 1);
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++)
		cpu_tally(cpu, cpu_privilege(cpu), cpu->port.wanted & RETIRE_BIT(rows[i].class),
			  rows[i].ticks);
}

void cpu_complete(struct cpu *cpu)
{
	bool trap = cpu->rflags & FL_TF;

	cpu->rip += cpu->port.exit.insn_len;
	if (!cpu_code64(cpu))
		cpu->rip = (u32)cpu->rip;
	tally_completed(cpu);
	cpu_finish_instruction(cpu, trap);
}
