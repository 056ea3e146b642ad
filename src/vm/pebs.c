// SPDX-License-Identifier: MIT
/*
 * What PEBS needs of the processor (hwpmu/hwpmu.h, struct hwpmu_store): the debug store in guest
 * memory, and the instruction with which a run has ended. vCPU thread, behind a run.
 */
#include "vm/pmu.h"

#include <string.h>

#include "cpu/fpu.h"
#include "cpu/mmu.h"
#include "vm/vm.h"

static bool read_store(void *owner, u64 linear, void *to, u32 size)
{
	struct vcpu *vcpu = owner;

	return cpu_access_quietly(vcpu->cpu, linear, to, size, ACCESS_READ);
}

static bool write_store(void *owner, u64 linear, const void *from, u32 size)
{
	struct vcpu *vcpu = owner;

	return cpu_access_quietly(vcpu->cpu, linear, (void *)(uintptr_t)from, size, ACCESS_WRITE);
}

/* Where the data was, as the record says it (SDM 3B 20.3.4.4.2, 20.3.6.2). */
static u64 source(const struct observed_access *access)
{
	static const u8 loads[] = { [OBSERVED_L1] = PEBS_SOURCE_L1,
				    [OBSERVED_L2] = PEBS_SOURCE_L2,
				    [OBSERVED_LLC] = PEBS_SOURCE_L3,
				    [OBSERVED_MEMORY] = PEBS_SOURCE_MEMORY };
	u64 tlb = access->tlb == OBSERVED_TLB_WALK ? PEBS_SOURCE_STLB_MISS : 0;

	if (access->store)
		return tlb | (access->level == OBSERVED_L1 ? PEBS_SOURCE_STORE_L1 : 0);
	return tlb | loads[access->level];
}

static void sample_access(const struct observed_access *access, struct pebs_sample *sample)
{
	sample->address = sample->source = sample->latency = 0;
	if (!access->valid)
		return;
	sample->address = access->linear;
	sample->source = source(access);
	sample->latency = access->latency;
}

static void sample(void *owner, u64 cfg, struct pebs_sample *sample)
{
	struct vcpu *vcpu = owner;
	const struct cpu *cpu = vcpu->cpu;

	sample->rflags = cpu->rflags;
	sample->rip = cpu->rip;
	memcpy(sample->regs, cpu->regs, sizeof(sample->regs));
	sample->eventing_rip = cpu->last_rip;
	sample->tsc = vcpu_tsc(vcpu);
	sample_access(&cpu->timing.seen.access, sample);
	if (cfg & PEBS_CFG_XMMS)
		memcpy(sample->xmm, cpu->xsave + XSAVE_XMM0, sizeof(sample->xmm));
}

const struct hwpmu_store vcpu_store = {
	.read = read_store,
	.write = write_store,
	.sample = sample,
};
