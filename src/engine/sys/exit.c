// SPDX-License-Identifier: MIT
/*
 * Instructions that the hypervisor completes, and those whose answer is in struct cpu already: time
 * stamps, processor id, XCR0. Only what the processor checks itself is checked here. vCPU thread;
 * general registers only.
 */
#include "engine/runtime/count.h"
#include "engine/sys/fpu_image.h"
#include "engine/sys/priv.h"

enum sys_result sys_cpuid(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	return sys_exit(cpu, EXIT_CPUID);
}

enum sys_result sys_rdmsr(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	return sys_exit(cpu, EXIT_RDMSR);
}

enum sys_result sys_wrmsr(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	return sys_exit(cpu, EXIT_WRMSR);
}

enum sys_result sys_rdpmc(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	if (cpu->cpl && (cpu->cr0 & CR0_PE) && !(cpu->cr4 & CR4_PCE))
		return sys_done(sys_gp(cpu));
	return sys_exit(cpu, EXIT_RDPMC);
}

enum sys_result sys_hypercall(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	return sys_exit(cpu, EXIT_HYPERCALL);
}

enum sys_result sys_hlt(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	return sys_exit(cpu, EXIT_HLT);
}

enum sys_result sys_xsetbv(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	return sys_exit(cpu, EXIT_XSETBV);
}

/* Whether MONITOR and MWAIT exist is for the hypervisor to say
 * (KVM_X86_QUIRK_MWAIT_NEVER_UD_FAULTS); where they do, the address monitored is read. */
enum sys_result sys_monitor(struct cpu *cpu, const struct insn *insn)
{
	struct translation where;
	enum guest_fault fault;
	gva_t gva;

	if (cpu->cpl)
		return SYS_UNKNOWN;
	if (!cpu_has(cpu, FEAT_MONITOR))
		return sys_exit(cpu, EXIT_MONITOR);
	if ((u32)cpu->regs[RCX])
		return sys_done(sys_gp(cpu));
	fault = cpu_linear(cpu, insn->seg, sys_reg(cpu, RAX, insn->addrsize), 1, ACCESS_READ, &gva);
	if (!fault)
		fault = mmu_translate(cpu, gva, ACCESS_READ, &where);
	return fault ? sys_done(fault) : sys_exit(cpu, EXIT_MONITOR);
}

enum sys_result sys_mwait(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	return cpu->cpl ? SYS_UNKNOWN : sys_exit(cpu, EXIT_MWAIT);
}

static u64 host_tsc(void)
{
	u32 low, high;

	__asm__ volatile("lfence; rdtsc" : "=a"(low), "=d"(high));
	return low | (u64)high << 32;
}

static u64 guest_tsc(const struct cpu *cpu)
{
	return cpu_tsc_at(cpu, cpu->port.virtual_time ? cpu->port.time_base + count_cycles(cpu)
						      : host_tsc());
}

enum sys_result sys_rdtsc(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	sys_set_edx_eax(cpu, guest_tsc(cpu));
	return SYS_NEXT;
}

enum sys_result sys_rdtscp(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	sys_set_edx_eax(cpu, guest_tsc(cpu));
	cpu->regs[RCX] = (u32)cpu->tsc_aux;
	return SYS_NEXT;
}

enum sys_result sys_rdpid(struct cpu *cpu, const struct insn *insn)
{
	sys_set_reg(cpu, insn->ops[0].reg, sys_code64(cpu) ? 8 : 4, (u32)cpu->tsc_aux);
	return SYS_NEXT;
}

/* XCR1 stands for "XCR0, but only what is not in its initial state". */
enum sys_result sys_xgetbv(struct cpu *cpu, const struct insn *insn)
{
	u32 n = (u32)cpu->regs[RCX];

	(void)insn;
	if (n > 1 || (n == 1 && !cpu_has(cpu, FEAT_XGETBV1)))
		return sys_done(sys_gp(cpu));
	sys_set_edx_eax(cpu, n ? sys_fpu_in_use(cpu) : cpu->xcr0);
	return SYS_NEXT;
}
