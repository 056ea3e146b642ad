// SPDX-License-Identifier: MIT
/*
 * SYSCALL, SYSRET, SYSENTER and SYSEXIT (SDM 2B; APM3); the vendors differ by the rules of
 * x86/vendor.def. The caller has checked CPUID. vCPU thread; general registers only.
 */
#include "cpu/transfer/segment.h"

#include "cpu/event.h"
#include "cpu/mmu/mmu.h"
#include "cpu/mode.h"
#include "cpu/transfer/descriptor.h"

#define SYSRET_FLAGS \
	(FL_ARITH | FL_TF | FL_IF | FL_DF | FL_IOPL | FL_NT | FL_AC | FL_VIF | FL_VIP | FL_ID)
#define STAR_SYSCALL(star) ((u16)((star) >> 32))
#define STAR_SYSRET(star)  ((u16)((star) >> 48))

static void enter_flat(struct cpu *cpu, u16 cs, u16 ss, u8 cpl, bool code64)
{
	cpu->seg[CS] = segment_flat_code(cs, cpl, code64);
	cpu->seg[SS] = segment_flat_stack(ss, cpl);
	cpu->cpl = cpl;
}

static bool has_syscall(const struct cpu *cpu)
{
	if (!(cpu->efer & EFER_SCE))
		return false;
	return cpu_follows(cpu, RULE_SYSCALL_ANYWHERE) ? cpu_has_descriptors(cpu) : cpu_code64(cpu);
}

static void syscall_long(struct cpu *cpu, u64 next_rip)
{
	bool code64 = cpu_code64(cpu);

	cpu->regs[RCX] = next_rip;
	cpu->regs[R11] = cpu->rflags & ~FL_RF;
	cpu->rip = code64 ? cpu->lstar : cpu->cstar;
	cpu->rflags &= ~(cpu->sfmask | FL_RF);
}

/* AMD only, without long mode. */
static void syscall_legacy(struct cpu *cpu, u64 next_rip)
{
	cpu->regs[RCX] = (u32)next_rip;
	cpu->rip = (u32)cpu->star;
	cpu->rflags &= ~(FL_IF | FL_VM | FL_RF);
}

enum guest_fault cpu_syscall(struct cpu *cpu, u64 next_rip)
{
	u16 sel = STAR_SYSCALL(cpu->star);
	bool long_mode = cpu_long_mode(cpu);

	if (!has_syscall(cpu))
		return cpu_raise(cpu, VEC_UD);
	if (long_mode)
		syscall_long(cpu, next_rip);
	else
		syscall_legacy(cpu, next_rip);
	cpu->rflags |= FL_FIX1;
	/* KVM: the mask decides whether a single-step trap follows. */
	cpu_priv(cpu)->begun |= BEGUN_TF;
	enter_flat(cpu, sel & 0xfffc, sel + 8, 0, long_mode);
	cpu_update_mode(cpu);
	return FAULT_NONE;
}

/* APM3: only the selector of SS changes; a null SS stays unusable in compatibility mode. */
static void sysret_segments(struct cpu *cpu, bool to64)
{
	u16 sel = STAR_SYSRET(cpu->star);
	struct segment ss = cpu->seg[SS];

	enter_flat(cpu, (to64 ? sel + 16 : sel) | 3, (sel + 8) | 3, 3, to64);
	if (!cpu_follows(cpu, RULE_SYSRET_KEEPS_SS))
		return;
	ss.sel = cpu->seg[SS].sel;
	ss.attr |= SEG_DPL;
	cpu->seg[SS] = ss;
}

enum guest_fault cpu_sysret(struct cpu *cpu, u8 opsize)
{
	bool to64 = opsize == 8;

	if (!has_syscall(cpu))
		return cpu_raise(cpu, VEC_UD);
	if (cpu->cpl != 0)
		return cpu_raise_error(cpu, VEC_GP, 0);
	if (to64 && cpu_follows(cpu, RULE_SYSRET_CHECKS_RIP) && !cpu_canonical(cpu, cpu->regs[RCX]))
		return cpu_raise_error(cpu, VEC_GP, 0);
	cpu->rip = to64 ? cpu->regs[RCX] : (u32)cpu->regs[RCX];
	if (cpu_long_mode(cpu))
		cpu->rflags = (cpu->regs[R11] & SYSRET_FLAGS) | FL_FIX1;
	else
		cpu->rflags |= FL_IF;
	cpu_priv(cpu)->begun |= BEGUN_TF; /* unlike IRET, SYSRET traps at once when it sets TF */
	sysret_segments(cpu, to64);
	cpu_update_mode(cpu);
	return FAULT_NONE;
}

/* Both instructions: #GP(0) without a usable IA32_SYSENTER_CS. */
static enum guest_fault check_sysenter(struct cpu *cpu)
{
	if (cpu_follows(cpu, RULE_SYSENTER_NOT_LONG) && cpu_long_mode(cpu))
		return cpu_raise(cpu, VEC_UD);
	if (!(cpu->cr0 & CR0_PE) || !(cpu->sysenter_cs & 0xfffc))
		return cpu_raise_error(cpu, VEC_GP, 0);
	return FAULT_NONE;
}

enum guest_fault cpu_sysenter(struct cpu *cpu)
{
	enum guest_fault fault = check_sysenter(cpu);
	bool long_mode = cpu_long_mode(cpu);
	u16 sel = cpu->sysenter_cs & 0xfffc;

	if (fault)
		return fault;
	cpu->rflags &= ~(FL_VM | FL_IF | FL_RF);
	cpu->rip = long_mode ? cpu->sysenter_eip : (u32)cpu->sysenter_eip;
	cpu->regs[RSP] = long_mode ? cpu->sysenter_esp : (u32)cpu->sysenter_esp;
	enter_flat(cpu, sel, sel + 8, 0, long_mode);
	cpu_update_mode(cpu);
	return FAULT_NONE;
}

enum guest_fault cpu_sysexit(struct cpu *cpu, u8 opsize)
{
	enum guest_fault fault = check_sysenter(cpu);
	u64 rip = cpu->regs[RDX], rsp = cpu->regs[RCX];
	bool to64 = opsize == 8;
	u16 sel = cpu->sysenter_cs + (to64 ? 32 : 16);

	if (fault)
		return fault;
	if (cpu->cpl != 0 || (cpu->rflags & FL_VM))
		return cpu_raise_error(cpu, VEC_GP, 0);
	if (to64 && (!cpu_canonical(cpu, rip) || !cpu_canonical(cpu, rsp)))
		return cpu_raise_error(cpu, VEC_GP, 0);
	cpu->rip = to64 ? rip : (u32)rip;
	cpu->regs[RSP] = to64 ? rsp : (u32)rsp;
	enter_flat(cpu, sel | 3, (sel + 8) | 3, 3, to64);
	cpu_update_mode(cpu);
	return FAULT_NONE;
}
