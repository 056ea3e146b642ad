// SPDX-License-Identifier: MIT
/*
 * Transfers of control that are more than a jump: software interrupts, returns from them, system
 * calls, far branches (SDM 3A 5.8, 6.4). vCPU thread; general registers only.
 */
#include "engine/sys/priv.h"

#include "cpu/transfer/segment.h"

enum sys_result sys_int_n(struct cpu *cpu, const struct insn *insn)
{
	u8 vector = (u8)insn->ops[0].imm;

	return sys_jumped(cpu_int(cpu, EVENT_SOFT_INT, vector, insn->len));
}

enum sys_result sys_int3(struct cpu *cpu, const struct insn *insn)
{
	return sys_jumped(cpu_int(cpu, EVENT_SOFT_EXC, VEC_BP, insn->len));
}

enum sys_result sys_into(struct cpu *cpu, const struct insn *insn)
{
	if (!(cpu->rflags & FL_OF))
		return SYS_NEXT;
	return sys_jumped(cpu_int(cpu, EVENT_SOFT_EXC, VEC_OF, insn->len));
}

/* A #DB that no privilege check stops and that leaves DR6 alone (SDM 3A 6.4.2). */
enum sys_result sys_int1(struct cpu *cpu, const struct insn *insn)
{
	return sys_jumped(cpu_int(cpu, EVENT_EXCEPTION, VEC_DB, insn->len));
}

enum sys_result sys_iret(struct cpu *cpu, const struct insn *insn)
{
	return sys_jumped(cpu_iret(cpu, insn->opsize, sys_next_rip(cpu, insn)));
}

enum sys_result sys_syscall(struct cpu *cpu, const struct insn *insn)
{
	return sys_jumped(cpu_syscall(cpu, sys_next_rip(cpu, insn)));
}

enum sys_result sys_sysret(struct cpu *cpu, const struct insn *insn)
{
	return sys_jumped(cpu_sysret(cpu, insn->opsize));
}

enum sys_result sys_sysenter(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	return sys_jumped(cpu_sysenter(cpu));
}

enum sys_result sys_sysexit(struct cpu *cpu, const struct insn *insn)
{
	return sys_jumped(cpu_sysexit(cpu, insn->opsize));
}

/* ptr16:n in the instruction, or m16:n. */
static enum guest_fault far_pointer(struct cpu *cpu, const struct insn *insn, u16 *selector,
				    u64 *offset)
{
	const struct operand *op = &insn->ops[0];

	if (op->kind != OPERAND_FAR)
		return sys_load_pointer(cpu, insn, op, selector, offset);
	*selector = op->selector;
	*offset = (u64)op->imm;
	return FAULT_NONE;
}

static enum sys_result far_transfer(struct cpu *cpu, const struct insn *insn, bool call)
{
	enum guest_fault fault;
	u16 selector;
	u64 offset;

	if (!insn->far)
		return SYS_UNKNOWN;
	fault = far_pointer(cpu, insn, &selector, &offset);
	if (!fault && call)
		fault = cpu_far_call(cpu, selector, offset, insn->opsize, sys_next_rip(cpu, insn));
	else if (!fault)
		fault = cpu_far_jump(cpu, selector, offset, insn->opsize, sys_next_rip(cpu, insn));
	return sys_jumped(fault);
}

enum sys_result sys_jmp_far(struct cpu *cpu, const struct insn *insn)
{
	return far_transfer(cpu, insn, false);
}

enum sys_result sys_call_far(struct cpu *cpu, const struct insn *insn)
{
	return far_transfer(cpu, insn, true);
}

enum sys_result sys_ret_far(struct cpu *cpu, const struct insn *insn)
{
	u16 pop = insn->nops ? (u16)insn->ops[0].imm : 0;

	if (!insn->far)
		return SYS_UNKNOWN;
	return sys_jumped(cpu_far_return(cpu, insn->opsize, pop));
}
