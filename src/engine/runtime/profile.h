/* SPDX-License-Identifier: MIT */
/*
 * The exact profile of base/profile.h. A processor with one executes one block a visit: blocks are
 * neither linked nor found by translated code nor made hot, so that what retires between two visits
 * retired in the block of the first, however it was left. Without one this costs a test per visit.
 */
#ifndef ENGINE_RUNTIME_PROFILE_H
#define ENGINE_RUNTIME_PROFILE_H

#include "engine/priv.h"

/* Chooses the counter of a new block, whose page is at `host`. */
void profile_block(const struct engine *eng, struct block *block, const u8 *host);
/* The block is about to be executed. */
void profile_visit(struct cpu *cpu, const struct block *block);
/* The run ends: what has retired is in the profile. What the owner completes later, such as a
 * CPUID, is added to the same block by the next visit. */
void profile_settle(struct cpu *cpu);

#endif
