// SPDX-License-Identifier: MIT
/*
 * What IBS needs of its core (hwpmu/port.h, struct hwpmu_store): the instruction that retired last,
 * as C executed it or decoded again from guest memory. vCPU thread, in or after a run, when guest
 * vector state may be live: general registers only, but for the decoder, before which the state is
 * saved.
 */
#include "cpu/fpu.h"
#include "cpu/mmu/mmu.h"
#include "cpu/mode.h"
#include "engine/decode.h"
#include "engine/insn_table.h"
#include "engine/priv.h"
#include "engine/runtime/pmu.h"

/* Code in translated blocks changes neither mode nor privilege: the bytes are fetched and decoded
 * as they were when the instruction retired. False: they can no longer be fetched. */
static bool decode_last(struct cpu *cpu, struct insn_summary *out)
{
	ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
	ZydisDecodedInstruction zi;
	struct insn insn;
	u64 linear = cpu_wrap(cpu, cpu->port.last_rip + (cpu_code64(cpu) ? 0 : cpu->seg[CS].base));
	u8 bytes[INSN_MAX];
	u32 n = sizeof(bytes), mode = cpu_priv(cpu)->mode & DECODE_STATE;

	while (n && !cpu_fetch_quietly(cpu, linear, bytes, n))
		n--;
	fpu_save(cpu);
	if (!n ||
	    decode_insn(bytes, n, cpu->port.last_rip, mode, &insn, &zi, operands) != DECODE_OK)
		return false;
	*out = insn_summarize(&insn);
	return true;
}

static bool last_insn(struct cpu *cpu, struct insn_summary *out)
{
	*out = cpu->engine->executed;
	return out->len || decode_last(cpu, out);
}

void pmu_sample_ibs(void *owner, struct ibs_sample *sample)
{
	struct cpu *cpu = owner;
	struct cpu_priv *priv = cpu_priv(cpu);
	struct insn_summary insn;

	sample->rip = cpu->port.last_rip;
	sample->access = priv->timing.seen.access;
	if (!last_insn(cpu, &insn) || !insn.is_branch)
		return;
	sample->branch = true;
	sample->is_return = insn.is_return;
	sample->taken = !insn.may_fall_through || cpu->rip != cpu->port.last_rip + insn.len;
	sample->target = cpu->rip;
	sample->mispredicted = priv->timing.seen.mispredicted;
}
