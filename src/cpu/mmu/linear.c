// SPDX-License-Identifier: MIT
/*
 * Segmentation: segment and offset to a linear address (SDM 3A 3.3.7, 5.3, 5.5; APM2 4.5, 4.12);
 * canonical addresses (SDM 1 3.3.7.1), and which alignment an access must have to pass the check of
 * EFLAGS.AC. vCPU thread; general registers only.
 */
#include "cpu/mmu/mmu.h"

#include "cpu/event.h"
#include "cpu/mode.h"
#include "x86/descriptor.h"

static bool is_sign_extended(gva_t gva, u32 bits)
{
	u32 unused = 64 - bits;

	return (u64)((s64)(gva << unused) >> unused) == gva;
}

bool cpu_canonical(const struct cpu *cpu, gva_t gva)
{
	return is_sign_extended(gva, cpu_linear_bits(cpu));
}

bool cpu_canonical_base(const struct cpu *cpu, gva_t gva)
{
	return is_sign_extended(gva, cpu_linear_bits_max(cpu));
}

/* SDM 3A 6.15, #SS and #GP: which of them depends on the segment only. */
static enum guest_fault violation(struct cpu *cpu, enum seg seg)
{
	return cpu_raise_error(cpu, seg == SS ? VEC_SS : VEC_GP, 0);
}

static bool canonical_span(const struct cpu *cpu, u64 first, u32 size)
{
	return cpu_canonical(cpu, first) && cpu_canonical(cpu, first + size - (size != 0));
}

static gva_t base64(const struct cpu *cpu, enum seg seg)
{
	return seg == FS || seg == GS ? cpu->seg[seg].base : 0;
}

static bool checks_alignment_first(const struct cpu *cpu, gva_t gva, u32 size)
{
	return cpu_misaligned(cpu, gva, size) && cpu_canonical(cpu, gva) &&
	       cpu_follows(cpu, RULE_ALIGNMENT_BEFORE_SPAN);
}

enum guest_fault cpu_check64(struct cpu *cpu, enum seg seg, gva_t gva, u32 size)
{
	if (!canonical_span(cpu, gva, size))
		return checks_alignment_first(cpu, gva, size) ? cpu_raise_error(cpu, VEC_AC, 0)
							      : violation(cpu, seg);
	if (cpu_follows(cpu, RULE_OFFSETS_CANONICAL) &&
	    !canonical_span(cpu, gva - base64(cpu, seg), size))
		return violation(cpu, seg);
	return FAULT_NONE;
}

/* In real and virtual-8086 mode, the code segment can be written. */
static bool type_allows(const struct cpu *cpu, u32 type, u32 access)
{
	bool protected = (cpu->cr0 & CR0_PE) && !(cpu->rflags & FL_VM);

	if (access & ACCESS_FETCH)
		return true;
	if (access & ACCESS_WRITE)
		return (type & TYPE_WRITABLE) && !((type & TYPE_CODE) && protected);
	return !(type & TYPE_CODE) || (type & TYPE_WRITABLE);
}

bool cpu_limit_allows(const struct cpu *cpu, const struct segment *s, u32 offset, u32 size)
{
	bool down = (s->attr & (TYPE_CODE | TYPE_EXPAND_DOWN)) == TYPE_EXPAND_DOWN;
	u64 last = (u64)offset + size - (size != 0);
	u32 top = s->limit;

	if (down) {
		if (offset <= s->limit)
			return false;
		top = s->attr & SEG_DB ? 0xffffffff : 0xffff;
	} else if (top == 0xffffffff && cpu_follows(cpu, RULE_ACCESS_WRAPS_4G)) {
		return true;
	}
	return last <= top;
}

enum guest_fault cpu_linear(struct cpu *cpu, enum seg seg, u64 offset, u32 size, u32 access,
			    gva_t *out)
{
	const struct segment *s = &cpu->seg[seg];

	if (cpu_code64(cpu)) {
		*out = base64(cpu, seg) + offset;
		return cpu_check64(cpu, seg, *out, size);
	}
	if ((s->attr & SEG_UNUSABLE) || !type_allows(cpu, s->attr & SEG_TYPE, access) ||
	    !cpu_limit_allows(cpu, s, offset, size))
		return violation(cpu, seg);
	*out = (u32)(s->base + offset);
	return FAULT_NONE;
}

/* Strings of bytes and structures have no alignment, and vectors of 32 bytes that of their
 * halves. */
u32 cpu_alignment(const struct cpu *cpu, u32 size)
{
	switch (size) {
	case 2:
	case 4:
	case 8:
		return size;
	case 10:
		return 8;
	case 16:
	case 32:
	case 64:
		return cpu_follows(cpu, RULE_VECTORS_CHECK_ALIGNMENT) ? 16 : 1;
	default:
		return 1;
	}
}
