// SPDX-License-Identifier: MIT
/*
 * Descriptors in the guest's tables (SDM 3A 3.4, 3.5, 5.2 to 5.8), what segment registers hold of
 * them, and the stacks that a TSS names. All accesses are implicit supervisor accesses (SDM 3A
 * 4.6). vCPU thread; general registers only.
 */
#include "cpu/transfer/descriptor.h"

#include "cpu/event.h"
#include "cpu/mmu/mmu.h"

/* Finds `size` bytes of a descriptor; false: beyond the limit, or there is no LDT. */
static bool locate(const struct cpu *cpu, u16 sel, u32 size, gva_t *gva)
{
	bool local = sel & SEL_TI;
	u64 base = local ? cpu->ldtr.base : cpu->gdtr.base;
	u32 limit = local ? cpu->ldtr.limit : cpu->gdtr.limit;

	if (local && (cpu->ldtr.attr & SEG_UNUSABLE))
		return false;
	if ((sel & SEL_INDEX) + size - 1 > limit)
		return false;
	*gva = base + (sel & SEL_INDEX);
	if (!cpu_long_mode(cpu))
		*gva = (u32)*gva;
	return true;
}

enum guest_fault descriptor_fault(struct cpu *cpu, enum vector vector, u16 sel, u32 ext)
{
	return cpu_raise_error(cpu, vector, (sel & ERROR_INDEX) | ext);
}

enum guest_fault descriptor_find(struct cpu *cpu, u16 sel, struct descriptor *d, bool *found)
{
	enum guest_fault fault;
	gva_t gva;

	*found = locate(cpu, sel, 8, &gva);
	if (!*found)
		return FAULT_NONE;
	fault = cpu_read(cpu, gva, &d->lo, 8, ACCESS_SYSTEM);
	if (fault)
		return fault;
	d->hi = 0;
	d->attr = descriptor_attr(d->lo);
	d->sel = sel;
	return FAULT_NONE;
}

enum guest_fault descriptor_read(struct cpu *cpu, u16 sel, enum vector vector, u32 ext,
				 struct descriptor *d)
{
	enum guest_fault fault;
	bool found;

	fault = descriptor_find(cpu, sel, d, &found);
	if (fault)
		return fault;
	return found ? FAULT_NONE : descriptor_fault(cpu, vector, sel, ext);
}

enum guest_fault descriptor_extend(struct cpu *cpu, struct descriptor *d)
{
	enum guest_fault fault;
	gva_t gva;

	if (!locate(cpu, d->sel, 16, &gva))
		return descriptor_fault(cpu, VEC_GP, d->sel, 0);
	fault = cpu_read(cpu, gva + 8, &d->hi, 8, ACCESS_SYSTEM);
	if (fault)
		return fault;
	if (descriptor_upper_type(d->hi))
		return descriptor_fault(cpu, VEC_GP, d->sel, 0);
	return FAULT_NONE;
}

static enum guest_fault change_type(struct cpu *cpu, struct descriptor *d, u8 set, u8 clear,
				    u8 *was)
{
	u32 attr = (d->attr | set) & ~(u32)clear;
	enum guest_fault fault;
	gva_t gva;

	*was = d->attr;
	if (d->attr == attr || !locate(cpu, d->sel, 8, &gva))
		return FAULT_NONE;
	fault = cpu_change_bits(cpu, gva + 5, was, set, clear);
	if (!fault)
		d->attr = attr;
	return fault;
}

enum guest_fault descriptor_mark_accessed(struct cpu *cpu, struct descriptor *d)
{
	u8 was;

	return change_type(cpu, d, TYPE_ACCESSED, 0, &was);
}

enum guest_fault descriptor_mark_busy(struct cpu *cpu, struct descriptor *tss, u32 ext)
{
	bool available = !(tss->attr & TSS_BUSY);
	enum guest_fault fault;
	u8 was;

	fault = change_type(cpu, tss, TSS_BUSY, 0, &was);
	if (!fault && available && (was & TSS_BUSY)) /* another processor was faster */
		return descriptor_fault(cpu, VEC_GP, tss->sel, ext);
	return fault;
}

enum guest_fault descriptor_mark_available(struct cpu *cpu, struct descriptor *tss)
{
	u8 was;

	return change_type(cpu, tss, 0, TSS_BUSY, &was);
}

struct segment descriptor_segment(const struct descriptor *d)
{
	return (struct segment){
		.base = descriptor_base(d->lo),
		.limit = descriptor_limit(d->lo),
		.attr = d->attr,
		.sel = d->sel,
	};
}

