// SPDX-License-Identifier: MIT
/*
 * Segment registers and descriptor-table registers as instructions see them (SDM 3A 3.4, 2.4; SDM
 * 2). vCPU thread; general registers only.
 */
#include "base/bytes.h"
#include "cpu/transfer/segment.h"
#include "engine/insn_table.h"
#include "engine/sys/priv.h"

static enum guest_fault load_seg(struct cpu *cpu, enum seg seg, u16 selector)
{
	enum guest_fault fault = cpu_load_seg(cpu, seg, selector);

	if (!fault && seg == SS)
		cpu_begin_shadow(cpu, SHADOW_SS);
	return fault;
}

static enum sys_result mov_to_seg(struct cpu *cpu, const struct insn *insn)
{
	enum guest_fault fault;
	u64 selector;

	if (insn->ops[0].reg == CS)
		return SYS_UNKNOWN;
	fault = sys_load(cpu, insn, &insn->ops[1], 2, &selector);
	return sys_done(fault ? fault : load_seg(cpu, insn->ops[0].reg, selector));
}

/* Registers receive the selector zero-extended, memory its 16 bits. */
static enum sys_result mov_from_seg(struct cpu *cpu, const struct insn *insn)
{
	u32 size = insn->ops[0].kind == OPERAND_REG ? insn->ops[0].size : 2;

	return sys_done(sys_store(cpu, insn, &insn->ops[0], size, cpu->seg[insn->ops[1].reg].sel));
}

static bool is_reg(const struct operand *op, enum reg_class cls)
{
	return op->kind == OPERAND_REG && op->cls == cls;
}

enum sys_result sys_mov(struct cpu *cpu, const struct insn *insn)
{
	const struct operand *to = &insn->ops[0], *from = &insn->ops[1];

	if (is_reg(to, REG_SEG))
		return mov_to_seg(cpu, insn);
	if (is_reg(from, REG_SEG))
		return mov_from_seg(cpu, insn);
	if (is_reg(to, REG_CR) || is_reg(from, REG_CR))
		return sys_mov_cr(cpu, insn);
	if (is_reg(to, REG_DR) || is_reg(from, REG_DR))
		return sys_mov_dr(cpu, insn);
	return SYS_UNKNOWN;
}

enum sys_result sys_push_seg(struct cpu *cpu, const struct insn *insn)
{
	bool word = insn->opsize == 4 && cpu_follows(cpu, RULE_PUSH_SEGMENT_WORD);
	u64 sp = cpu->regs[RSP] - insn->opsize;
	enum guest_fault fault;

	if (!is_reg(&insn->ops[0], REG_SEG))
		return SYS_UNKNOWN;
	fault = sys_stack_write(cpu, sp, word ? 2 : insn->opsize, cpu->seg[insn->ops[0].reg].sel);
	if (!fault)
		sys_set_reg(cpu, RSP, sys_stack_width(cpu), sp);
	return sys_done(fault);
}

enum sys_result sys_pop_seg(struct cpu *cpu, const struct insn *insn)
{
	u32 width = sys_stack_width(cpu);
	enum guest_fault fault;
	u64 selector;

	if (!is_reg(&insn->ops[0], REG_SEG))
		return SYS_UNKNOWN;
	fault = sys_stack_read(cpu, cpu->regs[RSP], 2, &selector);
	if (!fault)
		fault = load_seg(cpu, insn->ops[0].reg, selector);
	if (!fault)
		sys_set_reg(cpu, RSP, width, cpu->regs[RSP] + insn->opsize);
	return sys_done(fault);
}

enum sys_result sys_load_far(struct cpu *cpu, const struct insn *insn)
{
	enum guest_fault fault;
	u64 offset;
	u16 selector;

	fault = sys_load_pointer(cpu, insn, &insn->ops[1], &selector, &offset);
	if (!fault)
		fault = cpu_load_seg(cpu, insn_facts(insn)->seg, selector);
	if (!fault)
		sys_set_reg(cpu, insn->ops[0].reg, insn->opsize, offset);
	return sys_done(fault);
}

