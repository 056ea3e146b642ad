// SPDX-License-Identifier: MIT
/*
 * The system flags (SDM 1 3.4.3; SDM 2 CLI, STI, CLAC, STAC, PUSHF, POPF; SDM 3B 20.3 for the
 * virtual interrupt flag). vCPU thread; general registers only.
 */
#include "engine/sys/priv.h"

#define FL_USER (FL_ARITH | FL_TF | FL_DF | FL_NT | FL_AC | FL_ID)

/* Which flag CLI and STI mean here. */
enum interrupt_flag { FLAG_IF, FLAG_VIF, FLAG_DENIED };

static enum interrupt_flag interrupt_flag(const struct cpu *cpu)
{
	if (sys_virtual_8086(cpu)) {
		if (sys_iopl(cpu) == 3)
			return FLAG_IF;
		return cpu->cr4 & CR4_VME ? FLAG_VIF : FLAG_DENIED;
	}
	if (!(cpu->cr0 & CR0_PE) || cpu->cpl <= sys_iopl(cpu))
		return FLAG_IF;
	return cpu->cpl == 3 && (cpu->cr4 & CR4_PVI) ? FLAG_VIF : FLAG_DENIED;
}

enum sys_result sys_cli(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	switch (interrupt_flag(cpu)) {
	case FLAG_IF:
		cpu->rflags &= ~FL_IF;
		return SYS_NEXT;
	case FLAG_VIF:
		cpu->rflags &= ~FL_VIF;
		return SYS_NEXT;
	default:
		return sys_done(sys_gp(cpu));
	}
}

static enum sys_result set_if(struct cpu *cpu)
{
	if (!(cpu->rflags & FL_IF))
		cpu_begin_shadow(cpu, SHADOW_STI);
	cpu->rflags |= FL_IF;
	return SYS_NEXT;
}

static enum sys_result set_vif(struct cpu *cpu)
{
	if (cpu->rflags & FL_VIP)
		return sys_done(sys_gp(cpu));
	cpu->rflags |= FL_VIF;
	return SYS_NEXT;
}

enum sys_result sys_sti(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	switch (interrupt_flag(cpu)) {
	case FLAG_IF:
		return set_if(cpu);
	case FLAG_VIF:
		return set_vif(cpu);
	default:
		return sys_done(sys_gp(cpu));
	}
}

static enum sys_result set_ac(struct cpu *cpu, bool on)
{
	if (cpu->cpl)
		return SYS_UNKNOWN;
	sys_set_flag(cpu, FL_AC, on);
	cpu_update_mode(cpu);
	return SYS_NEXT;
}

enum sys_result sys_clac(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	return set_ac(cpu, false);
}

enum sys_result sys_stac(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	return set_ac(cpu, true);
}

/* Virtual-8086 mode below IOPL 3: only 16-bit PUSHF and POPF, and only with CR4.VME, which lets
 * them see VIF in the place of IF. */
static bool is_restricted(const struct cpu *cpu)
{
	return sys_virtual_8086(cpu) && sys_iopl(cpu) < 3;
}

static bool is_denied(const struct cpu *cpu, const struct insn *insn)
{
	return is_restricted(cpu) && (!(cpu->cr4 & CR4_VME) || insn->opsize != 2);
}

enum sys_result sys_pushf(struct cpu *cpu, const struct insn *insn)
{
	u64 image = (cpu->rflags | FL_FIX1) & ~(FL_VM | FL_RF);

	if (is_denied(cpu, insn))
		return sys_done(sys_gp(cpu));
	if (is_restricted(cpu)) {
		image = (image & ~FL_IF) | FL_IOPL;
		image |= cpu->rflags & FL_VIF ? FL_IF : 0;
	}
	return sys_done(sys_push(cpu, insn->opsize, image));
}

static u64 popf_mask(const struct cpu *cpu, u32 opsize)
{
	u64 mask = FL_USER;

	if (!cpu->cpl)
		mask |= FL_IOPL;
	if (cpu->cpl <= sys_iopl(cpu))
		mask |= FL_IF;
	return mask & sys_mask(opsize);
}

/* POPF with VIF: a set IF while an interrupt is pending, or a set TF, is for the monitor. */
static enum sys_result popf_virtual(struct cpu *cpu, u64 image)
{
	const u64 mask = FL_ARITH | FL_TF | FL_DF | FL_NT;

	if (((image & FL_IF) && (cpu->rflags & FL_VIP)) || (image & FL_TF))
		return sys_done(sys_gp(cpu));
	cpu->rflags = (cpu->rflags & ~mask) | (image & mask);
	sys_set_flag(cpu, FL_VIF, image & FL_IF);
	return SYS_NEXT;
}

static void popf_plain(struct cpu *cpu, u64 image, u32 opsize)
{
	u64 mask = popf_mask(cpu, opsize), old = cpu->rflags;

	cpu->rflags = (old & ~(mask | FL_RF)) | (image & mask) | FL_FIX1;
	if ((old ^ cpu->rflags) & (FL_TF | FL_AC | FL_IOPL))
		cpu_update_mode(cpu);
}

enum sys_result sys_popf(struct cpu *cpu, const struct insn *insn)
{
	enum sys_result result = SYS_NEXT;
	u64 image;

	if (is_denied(cpu, insn))
		return sys_done(sys_gp(cpu));
	result = sys_done(sys_stack_read(cpu, cpu->regs[RSP], insn->opsize, &image));
	if (result == SYS_NEXT && is_restricted(cpu))
		result = popf_virtual(cpu, image);
	else if (result == SYS_NEXT)
		popf_plain(cpu, image, insn->opsize);
	if (result == SYS_NEXT)
		sys_set_reg(cpu, RSP, sys_stack_width(cpu), cpu->regs[RSP] + insn->opsize);
	return result;
}
