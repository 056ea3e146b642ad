// SPDX-License-Identifier: MIT
/*
 * Where the guest is, at whatever host instruction a signal has interrupted the vCPU's thread: for
 * samples, which must not wait for the next place at which translated code looks at `attention`.
 * Async-signal-safe; only reads.
 */
#include <signal.h>
#include <ucontext.h>

#include "engine/engine.h"
#include "engine/priv.h"

/*
 * The host address in a block that tells what is executed: the interrupted one, or the return
 * address of the call from translated code to C, right below the struct cpu. NULL: neither, such as
 * in a thunk between two blocks.
 */
static const u8 *code_address(const struct cpu *cpu, const greg_t *regs)
{
	u64 pc = regs[REG_RIP], below = (u64)(uintptr_t)cpu - (u64)regs[REG_RSP];

	if (!cache_holds(cpu->engine, pc) && below && below < CPU_STACK_SIZE)
		pc = ((const u64 *)cpu)[-1] - 1;
	return cache_holds(cpu->engine, pc) ? (const u8 *)(uintptr_t)pc : NULL;
}

/* C has the guest's registers in struct cpu, translated code where priv.h says. */
static bool in_block(const struct cpu *cpu, const greg_t *regs, struct engine_where *where)
{
	static const struct place none; /* of a block that only raises an exception */
	const u8 *pc = code_address(cpu, regs);
	const struct block *block;
	const struct place *place;

	if (!pc)
		return false;
	block = cache_by_code(cpu->engine, pc);
	place = block->nplaces ? place_find(cpu->engine, block, pc) : &none;
	where->rip = block->rip + place->guest;
	if (!(block->mode & MODE_CODE64))
		where->rip = (u32)where->rip;
	where->cpl = (block->mode & MODE_CPL) >> MODE_CPL_SHIFT;
	if (cache_holds(cpu->engine, regs[REG_RIP])) {
		where->rsp = regs[REG_R15] + 8 * (s64)place->rsp_pending;
		where->rbp = regs[REG_RBP];
	}
	return true;
}

bool engine_where(const struct cpu *cpu, const void *context, struct engine_where *where)
{
	const greg_t *regs = ((const ucontext_t *)context)->uc_mcontext.gregs;

	where->rip = cpu->port.last_rip;
	where->rsp = cpu->regs[RSP];
	where->rbp = cpu->regs[RBP];
	where->cpl = (cpu_priv(cpu)->mode & MODE_CPL) >> MODE_CPL_SHIFT;
	return cpu->engine->in_translated_code ? in_block(cpu, regs, where)
					       : cpu->engine->executing;
}
