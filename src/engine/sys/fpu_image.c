// SPDX-License-Identifier: MIT
/*
 * The x87 and vector state as an image that C code works on, and FXSAVE and FXRSTOR, which move its
 * oldest part (SDM 1 10.5, 13.6). vCPU thread; general registers only, after fpu_save().
 */
#include "base/bytes.h"
#include "cpu/control.h"
#include "cpu/fpu.h"
#include "engine/sys/fpu_image.h"
#include "engine/sys/priv.h"

static u64 *components_of(struct cpu *cpu)
{
	return (u64 *)(cpu->xsave + XSAVE_XSTATE_BV);
}

u32 sys_vector_count(const struct cpu *cpu)
{
	return sys_code64(cpu) ? 16 : 8;
}

u32 sys_component_bytes(const struct cpu *cpu, u32 component)
{
	u32 bytes = xstate_bytes(component);

	if (sys_code64(cpu))
		return bytes;
	switch (BIT(component)) {
	case XCR0_AVX:
	case XCR0_ZMM_HI256:
		return bytes / 2;
	case XCR0_HI16_ZMM:
		return 0;
	default:
		return bytes;
	}
}

static void init_oldest(struct cpu *cpu, u64 components, u32 vectors)
{
	if (components & XCR0_X87) {
		bytes_fill(cpu->xsave, 0, XSAVE_MXCSR);
		bytes_fill(cpu->xsave + XSAVE_ST0, 0, XSAVE_XMM0 - XSAVE_ST0);
		*(u16 *)cpu->xsave = FCW_INIT;
	}
	if (components & XCR0_SSE)
		bytes_fill(cpu->xsave + XSAVE_XMM0, 0, vectors);
	if (components & XCR0_AVX)
		bytes_fill(cpu->xsave + XSAVE_YMM0_HIGH, 0, vectors);
}

void sys_fpu_init(struct cpu *cpu, u64 components)
{
	init_oldest(cpu, components, sys_vector_count(cpu) * 16);
	for (u32 i = XSTATE_FIRST; i < NXSTATE; i++)
		if (components & *components_of(cpu) & XCR0_AVX512 & BIT(i))
			bytes_fill(fpu_component(cpu, i), 0, sys_component_bytes(cpu, i));
	if (sys_code64(cpu))
		*components_of(cpu) &= ~(components & XCR0_AVX512);
	if (components & XCR0_PKRU)
		cpu_write_pkru(cpu, 0);
}

/* XSAVE leaves out of the header what the processor knows to be initial; a program that filled the
 * image from outside may have left its bytes out, too. */
void sys_fpu_image(struct cpu *cpu)
{
	u64 oldest = XCR0_X87 | XCR0_SSE | XCR0_AVX;
	u64 missing;

	fpu_save(cpu);
	missing = oldest & ~*components_of(cpu);
	init_oldest(cpu, missing, 256);
	*components_of(cpu) |= oldest;
}

static bool is_zero(const u8 *bytes, u32 n)
{
	for (u32 i = 0; i < n; i += 8)
		if (*(const u64 *)(bytes + i))
			return false;
	return true;
}

static bool x87_in_use(const struct cpu *cpu)
{
	const u64 *words = (const u64 *)cpu->xsave;

	return words[0] != FCW_INIT || !is_zero(cpu->xsave + 8, XSAVE_MXCSR - 8) ||
	       !is_zero(cpu->xsave + XSAVE_ST0, XSAVE_XMM0 - XSAVE_ST0);
}

u64 sys_fpu_in_use(struct cpu *cpu)
{
	u64 in_use = 0;

	sys_fpu_image(cpu);
	if (x87_in_use(cpu))
		in_use |= XCR0_X87;
	if (!is_zero(cpu->xsave + XSAVE_XMM0, sys_vector_count(cpu) * 16))
		in_use |= XCR0_SSE;
	for (u32 i = XSTATE_FIRST; i < NXSTATE; i++)
		if (((*components_of(cpu) | XCR0_PKRU) & BIT(i)) &&
		    !is_zero(fpu_component(cpu, i), sys_component_bytes(cpu, i)))
			in_use |= BIT(i);
	return in_use & cpu->xcr0;
}

