// SPDX-License-Identifier: MIT
/*
 * The XSAVE family (SDM 1 13.7 to 13.12), done on the image of the state in cpu->xsave. The
 * standard and the compacted form differ in where components are, in their headers, in what they
 * leave out and in how they treat MXCSR. vCPU thread; general registers only, after fpu_save().
 */
#include "base/bytes.h"
#include "cpu/control.h"
#include "engine/sys/fpu_image.h"
#include "engine/sys/priv.h"

#define XSAVE_ALIGN 63
#define HEADER_SIZE 64
#define LEGACY_SIZE XSAVE_XSTATE_BV

struct area {
	struct cpu *cpu;
	const struct insn *insn;
	gva_t gva;
	u64 rfbm; /* the components asked for: "requested-feature bitmap" */
	/* Of the compacted form: its components and XCOMP_COMPACT; 0: the standard form. */
	u64 format;
};

static u32 component_at(const struct area *a, u32 component)
{
	return a->format ? xstate_compacted_at(a->format, component) : a->cpu->xstate.at[component];
}

static u32 area_size(const struct area *a)
{
	return a->format ? xstate_compacted_size(a->format)
			 : xstate_standard_size(&a->cpu->xstate, a->rfbm);
}

/* The first byte that is written. `legacy`: the components with something in front of
 * the header. */
static u32 area_start(const struct area *a, u64 legacy)
{
	bool skips = cpu_follows(a->cpu, RULE_XSAVE_SKIPS_LEGACY) && !(a->rfbm & legacy);

	return skips ? XSAVE_XSTATE_BV : 0;
}

static enum guest_fault area_writable(const struct area *a, u64 legacy, u32 access)
{
	u32 start = area_start(a, legacy);

	return sys_probe(a->cpu, cpu_wrap(a->cpu, a->gva + start), area_size(a) - start, access);
}

/* Address and segment limits, for an area of a size that rfbm and format tell. */
static enum guest_fault area_find(struct area *a, u32 access)
{
	enum guest_fault fault =
		sys_address(a->cpu, a->insn, &a->insn->ops[0], area_size(a), access, &a->gva);

	if (!fault && (a->gva & XSAVE_ALIGN))
		fault = sys_gp(a->cpu);
	return fault;
}

static struct area area_asked(struct cpu *cpu, const struct insn *insn, u64 allowed)
{
	return (struct area){ .cpu = cpu, .insn = insn, .rfbm = allowed & sys_edx_eax(cpu) };
}

static enum guest_fault put(const struct area *a, u32 at, const void *bytes, u32 size)
{
	return cpu_write(a->cpu, cpu_wrap(a->cpu, a->gva + at), bytes, size, ACCESS_WRITE);
}

static enum guest_fault get(const struct area *a, u32 at, void *bytes, u32 size)
{
	return cpu_read(a->cpu, cpu_wrap(a->cpu, a->gva + at), bytes, size, ACCESS_READ);
}

static enum guest_fault put_image(const struct area *a, u32 at, u32 size)
{
	return put(a, at, a->cpu->xsave + at, size);
}

static enum guest_fault put_x87(const struct area *a)
{
	u8 control[XSAVE_MXCSR];
	enum guest_fault fault;

	sys_x87_pack(a->cpu, a->insn, control);
	fault = put(a, 0, control, sizeof(control));
	return fault ? fault : put_image(a, XSAVE_ST0, XSAVE_XMM0 - XSAVE_ST0);
}

static enum guest_fault put_component(const struct area *a, u32 component)
{
	return put(a, component_at(a, component), fpu_component(a->cpu, component),
		   sys_component_bytes(a->cpu, component));
}

static enum guest_fault put_components(const struct area *a, u64 components, bool mxcsr)
{
	enum guest_fault fault = FAULT_NONE;

	fpu_fill_initial(a->cpu, components);
	if (components & XCR0_X87)
		fault = put_x87(a);
	if (!fault && mxcsr)
		fault = put_image(a, XSAVE_MXCSR, 8);
	if (!fault && (components & XCR0_SSE))
		fault = put_image(a, XSAVE_XMM0, sys_vector_count(a->cpu) * 16);
	for (u32 i = XSTATE_FIRST; !fault && i < NXSTATE; i++)
		if (components & BIT(i))
			fault = put_component(a, i);
	return fault;
}

