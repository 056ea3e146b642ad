// SPDX-License-Identifier: MIT
/*
 * Hardware breakpoints (SDM 3B 17.2): matching of accesses and instruction addresses against the
 * debug registers, the guest's own or those a debugger put in their place. A page with an armed
 * data breakpoint stays out of the TLB, so every access to it comes by here. vCPU thread; general
 * registers only.
 */
#include "cpu/mmu/mmu.h"

#include "cpu/control.h"
#include "cpu/mmu/priv.h"
#include "cpu/mode.h"

enum breakpoint_kind { BREAK_FETCH, BREAK_WRITE, BREAK_IO, BREAK_ACCESS }; /* DR7.R/W */

struct breakpoint {
	enum breakpoint_kind kind;
	u64 addr; /* aligned to len */
	u32 len;
};

/* Breakpoint n, if it is enabled, locally or globally. */
static bool breakpoint_get(const struct cpu *cpu, u32 n, struct breakpoint *out)
{
	static const u8 lengths[4] = { 1, 2, 8, 4 }; /* DR7.LEN */
	const u64 *dr = cpu->port.debug.hardware_bp ? cpu->port.debug.dr : cpu->dr;
	u64 dr7 = cpu_dr7(cpu);

	if (!(dr7 >> (2 * n) & 3))
		return false;
	out->kind = dr7 >> (16 + 4 * n) & 3;
	out->len = lengths[dr7 >> (18 + 4 * n) & 3];
	out->addr = dr[n] & -(u64)out->len;
	return true;
}

static bool is_data(const struct breakpoint *b)
{
	return b->kind == BREAK_WRITE || b->kind == BREAK_ACCESS;
}

/* Modulo 2^64: an access may wrap around the end of the address space of 64-bit code. */
static bool overlaps(const struct breakpoint *b, u64 addr, u32 size)
{
	return b->addr - addr < size || addr - b->addr < b->len;
}

static void match(struct cpu *cpu, gva_t gva, u32 size, u32 access)
{
	struct breakpoint b;

	for (u32 n = 0; n < 4; n++) {
		if (!breakpoint_get(cpu, n, &b) || !is_data(&b) || !overlaps(&b, gva, size))
			continue;
		if (b.kind == BREAK_ACCESS || (access & ACCESS_WRITE))
			cpu->pending_db |= 1u << n;
	}
}

void cpu_watch(struct cpu *cpu, gva_t gva, u32 size, u32 access)
{
	u64 to_wrap = cpu_code64(cpu) ? ~0ull : BIT(32) - gva;
	u32 before = size < to_wrap ? size : to_wrap;

	if (!cpu_priv(cpu)->watch_active)
		return;
	match(cpu, gva, before, access);
	if (before < size)
		match(cpu, 0, size - before, access);
}

void cpu_watch_io(struct cpu *cpu, u16 port, u32 size)
{
	struct breakpoint b;

	if (!(cpu->cr4 & CR4_DE))
		return;
	for (u32 n = 0; n < 4; n++)
		if (breakpoint_get(cpu, n, &b) && b.kind == BREAK_IO && overlaps(&b, port, size))
			cpu->pending_db |= 1u << n;
}

bool watch_page(const struct cpu *cpu, gva_t gva)
{
	struct breakpoint b;

	if (likely(!cpu_priv(cpu)->watch_active))
		return false;
	for (u32 n = 0; n < 4; n++)
		if (breakpoint_get(cpu, n, &b) && is_data(&b) && !((b.addr ^ gva) & PAGE_MASK))
			return true;
	return false;
}

/* SDM 3B 17.2.4: the LEN of an instruction breakpoint must be 0; KVM: others never match. */
static bool is_fetch(const struct breakpoint *b)
{
	return b->kind == BREAK_FETCH && b->len == 1;
}

u32 cpu_watch_fetch(const struct cpu *cpu, gva_t rip)
{
	struct breakpoint b;
	u32 hits = 0;

	for (u32 n = 0; n < 4; n++)
		if (breakpoint_get(cpu, n, &b) && is_fetch(&b) && b.addr == rip)
			hits |= 1u << n;
	return hits;
}

bool cpu_watch_any_fetch(const struct cpu *cpu)
{
	struct breakpoint b;

	for (u32 n = 0; n < 4; n++)
		if (breakpoint_get(cpu, n, &b) && is_fetch(&b))
			return true;
	return false;
}

void cpu_watch_update(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	struct breakpoint b;

	priv->watch_active = false;
	for (u32 n = 0; n < 4; n++)
		if (breakpoint_get(cpu, n, &b) && is_data(&b))
			priv->watch_active = true;
	if (priv->watch_active)
		tlb_flush(cpu);
	cpu_update_mode(cpu);
}
