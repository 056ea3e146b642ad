// SPDX-License-Identifier: MIT
/*
 * A struct cpu with some memory and page tables. The tables are built here in the plainest way, so
 * that they share nothing with the walk they test.
 */
#include "unit/paged_cpu.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "base/guarded.h"
#include "base/must.h"
#include "cpu/mode.h"

#define ROOT	    0x1000
#define FIRST_TABLE 0x2000
#define LAST_TABLE  0x100000

static void *pages(u64 size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	must(p != MAP_FAILED);
	return p;
}

static void add_slots(struct paged_cpu *p)
{
	struct mem_slot ram = {
		.id = 0,
		.npages = RAM_SIZE / PAGE_SIZE,
		.hva = p->ram,
		.dirty = p->dirty,
		.flags = MEM_LOG_DIRTY,
	};
	struct mem_slot rom = {
		.id = 1,
		.base = ROM_BASE,
		.npages = ROM_SIZE / PAGE_SIZE,
		.hva = p->rom,
		.flags = MEM_READONLY,
	};
	struct mem_map *empty = mem_map_empty(), *one = mem_map_with(empty, &ram);

	p->mem = mem_map_with(one, &rom);
	must(p->mem);
	free(one);
	free(empty);
}

static void set_format(struct cpu *cpu, enum format format)
{
	cpu->cr3 = ROOT;
	cpu->cr0 = CR0_PE | CR0_ET | CR0_WP | (format == FORMAT_NONE ? 0 : CR0_PG);
	if (format == FORMAT_32BIT)
		cpu->cr4 |= CR4_PSE;
	if (format >= FORMAT_PAE)
		cpu->cr4 |= CR4_PAE;
	if (format >= FORMAT_4LEVEL) {
		cpu->efer |= EFER_LME | EFER_LMA;
		cpu->seg[CS].attr |= SEG_L;
	}
	if (format == FORMAT_5LEVEL)
		cpu->cr4 |= CR4_LA57;
}

void paged_cpu_init(struct paged_cpu *p, enum format format)
{
	memset(p, 0, sizeof(*p));
	p->ram = pages(RAM_SIZE);
	p->rom = pages(ROM_SIZE);
	add_slots(p);
	p->cpu = cpu_create();
	must(p->cpu);
	p->cpu->port.mem = p->mem;
	cpu_priv(p->cpu)->code = code_create();
	must(cpu_priv(p->cpu)->code);
	memset(p->cpu->features, 0xff, sizeof(p->cpu->features));
	p->format = format;
	p->next_table = FIRST_TABLE;
	set_format(p->cpu, format);
	cpu_update_mode(p->cpu);
}

void paged_cpu_free(struct paged_cpu *p)
{
	code_destroy(cpu_priv(p->cpu)->code);
	cpu_destroy(p->cpu);
	munmap(p->ram, RAM_SIZE);
	munmap(p->rom, ROM_SIZE);
	free(p->mem);
}

static u64 load(const struct paged_cpu *p, const u8 *entry)
{
	u64 value = 0;

	memcpy(&value, entry, p->format == FORMAT_32BIT ? 4 : 8);
	return value;
}

static void store(struct paged_cpu *p, u8 *entry, u64 value)
{
	memcpy(entry, &value, p->format == FORMAT_32BIT ? 4 : 8);
}

static u32 top_level(enum format format)
{
	static const u8 top[] = { 0, 2, 3, 4, 5 };

	return top[format];
}

/* Down to `level`, with new tables on the way where `upper` is not 0. */
static u8 *descend(struct paged_cpu *p, gva_t gva, u32 level, u64 upper)
{
	bool legacy = p->format == FORMAT_32BIT;
	u32 bits = legacy ? 10 : 9;
	gpa_t table = ROOT;

	for (u32 at = top_level(p->format);; at--) {
		u32 index = gva >> (12 + (at - 1) * bits) & ((1u << bits) - 1);
		u8 *entry = p->ram + table + index * (legacy ? 4 : 8);
		bool pdpte = p->format == FORMAT_PAE && at == 3;

		if (at == level)
			return entry;
		if (!(load(p, entry) & PTE_P)) {
			if (!upper)
				return NULL;
			must(p->next_table < LAST_TABLE);
			store(p, entry, p->next_table | (pdpte ? PTE_P : upper));
			p->next_table += PAGE_SIZE;
		}
		if (pdpte)
			p->cpu->pdptr[index & 3] = load(p, entry);
		table = load(p, entry) & PTE_ADDR;
	}
}

void paged_cpu_map(struct paged_cpu *p, gva_t gva, gpa_t gpa, u32 level, u64 leaf, u64 upper)
{
	store(p, descend(p, gva, level, upper), gpa | leaf | (level > 1 ? PTE_PS : 0));
}

u8 *paged_cpu_entry(struct paged_cpu *p, gva_t gva, u32 level)
{
	return descend(p, gva, level, 0);
}

u64 paged_cpu_entry_value(struct paged_cpu *p, gva_t gva, u32 level)
{
	u8 *entry = paged_cpu_entry(p, gva, level);

	return entry ? load(p, entry) : 0;
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	u64 rip = uc->uc_mcontext.gregs[REG_RIP];

	(void)info;
	if (!guarded_fixup(&rip))
		signal(sig, SIG_DFL);
	uc->uc_mcontext.gregs[REG_RIP] = rip;
}

void paged_cpu_catch_faults(void)
{
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };

	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGBUS, &sa, NULL);
}
