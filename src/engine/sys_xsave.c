// SPDX-License-Identifier: MIT
/*
 * The XSAVE family (SDM 1 13.7 to 13.12), done on the image of the state in cpu->xsave. The
 * components are x87, SSE and AVX: AVX is at the same place in the standard and the compacted form,
 * so the forms differ in their headers, in what they leave out and in how they treat MXCSR. vCPU
 * thread; general registers only, behind fpu_save().
 */
#include "base/bytes.h"
#include "engine/sys_fpu.h"
#include "engine/sys_priv.h"

#define XSAVE_ALIGN   63
#define XCOMP_COMPACT BIT(63)
#define MXCSR_INIT    0x1f80u
#define HEADER_SIZE   64
#define LEGACY_SIZE   XSAVE_XSTATE_BV

struct area {
	struct cpu *cpu;
	const struct insn *insn;
	gva_t gva;
	u64 rfbm; /* the components asked for: "requested-feature bitmap" */
};

static u32 area_size(u64 components)
{
	return components & XCR0_AVX ? XSAVE_OPMASK : XSAVE_YMM0_HIGH;
}

/* The first byte that is written. `legacy`: the components with something in front of the header.
 */
static u32 area_start(const struct area *a, u64 legacy)
{
	bool skips = cpu_follows(a->cpu, RULE_XSAVE_SKIPS_LEGACY) && !(a->rfbm & legacy);

	return skips ? XSAVE_XSTATE_BV : 0;
}

static enum guest_fault area_writable(const struct area *a, u64 legacy, u32 access)
{
	u32 start = area_start(a, legacy);

	return sys_probe(a->cpu, cpu_wrap(a->cpu, a->gva + start), area_size(a->rfbm) - start,
			 access);
}

static enum guest_fault area_find(struct cpu *cpu, const struct insn *insn, u64 allowed, u32 access,
				  struct area *a)
{
	enum guest_fault fault;

	a->cpu = cpu;
	a->insn = insn;
	a->rfbm = allowed & sys_edx_eax(cpu);
	fault = sys_address(cpu, insn, &insn->ops[0], area_size(a->rfbm), access, &a->gva);
	if (!fault && (a->gva & XSAVE_ALIGN))
		fault = sys_gp(cpu);
	return fault;
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

static enum guest_fault put_components(const struct area *a, u64 components, bool mxcsr)
{
	u32 vectors = sys_vector_count(a->cpu) * 16;
	enum guest_fault fault = FAULT_NONE;

	if (components & XCR0_X87)
		fault = put_x87(a);
	if (!fault && mxcsr)
		fault = put_image(a, XSAVE_MXCSR, 8);
	if (!fault && (components & XCR0_SSE))
		fault = put_image(a, XSAVE_XMM0, vectors);
	if (!fault && (components & XCR0_AVX))
		fault = put_image(a, XSAVE_YMM0_HIGH, vectors);
	return fault;
}

/* XSAVE, XSAVEOPT: header bits of components not asked for stay as they are in memory. */
static enum sys_result save_standard(struct cpu *cpu, const struct insn *insn, bool optimised)
{
	const u32 access = ACCESS_WRITE | ACCESS_RMW;
	u64 in_use, components, bitmap;
	struct area a;
	enum guest_fault fault = area_find(cpu, insn, cpu->xcr0, access, &a);

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
	u64 header[2], components;
	struct area a;
	enum guest_fault fault = area_find(cpu, insn, allowed, ACCESS_WRITE, &a);

	if (!fault)
		fault = area_writable(&a, XCR0_X87 | XCR0_SSE, ACCESS_WRITE);
	if (fault)
		return sys_done(fault);
	components = sys_fpu_in_use(cpu) & a.rfbm;
	if (*(u32 *)(cpu->xsave + XSAVE_MXCSR) != MXCSR_INIT)
		components |= a.rfbm & XCR0_SSE;
	header[0] = components;
	header[1] = a.rfbm | XCOMP_COMPACT;
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

static void get_components(const struct area *a, const u8 *from, u64 components)
{
	u32 vectors = sys_vector_count(a->cpu) * 16;
	u8 *image = a->cpu->xsave;

	if (components & XCR0_X87) {
		sys_x87_unpack(a->cpu, a->insn, from);
		bytes_copy(image + XSAVE_ST0, from + XSAVE_ST0, XSAVE_XMM0 - XSAVE_ST0);
	}
	if (components & XCR0_SSE)
		bytes_copy(image + XSAVE_XMM0, from + XSAVE_XMM0, vectors);
	if (components & XCR0_AVX)
		bytes_copy(image + XSAVE_YMM0_HIGH, from + XSAVE_YMM0_HIGH, vectors);
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
	get_components(a, buffer, a->rfbm & h->xstate_bv);
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
	u8 buffer[XSAVE_OPMASK] __attribute__((aligned(8)));
	const struct header *h = (const struct header *)(buffer + XSAVE_XSTATE_BV);
	struct area a;
	enum guest_fault fault = area_find(cpu, insn, allowed, ACCESS_READ, &a);

	if (!fault)
		fault = get(&a, 0, buffer, LEGACY_SIZE + HEADER_SIZE);
	if (fault)
		return sys_done(fault);
	if (!header_valid(cpu, h, allowed, supervisor))
		return sys_done(sys_gp(cpu));
	if (a.rfbm & h->xstate_bv & XCR0_AVX)
		fault = get(&a, XSAVE_YMM0_HIGH, buffer + XSAVE_YMM0_HIGH,
			    XSAVE_OPMASK - XSAVE_YMM0_HIGH);
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
