// SPDX-License-Identifier: MIT
/*
 * Host signals that are guest events. An instruction that the host executes for the guest may fault
 * there: division, unmasked floating-point exceptions, alignment of vector operands. The signal's
 * context is the guest's state at that instruction; it is turned into the exception the guest would
 * have seen. Or the host may forbid what a processor allows: locks across lines. Or the program's
 * memory is gone: EXIT_HOST_FAULT from translated code, false from a guarded access
 * (base/guarded.h). vCPU thread. Async-signal-safe.
 */
#include <signal.h>
#include <ucontext.h>

#include "base/guarded.h"
#include "cpu/event.h"
#include "engine/priv.h"

static __thread struct cpu *running __attribute__((tls_model("initial-exec")));

void signal_running(struct cpu *cpu)
{
	running = cpu;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* The program's memory could not be accessed: which guest address was it? */
static void host_fault(struct cpu *cpu, const siginfo_t *info)
{
	const u8 *at = info->si_addr;

	cpu->port.exit.reason = EXIT_HOST_FAULT;
	cpu->port.exit.gpa = NO_GPA;
	for (u32 i = 0; i < cpu->port.mem->nslots; i++) {
		const struct mem_slot *s = &cpu->port.mem->slots[i];

		if (at >= s->hva && (u64)(at - s->hva) < s->npages << PAGE_SHIFT)
			cpu->port.exit.gpa = s->base + (at - s->hva);
	}
	cpu->engine->leave_fault = FAULT_EXIT;
}

static bool to_exception(struct cpu *cpu, const siginfo_t *info, u32 trap)
{
	struct engine *eng = cpu->engine;

	eng->leave_fault = FAULT_RAISED;
	eng->reexecute = false;
	switch (trap) {
	case VEC_DE:
	case VEC_UD:
	case VEC_MF:
		cpu_raise(cpu, trap);
		return true;
	case VEC_XM: /* SDM 3A 6.15, interrupt 19 */
		cpu_raise(cpu, cpu->cr4 & CR4_OSXMMEXCPT ? VEC_XM : VEC_UD);
		return true;
	case VEC_GP:
		cpu_raise_error(cpu, VEC_GP, 0);
		return true;
	case VEC_PF:
		host_fault(cpu, info);
		return true;
	default:
		return false;
	}
}

static u32 aflags_of(u64 eflags)
{
	return (eflags & 0xff) << 8 | !!(eflags & FL_OF);
}

/* Reads guest registers from the host's (priv.h), for code that needs them before they
 * are stored. */
static void read_registers(struct cpu *cpu, const greg_t *regs)
{
	static const struct {
		u8 guest, from;
	} rows[] = {
		{ RAX, REG_R12 }, { RCX, REG_RCX }, { RDX, REG_RDX }, { RBX, REG_RBX },
		{ RSP, REG_R15 }, { RBP, REG_RBP }, { RSI, REG_RSI }, { RDI, REG_RDI },
		{ R8, REG_R8 },	  { R9, REG_R9 },   { R10, REG_R10 }, { R11, REG_R11 },
	};

	for (u32 i = 0; i < ARRAY_SIZE(rows); i++)
		cpu->regs[rows[i].guest] = regs[rows[i].from];
}

static void unwind(struct cpu *cpu, greg_t *regs)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct engine *eng = cpu->engine;
	const u8 *pc = (const u8 *)(uintptr_t)regs[REG_RIP];
	struct block *block = cache_by_code(eng, pc);
	struct place *place = place_find(eng, block, pc);

	if (place->flags & PLACE_FLAGS_IN_HOST)
		cpu_hot(cpu)->aflags = aflags_of(regs[REG_EFL]);
	priv->spill[SPILL_R14] =
		place->flags & PLACE_SPILLED ? priv->spill[SPILL_COUNTDOWN] : (u64)regs[REG_R14];
	read_registers(cpu, regs);
	place_unwind(cpu, block, place, false);
	regs[REG_R14] = priv->spill[SPILL_R14];
	regs[REG_R15] = cpu->regs[RSP];
	regs[REG_RAX] = LEAVE_FAULT;
	regs[REG_RIP] = (greg_t)(uintptr_t)exec_view(eng, eng->leave);
}

/*
 * A split lock on a host that kills for it (Linux: split_lock_detect=fatal). By #AC it comes before
 * the instruction, which is then executed again, in steps, while the other processors are stopped.
 * By the #DB of bus lock detection, for which Linux has no trap number of its own, it comes after
 * the instruction, which has then completed.
 */
static bool split_lock(struct cpu *cpu, greg_t *regs)
{
	if (regs[REG_TRAPNO] != VEC_AC)
		return true;
	cpu->engine->leave_fault = FAULT_NONE;
	cpu->engine->reexecute = cpu->engine->run_exclusive = true;
	unwind(cpu, regs);
	return true;
}

bool engine_signal(int sig, siginfo_t *info, void *context)
{
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
	struct cpu *cpu = running;
	u64 pc = regs[REG_RIP];

	if (info->si_code <= 0) /* sent by a process: it may have come anywhere */
		return false;
	if (sig != SIGTRAP && guarded_fixup(&pc)) {
		regs[REG_RIP] = pc;
		return true;
	}
	if (!cpu || !cache_holds(cpu->engine, pc))
		return false;
	if (sig == SIGBUS && info->si_code == BUS_ADRALN)
		return split_lock(cpu, regs);
	if (!to_exception(cpu, info, regs[REG_TRAPNO]))
		return false;
	unwind(cpu, regs);
	return true;
}
