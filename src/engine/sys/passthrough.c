// SPDX-License-Identifier: MIT
/*
 * RDMSR, WRMSR and RDPMC that the hypervisor does not intercept: the processor does them on its PMU
 * and goes on. They see the tallies as they were before the instruction, which then retires as any
 * other: a read does not count itself, a write that starts a counter is counted by it. An access
 * that the hypervisor does counts in the same way, so that a guest cannot tell them apart. A write
 * may start or stop counting and observation: blocks of another mode may be due after it. vCPU
 * thread; general registers only.
 */
#include "engine/sys/passthrough.h"

#include "cpu/event.h"
#include "cpu/intercept.h"
#include "cpu/observe.h"
#include "engine/runtime/count.h"
#include "engine/runtime/pmu.h"
#include "engine/sys/priv.h"

/* The intercept of the MSR in ECX; RDPMC has one for all counters. */
static struct intercept *find(struct cpu *cpu, enum exit_reason access)
{
	if (access == EXIT_RDPMC)
		return &cpu->port.intercepts->rdpmc;
	return intercept_find(cpu->port.intercepts, cpu->regs[RCX]);
}

static bool passes(const struct cpu *cpu, enum exit_reason access, const struct intercept *msr)
{
	if (access == EXIT_RDPMC)
		return cpu->port.intercepts->pass_rdpmc;
	return msr->pass[access == EXIT_WRMSR];
}

static enum hwpmu_access access_register(struct cpu *cpu, enum exit_reason access,
					 const struct intercept *msr)
{
	enum hwpmu_access result;
	u64 value;

	if (access == EXIT_WRMSR)
		return hwpmu_write_reg(&cpu->pmu, msr->pmu, sys_edx_eax(cpu));
	if (access == EXIT_RDMSR)
		result = hwpmu_read_reg(&cpu->pmu, msr->pmu, &value);
	else
		result = hwpmu_rdpmc(&cpu->pmu, cpu->regs[RCX], &value);
	if (result == HWPMU_DONE)
		sys_set_edx_eax(cpu, value);
	return result;
}

/* After a write: other counters may run now, and their trips differ. */
static void written(struct cpu *cpu)
{
	pmu_arm(cpu);
	count_rearm(cpu);
	cpu_update_counting(cpu);
	cpu_observe_begin(cpu);
}

/* The instruction was refunded, and the counts were flushed to the tallies. */
static enum pass_result pass(struct cpu *cpu, enum exit_reason access, struct intercept *msr)
{
	bool writes = access == EXIT_WRMSR;

	msr->passed[writes]++;
	if (access_register(cpu, access, msr) == HWPMU_FAULT) {
		cpu_raise_error(cpu, VEC_GP, 0);
		return PASS_FAULT;
	}
	cpu_complete(cpu);
	count_one_retired(cpu);
	if (writes)
		written(cpu);
	return PASS_DONE;
}

static bool is_access(enum exit_reason reason)
{
	return reason == EXIT_RDMSR || reason == EXIT_WRMSR || reason == EXIT_RDPMC;
}

enum pass_result passthrough_access(struct cpu *cpu)
{
	enum exit_reason access = cpu->port.exit.reason;
	struct intercept *msr;

	cpu->port.exit.msr = NULL;
	if (!cpu->port.intercepts || !is_access(access))
		return PASS_EXIT;
	msr = find(cpu, access);
	if (passes(cpu, access, msr))
		return pass(cpu, access, msr);
	msr->exits[access == EXIT_WRMSR]++;
	cpu->port.exit.msr = msr;
	return PASS_EXIT;
}

/* Accesses that need no further checks; all else is left to sys_execute(), which has
 * all the rules. */
static bool is_plain(const struct cpu *cpu, enum exit_reason access)
{
	if (!cpu->port.intercepts || cpu->port.precise)
		return false;
	if (access == EXIT_RDPMC)
		return !cpu->cpl || (cpu->cr4 & CR4_PCE);
	return !cpu->cpl && cpu_has(cpu, FEAT_MSR);
}

/* After the access: may translated code continue, or must the main loop act first? */
static bool goes_on(struct cpu *cpu, u32 mode)
{
	return !cpu->engine->check_pending && count_may_run(cpu) && cpu_priv(cpu)->mode == mode;
}

u64 passthrough_insn(struct cpu *cpu, u64 address, u32 access, const u8 *return_pc)
{
	const struct insn *insn = (const struct insn *)(uintptr_t)address;
	struct engine *eng = cpu->engine;
	struct intercept *msr;
	u32 mode = cpu_priv(cpu)->mode;

	(void)return_pc;
	if (!is_plain(cpu, access))
		return SLOW_COMMIT;
	msr = find(cpu, access);
	if (!passes(cpu, access, msr))
		return SLOW_COMMIT;
	cpu->port.exit.insn_len = insn->len;
	count_refund(cpu, mode, false, &insn->weight);
	count_flush(cpu, cpu_privilege(cpu));
	eng->reexecute = false;
	eng->leave_fault = FAULT_RAISED;
	if (pass(cpu, access, msr) == PASS_FAULT)
		return SLOW_LEAVE;
	if (access == EXIT_WRMSR) /* it serializes */
		eng->check_pending = cache_check_due(cpu);
	if (goes_on(cpu, mode))
		return SLOW_DIRECT;
	eng->reexecute = true;
	return SLOW_LEAVE;
}
