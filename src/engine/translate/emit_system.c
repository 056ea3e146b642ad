// SPDX-License-Identifier: MIT
/*
 * System instructions that need not leave the block (SDM 2). In 64-bit kernel code: the interrupt
 * flag, the alignment flag as SMAP uses it, SWAPGS, control registers that are read. In all 64-bit
 * code: PUSHF, RDTSC, selectors. Anywhere: the string instructions and those on the bases of FS and
 * GS, which C executes from within the block (call_insn.c), and at its end RDMSR, WRMSR and RDPMC
 * that pass through (passthrough.c). Whatever is not plain here goes the long way through
 * sys_execute(), which has all the rules; so does everything when one instruction is stepped at a
 * time.
 */
#include "engine/translate/trans.h"

#define SEGMENT(n, field) \
	(CPU(seg) + (n) * (s32)sizeof(struct segment) + (s32)offsetof(struct segment, field))
#define GROUP_OR  1
#define OP_OR	  0x0b
#define FLAG_MASK (~(s32)(FL_ARITH | FL_VM | FL_RF))

static bool in_kernel(const struct trans *t)
{
	return (t->mode & (MODE_CODE64 | MODE_CPL)) == MODE_CODE64;
}

/* Saves the guest's flags to hot->aflags, before the host's are used. */
static void flags_away(struct trans *t)
{
	emit_flags_save(t);
	t->flags = FLAGS_IN_CPU;
}

static void store_byte(struct trans *t, s32 offset, u8 value)
{
	emit_insn(&t->e, &(struct enc){ .opcode = 0xc6,
					.is_mem = true,
					.ea = ea_base(RSP, offset),
					.imm = value,
					.imm_len = 1 });
}

bool emit_insn_cli(struct trans *t)
{
	if (!in_kernel(t))
		return false;
	flags_away(t);
	emit_group1_mem(&t->e, false, GROUP_AND, ea_base(RSP, CPU(rflags)), ~(s32)FL_IF);
	return true;
}

/*
 * STI: nothing if IF is set. Else the shadow begins, which emit_system_shadow_ends() ends after the
 * next instruction. The block ends there too (scan.c), and if an interrupt waits for its window,
 * the next block looks for it.
 */
bool emit_insn_sti(struct trans *t)
{
	u8 *set, *unwanted;

	if (!in_kernel(t))
		return false;
	flags_away(t);
	emit_insn(&t->e, &(struct enc){ .opcode = 0xf6, /* TEST */
					.is_mem = true,
					.ea = ea_base(RSP, CPU(rflags) + 1),
					.imm = FL_IF >> 8,
					.imm_len = 1 });
	set = emit_jcc(&t->e, CC_NE);
	emit_group1_mem(&t->e, false, GROUP_OR, ea_base(RSP, CPU(rflags)), FL_IF);
	store_byte(t, CPU(shadow), SHADOW_STI);
	emit_insn(&t->e, &(struct enc){ .opcode = 0x80,
					.reg = GROUP_CMP,
					.is_mem = true,
					.ea = ea_base(RSP, CPU(port.want_irq_window)),
					.imm_len = 1 });
	unwanted = emit_jcc(&t->e, CC_E);
	emit_call_attention(t);
	emit_patch(&t->e, set, t->e.p);
	emit_patch(&t->e, unwanted, t->e.p);
	t->shadow = true;
	return true;
}

void emit_system_shadow_ends(struct trans *t)
{
	store_byte(t, CPU(shadow), 0);
}

/* SMAP is known to be on when code that may not touch user pages executes STAC. */
bool emit_insn_stac(struct trans *t)
{
	if (!in_kernel(t) || (t->mode & MODE_USER_OK))
		return false;
	flags_away(t);
	emit_group1_mem(&t->e, false, GROUP_OR, ea_base(RSP, CPU(rflags)), FL_AC);
	emit_group1_mem(&t->e, false, GROUP_OR, ea_base(RSP, PRIV(mode)), MODE_USER_OK);
	t->mode |= MODE_USER_OK;
	return true;
}

