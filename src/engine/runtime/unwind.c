// SPDX-License-Identifier: MIT
/*
 * From a host address in translated code back to the guest: which instruction it belongs to, the
 * precise state at its border, and the counts without what did not retire. Called from slow paths
 * and from signal handlers on the vCPU thread: general registers only, async-signal-safe.
 */
#include "base/bytes.h"
#include "engine/count_pack.h"
#include "engine/priv.h"

struct place *place_find(const struct engine *eng, const struct block *block, const u8 *host_pc)
{
	u32 offset = host_pc - exec_view(eng, block->code);
	u32 lo = 0, hi = block->nplaces;

	while (hi - lo > 1) {
		u32 mid = (lo + hi) / 2;

		if (block->places[mid].host <= offset)
			lo = mid;
		else
			hi = mid;
	}
	return &block->places[lo];
}

/* The block charged all its instructions at its head: what did not retire is given back. */
u64 place_refund(const struct block *block, u32 retired)
{
	u64 branches = 0;

	for (u32 i = retired; i < block->ninsns; i++)
		branches += !!(block->places[i].flags & PLACE_BRANCH);
	return ((u64)(block->ninsns - retired) << COUNT_SHIFT) + branches;
}

/* Refunds the classes that count in priv->live[]. */
static void refund_live(struct cpu *cpu, retire_wanted counted, const struct weight *weight)
{
	for (retire_wanted left = counted; left; left &= left - 1) {
		enum retire_class class = retire_first(left);

		cpu_priv(cpu)->live[class] -= weight_of(weight, class);
	}
}

void weight_refund(struct cpu *cpu, u32 mode, const struct weight *weight)
{
	retire_wanted packs = cpu_packs(cpu, mode);

	pack_add(cpu_priv(cpu)->packed, packs, weight->classes, -1);
	refund_live(cpu, cpu_counts(cpu, mode) & ~packs, weight);
}

void place_refund_weights(struct cpu *cpu, const struct block *block, u32 retired)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	retire_wanted packs = cpu_packs(cpu, block->mode);
	retire_wanted lives = cpu_counts(cpu, block->mode) & ~packs;

	if (!block->weights)
		return;
	for (u32 i = 0; i < PACK_WORDS; i++)
		priv->packed[i] -= block->charge[i];
	for (u32 i = 0; packs && i < retired; i++)
		pack_add(priv->packed, packs, block->weights[i].classes, 1);
	for (u32 i = retired; lives && i < block->ninsns; i++)
		refund_live(cpu, lives, &block->weights[i]);
}

/* The instruction's bytes for the owner's exits. Of one that crosses pages, only those on the first
 * page. */
static void note_bytes(struct cpu *cpu, const struct block *block, const struct place *place)
{
	const struct code_page *page = code_find(cpu_priv(cpu)->code, block->gpa);
	u32 at = (block->gpa & ~PAGE_MASK) + place->guest;
	u32 room = PAGE_SIZE - at, n = sizeof(cpu->port.exit.insn_bytes);
	const struct page_copy *copy = page->blocks;

	bytes_fill(cpu->port.exit.insn_bytes, 0, n);
	bytes_copy(cpu->port.exit.insn_bytes, copy->bytes + at, n < room ? n : room);
}

void place_unwind(struct cpu *cpu, const struct block *block, const struct place *place,
		  bool completed)
{
	u64 mask = block->mode & MODE_CODE64 ? ~0ull : ~0u;

	cpu->regs[RSP] += 8 * (s64)place->rsp_pending;
	if (completed && (place->flags & PLACE_PUSHES))
		cpu->regs[RSP] -= 8;
	cpu->rip = (block->rip + (completed ? place->next : place->guest)) & mask;
	if (completed)
		cpu->port.last_rip = (block->rip + place->guest) & mask;
	if (place->recipe)
		cpu_hot(cpu)->aflags = recipe_flags(&block->recipes[place->recipe - 1], cpu->regs);
	cpu->port.exit.insn_len = place->len;
	note_bytes(cpu, block, place);
	observe_partial_block(cpu, block, place, completed);
	cpu_priv(cpu)->spill[SPILL_R14] -= place_refund(block, place->index + completed);
	place_refund_weights(cpu, block, place->index + completed);
}

u64 place_leave(struct cpu *cpu, const u8 *return_pc, enum guest_fault fault, bool completed)
{
	struct engine *eng = cpu->engine;
	const u8 *call = return_pc - 1;
	struct block *block = cache_by_code(eng, call);

	place_unwind(cpu, block, place_find(eng, block, call), completed);
	eng->leave_fault = fault;
	eng->reexecute = false;
	return SLOW_LEAVE;
}
