// SPDX-License-Identifier: MIT
/*
 * The x87 environment in memory: FNSTENV, FLDENV, FNSAVE, FRSTOR (SDM 1 8.1.10, protected-mode
 * formats; SDM 2A). They are not left to the host because the pointers in the environment would be
 * those of translated code. vCPU thread; general registers only, behind fpu_save().
 */
#include "base/bytes.h"
#include "engine/sys_fpu.h"
#include "engine/sys_priv.h"

#define FCW_INIT      0x37fu
#define FCW_MASKS     0x3fu
#define FSW_ES	      BIT(7)
#define FSW_TOP_SHIFT 11
#define FTW_AT	      4 /* in the image: one bit a register */
#define FOP_AT	      6
#define ST_SIZE	      10

enum tag { TAG_VALID, TAG_ZERO, TAG_SPECIAL, TAG_EMPTY };

/* The fields of an environment, in the order in which memory has them. */
enum field { ENV_FCW, ENV_FSW, ENV_FTW, ENV_FIP, ENV_FCS, ENV_FDP, ENV_FDS, ENV_FIELDS };

static u16 *image16(struct cpu *cpu, u32 at)
{
	return (u16 *)(cpu->xsave + at);
}

static u32 top_of(struct cpu *cpu)
{
	return *image16(cpu, 2) >> FSW_TOP_SHIFT & 7;
}

/* The image has the registers by their place on the stack: a change of TOP alone moves them. */
static void turn_registers(struct cpu *cpu, u32 old_top)
{
	u32 by = top_of(cpu) - old_top;
	u8 old[8 * 16];

	bytes_copy(old, cpu->xsave + XSAVE_ST0, sizeof(old));
	for (u32 i = 0; i < 8; i++)
		bytes_copy(cpu->xsave + XSAVE_ST0 + 16 * i, old + 16 * ((i + by) & 7), 16);
}

static u32 environment_size(const struct insn *insn)
{
	return ENV_FIELDS * (insn->opsize == 2 ? 2 : 4);
}

static enum tag tag_of(const u8 *st)
{
	u64 mantissa = *(const u64 *)st;
	u16 exponent = *(const u16 *)(st + 8) & 0x7fff;

	if (!exponent && !mantissa)
		return TAG_ZERO;
	return exponent && exponent != 0x7fff && mantissa >> 63 ? TAG_VALID : TAG_SPECIAL;
}

/* The tag word goes by physical register, the image's registers by their place on the stack. */
static u16 full_tags(struct cpu *cpu)
{
	u32 top = top_of(cpu);
	u16 tags = 0;

	for (u32 i = 0; i < 8; i++) {
		bool used = cpu->xsave[FTW_AT] >> i & 1;
		const u8 *st = cpu->xsave + XSAVE_ST0 + 16 * ((i - top) & 7);

		tags |= (used ? tag_of(st) : TAG_EMPTY) << 2 * i;
	}
	return tags;
}

static u8 short_tags(u16 tags)
{
	u8 used = 0;

	for (u32 i = 0; i < 8; i++)
		if ((tags >> 2 * i & 3) != TAG_EMPTY)
			used |= 1 << i;
	return used;
}

/* Halves of 32-bit fields that have no meaning are ones (APM5 FNSTENV). */
static void pack_environment(struct cpu *cpu, const struct insn *insn, u8 *to)
{
	u32 fip = *(u32 *)(cpu->xsave + XSAVE_FIP), fdp = *(u32 *)(cpu->xsave + XSAVE_FDP);
	u32 field[ENV_FIELDS] = { *image16(cpu, 0), *image16(cpu, 2), full_tags(cpu), fip, 0, fdp, 0 };

	for (u32 i = 0; i < ENV_FIELDS && insn->opsize == 2; i++)
		((u16 *)to)[i] = field[i];
	if (insn->opsize == 2)
		return;
	field[ENV_FCW] |= 0xffff0000;
	field[ENV_FSW] |= 0xffff0000;
	field[ENV_FTW] |= 0xffff0000;
	field[ENV_FCS] |= (u32)*image16(cpu, FOP_AT) << 16;
	field[ENV_FDS] |= 0xffff0000;
	bytes_copy(to, field, sizeof(field));
}