/* And it still is when the same block ends what STAC began. CLAC without STAC, which handlers of
 * exceptions execute just in case, is a no-op. */
bool emit_insn_clac(struct trans *t)
{
	if (!in_kernel(t))
		return false;
	if (!(t->mode & MODE_USER_OK))
		return true;
	if (t->block->mode & MODE_USER_OK)
		return false;
	flags_away(t);
	emit_group1_mem(&t->e, false, GROUP_AND, ea_base(RSP, CPU(rflags)), ~(s32)FL_AC);
	emit_group1_mem(&t->e, false, GROUP_AND, ea_base(RSP, PRIV(mode)), ~(s32)MODE_USER_OK);
	t->mode &= ~(u32)MODE_USER_OK;
	return true;
}

/* hot->aflags has LAHF's byte in 15:8 and OF in bit 0. */
bool emit_insn_pushfq(struct trans *t)
{
	struct temp image = {
		.kind = TEMP_CPU, .host = S1, .load = true, .offset = SPILL(SPILL_TARGET)
	};

	if (!(t->mode & MODE_CODE64) || t->insn.opsize != 8)
		return false;
	flags_away(t);
	emit_rm(&t->e, false, OP_MOV_LOAD, S0, ea_base(RSP, HOT(aflags)));
	emit_rr(&t->e, false, OP_MOV_LOAD, S1, S0);
	emit_shift(&t->e, false, SHIFT_SHL, S0, 11);
	emit_group1(&t->e, false, GROUP_AND, S0, FL_OF);
	emit_shift(&t->e, false, SHIFT_SHR, S1, 8);
	emit_group1(&t->e, false, GROUP_AND, S1, FL_ARITH & 0xff);
	emit_rr(&t->e, false, OP_OR, S1, S0);
	emit_rm(&t->e, true, OP_MOV_LOAD, S0, ea_base(RSP, CPU(rflags)));
	emit_group1(&t->e, true, GROUP_AND, S0, FLAG_MASK);
	emit_group1(&t->e, true, GROUP_OR, S0, FL_FIX1);
	emit_rr(&t->e, true, OP_OR, S0, S1);
	emit_rm(&t->e, true, OP_MOV_STORE, S0, ea_base(RSP, image.offset));
	emit_push_value(t, image, 8);
	return true;
}

bool emit_insn_swapgs(struct trans *t)
{
	struct ea base = ea_base(RSP, SEGMENT(GS, base));
	struct ea other = ea_base(RSP, CPU(kernel_gs_base));

	if (!in_kernel(t))
		return false;
	emit_flags_save(t);
	emit_rm(&t->e, true, OP_MOV_LOAD, S0, base);
	emit_rm(&t->e, true, OP_MOV_LOAD, S1, other);
	emit_rm(&t->e, true, OP_MOV_STORE, S1, base);
	emit_rm(&t->e, true, OP_MOV_STORE, S0, other);
	return true;
}

/* The host's RDTSC writes RAX, which is scratch, and RDX, which is the guest's as well. */
static bool rdtsc(struct trans *t, bool aux)
{
	if (!(t->mode & MODE_CODE64) || !(t->mode & MODE_TSC))
		return false;
	flags_away(t);
	emit_insn(&t->e, &(struct enc){ .map = MAP_0F, .opcode = 0xae, .reg = 5 }); /* LFENCE */
	emit_u8(&t->e, 0x0f);
	emit_u8(&t->e, 0x31);
	emit_shift(&t->e, true, SHIFT_SHL, RDX, 32);
	emit_rr(&t->e, true, OP_OR, RDX, RAX);
	emit_rm(&t->e, true, OP_ADD, RDX, ea_base(RSP, CPU(port.tsc_offset)));
	emit_rr(&t->e, false, OP_MOV_LOAD, HOST_GUEST_RAX, RDX);
	emit_shift(&t->e, true, SHIFT_SHR, RDX, 32);
	if (aux)
		emit_rm(&t->e, false, OP_MOV_LOAD, RCX, ea_base(RSP, CPU(tsc_aux)));
	return true;
}

