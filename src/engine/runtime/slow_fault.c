// SPDX-License-Identifier: MIT
/*
 * A memory access that faults although the instruction has other effects, as on Intel
 * (x86/vendor.def). A store that computes its value first is executed on the bounce buffer before
 * its fault is raised: then the flags of MXCSR are set, or the host raises #XM instead, or the x87
 * meets an unmasked exception, stores nothing and so never looks at its address, or it has stored
 * the first of two parts. vCPU thread, guest vector state live: general registers only.
 */
#include "cpu/fpu.h"
#include "cpu/mmu/mmu.h"
#include "engine/priv.h"
#include "engine/slow.h"
#include "engine/sys/fpu_image.h"

/* The fault waits in cpu->port.event until slow_fault_computed(). */
static u64 compute_first(struct cpu *cpu, u64 address, u32 desc)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct slow_state *pending = &cpu->engine->pending;

	if (desc & DESC_X87) { /* cpu->xsave keeps what is there now */
		fpu_save(cpu);
		fpu_load(cpu);
	}
	*pending = (struct slow_state){
		.faulted = true, .address = address, .desc = desc, .data = priv->bounce + 64
	};
	priv->spill[SPILL_HOST] = (u64)(uintptr_t)pending->data;
	return SLOW_COMMIT;
}

u64 slow_fault_access(struct cpu *cpu, enum guest_fault fault, u64 address, u32 desc,
		      const u8 *return_pc)
{
	if (fault == FAULT_RAISED && (desc & DESC_COMPUTES))
		return compute_first(cpu, address, desc);
	if (fault == FAULT_RAISED && (desc & DESC_CLEARS_TOP)) {
		fpu_save(cpu);
		sys_x87_set_top(cpu, 0);
	}
	return place_leave(cpu, return_pc, fault, false);
}

#define LONG_DOUBLE 10
#define FIRST_PART  8

/* Of an operand of 80 bits: it may be that only the rest has faulted. */
static void store_first_part(struct cpu *cpu)
{
	const struct slow_state *pending = &cpu->engine->pending;
	u32 desc = (pending->desc & ~DESC_SIZE) | FIRST_PART;
	struct cpu_event fault = cpu->port.event;
	gva_t gva;

	if (slow_linear(cpu, pending->address, desc, ACCESS_WRITE, &gva) == FAULT_NONE)
		cpu_write(cpu, gva, pending->data, FIRST_PART, ACCESS_WRITE);
	cpu->port.event = fault;
}

enum guest_fault slow_fault_computed(struct cpu *cpu)
{
	u32 desc = cpu->engine->pending.desc;
	bool stored;

	if (!(desc & DESC_X87))
		return FAULT_RAISED;
	stored = fpu_x87_stored();
	if (!stored && cpu_follows(cpu, RULE_X87_STORE_EXCEPTION_FIRST)) {
		cpu->port.event.kind = EVENT_NONE;
		return FAULT_NONE;
	}
	if (stored && (desc & DESC_SIZE) == LONG_DOUBLE &&
	    cpu_follows(cpu, RULE_X87_STORE_IN_PARTS))
		store_first_part(cpu);
	fpu_reload(cpu);
	return FAULT_RAISED;
}
