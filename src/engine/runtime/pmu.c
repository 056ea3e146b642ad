// SPDX-License-Identifier: MIT
/*
 * The processor's own PMU (hwpmu/hwpmu.h): where a run has to stop for it, what has to be observed
 * for its records, and what happens when a counter overflows. What PEBS needs of its core
 * (hwpmu/port.h) is here: the debug store in guest memory, and the instruction that retired last.
 * vCPU thread, guest vector state live: general registers only, no libc.
 */
#include "engine/runtime/pmu.h"

#include "base/bytes.h"
#include "cpu/fpu.h"
#include "cpu/mmu/mmu.h"
#include "cpu/mode.h"

/* --- the debug store --- */

static bool read_store(void *owner, u64 linear, void *to, u32 size)
{
	return cpu_access_quietly(owner, linear, to, size, ACCESS_READ);
}

static bool write_store(void *owner, u64 linear, const void *from, u32 size)
{
	return cpu_access_quietly(owner, linear, (void *)(uintptr_t)from, size, ACCESS_WRITE);
}

static u8 load_source(const struct observed_access *access)
{
	static const u8 loads[] = { [OBSERVED_L1] = PEBS_SOURCE_L1,
				    [OBSERVED_L2] = PEBS_SOURCE_L2,
				    [OBSERVED_LLC] = PEBS_SOURCE_L3,
				    [OBSERVED_MEMORY] = PEBS_SOURCE_MEMORY };

	if (access->snoop == OBSERVED_SNOOP_MODIFIED)
		return PEBS_SOURCE_HITM;
	return access->snoop ? PEBS_SOURCE_FORWARD : loads[access->level];
}

/* A read-modify-write is a store, but for one that reads what another processor wrote, unless it is
 * sampled as a store. */
static bool as_store(const struct cpu *cpu, const struct observed_access *access, u64 counters)
{
	return access->store && !(access->modify && access->snoop == OBSERVED_SNOOP_MODIFIED &&
				  !hwpmu_pebs_samples_stores(&cpu->pmu, counters));
}

/* Where the data was, as the record says it (SDM 3B 20.3.4.4.2, 20.3.6.2). From format 5 on stores
 * say it as loads do. */
static u64 source(const struct cpu *cpu, const struct observed_access *access, u64 counters)
{
	u64 tlb = access->tlb == OBSERVED_TLB_WALK ? PEBS_SOURCE_STLB_MISS : 0;

	if (cpu->pmu.model->set != MODEL_SAPPHIRERAPIDS && as_store(cpu, access, counters))
		return tlb | (access->level == OBSERVED_L1 ? PEBS_SOURCE_STORE_L1 : 0);
	return tlb | load_source(access);
}

static void sample_access(const struct cpu *cpu, struct pebs_sample *sample)
{
	const struct observed_access *access = &cpu_priv(cpu)->timing.seen.access;

	sample->address = sample->source = sample->latency = 0;
	if (!access->valid)
		return;
	sample->address = access->linear;
	sample->source = source(cpu, access, sample->counters);
	sample->latency = access->latency;
}

static void sample(void *owner, u64 cfg, struct pebs_sample *sample)
{
	struct cpu *cpu = owner;

	sample->rflags = cpu->rflags;
	sample->rip = cpu->rip;
	for (u32 i = 0; i < ARRAY_SIZE(sample->regs); i++)
		sample->regs[i] = cpu->regs[i];
	sample->eventing_rip = cpu->port.last_rip;
	sample->tsc = cpu_tsc_at(cpu, cpu_time(cpu));
	sample_access(cpu, sample);
	if (!(cfg & PEBS_CFG_XMMS))
		return;
	fpu_save(cpu);
	bytes_copy(sample->xmm, cpu->xsave + XSAVE_XMM0, sizeof(sample->xmm));
}

static const struct hwpmu_store store = {
	.read = read_store,
	.write = write_store,
	.sample = sample,
	.ibs = pmu_sample_ibs,
};

/* --- a run --- */

void engine_attach_pmu(struct cpu *cpu, const struct pmu_model *model)
{
	cpu_priv(cpu)->issue_slots = model->slots;
	hwpmu_init(&cpu->pmu, model, &cpu->port.tally);
	hwpmu_attach_branches(&cpu->pmu, &cpu->branches);
	hwpmu_attach_store(&cpu->pmu, &store, cpu);
}

/* Observes what PEBS and IBS records describe. */
static void arm_observation(struct cpu *cpu)
{
	const struct hwpmu *pmu = &cpu->pmu;
	bool ibs = hwpmu_ibs_runs(pmu);

	cpu->port.precise = pmu->pebs.enable || ibs;
	cpu_priv(cpu)->timing.slow_cycles = pmu->pebs.latency;
	cpu->port.observe = ibs ? MODE_OBSERVE_MEMORY | MODE_OBSERVE_BRANCHES : 0;
	if (pmu->pebs.enable && hwpmu_pebs_wants_access(pmu))
		cpu->port.observe |= MODE_OBSERVE_MEMORY;
	if (branch_wanted(&cpu->branches))
		cpu->port.observe |= MODE_OBSERVE_BRANCHES;
}

void pmu_arm(struct cpu *cpu)
{
	if (!cpu->pmu.model)
		return;
	cpu->port.wanted = hwpmu_wanted(&cpu->pmu);
	hwpmu_trips(&cpu->pmu, &cpu->port.trips);
	arm_observation(cpu);
}

/* Unknown events end the run, too: the hypervisor logs them, outside of the processor. */
bool pmu_assist(struct cpu *cpu)
{
	struct hwpmu *pmu = &cpu->pmu;

	if (pmu->unreported)
		return false;
	hwpmu_retire(pmu);
	if (hwpmu_interrupts(pmu))
		return false;
	hwpmu_trips(pmu, &cpu->port.trips);
	return true;
}
