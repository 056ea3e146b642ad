// SPDX-License-Identifier: MIT
/*
 * Direct stores (SDM 2B MOVDIRI, MOVDIR64B). To memory they are stores like others; what they are
 * for is a device that takes 4, 8 or 64 bytes at once. MOVDIR64B is executed while all other
 * processors are stopped (SYS_ALONE). vCPU thread; general registers only.
 */
#include "engine/sys/priv.h"

#define DIRECT_BLOCK 64

enum sys_result sys_movdiri(struct cpu *cpu, const struct insn *insn)
{
	const struct operand *to = &insn->ops[0], *from = &insn->ops[1];
	u64 value = sys_reg(cpu, from->reg, from->size);
	enum guest_fault fault;
	gva_t gva;

	fault = sys_address(cpu, insn, to, to->size, ACCESS_WRITE, &gva);
	return sys_done(fault ? fault : cpu_write(cpu, gva, &value, to->size, ACCESS_WRITE));
}

/* The destination is in a register, through ES whatever the prefixes. */
static enum guest_fault block_destination(struct cpu *cpu, const struct insn *insn, gva_t *gva)
{
	u64 offset = sys_reg(cpu, insn->ops[0].reg, insn->addrsize);
	enum guest_fault fault = cpu_linear(cpu, ES, offset, DIRECT_BLOCK, ACCESS_WRITE, gva);

	if (!fault && *gva % DIRECT_BLOCK)
		fault = sys_gp(cpu);
	return fault;
}

/* No other processor sees a part of the 64 bytes. */
enum sys_result sys_movdir64b(struct cpu *cpu, const struct insn *insn)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	u8 block[DIRECT_BLOCK] __attribute__((aligned(8)));
	enum guest_fault fault;
	gva_t from, to;

	if (priv->exclusive && !priv->others_stopped)
		return SYS_ALONE;
	fault = sys_address(cpu, insn, &insn->ops[1], DIRECT_BLOCK, ACCESS_READ, &from);
	if (!fault)
		fault = cpu_read(cpu, from, block, DIRECT_BLOCK, ACCESS_READ | ACCESS_UNALIGNED);
	if (!fault)
		fault = block_destination(cpu, insn, &to);
	if (!fault)
		fault = cpu_write(cpu, to, block, DIRECT_BLOCK, ACCESS_WRITE);
	return sys_done(fault);
}
