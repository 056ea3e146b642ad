// SPDX-License-Identifier: MIT
/*
 * The string instructions that kernels and libraries execute most: REP STOS and REP MOVS upwards in
 * 64-bit code, on pages that the soft TLB serves, and short enough to stay on them. All else, and
 * all that wants to be noticed, is left to string.c. vCPU thread; general registers only.
 */
#include "base/guarded.h"
#include "cpu/observe.h"
#include "engine/insn_table.h"
#include "engine/sys/priv.h"

#define EFFORT_BYTES 64 /* moved in the time of an instruction */

static const struct tlb_entry *entry_of(const struct cpu *cpu, gva_t gva)
{
	const struct cpu_priv *priv = cpu_priv(cpu);

	return &priv->tlb[cpu_tlb_set(priv->mode)][(gva >> PAGE_SHIFT) % TLB_SIZE];
}

/* The check that translated code makes: cpu/mmu/mmu.h. */
static bool serves(u64 tag, gva_t gva, u64 bytes)
{
	return (gva ^ tag) <= PAGE_SIZE - bytes;
}

static hva_t host_of(const struct tlb_entry *entry, gva_t gva)
{
	return (hva_t)entry->host + (gva & ~PAGE_MASK);
}

static bool stos(struct cpu *cpu, u32 size, u64 bytes)
{
	gva_t to = cpu->regs[RDI];
	const struct tlb_entry *entry = entry_of(cpu, to);
	u64 pattern = cpu->regs[RAX] & sys_mask(size);

	for (u32 bits = 8 * size; bits < 64; bits *= 2)
		pattern |= pattern << bits;
	return serves(entry->write, to, bytes) && guarded_fill(host_of(entry, to), pattern, bytes);
}

/* Overlapping moves to higher addresses repeat what they have written: not here. */
static bool movs(struct cpu *cpu, u64 bytes)
{
	gva_t from = cpu->regs[RSI], to = cpu->regs[RDI];
	const struct tlb_entry *source = entry_of(cpu, from), *dest = entry_of(cpu, to);
	hva_t host_from = host_of(source, from), host_to = host_of(dest, to);

	if (!serves(source->read, from, bytes) || !serves(dest->write, to, bytes) ||
	    (u64)(host_to - host_from) < bytes || !guarded_read(host_to, host_from, bytes))
		return false;
	cpu->regs[RSI] += bytes;
	return true;
}

static u32 element_size(const struct insn *insn)
{
	return insn->bytes[insn->len - 1] & 1 ? insn->opsize : 1;
}

static bool is_plain(const struct cpu *cpu, const struct insn *insn)
{
	const struct cpu_priv *priv = cpu_priv(cpu);

	return sys_code64(cpu) && insn->addrsize == 8 && (insn->prefixes & PREFIX_REP) &&
	       insn->seg != FS && insn->seg != GS && !(cpu->rflags & FL_DF) &&
	       !(priv->mode & (MODE_ALIGN | MODE_STEP)) && !priv->watch_active &&
	       !cpu_observes(cpu);
}

bool sys_quick(struct cpu *cpu, const struct insn *insn)
{
	u32 size = element_size(insn);
	u64 count = cpu->regs[RCX], bytes = count * size;
	bool done;

	if (!is_plain(cpu, insn) || count - 1 >= PAGE_SIZE / size)
		return false;
	switch (insn_facts(insn)->quick) {
	case QUICK_STOS:
		done = stos(cpu, size, bytes);
		break;
	case QUICK_MOVS:
		done = movs(cpu, bytes);
		break;
	default:
		return false;
	}
	if (!done)
		return false;
	cpu->regs[RDI] += bytes;
	cpu->regs[RCX] = 0;
	cpu_effort(cpu, bytes / EFFORT_BYTES + 1);
	return true;
}
