// SPDX-License-Identifier: MIT
/*
 * Showing the timing model what translated code does, where its fast path (emit_observe.c) does not
 * know the outcome. A miss that reaches a trip ends the run after the instruction that caused it:
 * the instruction is taken back, then executed by itself, when it no longer misses. After a branch
 * that reaches one no further block begins.
 *
 * Also the C side of branch records (emit_lbr.c): notes of a block that is left in its middle, and
 * records made of the notes.
 *
 * Called from translated code; vCPU thread, guest vector state live: general registers only.
 */
#include "cpu/mmu/mmu.h"
#include "cpu/observe.h"
#include "engine/priv.h"
#include "engine/runtime/count.h"

/* --- where the instruction at hand is, for full timing --- */

static void at(struct cpu *cpu, u32 ahead)
{
	penalty_at(&cpu_priv(cpu)->timing, count_ticks(cpu) - (ahead >> OBSERVE_AHEAD_SHIFT),
		   count_instructions(cpu) - (ahead & OBSERVE_AHEAD_INSNS));
}

static bool full(const struct cpu *cpu)
{
	return cpu->port.full_timing && cpu_observes(cpu);
}

/* By the stub that called. */
static void at_stub(struct cpu *cpu)
{
	if (full(cpu))
		at(cpu, cpu_priv(cpu)->observed_ahead);
}

void observe_begin(struct cpu *cpu)
{
	if (unlikely(cpu_observe_join(cpu)))
		cache_flush(cpu);
	cpu_observe_begin(cpu);
}

void observe_at_end(struct cpu *cpu)
{
	if (full(cpu))
		at(cpu, 0);
}

void observe_at(struct cpu *cpu, const u8 *return_pc)
{
	const u8 *call = return_pc - 1;
	const struct block *block;
	u32 index, ticks = 0;

	if (!full(cpu))
		return;
	block = cache_by_code(cpu->engine, call);
	index = place_find(cpu->engine, block, call)->index;
	for (u32 i = index + 1; block->weights && i < block->ninsns; i++)
		ticks += block->weights[i].ticks;
	at(cpu, OBSERVE_AHEAD(ticks, block->ninsns - index - 1));
}

/* --- leaving --- */

/* Leaves the block after the instruction, or before it, to execute it by itself. */
static u64 leave(struct cpu *cpu, const u8 *return_pc, bool completed)
{
	cpu->engine->finish_insn = !completed;
	return place_leave(cpu, return_pc, FAULT_NONE, completed);
}

static bool ends(const struct cpu *cpu, u32 desc)
{
	return !(desc & DESC_STEP) && cpu_observes(cpu) && count_at_trip(cpu);
}

u64 observe_end(struct cpu *cpu, u32 desc, const u8 *return_pc, u64 otherwise)
{
	if (!ends(cpu, desc))
		return otherwise;
	/* An access that is executed again is no longer a miss: what was seen of it
	 * stays, for a sample. */
	if ((desc & DESC_SIZE) && cpu->port.precise)
		cpu_priv(cpu)->timing.keep_seen = 2;
	timing_replay(&cpu_priv(cpu)->timing, !(desc & DESC_SIZE));
	return leave(cpu, return_pc, false);
}

void observe_visit(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	timing_visit(&priv->timing);
	if (likely(!cpu->port.precise))
		return;
	cpu->port.last_rip = cpu->rip;
	cpu->engine->executed.len = 0;
	priv->timing.seen.mispredicted = false; /* not every branch is predicted */
	if (priv->timing.keep_seen && --priv->timing.keep_seen)
		return;
	priv->timing.seen.access.valid = false;
}

u64 observe_trip(struct cpu *cpu, u64 s0, u32 desc, const u8 *return_pc)
{
	cpu_priv(cpu)->spill[SPILL_HOST] = s0;
	return observe_end(cpu, desc, return_pc, SLOW_DIRECT);
}

u64 observe_access(struct cpu *cpu, u64 host, u32 desc)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	enum tlb_set set = desc >> DESC_SET_SHIFT & 3;
	u32 index = priv->observed_tlb / sizeof(struct tlb_entry);
	const struct tlb_entry *entry = &priv->tlb[set][index];
	u64 offset = host - entry->host;
	const struct timing_access access = { .linear = entry->read + offset,
					      .physical = entry->gpa + offset,
					      .host = host,
					      .size = desc & DESC_SIZE,
					      .page_shift = priv->tlb_shift[set][index],
					      .global = tlb_global(cpu, set, index),
					      .store = desc & DESC_WRITE,
					      .modify = (desc & DESC_WRITE) && (desc & DESC_READ),
					      .space = cpu_space(cpu) };

	/* The guest is about to use the line, and penalty.c may read it before. */
	__builtin_prefetch((const void *)(uintptr_t)host);
	at_stub(cpu);
	if (!timing_data(&priv->timing, &access)) /* no count has reached its trip */
		return 0;
	return ends(cpu, desc) ? desc | DESC_TRIP : 0;
}