/* KVM: a null segment keeps its RPL as DPL, which VM entry wants to see for SS. */
struct segment segment_null(u16 sel)
{
	return (struct segment){ .attr = SEG_UNUSABLE | (sel & SEL_RPL) << SEG_DPL_SHIFT,
				 .sel = sel };
}

struct segment segment_vm86(u16 sel)
{
	return (struct segment){
		.base = (u64)sel << 4,
		.limit = 0xffff,
		.attr = TYPE_WRITABLE | TYPE_ACCESSED | SEG_S | SEG_DPL | SEG_P,
		.sel = sel,
	};
}

struct segment segment_flat_code(u16 sel, u8 dpl, bool code64)
{
	return (struct segment){
		.limit = 0xffffffff,
		.attr = TYPE_CODE | TYPE_WRITABLE | TYPE_ACCESSED | SEG_S | SEG_P | SEG_G |
			(u32)dpl << SEG_DPL_SHIFT | (code64 ? SEG_L : SEG_DB),
		.sel = sel,
	};
}

struct segment segment_flat_stack(u16 sel, u8 dpl)
{
	return (struct segment){
		.limit = 0xffffffff,
		.attr = TYPE_WRITABLE | TYPE_ACCESSED | SEG_S | SEG_P | SEG_G | SEG_DB |
			(u32)dpl << SEG_DPL_SHIFT,
		.sel = sel,
	};
}

enum guest_fault descriptor_read_stack(struct cpu *cpu, u16 sel, u8 cpl, enum vector vector,
				       u32 ext, struct descriptor *d)
{
	enum guest_fault fault = descriptor_read(cpu, sel, vector, ext, d);

	if (fault)
		return fault;
	if ((sel & SEL_RPL) != cpl || !descriptor_is_stack(d) || descriptor_dpl(d) != cpl)
		return descriptor_fault(cpu, vector, sel, ext);
	if (!(d->attr & SEG_P))
		return descriptor_fault(cpu, VEC_SS, sel, ext);
	return descriptor_mark_accessed(cpu, d);
}

bool descriptor_privileged(const struct cpu *cpu, const struct descriptor *d)
{
	u8 dpl = descriptor_dpl(d);

	return descriptor_is_conforming(d) || (cpu->cpl <= dpl && (d->sel & SEL_RPL) <= dpl);
}

enum guest_fault descriptor_read_data(struct cpu *cpu, u16 sel, enum vector vector, u32 ext,
				      struct descriptor *d)
{
	enum guest_fault fault = descriptor_read(cpu, sel, vector, ext, d);

	if (fault)
		return fault;
	if (!descriptor_is_readable(d) || !descriptor_privileged(cpu, d))
		return descriptor_fault(cpu, vector, sel, ext);
	if (!(d->attr & SEG_P))
		return descriptor_fault(cpu, VEC_NP, sel, ext);
	return descriptor_mark_accessed(cpu, d);
}

enum guest_fault descriptor_target(struct cpu *cpu, const struct descriptor *cs, u64 *rip, u32 ext)
{
	if (descriptor_is_code64(cpu, cs))
		return cpu_canonical(cpu, *rip) ? FAULT_NONE : cpu_raise_error(cpu, VEC_GP, ext);
	*rip = (u32)*rip;
	return *rip <= descriptor_limit(cs->lo) ? FAULT_NONE : cpu_raise_error(cpu, VEC_GP, ext);
}

enum guest_fault tss64_read(struct cpu *cpu, u32 offset, u32 ext, u64 *rsp)
{
	if (offset + 7 > cpu->tr.limit)
		return descriptor_fault(cpu, VEC_TS, cpu->tr.sel, ext);
	return cpu_read(cpu, cpu->tr.base + offset, rsp, 8, ACCESS_SYSTEM);
}

enum guest_fault tss_read_stack(struct cpu *cpu, u8 cpl, u32 ext, u32 *esp, u16 *ss)
{
	bool tss32 = (cpu->tr.attr & SEG_TYPE) >= TYPE_TSS;
	u32 width = tss32 ? 4 : 2;
	u32 offset = tss32 ? TSS32_ESP(cpl) : TSS16_SP(cpl);
	enum guest_fault fault;
	gva_t gva = (u32)(cpu->tr.base + offset);

	if (offset + width + 1 > cpu->tr.limit)
		return descriptor_fault(cpu, VEC_TS, cpu->tr.sel, ext);
	*esp = 0;
	fault = cpu_read(cpu, gva, esp, width, ACCESS_SYSTEM);
	return fault ? fault : cpu_read(cpu, gva + width, ss, 2, ACCESS_SYSTEM);
}

enum guest_fault cpu_unemulated(struct cpu *cpu)
{
	cpu->port.exit.reason = EXIT_UNEMULATED;
	return FAULT_EXIT;
}