bool emit_insn_rdtsc(struct trans *t)
{
	return rdtsc(t, false);
}

bool emit_insn_rdtscp(struct trans *t)
{
	return rdtsc(t, true);
}

static bool selector_read(struct trans *t)
{
	const struct operand *to = &t->insn.ops[0], *from = &t->insn.ops[1];

	if (to->kind != OPERAND_REG || to->cls != REG_GPR || from->kind != OPERAND_REG ||
	    from->cls != REG_SEG)
		return false;
	emit_flags_save(t);
	emit_insn(&t->e, &(struct enc){ .map = MAP_0F,
					.opcode = 0xb7,
					.reg = S0,
					.is_mem = true,
					.ea = ea_base(RSP, SEGMENT(from->reg, sel)) });
	emit_guest_set(t, to->reg, S0, to->size);
	return true;
}

/* Control registers that are read without side effects: offset in struct cpu. */
static s32 control_offset(u32 n)
{
	static const s32 offsets[] = {
		[0] = CPU(cr0), [2] = CPU(cr2), [3] = CPU(cr3), [4] = CPU(cr4)
	};

	return n < ARRAY_SIZE(offsets) ? offsets[n] : 0;
}

static bool control_read(struct trans *t)
{
	const struct operand *to = &t->insn.ops[0], *from = &t->insn.ops[1];
	s32 offset = from->cls == REG_CR ? control_offset(from->reg) : 0;

	if (!offset)
		return false;
	emit_flags_save(t);
	emit_rm(&t->e, true, OP_MOV_LOAD, S0, ea_base(RSP, offset));
	emit_guest_set(t, to->reg, S0, 8);
	return true;
}

bool emit_insn_mov_system(struct trans *t)
{
	return (t->mode & MODE_CODE64) && (selector_read(t) || (in_kernel(t) && control_read(t)));
}

bool emit_insn_by_call(struct trans *t)
{
	struct insn *copy = trans_copy_insn(t);

	if (!copy)
		return false; /* complex() then finds the cache full */
	flags_away(t);
	emit_mov_imm(&t->e, S0, (u64)(uintptr_t)copy);
	trans_note_pointer(t, (u64)(uintptr_t)copy);
	emit_patch(&t->e, emit_call(&t->e), t->eng->call);
	return true;
}

/* Not in these modes: their notes are settled when a block is left. */
#define MODE_NO_PASS \
	(MODE_STEP | MODE_SINGLE | MODE_LBR | MODE_OBSERVE_MEMORY | MODE_OBSERVE_BRANCHES)

void emit_passthrough(struct trans *t, const struct insn *insn)
{
	enum exit_reason access = insn_facts(insn)->access;
	u8 *out;

	if (access == EXIT_NONE || (t->mode & MODE_NO_PASS))
		return;
	emit_mov_imm(&t->e, S0, t->rip);
	emit_rm(&t->e, true, OP_MOV_STORE, S0, ea_base(RSP, CPU(rip)));
	emit_mov_imm(&t->e, S0, (u64)(uintptr_t)insn);
	trans_note_pointer(t, (u64)(uintptr_t)insn);
	emit_mov_imm(&t->e, S1, access);
	emit_patch(&t->e, emit_call(&t->e), t->eng->pass);
	out = emit_jcc(&t->e, CC_NE);
	emit_block_end_direct(t, trans_next_rip(t));
	emit_patch(&t->e, out, t->e.p);
}

bool trans_system_learn(const struct insn *insn)
{
	const struct operand *from = &insn->ops[1];

	switch (insn_facts(insn)->system) {
	case SYSTEM_ALWAYS:
		return true;
	case SYSTEM_BY_SOURCE:
		return from->kind == OPERAND_REG && (from->cls == REG_SEG || from->cls == REG_CR);
	case SYSTEM_BARE:
		return !insn->nops;
	default:
		return false;
	}
}

bool trans_system_candidate(const struct trans *t, const struct decoded *d)
{
	return d->system && !(t->mode & MODE_STEP);
}
