// SPDX-License-Identifier: MIT
/*
 * The instructions on control and debug registers, PKRU, the TLB and the caches, and SERIALIZE (SDM
 * 3A 2.5, 2.8, 4.10.4, 17.2; SDM 2). What a register's value means is checked in cpu/control.c and
 * cpu/debugreg.c. vCPU thread; general registers only.
 */
#include "base/bytes.h"
#include "cpu/control.h"
#include "cpu/observe.h"
#include "engine/insn_table.h"
#include "engine/sys/priv.h"

#define CR8_MASK  0xfull
#define LMSW_BITS (CR0_PE | CR0_MP | CR0_EM | CR0_TS)

static enum sys_result write_cr8(struct cpu *cpu, u64 value)
{
	if (value & ~CR8_MASK)
		return sys_done(sys_gp(cpu));
	cpu->port.exit.value = value;
	return sys_exit(cpu, EXIT_CR8_WRITE);
}

static enum sys_result write_cr(struct cpu *cpu, u32 n, u64 value)
{
	switch (n) {
	case 0:
		return sys_done(cpu_write_cr0(cpu, value));
	case 2:
		cpu->cr2 = value;
		return SYS_NEXT;
	case 3:
		return sys_done(cpu_write_cr3(cpu, value));
	case 4:
		return sys_done(cpu_write_cr4(cpu, value));
	default:
		return write_cr8(cpu, value);
	}
}

static u64 read_cr(const struct cpu *cpu, u32 n)
{
	switch (n) {
	case 0:
		return cpu->cr0;
	case 2:
		return cpu->cr2;
	case 3:
		return cpu->cr3;
	case 4:
		return cpu->cr4;
	default:
		return cpu->cr8;
	}
}

static bool cr_exists(u32 n)
{
	return n == 0 || n == 2 || n == 3 || n == 4 || n == 8;
}

/* The register form is always as wide as the mode, whatever the prefixes say. */
static u32 full_width(const struct cpu *cpu)
{
	return sys_code64(cpu) ? 8 : 4;
}

enum sys_result sys_mov_cr(struct cpu *cpu, const struct insn *insn)
{
	const struct operand *to = &insn->ops[0], *from = &insn->ops[1];
	u32 n = to->cls == REG_CR ? to->reg : from->reg;

	if (!cr_exists(n))
		return SYS_UNKNOWN;
	if (cpu->cpl)
		return sys_done(sys_gp(cpu));
	if (to->cls == REG_CR)
		return write_cr(cpu, n, sys_reg(cpu, from->reg, full_width(cpu)));
	sys_set_reg(cpu, to->reg, full_width(cpu), read_cr(cpu, n));
	return SYS_NEXT;
}

/* CR4.DE takes away the other names of DR6 and DR7. */
static bool dr_missing(const struct cpu *cpu, u32 n)
{
	return (n == 4 || n == 5) && (cpu->cr4 & CR4_DE);
}

enum sys_result sys_mov_dr(struct cpu *cpu, const struct insn *insn)
{
	const struct operand *to = &insn->ops[0], *from = &insn->ops[1];
	u32 n = to->cls == REG_DR ? to->reg : from->reg;
	enum guest_fault fault;
	u64 value;

	if (n >= 8)
		return SYS_UNKNOWN;
	if (cpu->cpl)
		return sys_done(sys_gp(cpu));
	if (dr_missing(cpu, n))
		return SYS_UNKNOWN;
	if (cpu_dr7(cpu) & DR7_GD)
		return sys_done(cpu_raise_db(cpu, DR6_BD));
	if (to->cls == REG_DR)
		return sys_done(cpu_write_dr(cpu, n, sys_reg(cpu, from->reg, full_width(cpu))));
	fault = cpu_read_dr(cpu, n, &value);
	if (!fault)
		sys_set_reg(cpu, to->reg, full_width(cpu), value);
	return sys_done(fault);
}

/* LMSW can set CR0.PE but not clear it. */
enum sys_result sys_lmsw(struct cpu *cpu, const struct insn *insn)
{
	u64 value;
	enum guest_fault fault = sys_load(cpu, insn, &insn->ops[0], 2, &value);

	if (fault)
		return sys_done(fault);
	value = (value & LMSW_BITS) | (cpu->cr0 & CR0_PE);
	return sys_done(cpu_write_cr0(cpu, (cpu->cr0 & ~LMSW_BITS) | value));
}

enum sys_result sys_smsw(struct cpu *cpu, const struct insn *insn)
{
	u32 size = insn->ops[0].kind == OPERAND_REG ? insn->ops[0].size : 2;

	return sys_done(sys_store(cpu, insn, &insn->ops[0], size, cpu->cr0));
}

enum sys_result sys_clts(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	cpu->cr0 &= ~CR0_TS;
	cpu_update_mode(cpu);
	return SYS_NEXT;
}

/* Limits are not checked, and a non-canonical address is nothing to invalidate (SDM 2A INVLPG). */
enum sys_result sys_invlpg(struct cpu *cpu, const struct insn *insn)
{
	const struct operand *op = &insn->ops[0];
	gva_t gva = sys_offset(cpu, insn, op);