u64 observe_fetch(struct cpu *cpu, u64 linear, u32 desc)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct fetch_kind page = fetch_kind(cpu, linear);
	const struct timing_access line = { .linear = linear,
					    .physical = (priv->observed_arg - 1) << LINE_SHIFT,
					    .page_shift = page.shift,
					    .global = page.global,
					    .space = cpu_space(cpu) };

	at_stub(cpu);
	if (!timing_fetch(&priv->timing, &line))
		return 0;
	return ends(cpu, desc) ? desc | DESC_TRIP : 0;
}

/* Remembers a misprediction for the branch record. */
static void note_miss(struct cpu *cpu, u64 from)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct branch_log *log = &priv->branch_log;
	struct branch_verdict *verdict = &log->verdict[branch_next_note(log)];

	verdict->missed_count = priv->spill[SPILL_R14];
	verdict->missed_from = from;
	log->missed = true;
}

/* Was the block left after a call in its middle? Of that call only the push was executed. */
static bool left_after_call(const struct block *block, const struct place *place, bool completed)
{
	return completed && block->places[place->index].calls;
}

static void show_call(struct cpu *cpu, const struct block *block, const struct place *place)
{
	struct timing *t = &cpu_priv(cpu)->timing;
	u64 from = block->rip + place->guest;

	timing_call(t, from + place->len);
	timing_jump(t, from, block->rip + place->next);
}

static void note_part(struct cpu *cpu, const struct block *block, const struct place *place,
		      bool completed)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct branch_note note = { .path = block->path,
				    .upto = place->index + completed,
				    .count = (s64)priv->spill[SPILL_R14],
				    .ticks = priv->live[RETIRE_CYCLES] };

	if (!(block->mode & MODE_LBR_ANY)) { /* the others were noted one by one */
		if (!left_after_call(block, place, completed) ||
		    !(cpu->branches.kinds[cpu_privilege(cpu)] & BIT(BRANCH_REL_CALL)))
			return;
		note.first = place->index;
	}
	if (note.upto)
		branch_note_part(&priv->branch_log, cpu->engine->meta, &note);
}

void observe_partial_block(struct cpu *cpu, const struct block *block, const struct place *place,
			   bool completed)
{
	if ((block->mode & MODE_OBSERVE_BRANCHES) && left_after_call(block, place, completed))
		show_call(cpu, block, place);
	if (block->path)
		note_part(cpu, block, place, completed);
}

void observe_settle(struct cpu *cpu)
{
	branch_settle(&cpu->branches, &cpu_priv(cpu)->branch_log, cpu->engine->meta,
		      cpu_linear_bits(cpu));
}

u64 observe_log_full(struct cpu *cpu, u64 s0, u32 unused, const u8 *return_pc)
{
	(void)unused, (void)return_pc;
	observe_settle(cpu);
	cpu_priv(cpu)->spill[SPILL_HOST] = s0;
	return SLOW_DIRECT;
}

static void set_predicted(struct cpu *cpu, u32 outcome, bool predicted)
{
	struct branch_log *log = &cpu_priv(cpu)->branch_log;

	if (outcome < BRANCH_OUTCOMES)
		log->verdict[branch_next_note(log)].predicted[outcome] = predicted;
}

static u64 answer(struct cpu *cpu, u32 desc, bool wrong)
{
	if (wrong)
		return desc | OBSERVE_MISSED;
	set_predicted(cpu, desc >> OBSERVE_OUTCOME_SHIFT, true);
	return 0;
}

u64 observe_taken(struct cpu *cpu, u64 target, u32 desc)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	return answer(cpu, desc, timing_taken(&priv->timing, priv->observed_arg, target));
}

u64 observe_not_taken(struct cpu *cpu, u64 target, u32 desc)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	(void)target;
	return answer(cpu, desc, timing_not_taken(&priv->timing, priv->observed_arg));
}

u64 observe_indirect(struct cpu *cpu, u64 target, u32 desc)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	return answer(cpu, desc, timing_indirect(&priv->timing, priv->observed_arg, target));
}

u64 observe_return(struct cpu *cpu, u64 target, u32 desc)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	return answer(cpu, desc, timing_return(&priv->timing, priv->observed_arg, target));
}

/* A misprediction reached a trip: in the middle of a block it is left, else no other begins. */
static u64 stop_after_branch(struct cpu *cpu, u64 from, u32 desc, const u8 *return_pc)
{
	if (desc & OBSERVE_MIDDLE)
		return leave(cpu, return_pc, true);
	cpu->port.last_rip = from;
	cpu_call_attention(cpu, ATTENTION_ENGINE);
	return SLOW_DIRECT;
}

u64 observe_missed(struct cpu *cpu, u64 target, u32 desc, const u8 *return_pc)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	u32 outcome = desc >> OBSERVE_OUTCOME_SHIFT;

	set_predicted(cpu, outcome, false);
	if (outcome == BRANCH_UNNOTED)
		note_miss(cpu, priv->observed_arg);
	priv->spill[SPILL_HOST] = target;
	if (full(cpu)) {
		at_stub(cpu);
		penalty_branch(&priv->timing);
	}
	if (count_at_trip(cpu))
		return stop_after_branch(cpu, priv->observed_arg, desc, return_pc);
	return SLOW_DIRECT;
}
