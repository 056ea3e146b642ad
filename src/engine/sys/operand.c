// SPDX-License-Identifier: MIT
/*
 * Operands of the instructions that C executes: registers, effective addresses (SDM 1 3.7.5), the
 * stack. vCPU thread; general registers only.
 */
#include "engine/sys/priv.h"

u64 sys_edx_eax(const struct cpu *cpu)
{
	return cpu->regs[RDX] << 32 | (u32)cpu->regs[RAX];
}

void sys_set_edx_eax(struct cpu *cpu, u64 value)
{
	cpu->regs[RAX] = (u32)value;
	cpu->regs[RDX] = value >> 32;
}

u64 sys_offset(const struct cpu *cpu, const struct insn *insn, const struct operand *op)
{
	u64 offset = (u64)op->imm;

	if (op->base != NO_REG)
		offset += cpu->regs[op->base];
	if (op->index != NO_REG && op->index_cls == REG_GPR)
		offset += cpu->regs[op->index] * op->scale;
	return offset & sys_mask(insn->addrsize);
}

enum guest_fault sys_address(struct cpu *cpu, const struct insn *insn, const struct operand *op,
			     u32 size, u32 access, gva_t *out)
{
	return cpu_linear(cpu, op->seg, sys_offset(cpu, insn, op), size, access, out);
}

enum guest_fault sys_load_part(struct cpu *cpu, const struct insn *insn, const struct operand *op,
			       u32 at, u32 size, u64 *value)
{
	u64 offset = sys_offset(cpu, insn, op);
	enum guest_fault fault;
	gva_t gva;

	if (cpu_follows(cpu, RULE_OPERAND_IN_PARTS)) {
		offset = (offset + at) & sys_mask(insn->addrsize);
		at = 0;
	}
	*value = 0;
	fault = cpu_linear(cpu, op->seg, offset, at + size, ACCESS_READ, &gva);
	return fault ? fault : cpu_read(cpu, cpu_wrap(cpu, gva + at), value, size, ACCESS_READ);
}

enum guest_fault sys_load_pointer(struct cpu *cpu, const struct insn *insn,
				  const struct operand *op, u16 *selector, u64 *offset)
{
	u32 size = insn->opsize;
	enum guest_fault fault = FAULT_NONE;
	u64 value = 0;
	gva_t gva;

	if (!cpu_follows(cpu, RULE_OPERAND_IN_PARTS))
		fault = sys_address(cpu, insn, op, size + 2, ACCESS_READ, &gva);
	if (!fault)
		fault = sys_load_part(cpu, insn, op, 0, size, offset);
	if (!fault)
		fault = sys_load_part(cpu, insn, op, size, 2, &value);
	*selector = value;
	return fault;
}

static u64 load_register(const struct cpu *cpu, const struct operand *op, u32 size)
{
	if (op->high8)
		return (u8)(cpu->regs[op->reg] >> 8);
	return sys_reg(cpu, op->reg, size);
}

enum guest_fault sys_load(struct cpu *cpu, const struct insn *insn, const struct operand *op,
			  u32 size, u64 *value)
{
	enum guest_fault fault;
	gva_t gva;

	*value = 0;
	if (op->kind == OPERAND_REG)
		*value = load_register(cpu, op, size);
	if (op->kind == OPERAND_IMM)
		*value = (u64)op->imm & sys_mask(size);
	if (op->kind != OPERAND_MEM)
		return FAULT_NONE;
	fault = sys_address(cpu, insn, op, size, ACCESS_READ, &gva);
	return fault ? fault : cpu_read(cpu, gva, value, size, ACCESS_READ);
}

enum guest_fault sys_store(struct cpu *cpu, const struct insn *insn, const struct operand *op,
			   u32 size, u64 value)
{
	enum guest_fault fault;
	gva_t gva;

	if (op->kind == OPERAND_REG) {
		sys_set_reg(cpu, op->reg, size, value);
		return FAULT_NONE;
	}
	fault = sys_address(cpu, insn, op, size, ACCESS_WRITE, &gva);
	return fault ? fault : cpu_write(cpu, gva, &value, size, ACCESS_WRITE);
}

enum guest_fault sys_probe(struct cpu *cpu, gva_t gva, u32 size, u32 access)
{
	struct translation where;
	gva_t last = cpu_wrap(cpu, gva + size - 1);
	enum guest_fault fault = mmu_translate(cpu, gva, access, &where);

	if (fault || (gva ^ last) < PAGE_SIZE)
		return fault;
	return mmu_translate(cpu, last & PAGE_MASK, access, &where);
}

u32 sys_stack_width(const struct cpu *cpu)
{
	if (sys_code64(cpu))
		return 8;
	return cpu_priv(cpu)->mode & MODE_STACK32 ? 4 : 2;
}

enum guest_fault sys_stack_read(struct cpu *cpu, u64 sp, u32 size, u64 *value)
{
	enum guest_fault fault;
	gva_t gva;

	*value = 0;
	sp &= sys_mask(sys_stack_width(cpu));
	fault = cpu_linear(cpu, SS, sp, size, ACCESS_READ, &gva);
	return fault ? fault : cpu_read(cpu, gva, value, size, ACCESS_READ);
}

enum guest_fault sys_stack_write(struct cpu *cpu, u64 sp, u32 size, u64 value)
{
	enum guest_fault fault;
	gva_t gva;

	sp &= sys_mask(sys_stack_width(cpu));
	fault = cpu_linear(cpu, SS, sp, size, ACCESS_WRITE, &gva);
	return fault ? fault : cpu_write(cpu, gva, &value, size, ACCESS_WRITE);
}

enum guest_fault sys_push(struct cpu *cpu, u32 size, u64 value)
{
	u64 sp = cpu->regs[RSP] - size;
	enum guest_fault fault = sys_stack_write(cpu, sp, size, value);

	if (!fault)
		sys_set_reg(cpu, RSP, sys_stack_width(cpu), sp);
	return fault;
}