/* Without REX.W the pointers have 32 bits, followed by selectors that processors no longer
 * record. */
void sys_x87_pack(const struct cpu *cpu, const struct insn *insn, u8 to[XSAVE_MXCSR])
{
	bytes_copy(to, cpu->xsave, XSAVE_MXCSR);
	if (insn->opsize == 8)
		return;
	bytes_fill(to + 12, 0, 4);
	bytes_fill(to + 20, 0, 4);
}

void sys_x87_unpack(struct cpu *cpu, const struct insn *insn, const u8 from[XSAVE_MXCSR])
{
	bytes_copy(cpu->xsave, from, XSAVE_MXCSR);
	cpu->xsave[5] = 0; /* reserved, after the tags */
	if (insn->opsize == 8)
		return;
	bytes_fill(cpu->xsave + 12, 0, 4);
	bytes_fill(cpu->xsave + 20, 0, 4);
}

u16 *sys_x87_fcw(struct cpu *cpu)
{
	return (u16 *)(cpu->xsave + XSAVE_FCW);
}

u16 *sys_x87_fsw(struct cpu *cpu)
{
	return (u16 *)(cpu->xsave + XSAVE_FSW);
}

u32 sys_x87_top(struct cpu *cpu)
{
	return (*sys_x87_fsw(cpu) & FSW_TOP) >> FSW_TOP_SHIFT;
}

void sys_x87_set_top(struct cpu *cpu, u32 top)
{
	u16 *fsw = sys_x87_fsw(cpu);
	u32 moved = top - sys_x87_top(cpu);
	u8 old[128], *registers = cpu->xsave + XSAVE_ST0;

	bytes_copy(old, registers, sizeof(old));
	for (u32 i = 0; i < 8; i++)
		bytes_copy(registers + 16 * i, old + 16 * ((i + moved) & 7), 16);
	*fsw = (*fsw & ~FSW_TOP) | top << FSW_TOP_SHIFT;
}

/* Where in the image parts of a vector register are: 0 to 15 in three pieces, 16 to 31 in one. */
static const struct part {
	u32 at, size, image;
	u64 component; /* of AVX-512, which may not be in the image; 0: of SSE or AVX */
} low_parts[] = {
	{ 0, 16, XSAVE_XMM0, 0 },
	{ 16, 16, XSAVE_YMM0_HIGH, 0 },
	{ 32, 32, XSAVE_ZMM0_HIGH, XCR0_ZMM_HI256 },
}, high_parts[] = {
	{ 0, 64, XSAVE_ZMM16, XCR0_HI16_ZMM },
};

static const struct part *parts_of(u32 reg, u32 *n)
{
	*n = reg < 16 ? ARRAY_SIZE(low_parts) : ARRAY_SIZE(high_parts);
	return reg < 16 ? low_parts : high_parts;
}

static bool part_absent(struct cpu *cpu, const struct part *part)
{
	return part->component & ~*components_of(cpu);
}

static u8 *part_in_image(struct cpu *cpu, const struct part *part, u32 reg)
{
	return cpu->xsave + part->image + part->size * (reg & 15);
}

void sys_vector_read(struct cpu *cpu, u32 reg, u8 to[VECTOR_MAX])
{
	u32 n;
	const struct part *parts = parts_of(reg, &n);

	for (u32 i = 0; i < n; i++) {
		if (part_absent(cpu, &parts[i]))
			bytes_fill(to + parts[i].at, 0, parts[i].size);
		else
			bytes_copy(to + parts[i].at, part_in_image(cpu, &parts[i], reg),
				   parts[i].size);
	}
}

void sys_vector_write(struct cpu *cpu, u32 reg, const u8 from[VECTOR_MAX])
{
	u32 n;
	const struct part *parts = parts_of(reg, &n);

	for (u32 i = 0; i < n; i++) {
		if (part_absent(cpu, &parts[i])) {
			if (is_zero(from + parts[i].at, parts[i].size))
				continue;
			fpu_make_present(cpu, parts[i].component);
		}
		bytes_copy(part_in_image(cpu, &parts[i], reg), from + parts[i].at, parts[i].size);
	}
}

