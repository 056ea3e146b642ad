// SPDX-License-Identifier: MIT
/*
 * A memory access that faults, where the instruction leaves something behind all the same, as
 * Intel's do (x86/vendor.def). A store that computes its value first is executed on the bounce
 * buffer before its fault is raised: then the flags of MXCSR are set, or the host raises #XM
 * instead, or the x87 meets an unmasked exception, stores nothing and so never looks at its
 * address. vCPU thread, guest vector state live: general registers only.
 */
#include "cpu/fpu.h"
#include "engine/priv.h"
#include "engine/sys_fpu.h"

/* The fault waits in cpu->event until refuse_computed(). */
static u64 compute_first(struct cpu *cpu, u32 desc)
{
	struct slow_state *pending = &cpu->engine->pending;

	if (desc & DESC_X87) { /* cpu->xsave keeps what is there now */
		fpu_save(cpu);
		fpu_load(cpu);
	}
	*pending = (struct slow_state){ .refused = true, .data = cpu->bounce + 64 };
	cpu->spill[SPILL_HOST] = (u64)(uintptr_t)pending->data;
	return SLOW_COMMIT;
}

u64 refuse_access(struct cpu *cpu, enum guest_fault fault, u32 desc, const u8 *return_pc)
{
	if (fault == FAULT_RAISED && (desc & DESC_COMPUTES))
		return compute_first(cpu, desc);
	if (fault == FAULT_RAISED && (desc & DESC_CLEARS_TOP)) {
		fpu_save(cpu);
		sys_x87_set_top(cpu, 0);
	}
	return place_leave(cpu, return_pc, fault, false);
}

enum guest_fault refuse_computed(struct cpu *cpu, u32 desc)
{
	if (!(desc & DESC_X87))
		return FAULT_RAISED;
	if (!fpu_x87_stored()) {
		cpu->event.kind = EVENT_NONE;
		return FAULT_NONE;
	}
	fpu_reload(cpu);
	return FAULT_RAISED;
}