/* 16-bit limit, then the base: 8 bytes in 64-bit code, else 4, of which 16-bit code uses 3. */
static u64 base_mask(const struct cpu *cpu, const struct insn *insn)
{
	if (sys_code64(cpu))
		return ~0ull;
	return insn->opsize == 2 ? 0xffffff : 0xffffffff;
}

static enum sys_result load_table(struct cpu *cpu, const struct insn *insn,
				  struct descriptor_table *table)
{
	u32 size = sys_code64(cpu) ? 10 : 6;
	enum guest_fault fault;
	u8 bytes[10];
	u64 base = 0;
	gva_t gva;

	fault = sys_address(cpu, insn, &insn->ops[0], size, ACCESS_READ, &gva);
	if (!fault)
		fault = cpu_read(cpu, gva, bytes, size, ACCESS_READ);
	if (fault)
		return sys_done(fault);
	bytes_copy(&base, bytes + 2, size - 2);
	base &= base_mask(cpu, insn);
	if (sys_code64(cpu) && !cpu_canonical_base(cpu, base))
		return sys_done(sys_gp(cpu));
	bytes_copy(&table->limit, bytes, 2);
	table->base = base;
	return SYS_NEXT;
}

static enum sys_result store_table(struct cpu *cpu, const struct insn *insn,
				   const struct descriptor_table *table)
{
	u32 size = sys_code64(cpu) ? 10 : 6;
	enum guest_fault fault;
	u8 bytes[10];
	gva_t gva;

	bytes_copy(bytes, &table->limit, 2);
	bytes_copy(bytes + 2, &table->base, 8); /* whatever the operand size: SDM 2B SGDT */
	fault = sys_address(cpu, insn, &insn->ops[0], size, ACCESS_WRITE, &gva);
	return sys_done(fault ? fault : cpu_write(cpu, gva, bytes, size, ACCESS_WRITE));
}

enum sys_result sys_lgdt(struct cpu *cpu, const struct insn *insn)
{
	return load_table(cpu, insn, &cpu->gdtr);
}

enum sys_result sys_lidt(struct cpu *cpu, const struct insn *insn)
{
	return load_table(cpu, insn, &cpu->idtr);
}

enum sys_result sys_sgdt(struct cpu *cpu, const struct insn *insn)
{
	return store_table(cpu, insn, &cpu->gdtr);
}

enum sys_result sys_sidt(struct cpu *cpu, const struct insn *insn)
{
	return store_table(cpu, insn, &cpu->idtr);
}

enum sys_result sys_lldt(struct cpu *cpu, const struct insn *insn)
{
	u64 selector;
	enum guest_fault fault = sys_load(cpu, insn, &insn->ops[0], 2, &selector);

	return sys_done(fault ? fault : cpu_load_ldtr(cpu, selector));
}

enum sys_result sys_ltr(struct cpu *cpu, const struct insn *insn)
{
	u64 selector;
	enum guest_fault fault = sys_load(cpu, insn, &insn->ops[0], 2, &selector);

	return sys_done(fault ? fault : cpu_load_tr(cpu, selector));
}

static enum sys_result store_selector(struct cpu *cpu, const struct insn *insn, u16 selector)
{
	u32 size = insn->ops[0].kind == OPERAND_REG ? insn->ops[0].size : 2;

	return sys_done(sys_store(cpu, insn, &insn->ops[0], size, selector));
}

enum sys_result sys_sldt(struct cpu *cpu, const struct insn *insn)
{
	return store_selector(cpu, insn, cpu->ldtr.sel);
}

enum sys_result sys_str(struct cpu *cpu, const struct insn *insn)
{
	return store_selector(cpu, insn, cpu->tr.sel);
}

typedef enum guest_fault query_fn(struct cpu *cpu, u16 selector, bool *ok, u32 *value);

