// SPDX-License-Identifier: MIT
/*
 * A source of chance for vpmu diverge to find: RDTSC of user code gives the host's TSC, on virtual
 * time too. The linker sends calls of sys_rdtsc() here in a library of its own (Makefile), which no
 * other test loads. vCPU thread; general registers only.
 */
#include "engine/sys/sys.h"

enum sys_result __real_sys_rdtsc(struct cpu *cpu, const struct insn *insn);
enum sys_result __wrap_sys_rdtsc(struct cpu *cpu, const struct insn *insn);

enum sys_result __wrap_sys_rdtsc(struct cpu *cpu, const struct insn *insn)
{
	u64 tsc = __builtin_ia32_rdtsc();

	if (!cpu->cpl)
		return __real_sys_rdtsc(cpu, insn);
	cpu->regs[RAX] = (u32)tsc;
	cpu->regs[RDX] = tsc >> 32;
	return SYS_NEXT;
}
