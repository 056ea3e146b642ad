// SPDX-License-Identifier: MIT
/*
 * What IBS needs of the processor (hwpmu/hwpmu.h, struct hwpmu_store): the instruction with which a
 * run has ended. vCPU thread, behind a run.
 */
#include "vm/pmu_store.h"

#include "cpu/mmu.h"
#include "engine/decode.h"
#include "vm/vm.h"

/* The instruction once more, to know what it was. False: its bytes are gone. */
static bool decode_last(struct vcpu *vcpu, struct insn *insn, u32 *len)
{
	struct cpu *cpu = vcpu->cpu;
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction zi;
	u64 linear = cpu->last_rip + (cpu_code64(cpu) ? 0 : cpu->seg[CS].base);
	u8 bytes[15];
	u32 n = sizeof(bytes), mode = cpu->mode & DECODE_STATE;

	while (n && !cpu_access_quietly(cpu, linear, bytes, n, ACCESS_READ))
		n--;
	if (!n || decode_insn(bytes, n, cpu->last_rip, mode, insn, &zi, operands) != DECODE_OK)
		return false;
	*len = zi.length;
	return true;
}

void vcpu_sample_ibs(void *owner, struct ibs_sample *sample)
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