/* XSAVE, XSAVEOPT: header bits of components not asked for stay as they are in memory. */
static enum sys_result save_standard(struct cpu *cpu, const struct insn *insn, bool optimised)
{
	const u32 access = ACCESS_WRITE | ACCESS_RMW;
	u64 in_use, components, bitmap;
	struct area a = area_asked(cpu, insn, cpu->xcr0);
	enum guest_fault fault = area_find(&a, access);

	if (!fault)
		fault = area_writable(&a, XCR0_X87 | XCR0_SSE | XCR0_AVX, access);
	if (!fault)
		fault = get(&a, XSAVE_XSTATE_BV, &bitmap, 8);
	if (fault)
		return sys_done(fault);
	in_use = sys_fpu_in_use(cpu) & a.rfbm;
	components = optimised ? in_use : a.rfbm;
	bitmap = (bitmap & ~a.rfbm) | in_use;
	fault = put_components(&a, components, a.rfbm & (XCR0_SSE | XCR0_AVX));
	if (!fault)
		fault = put(&a, XSAVE_XSTATE_BV, &bitmap, 8);
	return sys_done(fault);
}

/* XSAVEC, XSAVES: MXCSR belongs to SSE; only components in use are written. */
static enum sys_result save_compacted(struct cpu *cpu, const struct insn *insn, u64 allowed)
{
	struct area a = area_asked(cpu, insn, allowed);
	u64 header[2], components;
	enum guest_fault fault;

	a.format = a.rfbm | XCOMP_COMPACT;
	fault = area_find(&a, ACCESS_WRITE);
	if (!fault)
		fault = area_writable(&a, XCR0_X87 | XCR0_SSE, ACCESS_WRITE);
	if (fault)
		return sys_done(fault);
	components = sys_fpu_in_use(cpu) & a.rfbm;
	if (*(u32 *)(cpu->xsave + XSAVE_MXCSR) != MXCSR_INIT)
		components |= a.rfbm & XCR0_SSE;
	header[0] = components;
	header[1] = a.format;
	fault = put_components(&a, components, components & XCR0_SSE);
	if (!fault)
		fault = put(&a, XSAVE_XSTATE_BV, header, sizeof(header));
	return sys_done(fault);
}

enum sys_result sys_xsave(struct cpu *cpu, const struct insn *insn)
{
	return save_standard(cpu, insn, false);
}

enum sys_result sys_xsaveopt(struct cpu *cpu, const struct insn *insn)
{
	return save_standard(cpu, insn, true);
}

enum sys_result sys_xsavec(struct cpu *cpu, const struct insn *insn)
{
	return save_compacted(cpu, insn, cpu->xcr0);
}

enum sys_result sys_xsaves(struct cpu *cpu, const struct insn *insn)
{
	return save_compacted(cpu, insn, cpu->xcr0 | cpu->xss);
}

struct header {
	u64 xstate_bv, xcomp_bv;
	u64 reserved[6];
};

static bool reserved_clear(const struct header *h, u32 n)
{
	u64 bits = 0;

	for (u32 i = 0; i < n; i++)
		bits |= h->reserved[i];
	return !bits;
}

/* SDM 1 13.8.1: of the reserved bytes, the standard form checks only the first 8. */
static bool header_valid_standard(const struct header *h, u64 allowed)
{
	return !h->xcomp_bv && !(h->xstate_bv & ~allowed) && reserved_clear(h, 1);
}

/* SDM 1 13.8.2 */
static bool header_valid_compacted(const struct header *h, u64 allowed)
{
	u64 format = h->xcomp_bv & ~XCOMP_COMPACT;

	return !(format & ~allowed) && !(h->xstate_bv & ~format) &&
	       reserved_clear(h, ARRAY_SIZE(h->reserved));
}

static bool is_compacted(const struct header *h)
{
	return h->xcomp_bv & XCOMP_COMPACT;
}

static bool header_valid(const struct cpu *cpu, const struct header *h, u64 allowed,
			 bool supervisor)
{
	if (!is_compacted(h))
		return !supervisor && header_valid_standard(h, allowed);
	return cpu_has(cpu, FEAT_XSAVEC) && header_valid_compacted(h, allowed);
}