/* LAR, LSL: ZF tells whether the destination was written. */
static enum sys_result query(struct cpu *cpu, const struct insn *insn, query_fn *ask)
{
	enum guest_fault fault;
	u64 selector;
	bool ok = false;
	u32 value = 0;

	fault = sys_load(cpu, insn, &insn->ops[1], 2, &selector);
	if (!fault)
		fault = ask(cpu, selector, &ok, &value);
	if (fault)
		return sys_done(fault);
	sys_set_flag(cpu, FL_ZF, ok);
	if (ok)
		sys_set_reg(cpu, insn->ops[0].reg, insn->opsize, value);
	return SYS_NEXT;
}

enum sys_result sys_lar(struct cpu *cpu, const struct insn *insn)
{
	return query(cpu, insn, cpu_lar);
}

enum sys_result sys_lsl(struct cpu *cpu, const struct insn *insn)
{
	return query(cpu, insn, cpu_lsl);
}

static enum sys_result verify(struct cpu *cpu, const struct insn *insn, bool write)
{
	enum guest_fault fault;
	u64 selector;
	bool ok = false;

	fault = sys_load(cpu, insn, &insn->ops[0], 2, &selector);
	if (!fault)
		fault = cpu_verify(cpu, selector, write, &ok);
	if (!fault)
		sys_set_flag(cpu, FL_ZF, ok);
	return sys_done(fault);
}

enum sys_result sys_verr(struct cpu *cpu, const struct insn *insn)
{
	return verify(cpu, insn, false);
}

enum sys_result sys_verw(struct cpu *cpu, const struct insn *insn)
{
	return verify(cpu, insn, true);
}

enum sys_result sys_arpl(struct cpu *cpu, const struct insn *insn)
{
	enum guest_fault fault;
	u64 to, from;
	bool lower;

	sys_load(cpu, insn, &insn->ops[1], 2, &from);
	fault = sys_load(cpu, insn, &insn->ops[0], 2, &to);
	if (fault)
		return sys_done(fault);
	lower = (to & 3) < (from & 3);
	if (lower)
		fault = sys_store(cpu, insn, &insn->ops[0], 2, (to & ~3ull) | (from & 3));
	if (!fault)
		sys_set_flag(cpu, FL_ZF, lower);
	return sys_done(fault);
}

enum sys_result sys_swapgs(struct cpu *cpu, const struct insn *insn)
{
	u64 base = cpu->seg[GS].base;

	(void)insn;
	cpu->seg[GS].base = cpu->kernel_gs_base;
	cpu->kernel_gs_base = base;
	return SYS_NEXT;
}

static enum sys_result read_base(struct cpu *cpu, const struct insn *insn, enum seg seg)
{
	sys_set_reg(cpu, insn->ops[0].reg, insn->ops[0].size, cpu->seg[seg].base);
	return SYS_NEXT;
}

/* Unlike WRMSR, by CR4.LA57: measured on Emerald Rapids. */
static enum sys_result write_base(struct cpu *cpu, const struct insn *insn, enum seg seg)
{
	u64 base = sys_reg(cpu, insn->ops[0].reg, insn->ops[0].size);

	if (!cpu_canonical(cpu, base))
		return sys_done(sys_gp(cpu));
	cpu->seg[seg].base = base;
	return SYS_NEXT;
}

enum sys_result sys_rdfsbase(struct cpu *cpu, const struct insn *insn)
{
	return read_base(cpu, insn, FS);
}

enum sys_result sys_rdgsbase(struct cpu *cpu, const struct insn *insn)
{
	return read_base(cpu, insn, GS);
}

enum sys_result sys_wrfsbase(struct cpu *cpu, const struct insn *insn)
{
	return write_base(cpu, insn, FS);
}

enum sys_result sys_wrgsbase(struct cpu *cpu, const struct insn *insn)
{
	return write_base(cpu, insn, GS);
}
