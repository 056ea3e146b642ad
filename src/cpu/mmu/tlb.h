/* SPDX-License-Identifier: MIT */
/*
 * The inside of the soft TLB (cpu/mmu/mmu.h) and the generations of what is known of code, for
 * src/cpu and src/engine. vCPU thread; general registers only.
 */
#ifndef CPU_MMU_TLB_H
#define CPU_MMU_TLB_H

#include "cpu/mmu/mmu.h"
#include "cpu/private.h"

/* A tag of entry `index` that serves no address. */
static inline u64 tlb_none(u32 index)
{
	return (u64)(index ^ 1) << PAGE_SHIFT;
}

/*
 * Generations: jump[] and the engine's cache of fetched pages are not emptied; their generation
 * gets a new number, which is part of what the engine compares. A number is never reused, so that
 * user code can return to the generation of its address space.
 */

/* Whatever changes the generation empties these. */
void tlb_forget_mapped(struct mapped_pages *mapped);

static inline u32 mapped_place(gva_t gva)
{
	return gva >> PAGE_SHIFT & (MAPPED_PAGES - 1);
}

static inline void tlb_note_mapped(struct mapped_pages *mapped, u32 place, u32 mapping)
{
	if (mapped->mapping[place] == mapping)
		return;
	if (!mapped->mapping[place] && mapped->n <= MAPPED_KEPT) {
		if (mapped->n < MAPPED_KEPT)
			mapped->used[mapped->n] = place;
		mapped->n++;
	}
	mapped->mapping[place] = mapping;
}

/* Makes all of jump[] miss that leads to code of a space, and to those CR3 may come back to. */
static inline void cpu_drop_jumps_of(struct cpu *cpu, enum space space)
{
	struct cpu_priv *priv = cpu_priv(cpu);

	priv->jump_generation[space] = ++priv->last_jump;
	tlb_forget_mapped(&priv->mapped[space]);
	for (u32 i = 0; space == SPACE_USR && i < SPACES_KEPT; i++)
		priv->kept_spaces[i].jump_generation = 0;
	priv->jump_drops[space]++;
}

static inline void cpu_drop_jumps(struct cpu *cpu)
{
	for (u32 space = 0; space < NSPACES; space++)
		cpu_drop_jumps_of(cpu, space);
}

#endif
