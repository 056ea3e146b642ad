// SPDX-License-Identifier: MIT
/*
 * The x87's environment and whole state in the layouts of the 8087 and the 80387: FNSTENV, FLDENV,
 * FNSAVE and FRSTOR (SDM 1 8.1.8 to 8.1.10). C executes them since the pointers that the host's x87
 * would store are the host's; the guest finds them 0. They work on the image of the state in
 * cpu->xsave. vCPU thread; general registers only, after fpu_save().
 */
#include "base/bytes.h"
#include "engine/sys/fpu_image.h"
#include "engine/sys/priv.h"

#define FCW_MASKS    0x3fu
#define FCW_WRITABLE 0x1f3fu
#define FCW_FIXED1   0x40u
#define FSW_FLAGS    0x3fu
#define FSW_B	     BIT(15)

#define ENVIRONMENT_MAX 28
#define REGISTER_SIZE	10
#define STATE_MAX	(ENVIRONMENT_MAX + 8 * REGISTER_SIZE)

typedef u16 word __attribute__((aligned(1), may_alias));
typedef u32 dword __attribute__((aligned(1), may_alias));

static u32 environment_size(const struct insn *insn)
{
	return insn->opsize == 2 ? ENVIRONMENT_MAX / 2 : ENVIRONMENT_MAX;
}

static u32 state_size(const struct insn *insn)
{
	return environment_size(insn) + 8 * REGISTER_SIZE;
}

static u8 *stack_register(struct cpu *cpu, u32 i)
{
	return cpu->xsave + XSAVE_ST0 + 16 * i;
}

enum tag { TAG_VALID, TAG_ZERO, TAG_SPECIAL, TAG_EMPTY };

static enum tag tag_of(const u8 *reg)
{
	u64 significand = *(const u64 *)reg;
	u32 exponent = *(const u16 *)(reg + 8) & 0x7fff;

	if (!exponent && !significand)
		return TAG_ZERO;
	return exponent && exponent != 0x7fff && significand >> 63 ? TAG_VALID : TAG_SPECIAL;
}

/* The image has one bit for each register, the layouts here two; both go by physical register. */
static u16 full_tags(struct cpu *cpu)
{
	u32 top = sys_x87_top(cpu), tags = 0;

	for (u32 i = 0; i < 8; i++) {
		bool used = cpu->xsave[XSAVE_FTW] >> i & 1;

		tags |= (used ? tag_of(stack_register(cpu, (i - top) & 7)) : TAG_EMPTY) << 2 * i;
	}
	return tags;
}

static u8 abridged_tags(u16 full)
{
	u8 tags = 0;

	for (u32 i = 0; i < 8; i++)
		tags |= ((full >> 2 * i & 3) != TAG_EMPTY) << i;
	return tags;
}

/*
 * Of seven words or double words, the first three are not 0: the upper halves of what is a word in
 * a double word are ones. Which of them are depends on how the mode forms addresses.
 */
static void environment_pack(struct cpu *cpu, const struct insn *insn, u8 *to)
{
	static const u32 upper[2][7] = {
		{ ~0u << 16, ~0u << 16, ~0u << 16, ~0u << 16, 0, ~0u << 16, 0 },
		{ ~0u << 16, ~0u << 16, ~0u << 16, 0, 0, 0, ~0u << 16 },
	};
	bool protected = cpu_priv(cpu)->mode & MODE_PROT;
	u16 words[7] = { *sys_x87_fcw(cpu), *sys_x87_fsw(cpu), full_tags(cpu) };

	for (u32 i = 0; i < ARRAY_SIZE(words); i++) {
		if (insn->opsize == 2)
			((word *)to)[i] = words[i];
		else
			((dword *)to)[i] = upper[protected][i] | words[i];
	}
}

static u16 environment_word(const struct insn *insn, const u8 *from, u32 i)
{
	return *(const word *)(from + i * environment_size(insn) / 7);
}

/* ES and B are not loaded: they say whether an exception is flagged and not masked. */
static void summarise(struct cpu *cpu)
{
	u16 *fsw = sys_x87_fsw(cpu);

	*fsw &= ~(FSW_ES | FSW_B);
	if (*fsw & ~*sys_x87_fcw(cpu) & FSW_FLAGS)
		*fsw |= FSW_ES | FSW_B;
}

