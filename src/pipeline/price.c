// SPDX-License-Identifier: MIT
/*
 * The price of an instruction: what it adds to the time of straight-line code.
 *
 * The problem. Cycles are counted per instruction, exactly and in whatever slices code is executed,
 * so a price may depend on the instruction's address and on code bytes, and on nothing else: not on
 * where a translation block begins. But what instructions cost together is not the sum of what
 * each costs alone: they share issue slots and ports.
 *
 * The idea. Code is cut into segments that its addresses define: a segment ends with a branch, with
 * an instruction that is not priced by its uops, and with the last instruction that begins in a
 * line of 64 bytes. What the instructions from one of them to the end of its segment cost is known
 * by looking ahead, and never by looking back; so prices are made from the last to the first.
 *
 *   1. The price of an instruction is the time of its issue slots and, above that, what it waits.
 *   2. It waits for so long as the ports or the divider then need more time in excess of the issue
 *      slots, from here to the segment's end, than at any later instruction.
 *   3. So waits are never negative, and the prices from any instruction to the segment's end are
 *      never below any of the bounds.
 *
 * Latency is not among the bounds: only a chain that goes round a loop makes code wait for long,
 * and there the branch back is charged with it (engine/translate/emit_price.c). Pure.
 */
#include "pipeline/priv.h"

static void use(struct pipe_need *need, u16 ports, u32 uops)
{
	u32 i = 0;

	while (i < need->uses && need->use[i].ports != ports)
		i++;
	if (i == PIPE_USES || !ports || !uops)
		return;
	if (i == need->uses) {
		need->use[i] = (struct pipe_use){ .ports = ports };
		need->uses++;
	}
	need->use[i].uops += uops;
}

/* What has no row of uops: cycles that it takes alone, as in docs/model.md. */
static u32 plain_cycles(const ZydisDecodedInstruction *in)
{
	switch (in->meta.category) {
	case ZYDIS_CATEGORY_INTERRUPT:
	case ZYDIS_CATEGORY_SYSCALL:
	case ZYDIS_CATEGORY_SYSRET:
	case ZYDIS_CATEGORY_SYSTEM:
		return 16;
	case ZYDIS_CATEGORY_X87_ALU:
	case ZYDIS_CATEGORY_STRINGOP:
	case ZYDIS_CATEGORY_SEMAPHORE:
		return 4;
	default:
		return 1;
	}
}

/* Renaming does nothing that depends on the value of a constant here: instructions that differ in
 * it alone have one price. */
static bool has_ports(const struct pipe_core *core, const struct pipe_insn *insn,
		      const ZydisDecodedInstruction *in)
{
	return pipe_needs_port(core, insn) || (insn->idiom == IDIOM_ADD && in->raw.imm[0].size > 8);
}

void pipe_need(const struct pipe_core *core, const ZydisDecodedInstruction *in,
	       const ZydisDecodedOperand *ops, struct pipe_need *need)
{
	struct pipe_insn insn;

	*need = (struct pipe_need){ .slots = 1 };
	if (!pipe_describe(core, in, ops, &insn)) {
		need->cycles = plain_cycles(in);
		return;
	}
	need->slots = insn.slots;
	need->fuses = pipe_fusion_of(core, &insn);
	need->condition = pipe_facts_of(in->mnemonic)->condition;
	for (u32 i = 0; i < insn.uops; i++) {
		need->divider += insn.uop[i].divider;
		if (has_ports(core, &insn, in))
			use(need, insn.uop[i].ports, 1);
	}
	if (insn.load)
		use(need, insn.vector ? core->p_load_vector : core->p_load, 1);
	if (insn.store) {
		use(need, core->p_sta, 1);
		use(need, core->p_std, 1);
	}
}

/* --- segments --- */

static void add_use(struct pipe_segment *segment, const struct pipe_use *use)
{
	u32 i = 0;

	while (i < segment->sets && segment->set[i].ports != use->ports)
		i++;
	if (i == PIPE_SETS)
		return;
	if (i == segment->sets) {
		segment->set[i] = *use;
		segment->sets++;
	} else {
		segment->set[i].uops += use->uops;
	}
}

/* The time of the most crowded ports, among the unions of two sets. */
static u32 ports_bound(const struct pipe_segment *segment)
{
	u32 most = 0;

	for (u32 i = 0; i < segment->sets; i++)
		for (u32 j = i; j < segment->sets; j++) {
			u16 ports = segment->set[i].ports | segment->set[j].ports;
			u32 ticks = pipe_confined(segment->set, segment->sets, ports);

			if (ticks > most)
				most = ticks;
		}
	return most;
}

u32 pipe_slot_ticks(const struct pipe_core *core)
{
	return PIPE_TICKS / core->width;
}

/* A pair that fuses is one uop, on the branch's port. */
static bool fuses_next(const struct pipe_segment *segment, const struct pipe_need *need)
{
	const struct pipe_need *next = segment->next;

	return next && next->condition != FUSES_NOTHING && need->fuses >= next->condition;
}

void pipe_segment_add(const struct pipe_core *core, struct pipe_segment *segment,
		      const struct pipe_need *need, struct pipe_price *price)
{
	bool fused = fuses_next(segment, need);
	u32 slots = need->slots - fused, issue, bound;

	segment->slots += slots;
	segment->divider += need->divider;
	for (u32 i = fused; i < need->uses; i++)
		add_use(segment, &need->use[i]);
	issue = segment->slots * pipe_slot_ticks(core);
	bound = later(ports_bound(segment), segment->divider * PIPE_TICKS);
	*price = (struct pipe_price){ .slots = slots };
	if (bound > issue + segment->excess) {
		price->wait = bound - issue - segment->excess;
		segment->excess = bound - issue;
	}
	if (need->cycles)
		price->wait = need->cycles * PIPE_TICKS - slots * pipe_slot_ticks(core);
	segment->next = need;
}
