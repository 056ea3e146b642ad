// SPDX-License-Identifier: MIT
/*
 * What IBS needs of its core (hwpmu/port.h, struct hwpmu_store): the instruction that retired last,
 * decoded again from guest memory. vCPU thread, in or after a run, when guest vector state may be
 * live: general registers only, but for the decoder, before which the state is saved.
 */
#include "cpu/fpu.h"
#include "cpu/mmu/mmu.h"
#include "cpu/mode.h"
#include "engine/decode.h"
#include "engine/insn_table.h"
#include "engine/runtime/pmu.h"

/* Decodes the sampled instruction again. False: its bytes can no longer be read. */
static bool decode_last(struct cpu *cpu, struct insn *insn, u32 *len)
{
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction zi;
	u64 linear = cpu->port.last_rip + (cpu_code64(cpu) ? 0 : cpu->seg[CS].base);
	u8 bytes[15];
	u32 n = sizeof(bytes), mode = cpu_priv(cpu)->mode & DECODE_STATE;

	while (n && !cpu_access_quietly(cpu, linear, bytes, n, ACCESS_READ))
		n--;
	fpu_save(cpu);
	if (!n || decode_insn(bytes, n, cpu->port.last_rip, mode, insn, &zi, operands) != DECODE_OK)
		return false;
	*len = zi.length;
	return true;
}

void pmu_sample_ibs(void *owner, struct ibs_sample *sample)
{
	struct cpu *cpu = owner;
	struct cpu_priv *priv = cpu_priv(cpu);
	struct insn insn;
	u32 len;

	sample->rip = cpu->port.last_rip;
	sample->access = priv->timing.seen.access;
	if (!decode_last(cpu, &insn, &len) || !insn.is_branch)
		return;
	sample->branch = true;
	sample->is_return = insn.id == INSN_RET;
	sample->taken = cpu->rip != cpu->port.last_rip + len;
	sample->target = cpu->rip;
	sample->mispredicted = priv->timing.seen.mispredicted;
}
