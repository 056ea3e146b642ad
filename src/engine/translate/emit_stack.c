// SPDX-License-Identifier: MIT
/*
 * Stack instructions: PUSH, POP, LEAVE. The guest's RSP changes only after the access has
 * succeeded.
 *
 * In 64-bit code the host's register for it is updated late: what PUSH, POP and CALL move it by is
 * added to displacements (t->rsp_pending) until an instruction uses RSP otherwise or the block is
 * left. If an instruction faults before that, its struct place has what must still be added.
 */
#include "engine/translate/trans.h"

#define NEVER_LAZY                                                                            \
	(MODE_STEP | MODE_SINGLE | MODE_ALIGN | MODE_OBSERVE_MEMORY | MODE_OBSERVE_BRANCHES | \
	 MODE_LBR)
#define FAR (s64) BIT(30) /* displacements up to it can have t->rsp_pending added */

static bool lazy_operand(const struct trans *t, const struct operand *op)
{
	if (op->kind == OPERAND_MEM && op->base == RSP)
		return t->insn.addrsize == 8 && op->imm > -FAR && op->imm < FAR;
	return op->kind != OPERAND_REG || op->cls != REG_GPR || op->reg != RSP;
}

/* Segment registers are pushed and popped by C. */
bool trans_stack_known(const struct trans *t)
{
	const struct operand *op = &t->insn.ops[0];

	return insn_facts(&t->insn)->stack != STACK_NONE && !t->insn.is_branch &&
	       (op->kind != OPERAND_REG || op->cls == REG_GPR);
}

static bool lazy_operands(const struct trans *t)
{
	for (u32 i = 0; i < t->insn.nops; i++)
		if (!lazy_operand(t, &t->insn.ops[i]))
			return false;
	return true;
}

static bool addressed_by_stack(const struct trans *t)
{
	for (u32 i = 0; i < t->insn.nops; i++)
		if (t->insn.ops[i].kind == OPERAND_MEM && t->insn.ops[i].base == RSP)
			return true;
	return false;
}

u8 trans_stack_learn(const struct trans *t)
{
	if (trans_stack_known(t) &&
	    (t->insn.opsize != 8 || t->insn.id == INSN_LEAVE || t->insn.ops[0].kind == OPERAND_MEM))
		return LAZY_NEVER;
	if (addressed_by_stack(t))
		return LAZY_BY_DISPLACEMENT;
	return lazy_operands(t) ? LAZY_ALWAYS : LAZY_NEVER;
}

bool trans_stack_lazy(const struct trans *t)
{
	const struct decoded *d = t->decoded;

	if (!(t->mode & MODE_CODE64) || (t->mode & NEVER_LAZY) || trans_system_candidate(t, d))
		return false;
	if (t->insn.is_branch && !t->scan[t->at].continues)
		return t->insn.id == INSN_RET && !t->insn.far && t->insn.opsize == 8;
	return d->lazy == LAZY_ALWAYS || (d->lazy == LAZY_BY_DISPLACEMENT && lazy_operands(t));
}

void emit_stack_settle(struct trans *t)
{
	if (t->rsp_pending)
		emit_stack_pointer(t, HOST_GUEST_RSP, HOST_GUEST_RSP, t->rsp_pending);
	t->rsp_pending = 0;
}

void emit_stack_move(struct trans *t, s32 delta)
{
	t->rsp_pending += delta;
	if (!t->rsp_lazy)
		emit_stack_settle(t);
}

void emit_stack_pointer(struct trans *t, u8 dest, u8 from, s32 delta)
{
	bool wide = t->mode & MODE_CODE64;

	if (!wide && !(t->mode & MODE_STACK32)) { /* only SP moves */
		emit_rm(&t->e, false, OP_LEA, S1, ea_base(from, delta));
		if (dest == HOST_GUEST_RSP)
			emit_insn(&t->e, &(struct enc){ .p66 = true,
							.opcode = OP_MOV_LOAD,
							.reg = dest,
							.rm = S1 });
		else
			emit_insn(&t->e,
				  &(struct enc){
					  .map = MAP_0F, .opcode = 0xb7, .reg = dest, .rm = S1 });
		return;
	}
	emit_rm(&t->e, wide, OP_LEA, dest, ea_base(from, delta));
}

/* The bytes that emit_make_ready() would find. */
static void make_move_ready(struct enc *x)
{
	u32 rex = 0x41 | x->w << 3 | (x->reg >> 3) << 2;
	u64 bytes = rex | (u32)x->opcode << 8 | (0x45 | (u32)(x->reg & 7) << 3) << 16;

	x->ready = x->p66 ? bytes << 8 | 0x66 : bytes;
	x->nready = 3 + x->p66;
}

