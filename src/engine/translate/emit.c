// SPDX-License-Identifier: MIT
/*
 * The assembler (SDM 2A 2.1 to 2.3, 2.7). vCPU thread, writes through the writable view of code
 * memory only.
 */
#include "engine/translate/emit.h"

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

/* ModRM is last; its mod is 1. */
static u8 *ready_memory(u8 *p, const struct enc *x)
{
	s32 disp = x->ea.disp;
	bool byte = disp == (s8)disp;
	u64 mod_2 = 0xc0ull << 8 * (x->nready - 1);

	*(u64_unaligned *)p = byte ? x->ready : x->ready ^ mod_2;
	p += x->nready;
	put_u32(p, disp);
	return p + (byte ? 1 : 4);
}

static u8 *ready(u8 *p, const struct enc *x)
{
	if (x->is_mem && !x->ready_whole)
		return ready_memory(p, x);
	*(u64_unaligned *)p = x->ready;
	return p + x->nready;
}

void emit_make_ready(struct enc *x, u8 s0)
{
	u8 bytes[ENC_MAX] = { 0 };
	struct emitter e = { .p = bytes, .limit = bytes + sizeof(bytes) };
	struct enc head = *x;
	u32 n;

	head.imm_len = 0;
	head.imm = 0;
	x->ready_whole = !x->is_mem || x->ea.base != s0;
	if (!x->ready_whole)
		head.ea.disp = 1;
	emit_any(&e, &head);
	n = e.p - bytes - !x->ready_whole;
	if (x->vex || x->evex || n > sizeof(x->ready))
		return;
	for (u32 i = 0; i < n; i++)
		x->ready |= (u64)bytes[i] << 8 * i;
	x->nready = n;
}

void emit_any(struct emitter *e, const struct enc *x)
{
	u8 *p = e->p;

	if (!emit_fits(e))
		return;
	if (x->nready) {
		e->p = immediate(ready(p, x), x);
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

/* The form that is emitted most. It is what emit_any() would make of it. */
void emit_rm_any(struct emitter *e, bool w, u8 opcode, u8 reg, struct ea ea)
{
	u8 x = ea.index != NO_BASE ? ea.index >> 3 : 0, b = ea.base != NO_BASE ? ea.base >> 3 : 0;
	u8 rex, *p = e->p;

	if (!emit_fits(e))
		return;
	rex = w << 3 | (reg >> 3) << 2 | x << 1 | b;
	*p = 0x40 | rex;
	p += rex != 0;
	*p++ = opcode;
	e->p = mem_operand(p, reg, &ea, false);
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
	fixups->counts[kind]++;
	fixups->fixup[fixups->n++] = (struct fixup){ offset, kind, index };
}
