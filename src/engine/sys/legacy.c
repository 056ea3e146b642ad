// SPDX-License-Identifier: MIT
/*
 * Instructions older than the modes they still work in: ENTER, PUSHA, BOUND, decimal arithmetic
 * (SDM 2A). vCPU thread; general registers only.
 */
#include "engine/sys/priv.h"

/* Copies the frame pointers of the enclosing levels, then pushes this one's. */
static enum guest_fault enter_levels(struct cpu *cpu, u32 opsize, u32 levels, u64 frame, u64 *sp)
{
	enum guest_fault fault = FAULT_NONE;
	u64 from = cpu->regs[RBP], value;

	for (u32 i = 1; !fault && i < levels; i++) {
		from -= opsize;
		*sp -= opsize;
		fault = sys_stack_read(cpu, from, opsize, &value);
		if (!fault)
			fault = sys_stack_write(cpu, *sp, opsize, value);
	}
	if (fault || !levels)
		return fault;
	*sp -= opsize;
	return sys_stack_write(cpu, *sp, opsize, frame);
}

/* SDM 2A ENTER: faults as a write at the final stack pointer would. */
static enum guest_fault probe_stack(struct cpu *cpu, u64 sp, u32 size)
{
	enum guest_fault fault;
	gva_t gva;

	sp &= sys_mask(sys_stack_width(cpu));
	fault = cpu_linear(cpu, SS, sp, size, ACCESS_WRITE, &gva);
	if (!fault && cpu_misaligned(cpu, gva, size))
		fault = cpu_raise_error(cpu, VEC_AC, 0);
	return fault ? fault : sys_probe(cpu, gva, size, ACCESS_WRITE);
}

enum sys_result sys_enter(struct cpu *cpu, const struct insn *insn)
{
	u32 opsize = insn->opsize, levels = insn->ops[1].imm & 31;
	u64 sp = cpu->regs[RSP] - opsize, frame = sp;
	enum guest_fault fault;

	fault = sys_stack_write(cpu, sp, opsize, cpu->regs[RBP]);
	if (!fault)
		fault = enter_levels(cpu, opsize, levels, frame, &sp);
	sp -= (u16)insn->ops[0].imm;
	if (!fault)
		fault = probe_stack(cpu, sp, opsize);
	if (fault)
		return sys_done(fault);
	sys_set_reg(cpu, RBP, opsize, frame);
	sys_set_reg(cpu, RSP, sys_stack_width(cpu), sp);
	return SYS_NEXT;
}

enum sys_result sys_pusha(struct cpu *cpu, const struct insn *insn)
{
	enum guest_fault fault = FAULT_NONE;
	u64 sp = cpu->regs[RSP];

	for (u32 reg = RAX; !fault && reg <= RDI; reg++) {
		sp -= insn->opsize;
		fault = sys_stack_write(cpu, sp, insn->opsize, cpu->regs[reg]);
	}
	if (!fault)
		sys_set_reg(cpu, RSP, sys_stack_width(cpu), sp);
	return sys_done(fault);
}

/* A fault leaves what was popped before it in the registers, but the stack pointer at its start:
 * so Zen 4. */
enum sys_result sys_popa(struct cpu *cpu, const struct insn *insn)
{
	u64 sp = cpu->regs[RSP], value;

	for (u32 reg = RDI + 1; reg-- > RAX; sp += insn->opsize) {
		enum guest_fault fault = sys_stack_read(cpu, sp, insn->opsize, &value);

		if (fault)
			return sys_done(fault);
		if (reg != RSP)
			sys_set_reg(cpu, reg, insn->opsize, value);
	}
	sys_set_reg(cpu, RSP, sys_stack_width(cpu), sp);
	return SYS_NEXT;
}

static s64 sign_extend(u64 value, u32 size)
{
	return (s64)(value << (64 - 8 * size)) >> (64 - 8 * size);
}

