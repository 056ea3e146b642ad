// SPDX-License-Identifier: MIT
/*
 * RDRAND and RDSEED of a machine whose chance is a seed (VPMU_SEED). Others execute the host's.
 * vCPU thread; general registers only.
 */
#include "engine/sys_priv.h"

#define ARITHMETIC (FL_CF | FL_PF | FL_AF | FL_ZF | FL_SF | FL_OF)

/* splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014). */
static u64 next(struct cpu *cpu)
{
	u64 z = cpu->random += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

/* SDM 2B RDRAND: CF says that there is a number. */
enum sys_result sys_rdrand(struct cpu *cpu, const struct insn *insn)
{
	if (!cpu->seeded)
		return SYS_UNKNOWN;
	sys_set_reg(cpu, insn->ops[0].reg, insn->ops[0].size, next(cpu));
	cpu->rflags = (cpu->rflags & ~(u64)ARITHMETIC) | FL_CF;
	return SYS_NEXT;
}
