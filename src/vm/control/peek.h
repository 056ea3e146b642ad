/* SPDX-License-Identifier: MIT */
/*
 * Guest memory by linear address through any page tables, for observers outside of the guest: the
 * walk changes nothing (no accessed bits), checks no rights and needs no vCPU. The tables and all
 * that they lead to are the guest's: at most one entry per level is followed. The caller keeps the
 * map from being freed, by vm->slots_lock or in a section.
 */
#ifndef VM_CONTROL_PEEK_H
#define VM_CONTROL_PEEK_H

#include "cpu/cpu.h"

/* Levels of the page tables that a 64-bit guest with this CR4 uses. */
u32 peek_levels(u64 cr4);

/*
 * Copies guest memory; pages may be crossed. False: not all of it is mapped to RAM. The caller is
 * in a section, or keeps the map from being freed otherwise.
 */
bool peek_linear(const struct mem_map *map, u64 cr3, u32 levels, gva_t gva, void *buf, u32 size);

#endif
