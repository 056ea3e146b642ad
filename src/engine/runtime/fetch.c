// SPDX-License-Identifier: MIT
/*
 * Instruction fetch: from a linear address to the bytes. A small cache of page translations stands
 * in for the instruction TLB. What it misses is a new mapping: the soft TLB is told that code was
 * fetched through it, and the page is compared with what was translated before it is entered. vCPU
 * thread; general registers only.
 */
#include "cpu/event.h"
#include "cpu/mmu/mmu.h"
#include "engine/priv.h"

static u64 generation(const struct cpu *cpu)
{
	return cpu_priv(cpu)->map_generation[space_of(cpu)];
}

static struct fetch_entry *slot_for(struct engine *eng, u64 page)
{
	return &eng->fetch[(page >> PAGE_SHIFT) % FETCH_CACHE];
}

static enum guest_fault fetch_miss(struct cpu *cpu, u64 linear, struct fetch_entry *entry)
{
	struct translation t;
	enum guest_fault fault;

	if (!cpu_canonical(cpu, linear) && (cpu_priv(cpu)->mode & MODE_CODE64))
		return cpu_raise_error(cpu, VEC_GP, 0);
	fault = mmu_translate(cpu, linear, ACCESS_FETCH, &t);
	if (fault != FAULT_NONE)
		return fault;
	if (!t.slot) { /* KVM: code in MMIO is not emulated */
		cpu->port.exit.reason = EXIT_UNEMULATED;
		cpu->port.exit.gpa = t.gpa;
		cpu->port.exit.insn_len = 0;
		return FAULT_EXIT;
	}
	tlb_fetched(cpu, linear, &t);
	cache_mark_unverified(cpu, t.gpa);
	*entry = (struct fetch_entry){ .page = linear & PAGE_MASK,
				       .generation = generation(cpu),
				       .gpa = t.gpa & PAGE_MASK,
				       .host = t.host - (t.gpa & ~PAGE_MASK),
				       .cpl = cpu->cpl,
				       .kind = { t.shift, t.global },
				       .valid = true };
	return FAULT_NONE;
}

static bool serves(const struct cpu *cpu, const struct fetch_entry *entry, u64 linear)
{
	return entry->valid && entry->page == (linear & PAGE_MASK) && entry->cpl == cpu->cpl &&
	       entry->generation == generation(cpu);
}

/* If page tables changed under running code, with no INVLPG yet, the walk may find nothing. */
struct fetch_kind fetch_kind(struct cpu *cpu, u64 linear)
{
	struct fetch_entry *entry = slot_for(cpu->engine, linear);
	struct cpu_event event;

	if (likely(serves(cpu, entry, linear)))
		return entry->kind;
	event = cpu->port.event;
	if (fetch_miss(cpu, linear, entry) == FAULT_NONE)
		return entry->kind;
	cpu->port.event = event;
	cpu->port.exit.reason = EXIT_NONE;
	return (struct fetch_kind){ .shift = PAGE_SHIFT };
}

enum guest_fault fetch_page(struct cpu *cpu, u64 linear, gpa_t *gpa, const u8 **host)
{
	struct fetch_entry *entry = slot_for(cpu->engine, linear);

	if (!serves(cpu, entry, linear)) {
		enum guest_fault fault = fetch_miss(cpu, linear, entry);

		if (fault != FAULT_NONE)
			return fault;
	}
	*gpa = entry->gpa + (linear & ~PAGE_MASK);
	*host = entry->host + (linear & ~PAGE_MASK);
	return FAULT_NONE;
}