static enum guest_fault load_bound(struct cpu *cpu, const struct insn *insn, u32 n, s64 *bound)
{
	u32 size = insn->opsize;
	u64 value;
	enum guest_fault fault = sys_load_part(cpu, insn, &insn->ops[1], n * size, size, &value);

	*bound = sign_extend(value, size);
	return fault;
}

enum sys_result sys_bound(struct cpu *cpu, const struct insn *insn)
{
	s64 index = sign_extend(cpu->regs[insn->ops[0].reg], insn->opsize);
	s64 lower, upper;
	enum guest_fault fault = load_bound(cpu, insn, 0, &lower);

	if (!fault && index < lower && cpu_follows(cpu, RULE_BOUND_LOWER_FIRST))
		return sys_raise(cpu, VEC_BR);
	if (!fault)
		fault = load_bound(cpu, insn, 1, &upper);
	if (fault)
		return sys_done(fault);
	return index < lower || index > upper ? sys_raise(cpu, VEC_BR) : SYS_NEXT;
}

static void set_result_flags(struct cpu *cpu, u8 al)
{
	sys_set_flag(cpu, FL_PF, !__builtin_parity(al));
	sys_set_flag(cpu, FL_ZF, !al);
	sys_set_flag(cpu, FL_SF, al & 0x80);
}

/* DAA and DAS differ in the direction, and in that only DAA can clear CF again. */
static enum sys_result adjust_decimal(struct cpu *cpu, bool subtract)
{
	u8 old = (u8)cpu->regs[RAX], al = old;
	bool carry = cpu->rflags & FL_CF;
	bool low = (old & 0xf) > 9 || (cpu->rflags & FL_AF);
	bool high = old > 0x99 || carry;
	bool borrow = subtract && low && (carry || old < 6);

	if (low)
		al = subtract ? al - 6 : al + 6;
	if (high)
		al = subtract ? al - 0x60 : al + 0x60;
	sys_set_reg(cpu, RAX, 1, al);
	sys_set_flag(cpu, FL_AF, low);
	sys_set_flag(cpu, FL_CF, high || borrow);
	set_result_flags(cpu, al);
	return SYS_NEXT;
}

enum sys_result sys_daa(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	return adjust_decimal(cpu, false);
}

enum sys_result sys_das(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	return adjust_decimal(cpu, true);
}

/* Adds 6 to AL, with its carry into AH, and 1 to AH; or subtracts both. */
static enum sys_result adjust_ascii(struct cpu *cpu, bool subtract)
{
	u16 ax = (u16)cpu->regs[RAX];
	bool low = (ax & 0xf) > 9 || (cpu->rflags & FL_AF);

	if (low)
		ax = subtract ? ax - 0x106 : ax + 0x106;
	sys_set_reg(cpu, RAX, 2, ax & 0xff0f);
	sys_set_flag(cpu, FL_AF | FL_CF, low);
	return SYS_NEXT;
}

enum sys_result sys_aaa(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	return adjust_ascii(cpu, false);
}

enum sys_result sys_aas(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	return adjust_ascii(cpu, true);
}

enum sys_result sys_aam(struct cpu *cpu, const struct insn *insn)
{
	u8 al = (u8)cpu->regs[RAX], base = (u8)insn->ops[0].imm;

	if (!base)
		return sys_raise(cpu, VEC_DE);
	sys_set_reg(cpu, RAX, 2, (u64)(al / base) << 8 | al % base);
	set_result_flags(cpu, al % base);
	return SYS_NEXT;
}

enum sys_result sys_aad(struct cpu *cpu, const struct insn *insn)
{
	u16 ax = (u16)cpu->regs[RAX];
	u8 al = (u8)(ax + (ax >> 8) * (u8)insn->ops[0].imm);

	sys_set_reg(cpu, RAX, 2, al);
	set_result_flags(cpu, al);
	return SYS_NEXT;
}

/* Undocumented for long, never gone. */
enum sys_result sys_salc(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	sys_set_reg(cpu, RAX, 1, cpu->rflags & FL_CF ? 0xff : 0);
	return SYS_NEXT;
}