static void unpack_environment(struct cpu *cpu, const struct insn *insn, const u8 *from)
{
	u32 field[ENV_FIELDS];

	if (insn->opsize == 2)
		for (u32 i = 0; i < ENV_FIELDS; i++)
			field[i] = ((const u16 *)from)[i];
	else
		bytes_copy(field, from, sizeof(field));
	*image16(cpu, 0) = field[ENV_FCW];
	*image16(cpu, 2) = field[ENV_FSW];
	*image16(cpu, FTW_AT) = short_tags(field[ENV_FTW]);
	*image16(cpu, FOP_AT) = insn->opsize == 2 ? 0 : field[ENV_FCS] >> 16 & 0x7ff;
	*(u64 *)(cpu->xsave + XSAVE_FIP) = field[ENV_FIP];
	*(u64 *)(cpu->xsave + XSAVE_FDP) = field[ENV_FDP];
}

static void initialise(struct cpu *cpu)
{
	u32 top = top_of(cpu);

	bytes_fill(cpu->xsave, 0, XSAVE_MXCSR);
	*image16(cpu, 0) = FCW_INIT;
	turn_registers(cpu, top);
}

static bool not_available(const struct cpu *cpu)
{
	return cpu->cr0 & (CR0_EM | CR0_TS);
}

static enum sys_result store_state(struct cpu *cpu, const struct insn *insn, bool registers)
{
	u32 env = environment_size(insn), size = env + (registers ? 8 * ST_SIZE : 0);
	u8 area[ENV_FIELDS * 4 + 8 * ST_SIZE] __attribute__((aligned(4)));
	enum guest_fault fault;
	gva_t gva;

	if (not_available(cpu))
		return sys_raise(cpu, VEC_NM);
	fault = sys_address(cpu, insn, &insn->ops[0], size, ACCESS_WRITE, &gva);
	if (fault)
		return sys_done(fault);
	sys_fpu_image(cpu);
	pack_environment(cpu, insn, area);
	for (u32 i = 0; i < 8; i++)
		bytes_copy(area + env + ST_SIZE * i, cpu->xsave + XSAVE_ST0 + 16 * i, ST_SIZE);
	fault = cpu_write(cpu, gva, area, size, ACCESS_WRITE);
	if (fault)
		return sys_done(fault);
	if (registers)
		initialise(cpu);
	else
		*image16(cpu, 0) |= FCW_MASKS;
	fpu_load(cpu); /* the processor derives ES and B again */
	return SYS_NEXT;
}

static enum sys_result load_state(struct cpu *cpu, const struct insn *insn, bool registers)
{
	u32 env = environment_size(insn), size = env + (registers ? 8 * ST_SIZE : 0);
	u8 area[ENV_FIELDS * 4 + 8 * ST_SIZE] __attribute__((aligned(4)));
	enum guest_fault fault;
	gva_t gva;
	u32 top;

	if (not_available(cpu))
		return sys_raise(cpu, VEC_NM);
	sys_fpu_image(cpu);
	if (*image16(cpu, 2) & FSW_ES)
		return sys_raise(cpu, VEC_MF);
	fault = sys_address(cpu, insn, &insn->ops[0], size, ACCESS_READ, &gva);
	if (!fault)
		fault = cpu_read(cpu, gva, area, size, ACCESS_READ);
	if (fault)
		return sys_done(fault);
	top = top_of(cpu);
	unpack_environment(cpu, insn, area);
	turn_registers(cpu, top);
	for (u32 i = 0; registers && i < 8; i++) {
		bytes_fill(cpu->xsave + XSAVE_ST0 + 16 * i, 0, 16);
		bytes_copy(cpu->xsave + XSAVE_ST0 + 16 * i, area + env + ST_SIZE * i, ST_SIZE);
	}
	fpu_load(cpu);
	return SYS_NEXT;
}

enum sys_result sys_fnstenv(struct cpu *cpu, const struct insn *insn)
{
	return store_state(cpu, insn, false);
}

enum sys_result sys_fnsave(struct cpu *cpu, const struct insn *insn)
{
	return store_state(cpu, insn, true);
}

enum sys_result sys_fldenv(struct cpu *cpu, const struct insn *insn)
{
	return load_state(cpu, insn, false);
}

enum sys_result sys_frstor(struct cpu *cpu, const struct insn *insn)
{
	return load_state(cpu, insn, true);
}