u64 sys_opmask_read(struct cpu *cpu, u32 k)
{
	if (!(*components_of(cpu) & XCR0_OPMASK))
		return 0;
	return *(const u64 *)(cpu->xsave + XSAVE_OPMASK + 8 * k);
}

void sys_opmask_write(struct cpu *cpu, u32 k, u64 value)
{
	fpu_make_present(cpu, XCR0_OPMASK);
	*(u64 *)(cpu->xsave + XSAVE_OPMASK + 8 * k) = value;
}

bool sys_mxcsr_valid(const struct cpu *cpu, const u8 *area)
{
	return !(*(const u32 *)(area + XSAVE_MXCSR) & ~cpu_priv(cpu)->host_fpu.mxcsr_mask);
}

#define FXSAVE_SIZE  512
#define FXSAVE_ALIGN 15

/* APM2 11.4.4: with EFER.FFXSR, 64-bit code at CPL 0 leaves the XMM registers out. */
static u32 fx_vectors(const struct cpu *cpu)
{
	if ((cpu->efer & EFER_FFXSR) && sys_code64(cpu) && !cpu->cpl)
		return 0;
	return sys_vector_count(cpu) * 16;
}

static enum sys_result fx_address(struct cpu *cpu, const struct insn *insn, u32 access, gva_t *gva)
{
	enum guest_fault fault;

	if (cpu->cr0 & (CR0_EM | CR0_TS))
		return sys_raise(cpu, VEC_NM);
	fault = sys_address(cpu, insn, &insn->ops[0], FXSAVE_SIZE, access, gva);
	if (!fault && (*gva & FXSAVE_ALIGN))
		fault = cpu_raise_error(cpu, cpu_misaligned(cpu, *gva, 4) ? VEC_AC : VEC_GP, 0);
	return sys_done(fault);
}

enum sys_result sys_fxsave(struct cpu *cpu, const struct insn *insn)
{
	u8 area[XSAVE_XMM0 + 256];
	gva_t gva;
	enum sys_result result = fx_address(cpu, insn, ACCESS_WRITE, &gva);

	if (result == SYS_NEXT) /* all of it must be writable, also what is not written */
		result = sys_done(sys_probe(cpu, gva, FXSAVE_SIZE, ACCESS_WRITE));
	if (result != SYS_NEXT)
		return result;
	sys_fpu_image(cpu);
	bytes_copy(area, cpu->xsave, sizeof(area));
	sys_x87_pack(cpu, insn, area);
	return sys_done(cpu_write(cpu, gva, area, XSAVE_XMM0 + fx_vectors(cpu), ACCESS_WRITE));
}

enum sys_result sys_fxrstor(struct cpu *cpu, const struct insn *insn)
{
	u32 vectors = fx_vectors(cpu);
	u8 area[FXSAVE_SIZE] __attribute__((aligned(8)));
	gva_t gva;
	enum sys_result result = fx_address(cpu, insn, ACCESS_READ, &gva);

	if (result == SYS_NEXT)
		result = sys_done(cpu_read(cpu, gva, area, FXSAVE_SIZE, ACCESS_READ));
	if (result != SYS_NEXT)
		return result;
	if (!sys_mxcsr_valid(cpu, area))
		return sys_done(sys_gp(cpu));
	sys_fpu_image(cpu);
	sys_x87_unpack(cpu, insn, area);
	bytes_copy(cpu->xsave + XSAVE_MXCSR, area + XSAVE_MXCSR, 4);
	bytes_copy(cpu->xsave + XSAVE_ST0, area + XSAVE_ST0, XSAVE_XMM0 - XSAVE_ST0);
	bytes_copy(cpu->xsave + XSAVE_XMM0, area + XSAVE_XMM0, vectors);
	fpu_load(cpu); /* the processor derives reserved bits, ES and B again */
	return SYS_NEXT;
}
