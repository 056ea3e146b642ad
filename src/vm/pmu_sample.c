// SPDX-License-Identifier: MIT
/*
 * What PEBS and IBS need of the processor (hwpmu/hwpmu.h, struct hwpmu_store): the debug store in
 * guest memory, and the instruction with which a run has ended. vCPU thread, behind a run.
 */
#include "vm/pmu.h"

#include <string.h>

#include "cpu/fpu.h"
#include "cpu/mmu.h"
#include "engine/decode.h"
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

static void sample(void *owner, u64 cfg, struct pebs_sample *sample)
{
	struct vcpu *vcpu = owner;
	const struct cpu *cpu = vcpu->cpu;

	sample->rflags = cpu->rflags;
	sample->rip = cpu->rip;
	memcpy(sample->regs, cpu->regs, sizeof(sample->regs));
	sample->eventing_rip = cpu->last_rip;
	sample->tsc = vcpu_tsc(vcpu);
	sample_access(vcpu, sample);
	if (cfg & PEBS_CFG_XMMS)
		memcpy(sample->xmm, cpu->xsave + XSAVE_XMM0, sizeof(sample->xmm));
}

/* The instruction once more, to know what it was. False: its bytes are gone. */
static bool decode_last(struct vcpu *vcpu, struct insn *insn, u32 *len)
{
	struct cpu *cpu = vcpu->cpu;
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction zi;
	u64 linear = cpu->last_rip + (cpu_code64(cpu) ? 0 : cpu->seg[CS].base);
	u8 bytes[15];
	u32 n = sizeof(bytes);

	while (n && !cpu_access_quietly(cpu, linear, bytes, n, ACCESS_READ))
		n--;
	if (!n || decode_insn(bytes, n, cpu->last_rip, cpu->mode, insn, &zi, operands) != DECODE_OK)
		return false;
	*len = zi.length;
	return true;
}

static void sample_ibs(void *owner, struct ibs_sample *sample)
{
	struct vcpu *vcpu = owner;
	const struct cpu *cpu = vcpu->cpu;
	struct insn insn;
	u32 len;

	sample->rip = cpu->last_rip;
	sample->access = cpu->timing.seen.access;
	if (!decode_last(vcpu, &insn, &len) || !insn.is_branch)
		return;
	sample->branch = true;
	sample->is_return = insn.mnemonic == ZYDIS_MNEMONIC_RET;
	sample->taken = cpu->rip != cpu->last_rip + len;
	sample->target = cpu->rip;
	sample->mispredicted = cpu->timing.seen.mispredicted;
}

const struct hwpmu_store vcpu_store = {
	.read = read_store,
	.write = write_store,
	.sample = sample,
	.ibs = sample_ibs,
};
