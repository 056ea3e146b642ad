// SPDX-License-Identifier: MIT
/*
 * The jump cache: from addresses to translated code, for branches that no link serves, and how long
 * it holds. What it leads to has been compared with guest memory in this epoch; an epoch ends when
 * others may have changed code (SDM 3A 8.1.3).
 *
 * vCPU thread; general registers only.
 */
#include "cpu/mmu.h"
#include "engine/priv.h"

/*
 * Code may have been changed by others. The pages that jump[] leads to are compared now, so that it
 * remains; all others when they are next entered. But when these are more than the look-ups that it
 * saves, which are no more than there were, and few when epochs are short, it is cheaper to begin
 * anew.
 */
#define INSNS_PER_LOOKUP 64

static bool worth_comparing(struct cpu *cpu)
{
	struct engine *eng = cpu->engine;
	u64 now = cpu->tally.instructions[RETIRE_OS] + cpu->tally.instructions[RETIRE_USR];
	u64 saved = (now - eng->epoch_began) / INSNS_PER_LOOKUP;

	eng->epoch_began = now;
	if (saved > eng->lookups)
		saved = eng->lookups;
	return eng->nentered <= ENTERED_MAX && eng->nentered <= 2 * saved + 8;
}

void epoch_begin(struct cpu *cpu)
{
	struct engine *eng = cpu->engine;

	eng->epoch++;
	if (eng->entered_drops != cpu->drops)
		return; /* it leads nowhere */
	if (!worth_comparing(cpu))
		cpu_drop_jumps(cpu);
	for (u32 i = 0; i < eng->nentered && eng->entered_drops == cpu->drops; i++)
		cache_verify(cpu, eng->entered[i].page, eng->entered[i].host);
}

void epoch_notice(struct cpu *cpu)
{
	if (!cpu->shared || cache_notice(cpu))
		epoch_begin(cpu);
}

void jump_note_page(struct cpu *cpu, struct code_page *page, const u8 *host)
{
	struct engine *eng = cpu->engine;

	if (eng->entered_drops != cpu->drops)
		eng->nentered = eng->lookups = 0;
	eng->entered_drops = cpu->drops;
	eng->lookups++;
	if (page->entered == cpu->drops)
		return;
	page->entered = cpu->drops;
	if (eng->nentered < ENTERED_MAX)
		eng->entered[eng->nentered] = (struct entered){ page, host };
	if (eng->nentered <= ENTERED_MAX)
		eng->nentered++;
}

/* The jump cache's key: the generation in bits 63:52, the mode's index in 51:48. When the numbers
 * of generations no longer fit, jump[] is emptied and they all are new. */

#define KEY_GENERATION_BITS 12

static void clear_jumps(struct cpu *cpu)
{
	for (u32 i = 0; i < JUMP_SIZE; i++)
		cpu->jump[i].tag = jump_none(i);
}

static u32 mode_index(struct cpu *cpu, u32 mode)
{
	struct engine *eng = cpu->engine;

	for (u32 i = 0; i < eng->nmodes; i++)
		if (eng->modes[i] == mode)
			return i;
	if (eng->nmodes == ARRAY_SIZE(eng->modes)) {
		eng->nmodes = 0;
		cpu_drop_jumps(cpu);
	}
	eng->modes[eng->nmodes] = mode;
	return eng->nmodes++;
}

void jump_update_key(struct cpu *cpu, u32 mode)
{
	struct engine *eng = cpu->engine;
	u64 index = mode_index(cpu, mode);
	enum space space = (mode & MODE_CPL) == MODE_CPL ? SPACE_USR : SPACE_OS;

	if (eng->cleared != cpu->last_jump >> KEY_GENERATION_BITS) {
		cpu->last_jump = (cpu->last_jump | (BIT(KEY_GENERATION_BITS) - 1)) + 1;
		cpu_drop_jumps(cpu);
		clear_jumps(cpu);
		eng->cleared = cpu->last_jump >> KEY_GENERATION_BITS;
	}
	cpu->jump_key = cpu->jump_generation[space] << (64 - KEY_GENERATION_BITS) | index << 48;
}

void jump_remember(struct cpu *cpu, const struct block *block)
{
	struct jump_entry *entry = &cpu->jump[cpu_jump_index(cpu->rip)];

	if (cpu->engine->entered_drops != cpu->drops)
		return; /* it has just been emptied: its page is no longer noted */
	entry->tag = cpu->rip ^ cpu->jump_key;
	entry->code = exec_view(cpu->engine, block->code);
}

const void *jump_known(struct cpu *cpu, u32 mode)
{
	const struct jump_entry *entry = &cpu->jump[cpu_jump_index(cpu->rip)];

	jump_update_key(cpu, mode);
	return entry->tag == (cpu->rip ^ cpu->jump_key) ? entry->code : NULL;
}
