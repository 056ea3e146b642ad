// SPDX-License-Identifier: MIT
/*
 * RDMSR, WRMSR and RDPMC that nobody intercepts: the processor does them on its PMU and goes on.
 * They see the tallies as they were before the instruction, which then retires as any other: a read
 * does not count itself, a write that starts a counter is counted by it. Where the hypervisor does
 * them it is the same, so that nobody can tell. vCPU thread; general registers only.
 */
#include "engine/pass.h"

#include "cpu/event.h"
#include "cpu/intercept.h"
#include "engine/count.h"
#include "engine/sys_priv.h"
#include "hwpmu/msr.h"

static bool passes(const struct cpu *cpu, u32 index)
{
	switch (cpu->exit.reason) {
	case EXIT_RDMSR:
		return intercept_passes(cpu->intercepts, index, INTERCEPT_READ);
	case EXIT_WRMSR:
		return intercept_passes(cpu->intercepts, index, INTERCEPT_WRITE);
	default:
		return cpu->intercepts->pass_rdpmc;
	}
}

static struct intercept_count *count_of(const struct cpu *cpu, u32 index)
{
	if (cpu->exit.reason == EXIT_RDPMC)
		return &cpu->intercepts->rdpmc;
	return intercept_count(cpu->intercepts, index);
}

static enum hwpmu_access access_register(struct cpu *cpu, u32 index)
{
	enum hwpmu_access result;
	u64 value;

	if (cpu->exit.reason == EXIT_WRMSR)
		return hwpmu_wrmsr(cpu->pmu, index, sys_edx_eax(cpu));
	if (cpu->exit.reason == EXIT_RDMSR)
		result = hwpmu_rdmsr(cpu->pmu, index, &value);
	else
		result = hwpmu_rdpmc(cpu->pmu, index, &value);
	if (result == HWPMU_DONE)
		sys_set_edx_eax(cpu, value);
	return result;
}

static bool concerns(const struct cpu *cpu)
{
	return cpu->intercepts &&
	       (cpu->exit.reason == EXIT_RDMSR || cpu->exit.reason == EXIT_WRMSR ||
		cpu->exit.reason == EXIT_RDPMC);
}

enum pass_result pass_access(struct cpu *cpu)
{
	bool writes = cpu->exit.reason == EXIT_WRMSR;
	u32 index = cpu->regs[RCX];
	struct intercept_count *count;

	if (!concerns(cpu))
		return PASS_EXIT;
	count = count_of(cpu, index);
	if (!passes(cpu, index)) {
		count->exits[writes]++;
		return PASS_EXIT;
	}
	count->passed[writes]++;
	if (access_register(cpu, index) == HWPMU_FAULT) {
		cpu_raise_error(cpu, VEC_GP, 0);
		return PASS_FAULT;
	}
	cpu_complete(cpu);
	count_spend(cpu);
	cpu->wanted = hwpmu_classes(cpu->pmu);
	/* No counter runs that could reach a trip: code need not look for one. Those of
	 * instructions may be IBS's, and cost nothing. */
	if (!cpu->wanted)
		cpu->trips.armed &= RETIRE_BIT(RETIRE_INSTRUCTIONS);
	cpu_update_mode(cpu);
	return writes && cpu->wanted ? PASS_RECKON : PASS_DONE;
}