/* The registers stay where they are, so those of the stack are others when TOP changes. */
static void environment_unpack(struct cpu *cpu, const struct insn *insn, const u8 *from)
{
	u16 fsw = environment_word(insn, from, 1);

	sys_x87_set_top(cpu, (fsw & FSW_TOP) >> FSW_TOP_SHIFT);
	*sys_x87_fcw(cpu) = (environment_word(insn, from, 0) & FCW_WRITABLE) | FCW_FIXED1;
	*sys_x87_fsw(cpu) = fsw;
	cpu->xsave[XSAVE_FTW] = abridged_tags(environment_word(insn, from, 2));
	summarise(cpu);
}

static enum guest_fault area_address(struct cpu *cpu, const struct insn *insn, u32 size, u32 access,
				     gva_t *gva)
{
	enum guest_fault fault = sys_address(cpu, insn, &insn->ops[0], size, access, gva);

	if (!fault && cpu_misaligned(cpu, *gva, insn->opsize == 2 ? 2 : 4))
		fault = cpu_raise_error(cpu, VEC_AC, 0);
	return fault;
}

static enum guest_fault area_write(struct cpu *cpu, const struct insn *insn, const u8 *from,
				   u32 size)
{
	gva_t gva;
	enum guest_fault fault = area_address(cpu, insn, size, ACCESS_WRITE, &gva);

	return fault ? fault : cpu_write(cpu, gva, from, size, ACCESS_WRITE);
}

/* Loading waits: a pending exception comes first. */
static enum guest_fault area_read(struct cpu *cpu, const struct insn *insn, u8 *to, u32 size)
{
	enum guest_fault fault;
	gva_t gva;

	if (*sys_x87_fsw(cpu) & FSW_ES)
		return cpu_raise(cpu, VEC_MF);
	fault = area_address(cpu, insn, size, ACCESS_READ, &gva);
	return fault ? fault : cpu_read(cpu, gva, to, size, ACCESS_READ);
}

/* Masks all exceptions after it stored. */
enum sys_result sys_fnstenv(struct cpu *cpu, const struct insn *insn)
{
	u8 area[ENVIRONMENT_MAX];
	enum guest_fault fault;

	sys_fpu_image(cpu);
	environment_pack(cpu, insn, area);
	fault = area_write(cpu, insn, area, environment_size(insn));
	if (fault)
		return sys_done(fault);
	*sys_x87_fcw(cpu) |= FCW_MASKS;
	summarise(cpu);
	return SYS_NEXT;
}

enum sys_result sys_fldenv(struct cpu *cpu, const struct insn *insn)
{
	u8 area[ENVIRONMENT_MAX];
	enum guest_fault fault;

	sys_fpu_image(cpu);
	fault = area_read(cpu, insn, area, environment_size(insn));
	if (!fault)
		environment_unpack(cpu, insn, area);
	return sys_done(fault);
}

/* As FNINIT: the registers keep what is in them, tagged empty. */
static void initialise(struct cpu *cpu)
{
	sys_x87_set_top(cpu, 0);
	*sys_x87_fcw(cpu) = FCW_INIT;
	*sys_x87_fsw(cpu) = 0;
	cpu->xsave[XSAVE_FTW] = 0;
}

enum sys_result sys_fnsave(struct cpu *cpu, const struct insn *insn)
{
	u8 area[STATE_MAX], *registers = area + environment_size(insn);
	enum guest_fault fault;

	sys_fpu_image(cpu);
	environment_pack(cpu, insn, area);
	for (u32 i = 0; i < 8; i++)
		bytes_copy(registers + REGISTER_SIZE * i, stack_register(cpu, i), REGISTER_SIZE);
	fault = area_write(cpu, insn, area, state_size(insn));
	if (!fault)
		initialise(cpu);
	return sys_done(fault);
}

enum sys_result sys_frstor(struct cpu *cpu, const struct insn *insn)
{
	u8 area[STATE_MAX], *registers = area + environment_size(insn);
	enum guest_fault fault;

	sys_fpu_image(cpu);
	fault = area_read(cpu, insn, area, state_size(insn));
	if (fault)
		return sys_done(fault);
	environment_unpack(cpu, insn, area);
	for (u32 i = 0; i < 8; i++)
		bytes_copy(stack_register(cpu, i), registers + REGISTER_SIZE * i, REGISTER_SIZE);
	return SYS_NEXT;
}
