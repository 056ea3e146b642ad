// SPDX-License-Identifier: MIT
/*
 * The assembler (SDM 2A 2.1 to 2.3, 2.7). vCPU thread, writes through the writable view of code
 * memory only.
 */
#include "engine/translate/emit.h"

#include "base/must.h"

void emit_u8(struct emitter *e, u8 v)
{
	if (e->p < e->limit)
		*e->p++ = v;
	else
		e->full = true;
}

void emit_u32(struct emitter *e, u32 v)
{
	if (e->limit - e->p < 4) {
		e->full = true;
		return;
	}
	*(u32_unaligned *)e->p = v;
	e->p += 4;
}

void emit_u64(struct emitter *e, u64 v)
{
	emit_u32(e, v);
	emit_u32(e, v >> 32);
}

static u8 mem_x(const struct enc *x)
{
	return x->is_mem && x->ea.index != NO_BASE ? x->ea.index >> 3 : 0;
}

static u8 rm_b(const struct enc *x)
{
	if (!x->is_mem)
		return x->rm >> 3 & 1;
	return x->ea.base != NO_BASE ? x->ea.base >> 3 : 0;
}

/* The parts of an instruction: each writes at p and returns where it ended. */

static u8 *legacy_prefixes(u8 *p, const struct enc *x)
{
	u8 rex = x->w << 3 | (x->reg >> 3) << 2 | mem_x(x) << 1 | rm_b(x);

	if (x->lock)
		*p++ = 0xf0;
	if (x->p66)
		*p++ = 0x66;
	if (x->rep)
		*p++ = x->rep;
	if (rex || x->force_rex)
		*p++ = 0x40 | rex;
	if (x->map != MAP_ONE)
		*p++ = 0x0f;
	if (x->map == MAP_0F38)
		*p++ = 0x38;
	if (x->map == MAP_0F3A)
		*p++ = 0x3a;
	return p;
}

static u8 *vex_prefix(u8 *p, const struct enc *x)
{
	*p++ = 0xc4;
	*p++ = (~(x->reg >> 3) & 1) << 7 | (~mem_x(x) & 1) << 6 | (~rm_b(x) & 1) << 5 | x->map;
	*p++ = x->w << 7 | (~x->vvvv & 0xf) << 3 | x->vex_l << 2 | x->vex_pp;
	return p;
}

/* SDM 2A 2.7.1: R, X, B, R', V', vvvv are inverted, and X is the fifth bit of a register in
 * ModRM.rm. */
static u8 *evex_prefix(u8 *p, const struct enc *x)
{
	u8 x_bit = x->is_mem ? mem_x(x) : x->rm >> 4;

	*p++ = 0x62;
	*p++ = (~(x->reg >> 3) & 1) << 7 | (~x_bit & 1) << 6 | (~rm_b(x) & 1) << 5 |
	       (~(x->reg >> 4) & 1) << 4 | x->map;
	*p++ = x->w << 7 | (~x->vvvv & 0xf) << 3 | 4 | x->vex_pp;
	*p++ = x->zeroing << 7 | x->vex_l << 5 | x->evex_b << 4 | (~(x->vvvv >> 4) & 1) << 3 |
	       x->mask;
	return p;
}

static u8 *opcode_prefix(u8 *p, const struct enc *x)
{
	if (x->evex)
		return evex_prefix(p, x);
	return x->vex ? vex_prefix(p, x) : legacy_prefixes(p, x);
}

static u8 scale_bits(u8 scale)
{
	return scale == 8 ? 3 : scale == 4 ? 2 : scale == 2 ? 1 : 0;
}

static u8 *put_u32(u8 *p, u32 v)
{
	*(u32_unaligned *)p = v;
	return p + 4;
}

/* ModRM.mod. A displacement of EVEX in one byte counts operands and not bytes: it gets four. */
static u8 displacement_form(const struct ea *ea, bool evex)
{
	s32 disp = ea->disp;

	if (disp == 0)
		return (ea->base & 7) != 5 ? 0 : 1;
	return disp == (s8)disp && !evex ? 1 : 2;
}

static inline u8 *mem_operand(u8 *p, u8 modrm_reg, const struct ea *ea, bool evex)
{
	u8 reg = (modrm_reg & 7) << 3, base = ea->base & 7;
	u8 sib = scale_bits(ea->scale) << 6 | (ea->index == NO_BASE ? 4 : ea->index & 7) << 3;
	bool has_sib = ea->index != NO_BASE || base == 4;
	u8 mod;

	if (ea->base == NO_BASE) { /* [index*scale + disp32], or [disp32] */
		*p++ = reg | 4;
		*p++ = sib | 5;
		return put_u32(p, ea->disp);
	}
	mod = displacement_form(ea, evex);
	*p++ = mod << 6 | reg | (has_sib ? 4 : base);
	if (has_sib)
		*p++ = sib | base;
	if (mod == 1)
		*p++ = ea->disp;
	return mod == 2 ? put_u32(p, ea->disp) : p;
}

/* All eight bytes, of which the next instruction overwrites the ones that are too many. */
static u8 *immediate(u8 *p, const struct enc *x)
{
	*(u64_unaligned *)p = x->imm;
	return p + x->imm_len;
}

#define ENC_MAX 24 /* prefixes, opcode, ModRM, SIB, displacement and 8 bytes of immediate */

