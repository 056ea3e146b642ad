/* SPDX-License-Identifier: MIT */
/*
 * How the processor shows the timing model (timing/timing.h) what C code does for the guest: data
 * accesses, and what takes translations and lines away. Translated code has its own ways
 * (engine/runtime/observe.c). Nothing happens while no counted event needs the model.
 */
#ifndef CPU_OBSERVE_H
#define CPU_OBSERVE_H

#include "cpu/mmu/mmu.h"
#include "cpu/mode.h"

static inline bool cpu_observes(const struct cpu *cpu)
{
	return unlikely(cpu_priv(cpu)->mode & MODE_OBSERVE_MEMORY);
}

static inline u16 cpu_space(const struct cpu *cpu)
{
	return cpu->cr4 & CR4_PCIDE ? cpu->cr3 & 0xfff : 0;
}

/* An access to RAM that lies on one page; the address space is filled in. */
void cpu_observe(struct cpu *cpu, struct timing_access access);

/* An access, of which ACCESS_WRITE and ACCESS_RMW matter, whose translation a walk or the soft TLB
 * gave. */
static inline void cpu_observe_at(struct cpu *cpu, gva_t gva, const struct translation *t, u32 size,
				  u32 access)
{
	cpu_observe(cpu, (struct timing_access){ .linear = gva,
						 .physical = t->gpa,
						 .host = (u64)(uintptr_t)t->host,
						 .size = size,
						 .page_shift = t->shift,
						 .global = t->global,
						 .store = access & ACCESS_WRITE,
						 .modify = access & ACCESS_RMW });
}

/* Is the page of an entry of the soft TLB global? */
static inline bool tlb_global(const struct cpu *cpu, enum tlb_set set, u32 index)
{
	return !(cpu_priv(cpu)->tlb_local[set].bit[index / 64] >> index % 64 & 1);
}

/* Before a run: if the machine has several processors, this one's caches become some of theirs.
 * True: now; translated code does not know it yet. */
bool cpu_observe_join(struct cpu *cpu);
/* Before a run that observes: if translations changed while the model did not observe, flushes its
 * TLBs. */
void cpu_observe_begin(struct cpu *cpu);

void cpu_observe_cr3(struct cpu *cpu, bool flush);
void cpu_observe_invlpg(struct cpu *cpu, gva_t gva);
void cpu_observe_invpcid(struct cpu *cpu, u16 space);
void cpu_observe_flush(struct cpu *cpu); /* all translations */
void cpu_observe_clflush(struct cpu *cpu, gpa_t gpa);
void cpu_observe_wbinvd(struct cpu *cpu);
void cpu_observe_slots(struct cpu *cpu); /* cpu->port.mem is another one */

#endif
