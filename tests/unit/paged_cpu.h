/* SPDX-License-Identifier: MIT */
/*
 * A struct cpu with some memory and page tables, for tests of everything below the engine.
 */
#ifndef UNIT_PAGED_CPU_H
#define UNIT_PAGED_CPU_H

#include "cpu/cpu.h"
#include "cpu/mmu/code_pages.h"
#include "cpu/mmu/mmu.h"
#include "x86/paging.h"

enum format { FORMAT_NONE, FORMAT_32BIT, FORMAT_PAE, FORMAT_4LEVEL, FORMAT_5LEVEL };

#define RAM_SIZE  (16ull << 20)
#define ROM_BASE  (1ull << 30)
#define ROM_SIZE  (2ull << 20)
#define MMIO_BASE 0xfe000000ull /* no slot there */

struct paged_cpu {
	struct cpu *cpu;
	u8 *ram, *rom; /* ram at 0, with a dirty log; rom at ROM_BASE, read-only */
	u64 dirty[RAM_SIZE / PAGE_SIZE / 64];
	struct mem_map *mem;
	enum format format;
	gpa_t next_table;
};

/* Ready to run at CPL 0 with the given paging and nothing mapped. */
void paged_cpu_init(struct paged_cpu *p, enum format format);
void paged_cpu_free(struct paged_cpu *p);

/* Maps the page of gva: `level` is that of the leaf, `leaf` its bits, `upper` those of the tables
 * above it. */
void paged_cpu_map(struct paged_cpu *p, gva_t gva, gpa_t gpa, u32 level, u64 leaf, u64 upper);
/* The entry for gva at a level; NULL: no such table. */
u8 *paged_cpu_entry(struct paged_cpu *p, gva_t gva, u32 level);
u64 paged_cpu_entry_value(struct paged_cpu *p, gva_t gva, u32 level);

/* The signal handler that guarded accesses need. */
void paged_cpu_catch_faults(void);

#endif