void emit_insn(struct emitter *e, const struct enc *x)
{
	u8 *p = e->p;

	if (e->limit - p < ENC_MAX) {
		e->full = true;
		return;
	}
	p = opcode_prefix(p, x);
	*p++ = x->no_modrm ? x->opcode | (x->rm & 7) : x->opcode;
	if (x->is_mem)
		p = mem_operand(p, x->reg, &x->ea, x->evex);
	else if (!x->no_modrm)
		*p++ = 0xc0 | (x->reg & 7) << 3 | (x->rm & 7);
	e->p = immediate(p, x);
}

/* The two forms that are emitted most. They are what emit_insn() would make of them. */

static u8 *rex_and_opcode(u8 *p, u8 rex, u8 opcode)
{
	*p = 0x40 | rex;
	p += rex != 0;
	*p = opcode;
	return p + 1;
}

void emit_rr(struct emitter *e, bool w, u8 opcode, u8 reg, u8 rm)
{
	u8 *p = e->p;

	if (e->limit - p < ENC_MAX) {
		e->full = true;
		return;
	}
	p = rex_and_opcode(p, w << 3 | (reg >> 3) << 2 | rm >> 3, opcode);
	*p++ = 0xc0 | (reg & 7) << 3 | (rm & 7);
	e->p = p;
}

void emit_rm(struct emitter *e, bool w, u8 opcode, u8 reg, struct ea ea)
{
	u8 x = ea.index != NO_BASE ? ea.index >> 3 : 0, b = ea.base != NO_BASE ? ea.base >> 3 : 0;
	u8 *p = e->p;

	if (e->limit - p < ENC_MAX) {
		e->full = true;
		return;
	}
	p = rex_and_opcode(p, w << 3 | (reg >> 3) << 2 | x << 1 | b, opcode);
	e->p = mem_operand(p, reg, &ea, false);
}

static struct enc group1(bool w, u8 ext, s32 imm)
{
	bool byte = imm == (s8)imm;

	return (struct enc){ .w = w,
			     .opcode = byte ? 0x83 : 0x81,
			     .reg = ext,
			     .imm_len = byte ? 1 : 4,
			     .imm = (u32)imm };
}

void emit_group1(struct emitter *e, bool w, u8 ext, u8 rm, s32 imm)
{
	struct enc x = group1(w, ext, imm);

	x.rm = rm;
	emit_insn(e, &x);
}

void emit_group1_mem(struct emitter *e, bool w, u8 ext, struct ea ea, s32 imm)
{
	struct enc x = group1(w, ext, imm);

	x.is_mem = true;
	x.ea = ea;
	emit_insn(e, &x);
}

void emit_shift(struct emitter *e, bool w, u8 ext, u8 rm, u8 count)
{
	emit_insn(
		e,
		&(struct enc){
			.w = w, .opcode = 0xc1, .reg = ext, .rm = rm, .imm_len = 1, .imm = count });
}

void emit_mov_imm(struct emitter *e, u8 reg, u64 imm)
{
	struct enc x = { .rm = reg, .opcode = 0xb8, .no_modrm = true, .imm = imm, .imm_len = 4 };

	if ((s64)imm == (s32)imm && (s64)imm < 0) {
		x = (struct enc){ .w = true, .opcode = 0xc7, .rm = reg, .imm = imm, .imm_len = 4 };
	} else if (imm >> 32) {
		x.w = true;
		x.imm_len = 8;
	}
	emit_insn(e, &x);
}

void emit_load_byte(struct emitter *e, u8 reg, struct ea ea)
{
	emit_insn(e, &(struct enc){ .map = MAP_0F,
				    .opcode = 0xb6, /* MOVZX */
				    .reg = reg,
				    .is_mem = true,
				    .ea = ea });
}

void emit_mov_mem_imm(struct emitter *e, bool w, struct ea ea, s32 imm)
{
	emit_insn(e, &(struct enc){ .w = w,
				    .opcode = 0xc7,
				    .is_mem = true,
				    .ea = ea,
				    .imm_len = 4,
				    .imm = (u32)imm });
}

/* An opcode of up to two bytes and a displacement, whose place is returned. */
static u8 *branch(struct emitter *e, u16 opcode, u32 length)
{
	u8 *site = e->p + length;

	if (e->limit - e->p < ENC_MAX) {
		e->full = true;
		return e->p;
	}
	e->p[0] = opcode;
	e->p[1] = opcode >> 8;
	*(u32_unaligned *)site = 0;
	e->p = site + 4;
	return site;
}

u8 *emit_jcc(struct emitter *e, u8 cc)
{
	return branch(e, 0x0f | (0x80 | cc) << 8, 2);
}

u8 *emit_jmp(struct emitter *e)
{
	return branch(e, 0xe9, 1);
}

u8 *emit_call(struct emitter *e)
{
	return branch(e, 0xe8, 1);
}

void emit_patch(struct emitter *e, u8 *site, const u8 *target)
{
	s64 rel = target - (site + 4);

	if (e->full)
		return;
	must(rel == (s32)rel);
	*(s32_unaligned *)site = rel;
	if (target < e->start)
		emit_fixup(e, site, FIXUP_THUNK, 0);
}

void emit_fixup(struct emitter *e, const u8 *at, enum fixup_kind kind, u32 index)
{
	struct fixups *fixups = e->fixups;
	u64 offset = at - e->start;

	if (!fixups || e->full)
		return;
	if (fixups->n == MAX_FIXUPS || offset > 0xffff || index > 0xff) {
		fixups->lost = true;
		return;
	}
	fixups->fixup[fixups->n++] = (struct fixup){ offset, kind, index };
}