	if (!sys_code64(cpu))
		gva = (u32)(gva + cpu->seg[op->seg].base);
	else if (op->seg == FS || op->seg == GS)
		gva += cpu->seg[op->seg].base;
	if (cpu_canonical(cpu, gva)) {
		tlb_flush_page(cpu, gva);
		cpu_observe_invlpg(cpu, gva);
	}
	return SYS_NEXT;
}

enum invpcid_type { INVPCID_ADDRESS, INVPCID_CONTEXT, INVPCID_ALL_GLOBAL, INVPCID_ALL };

/* The descriptor: PCID in bits 11:0, zeros up to bit 63, then the address. */
static bool invpcid_valid(const struct cpu *cpu, u64 type, const u64 descriptor[2])
{
	if (type > INVPCID_ALL || (descriptor[0] & ~0xfffull))
		return false;
	if (type > INVPCID_CONTEXT)
		return true;
	if (descriptor[0] && !(cpu->cr4 & CR4_PCIDE))
		return false;
	return type != INVPCID_ADDRESS || cpu_canonical_base(cpu, descriptor[1]);
}

/* What the timing model's TLBs lose by it. */
static void observe_invpcid(struct cpu *cpu, u64 type, const u64 descriptor[2])
{
	if (type == INVPCID_ADDRESS)
		cpu_observe_invlpg(cpu, descriptor[1]);
	else if (type == INVPCID_CONTEXT)
		cpu_observe_invpcid(cpu, descriptor[0]);
	else
		cpu_observe_flush(cpu);
}

/* The soft TLB holds the current PCID only; what is known of the others' code is dropped as a
 * whole. */
static void invpcid(struct cpu *cpu, u64 type, const u64 descriptor[2])
{
	u64 current = cpu->cr4 & CR4_PCIDE ? cpu->cr3 & 0xfff : 0;
	bool own = descriptor[0] == current;

	if (type == INVPCID_ALL_GLOBAL)
		tlb_flush(cpu);
	if (type == INVPCID_ALL || !own)
		tlb_forget_others(cpu);
	if (type == INVPCID_ALL || (type == INVPCID_CONTEXT && own))
		tlb_flush_local(cpu);
	if (type == INVPCID_ADDRESS && own)
		tlb_flush_page(cpu, descriptor[1]);
}

enum sys_result sys_invpcid(struct cpu *cpu, const struct insn *insn)
{
	u64 type = sys_reg(cpu, insn->ops[0].reg, full_width(cpu)), descriptor[2];
	enum guest_fault fault;
	gva_t gva;

	if (sys_virtual_8086(cpu))
		return sys_done(sys_gp(cpu));
	fault = sys_address(cpu, insn, &insn->ops[1], 16, ACCESS_READ, &gva);
	if (!fault)
		fault = cpu_read(cpu, gva, descriptor, 16, ACCESS_READ);
	if (fault)
		return sys_done(fault);
	if (!invpcid_valid(cpu, type, descriptor))
		return sys_done(sys_gp(cpu));
	invpcid(cpu, type, descriptor);
	observe_invpcid(cpu, type, descriptor);
	return SYS_NEXT;
}

enum sys_result sys_nothing(struct cpu *cpu, const struct insn *insn)
{
	(void)cpu;
	(void)insn;
	return SYS_NEXT;
}

enum sys_result sys_rdpkru(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	if ((u32)cpu->regs[RCX])
		return sys_done(sys_gp(cpu));
	sys_set_edx_eax(cpu, cpu->pkru);
	return SYS_NEXT;
}

enum sys_result sys_wrpkru(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	if ((u32)cpu->regs[RCX] || (u32)cpu->regs[RDX])
		return sys_done(sys_gp(cpu));
	cpu_write_pkru(cpu, cpu->regs[RAX]);
	return SYS_NEXT;
}

/* The engine notices what code has changed: engine/runtime/serialize.c. */
enum sys_result sys_serialize(struct cpu *cpu, const struct insn *insn)
{
	(void)cpu;
	(void)insn;
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* the stores before it are visible */
	return SYS_NEXT;
}

/* There is no cache but the timing model's. */
enum sys_result sys_wbinvd(struct cpu *cpu, const struct insn *insn)
{
	(void)insn;
	cpu_observe_wbinvd(cpu);
	return SYS_NEXT;
}

/* Faults as a load of one byte would. */
enum sys_result sys_clflush(struct cpu *cpu, const struct insn *insn)
{
	struct translation where;
	enum guest_fault fault;
	gva_t gva;

	fault = sys_address(cpu, insn, &insn->ops[0], 1, ACCESS_READ, &gva);
	if (!fault)
		fault = mmu_translate(cpu, gva, ACCESS_READ, &where);
	if (!fault && insn->id != INSN_CLWB)
		cpu_observe_clflush(cpu, where.gpa);
	return sys_done(fault);
}

enum sys_result sys_clzero(struct cpu *cpu, const struct insn *insn)
{
	u64 offset = sys_reg(cpu, RAX, insn->addrsize) & ~63ull;
	enum guest_fault fault;
	u8 zeros[64];
	gva_t gva;

	bytes_fill(zeros, 0, sizeof(zeros));
	fault = cpu_linear(cpu, insn->seg, offset, 64, ACCESS_WRITE, &gva);
	return sys_done(fault ? fault : cpu_write(cpu, gva, zeros, 64, ACCESS_WRITE));
}