/* A buffer has all components at fpu_component_at(): as in the image, with PKRU after it. */
#define BUFFER_SIZE (XSAVE_END + 8)

/* From the area to a buffer, so that a fault changes nothing. */
static enum guest_fault get_components(const struct area *a, u8 *buffer, u64 components)
{
	enum guest_fault fault = FAULT_NONE;

	for (u32 i = XSTATE_FIRST; !fault && i < NXSTATE; i++)
		if (components & BIT(i))
			fault = get(a, component_at(a, i), buffer + fpu_component_at(i),
				    sys_component_bytes(a->cpu, i));
	return fault;
}

static void load_components(const struct area *a, const u8 *from, u64 components)
{
	u8 *image = a->cpu->xsave;

	if (components & XCR0_X87) {
		sys_x87_unpack(a->cpu, a->insn, from);
		bytes_copy(image + XSAVE_ST0, from + XSAVE_ST0, XSAVE_XMM0 - XSAVE_ST0);
	}
	if (components & XCR0_SSE)
		bytes_copy(image + XSAVE_XMM0, from + XSAVE_XMM0, sys_vector_count(a->cpu) * 16);
	fpu_make_present(a->cpu, components & XCR0_AVX512);
	for (u32 i = XSTATE_FIRST; i < NXSTATE; i++)
		if (components & ~XCR0_PKRU & BIT(i))
			bytes_copy(fpu_component(a->cpu, i), from + fpu_component_at(i),
				   sys_component_bytes(a->cpu, i));
	if (components & XCR0_PKRU)
		cpu_write_pkru(a->cpu, *(const u32 *)(from + XSAVE_END));
}

/* The standard form always has an MXCSR for SSE or AVX, the compacted form only with SSE. */
static bool loads_mxcsr(const struct area *a, const struct header *h)
{
	if (is_compacted(h))
		return a->rfbm & h->xstate_bv & XCR0_SSE;
	return a->rfbm & (XCR0_SSE | XCR0_AVX);
}

static enum guest_fault restore_checked(const struct area *a, const struct header *h, u8 *buffer)
{
	u32 *mxcsr = (u32 *)(a->cpu->xsave + XSAVE_MXCSR);

	if (loads_mxcsr(a, h) && !sys_mxcsr_valid(a->cpu, buffer))
		return sys_gp(a->cpu);
	sys_fpu_image(a->cpu);
	sys_fpu_init(a->cpu, a->rfbm & ~h->xstate_bv);
	load_components(a, buffer, a->rfbm & h->xstate_bv);
	if (loads_mxcsr(a, h))
		bytes_copy(mxcsr, buffer + XSAVE_MXCSR, 4);
	else if (is_compacted(h) && (a->rfbm & XCR0_SSE))
		*mxcsr = MXCSR_INIT;
	fpu_load(a->cpu); /* the processor derives reserved bits, ES and B again */
	return FAULT_NONE;
}

static enum sys_result restore(struct cpu *cpu, const struct insn *insn, u64 allowed,
			       bool supervisor)
{
	u8 buffer[BUFFER_SIZE] __attribute__((aligned(8)));
	const struct header *h = (const struct header *)(buffer + XSAVE_XSTATE_BV);
	struct area a = area_asked(cpu, insn, allowed);
	enum guest_fault fault = area_find(&a, ACCESS_READ);

	if (!fault)
		fault = get(&a, 0, buffer, LEGACY_SIZE + HEADER_SIZE);
	if (fault)
		return sys_done(fault);
	if (!header_valid(cpu, h, allowed, supervisor))
		return sys_done(sys_gp(cpu));
	if (is_compacted(h))
		a.format = h->xcomp_bv;
	fault = get_components(&a, buffer, a.rfbm & h->xstate_bv);
	return sys_done(fault ? fault : restore_checked(&a, h, buffer));
}

enum sys_result sys_xrstor(struct cpu *cpu, const struct insn *insn)
{
	return restore(cpu, insn, cpu->xcr0, false);
}

enum sys_result sys_xrstors(struct cpu *cpu, const struct insn *insn)
{
	return restore(cpu, insn, cpu->xcr0 | cpu->xss, true);
}
