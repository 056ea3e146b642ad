// SPDX-License-Identifier: MIT
/*
 * Loading data, stack and system segment registers (SDM 3A 3.4.4, 5.6, 5.7; MOV, LLDT and LTR
 * operations in SDM 2), and the instructions that only look at a descriptor. vCPU thread; general
 * registers only.
 */
#include "cpu/transfer/segment.h"

#include "cpu/event.h"
#include "cpu/mmu/mmu.h"
#include "cpu/mode.h"
#include "cpu/transfer/descriptor.h"

/* Real-address mode keeps limit and rights, which is how "unreal mode" comes about. */
static void load_real(struct cpu *cpu, enum seg seg, u16 selector)
{
	struct segment *s = &cpu->seg[seg];

	if (cpu->rflags & FL_VM) {
		*s = segment_vm86(selector);
		return;
	}
	s->sel = selector;
	s->base = (u64)selector << 4;
}

/* A null SS is for 64-bit code below privilege level 3 only. */
static enum guest_fault load_null(struct cpu *cpu, enum seg seg, u16 selector)
{
	bool allowed =
		seg != SS || (cpu_code64(cpu) && cpu->cpl != 3 && (selector & SEL_RPL) == cpu->cpl);

	if (!allowed)
		return cpu_raise_error(cpu, VEC_GP, 0);
	cpu->seg[seg] = segment_null(selector);
	return FAULT_NONE;
}

static enum guest_fault load_descriptor(struct cpu *cpu, enum seg seg, u16 selector)
{
	enum guest_fault fault;
	struct descriptor d;

	if (seg == SS)
		fault = descriptor_read_stack(cpu, selector, cpu->cpl, VEC_GP, 0, &d);
	else
		fault = descriptor_read_data(cpu, selector, VEC_GP, 0, &d);
	if (!fault)
		cpu->seg[seg] = descriptor_segment(&d);
	return fault;
}

enum guest_fault cpu_load_seg(struct cpu *cpu, enum seg seg, u16 selector)
{
	enum guest_fault fault = FAULT_NONE;

	if (!cpu_has_descriptors(cpu))
		load_real(cpu, seg, selector);
	else if (selector_null(selector))
		fault = load_null(cpu, seg, selector);
	else
		fault = load_descriptor(cpu, seg, selector);
	if (!fault)
		cpu_update_mode(cpu);
	return fault;
}

/* What LLDT and LTR share: a present system descriptor in the GDT of one of `types`. */
static enum guest_fault read_system(struct cpu *cpu, u16 selector, u32 types, struct descriptor *d)
{
	enum guest_fault fault;

	if (selector & SEL_TI)
		return descriptor_fault(cpu, VEC_GP, selector, 0);
	fault = descriptor_read(cpu, selector, VEC_GP, 0, d);
	if (fault)
		return fault;
	if ((d->attr & SEG_S) || !(types >> descriptor_type(d) & 1))
		return descriptor_fault(cpu, VEC_GP, selector, 0);
	if (!(d->attr & SEG_P))
		return descriptor_fault(cpu, VEC_NP, selector, 0);
	if (!cpu_long_mode(cpu))
		return FAULT_NONE;
	fault = descriptor_extend(cpu, d);
	if (fault)
		return fault;
	if (!cpu_canonical_base(cpu, descriptor_base64(d->lo, d->hi)))
		return descriptor_fault(cpu, VEC_GP, selector, 0);
	return FAULT_NONE;
}

static struct segment system_segment(const struct descriptor *d)
{
	struct segment s = descriptor_segment(d);

	s.base = descriptor_base64(d->lo, d->hi);
	return s;
}

enum guest_fault cpu_load_ldtr(struct cpu *cpu, u16 selector)
{
	enum guest_fault fault;
	struct descriptor d;

	if (selector_null(selector)) {
		cpu->ldtr = segment_null(selector);
		return FAULT_NONE;
	}
	fault = read_system(cpu, selector, 1u << TYPE_LDT, &d);
	if (!fault)
		cpu->ldtr = system_segment(&d);
	return fault;
}

enum guest_fault cpu_load_tr(struct cpu *cpu, u16 selector)
{
	u32 types = 1u << TYPE_TSS | (cpu_long_mode(cpu) ? 0 : 1u << TYPE_TSS16);
	enum guest_fault fault;
	struct descriptor d;

	if (selector_null(selector))
		return cpu_raise_error(cpu, VEC_GP, 0);
	fault = read_system(cpu, selector, types, &d);
	if (fault)
		return fault;
	fault = descriptor_mark_busy(cpu, &d, 0);
	if (!fault)
		cpu->tr = system_segment(&d);
	return fault;
}

/* System types that LAR and LSL know (tables in their descriptions); long mode knows fewer. */
#define LSL_TYPES_LONG (1u << TYPE_LDT | 1u << TYPE_TSS | 1u << TYPE_TSS_BUSY)
#define LSL_TYPES      (LSL_TYPES_LONG | 1u << TYPE_TSS16 | 1u << TYPE_TSS16_BUSY)
#define LAR_TYPES_LONG (LSL_TYPES_LONG | 1u << TYPE_CALL_GATE)
#define LAR_TYPES_GATE (1u << TYPE_CALL_GATE | 1u << TYPE_CALL_GATE16 | 1u << TYPE_TASK_GATE)
#define LAR_TYPES      (LSL_TYPES | LAR_TYPES_GATE)

/* *ok: the selector names a descriptor that this privilege may see. */
static enum guest_fault look_at(struct cpu *cpu, u16 selector, u32 types, struct descriptor *d,
				bool *ok)
{
	enum guest_fault fault;

	*ok = false;
	if (selector_null(selector))
		return FAULT_NONE;
	fault = descriptor_find(cpu, selector, d, ok);
	if (fault || !*ok)
		return fault;
	*ok = descriptor_privileged(cpu, d) &&
	      ((d->attr & SEG_S) || types >> descriptor_type(d) & 1);
	return FAULT_NONE;
}

enum guest_fault cpu_lar(struct cpu *cpu, u16 selector, bool *ok, u32 *rights)
{
	u32 types = cpu_long_mode(cpu) ? LAR_TYPES_LONG : LAR_TYPES;
	struct descriptor d;
	enum guest_fault fault = look_at(cpu, selector, types, &d, ok);

	/* The manuals leave bits 19:16 open; processors give those of the limit. */
	if (!fault && *ok)
		*rights = d.lo >> 32 & 0xffff00;
	return fault;
}

enum guest_fault cpu_lsl(struct cpu *cpu, u16 selector, bool *ok, u32 *limit)
{
	u32 types = cpu_long_mode(cpu) ? LSL_TYPES_LONG : LSL_TYPES;
	struct descriptor d;
	enum guest_fault fault = look_at(cpu, selector, types, &d, ok);

	if (!fault && *ok)
		*limit = descriptor_limit(d.lo);
	return fault;
}

enum guest_fault cpu_verify(struct cpu *cpu, u16 selector, bool write, bool *ok)
{
	struct descriptor d;
	enum guest_fault fault = look_at(cpu, selector, 0, &d, ok);

	if (!fault && *ok)
		*ok = write ? descriptor_is_stack(&d) : descriptor_is_readable(&d);
	return fault;
}
