// SPDX-License-Identifier: MIT
/*
 * RDRAND and RDSEED of a machine with a seed (VPMU_SEED): the numbers that follow from
 * cpu->port.random, which each of them advances. Other machines execute the host's. vCPU thread;
 * general registers only.
 */
#include "base/splitmix.h"
#include "engine/sys/priv.h"

#define ARITHMETIC (FL_CF | FL_PF | FL_AF | FL_ZF | FL_SF | FL_OF)

/* SDM 2B RDRAND: CF says that there is a number. */
enum sys_result sys_rdrand(struct cpu *cpu, const struct insn *insn)
{
	if (!cpu->port.seeded)
		return SYS_UNKNOWN;
	sys_set_reg(cpu, insn->ops[0].reg, insn->ops[0].size, splitmix(&cpu->port.random));
	cpu->rflags = (cpu->rflags & ~(u64)ARITHMETIC) | FL_CF;
	return SYS_NEXT;
}