_Static_assert(S0 == R13, "make_move_ready()");

struct native trans_native_move(u8 opcode, u8 reg, u8 size)
{
	static const struct native move = {
		.x = { .is_mem = true, .ea = { .base = S0, .index = NO_BASE, .scale = 1 } }
	};
	struct native n;

	/* Compilers clear a struct of this size by REP STOS, which takes longer. */
	bytes_copy_words(&n, &move, sizeof(n));
	n.x.p66 = size == 2;
	n.x.w = size == 8;
	n.x.opcode = opcode;
	n.x.reg = reg;
	make_move_ready(&n.x);
	return n;
}

void emit_push_value(struct trans *t, struct temp value, u8 size)
{
	struct native n = trans_native_move(OP_MOV_STORE, value.host, size);

	n.rsp_delta = -size;
	if (value.load) {
		n.temp[0] = value;
		n.ntemps = 1;
	}
	emit_access_stack(t, -(s32)size, size, DESC_WRITE, &n);
}

static struct temp temp_spill(enum spill slot)
{
	return (struct temp){ .kind = TEMP_CPU, .host = S1, .load = true, .offset = SPILL(slot) };
}

bool emit_insn_push(struct trans *t)
{
	const struct operand *op = &t->insn.ops[0];
	u8 size = t->insn.opsize;

	if (!trans_stack_known(t))
		return false;
	if (op->kind == OPERAND_MEM) {
		struct native n = trans_native_move(OP_MOV_LOAD, S1, size);
		bool last = t->last;

		t->last = false;
		emit_access_operand(t, op, size, DESC_READ, &n);
		t->last = last;
		emit_rm(&t->e, true, OP_MOV_STORE, S1, ea_base(RSP, SPILL(SPILL_TARGET)));
		emit_push_value(t, temp_spill(SPILL_TARGET), size);
	} else if (op->kind == OPERAND_IMM) {
		emit_push_value(
			t,
			(struct temp){ .kind = TEMP_IMM, .host = S1, .load = true, .imm = op->imm },
			size);
	} else if (host_reg(op->reg) == IN_MEMORY) {
		emit_push_value(t, trans_temp_guest(op->reg, S1, true, false), size);
	} else {
		emit_push_value(t, (struct temp){ .host = host_reg(op->reg) }, size);
	}
	return true;
}

static void load_top(struct trans *t, u8 dest, u8 size)
{
	struct native n = trans_native_move(OP_MOV_LOAD, dest, size);

	emit_access_stack(t, 0, size, DESC_READ, &n);
}

/* An address with RSP in it is computed with RSP as it is after the pop (SDM 2B POP). */
static void pop_memory(struct trans *t, u8 size)
{
	struct operand op = t->insn.ops[0];
	struct native n = trans_native_move(OP_MOV_STORE, S1, size);

	load_top(t, S1, size);
	emit_rm(&t->e, true, OP_MOV_STORE, S1, ea_base(RSP, SPILL(SPILL_TARGET)));
	if (op.base == RSP)
		op.imm += size;
	n.temp[0] = temp_spill(SPILL_TARGET);
	n.ntemps = 1;
	n.rsp_delta = size;
	emit_access_operand(t, &op, size, DESC_WRITE, &n);
}

bool emit_insn_pop(struct trans *t)
{
	const struct operand *op = &t->insn.ops[0];
	u8 size = t->insn.opsize;

	if (!trans_stack_known(t))
		return false;
	if (op->kind == OPERAND_MEM) {
		pop_memory(t, size);
		return true;
	}
	if (size == 8 && op->reg != RSP && host_reg(op->reg) != IN_MEMORY) {
		load_top(t, host_reg(op->reg), size);
		emit_stack_move(t, size);
		return true;
	}
	load_top(t, S0, size);
	emit_stack_move(t, size);
	emit_guest_set(t, op->reg, S0, size);
	return true;
}

bool emit_insn_leave(struct trans *t)
{
	u8 size = t->insn.opsize;
	struct native n = trans_native_move(OP_MOV_LOAD, S0, size);

	emit_flags_keep(t);
	emit_stack_pointer(t, S0, RBP, 0);
	emit_access_begin(t, size, SS, DESC_READ, &n);
	emit_stack_pointer(t, HOST_GUEST_RSP, RBP, size);
	emit_guest_set(t, RBP, S0, size);
	return true;
}
