/* SPDX-License-Identifier: MIT */
/* The jump cache, and epochs. vCPU thread; general registers only. */
#ifndef ENGINE_JUMP_CACHE_H
#define ENGINE_JUMP_CACHE_H

#include "engine/priv.h"

void returns_invalidate(struct engine *eng);	     /* before the next entry */
void epoch_begin(struct cpu *cpu, enum space space); /* code of the space may have changed */
/* Begins the one that waited for code of this space to be entered. */
void epoch_begin_due(struct cpu *cpu);
/* Begins epochs if a write by another processor or from outside was counted:
 * cpu/mmu/shared_code.h */
void epoch_check(struct cpu *cpu);
void jump_clear(struct cpu *cpu);
void jump_update_key(struct cpu *cpu, u32 mode);
u32 jump_mode(const struct cpu *cpu); /* that the key is for */

/* Does code of this mode use the jump cache? Short-lived blocks do not: they would evict others. */
static inline bool jump_usable(u32 mode)
{
	return !(mode & (MODE_STEP | MODE_SINGLE));
}

/* The code that the jump cache has for RIP in this mode, or NULL. Updates the key. */
const void *jump_find(struct cpu *cpu, u32 mode);
void jump_expect(const struct cpu *cpu); /* hint before jump_insert() */
/* Adds this block, which is at RIP. Its pages must have been noted. */
void jump_insert(struct cpu *cpu, const struct block *block);
void jump_remove(struct cpu *cpu, const struct block *block); /* before it is dropped */
/* The block's pages, which were verified: what leads to them is followed from now on. */
void jump_note_page(struct cpu *cpu, struct code_page *page, const u8 *host);
void jump_note_mapping(struct cpu *cpu, struct code_page *page, const struct block *block);
/* By which the block's page is mapped now; 0: none that has a number, or the block has two pages.
 */
u32 jump_mapping_of(const struct cpu *cpu, const struct block *block);
/* Are the noted pages those of the current entries? Not if the entries were dropped since. */
bool jump_pages_current(const struct cpu *cpu);

#endif
