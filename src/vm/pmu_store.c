// SPDX-License-Identifier: MIT
/*
 * What PEBS needs of the processor (hwpmu/hwpmu.h, struct hwpmu_store): the debug store in guest
 * memory, and the instruction with which a run has ended; and the assist itself, which the
 * processor calls between two instructions (cpu/cpu.h). vCPU thread, guest vector state live:
 * general registers only, no libc.
 */
#include "vm/pmu_store.h"

#include "base/bytes.h"
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

/* Where the data was, as the record says it (SDM 3B 20.3.4.4.2, 20.3.6.2). From format 5 on stores
 * say it as loads do. */
static u64 source(const struct observed_access *access, bool stores_too)
{
	static const u8 loads[] = { [OBSERVED_L1] = PEBS_SOURCE_L1,
				    [OBSERVED_L2] = PEBS_SOURCE_L2,
				    [OBSERVED_LLC] = PEBS_SOURCE_L3,
				    [OBSERVED_MEMORY] = PEBS_SOURCE_MEMORY };
	u64 tlb = access->tlb == OBSERVED_TLB_WALK ? PEBS_SOURCE_STLB_MISS : 0;

	if (access->store && !stores_too)
		return tlb | (access->level == OBSERVED_L1 ? PEBS_SOURCE_STORE_L1 : 0);
	return tlb | loads[access->level];
}

static void sample_access(const struct vcpu *vcpu, struct pebs_sample *sample)
{
	const struct observed_access *access = &vcpu->cpu->timing.seen.access;

	sample->address = sample->source = sample->latency = 0;
	if (!access->valid)
		return;
	sample->address = access->linear;
	sample->source = source(access, vcpu->vm->model->set == MODEL_SAPPHIRERAPIDS);
	sample->latency = access->latency;
}

static u64 guest_tsc(const struct cpu *cpu)
{
	u64 host = __builtin_ia32_rdtsc();

	return (u64)((unsigned __int128)host * cpu->tsc_scale >> 48) + cpu->tsc_offset;
}

static void sample(void *owner, u64 cfg, struct pebs_sample *sample)
{
	struct vcpu *vcpu = owner;
	struct cpu *cpu = vcpu->cpu;

	sample->rflags = cpu->rflags;
	sample->rip = cpu->rip;
	for (u32 i = 0; i < ARRAY_SIZE(sample->regs); i++)
		sample->regs[i] = cpu->regs[i];
	sample->eventing_rip = cpu->last_rip;
	sample->tsc = guest_tsc(cpu);
	sample_access(vcpu, sample);
	if (!(cfg & PEBS_CFG_XMMS))
		return;
	fpu_save(cpu);
	bytes_copy(sample->xmm, cpu->xsave + XSAVE_XMM0, sizeof(sample->xmm));
}

const struct hwpmu_store vcpu_store = {
	.read = read_store,
	.write = write_store,
	.sample = sample,
	.ibs = vcpu_sample_ibs,
};

void vcpu_set_trips(struct vcpu *vcpu)
{
	hwpmu_trips(&vcpu->pmu.hw, &vcpu->cpu->trips);
}

/* What the hypervisor has to see ends the run as ever; a record alone does not. */
bool vcpu_assist(struct cpu *cpu, void *owner)
{
	struct vcpu *vcpu = owner;
	struct hwpmu *hw = &vcpu->pmu.hw;

	(void)cpu;
	if (hw->untold)
		return false;
	hwpmu_retire(hw);
	if (hw->overflowed)
		return false;
	vcpu_set_trips(vcpu);
	return true;
}
