/* SPDX-License-Identifier: MIT */
/*
 * The assembler's short ways, included by emit.h. Most host instructions of a block are always the
 * same but for a displacement or an immediate. Where the compiler knows the rest, it puts their
 * bytes together itself, and one store writes them; a program that starts has millions of them
 * emitted. All else is for emit_any() and its like. What is emitted is the same.
 */
#ifndef ENGINE_TRANSLATE_EMIT_INLINE_H
#define ENGINE_TRANSLATE_EMIT_INLINE_H

#define EMIT_INLINE static inline __attribute__((always_inline))
#define KNOWN(x)    __builtin_constant_p(x)

#define ENC_MAX 24 /* prefixes, opcode, ModRM, SIB, displacement and 8 bytes of immediate */

/* Room for one instruction. Each may be written with stores that are too long: the next one
 * overwrites what is too much. */
EMIT_INLINE bool emit_fits(struct emitter *e)
{
	if (__builtin_expect(e->limit - e->p >= ENC_MAX, 1))
		return true;
	e->full = true;
	return false;
}

EMIT_INLINE u8 *put_u32(u8 *p, u32 v)
{
	*(u32_unaligned *)p = v;
	return p + 4;
}

/* Bytes in front of displacement and immediate. */
struct opening {
	u64 bytes;
	u32 n;
};

EMIT_INLINE void opening_add(struct opening *o, u8 byte)
{
	o->bytes |= (u64)byte << 8 * o->n++;
}

EMIT_INLINE u8 *put_opening(u8 *p, const struct opening *o)
{
	*(u64_unaligned *)p = o->bytes;
	return p + o->n;
}

EMIT_INLINE void opening_legacy(struct opening *o, const struct enc *x, u8 rex)
{
	if (x->lock)
		opening_add(o, 0xf0);
	if (x->p66)
		opening_add(o, 0x66);
	if (rex || x->force_rex)
		opening_add(o, 0x40 | rex);
	if (x->map != MAP_ONE)
		opening_add(o, 0x0f);
	if (x->map == MAP_0F38)
		opening_add(o, 0x38);
	if (x->map == MAP_0F3A)
		opening_add(o, 0x3a);
}

EMIT_INLINE void opening_vex(struct opening *o, const struct enc *x, u8 rex)
{
	opening_add(o, 0xc4);
	opening_add(o, (~rex & 7) << 5 | x->map);
	opening_add(o, x->w << 7 | (~x->vvvv & 0xf) << 3 | x->vex_l << 2 | x->vex_pp);
}

/* The opening's last bytes are ModRM and SIB, for a base that is known. */
EMIT_INLINE u8 *put_memory(u8 *p, struct opening *o, u8 reg, struct ea ea)
{
	u8 base = ea.base & 7, modrm = (reg & 7) << 3;
	bool has_sib = ea.index != NO_BASE || base == 4;
	u8 scale = ea.scale == 8 ? 3 : ea.scale == 4 ? 2 : ea.scale == 2 ? 1 : 0;
	u8 sib = scale << 6 | (ea.index == NO_BASE ? 4 : ea.index & 7) << 3 | base;
	bool none = ea.disp == 0 && base != 5, byte = ea.disp == (s8)ea.disp;

	opening_add(o, (none ? 0 : byte ? 0x40 : 0x80) | modrm | (has_sib ? 4 : base));
	if (has_sib)
		opening_add(o, sib);
	p = put_opening(p, o);
	put_u32(p, ea.disp);
	return p + (none ? 0 : byte ? 1 : 4);
}

EMIT_INLINE u8 rex_bits(bool w, u8 reg, struct ea ea)
{
	u8 x = ea.index != NO_BASE ? ea.index >> 3 : 0;

	return w << 3 | (reg >> 3) << 2 | x << 1 | ea.base >> 3;
}

/* --- any instruction --- */

/* All but displacement and immediate; at most eight bytes in front of them. */
EMIT_INLINE bool enc_known(const struct enc *x)
{
	if (!(KNOWN(x->p66) && KNOWN(x->lock) && KNOWN(x->w) && KNOWN(x->force_rex) &&
	      KNOWN(x->is_mem) && KNOWN(x->no_modrm) && KNOWN(x->rep) && KNOWN(x->map) &&
	      KNOWN(x->opcode) && KNOWN(x->reg) && KNOWN(x->vex) && KNOWN(x->evex) &&
	      KNOWN(x->imm_len)))
		return false;
	if (x->rep || x->evex)
		return false;
	if (!x->is_mem)
		return KNOWN(x->rm);
	return KNOWN(x->ea.base) && KNOWN(x->ea.index) && KNOWN(x->ea.scale) &&
	       x->ea.base != NO_BASE;
}

EMIT_INLINE void emit_known(struct emitter *e, const struct enc *x)
{
	struct opening o = { 0 };
	u8 rex, *p = e->p;

	if (!emit_fits(e))
		return;
	rex = x->is_mem ? rex_bits(x->w, x->reg, x->ea)
			: x->w << 3 | (x->reg >> 3) << 2 | (x->rm >> 3 & 1);
	if (x->vex)
		opening_vex(&o, x, rex);
	else
		opening_legacy(&o, x, rex);
	opening_add(&o, x->no_modrm ? x->opcode | (x->rm & 7) : x->opcode);
	if (x->is_mem) {
		p = put_memory(p, &o, x->reg, x->ea);
	} else {
		if (!x->no_modrm)
			opening_add(&o, 0xc0 | (x->reg & 7) << 3 | (x->rm & 7));
		p = put_opening(p, &o);
	}
	if (x->imm_len == 8)
		*(u64_unaligned *)p = x->imm;
	else if (x->imm_len)
		put_u32(p, x->imm);
	e->p = p + x->imm_len;
}

EMIT_INLINE void emit_insn(struct emitter *e, const struct enc *x)
{
	if (enc_known(x))
		emit_known(e, x);
	else
		emit_any(e, x);
}

/* --- the forms that are emitted most --- */

EMIT_INLINE void emit_u8(struct emitter *e, u8 v)
{
	if (!emit_fits(e))
		return;
	*e->p = v;
	e->p++;
}

EMIT_INLINE void emit_u32(struct emitter *e, u32 v)
{
	if (emit_fits(e))
		e->p = put_u32(e->p, v);
}

EMIT_INLINE void emit_u64(struct emitter *e, u64 v)
{
	emit_u32(e, v);
	emit_u32(e, v >> 32);
}

EMIT_INLINE void emit_rr(struct emitter *e, bool w, u8 opcode, u8 reg, u8 rm)
{
	u8 rex = w << 3 | (reg >> 3) << 2 | rm >> 3;
	u32 rest = opcode | (0xc0u | (reg & 7) << 3 | (rm & 7)) << 8;

	if (!emit_fits(e))
		return;
	put_u32(e->p, rex ? (0x40 | rex) | rest << 8 : rest);
	e->p += rex ? 3 : 2;
}

/* With a REX prefix or without is known, too. */
EMIT_INLINE void emit_rm(struct emitter *e, bool w, u8 opcode, u8 reg, struct ea ea)
{
	struct opening o = { 0 };
	u8 rex;

	if (!(KNOWN(ea.base) && KNOWN(ea.index) && KNOWN(ea.scale) && KNOWN(w) &&
	      ea.base != NO_BASE && (w || KNOWN(reg)))) {
		emit_rm_any(e, w, opcode, reg, ea);
		return;
	}
	if (!emit_fits(e))
		return;
	rex = rex_bits(w, reg, ea);
	if (w || rex)
		opening_add(&o, 0x40 | rex);
	opening_add(&o, opcode);
	e->p = put_memory(e->p, &o, reg, ea);
}

EMIT_INLINE struct enc enc_group1(bool w, u8 ext, s32 imm)
{
	bool byte = imm == (s8)imm;

	return (struct enc){ .w = w,
			     .opcode = byte ? 0x83 : 0x81,
			     .reg = ext,
			     .imm_len = byte ? 1 : 4,
			     .imm = (u32)imm };
}

/* On a register that is known. The immediate may be of a byte. */
EMIT_INLINE void emit_group1(struct emitter *e, bool w, u8 ext, u8 rm, s32 imm)
{
	bool byte = imm == (s8)imm;
	u8 rex = w << 3 | rm >> 3;
	struct opening o = { 0 };
	u8 *p = e->p;

	if (!emit_fits(e))
		return;
	if (rex)
		opening_add(&o, 0x40 | rex);
	opening_add(&o, byte ? 0x83 : 0x81);
	opening_add(&o, 0xc0 | ext << 3 | (rm & 7));
	p = put_opening(p, &o);
	put_u32(p, imm);
	e->p = p + (byte ? 1 : 4);
}

EMIT_INLINE void emit_group1_mem(struct emitter *e, bool w, u8 ext, struct ea ea, s32 imm)
{
	struct enc x = enc_group1(w, ext, imm);

	x.is_mem = true;
	x.ea = ea;
	emit_any(e, &x);
}

EMIT_INLINE void emit_shift(struct emitter *e, bool w, u8 ext, u8 rm, u8 count)
{
	emit_insn(
		e,
		&(struct enc){
			.w = w, .opcode = 0xc1, .reg = ext, .rm = rm, .imm_len = 1, .imm = count });
}

EMIT_INLINE void emit_mov_imm(struct emitter *e, u8 reg, u64 imm)
{
	u8 b = reg >> 3, opening = 0xb8 | (reg & 7), *p = e->p;

	if (!emit_fits(e))
		return;
	if ((s64)imm == (s32)imm && (s64)imm < 0) {
		put_u32(p, (0x48u | b) | 0xc7 << 8 | (0xc0 | (reg & 7)) << 16);
		e->p = put_u32(p + 3, imm);
	} else if (imm >> 32) {
		put_u32(p, (0x48u | b) | opening << 8);
		*(u64_unaligned *)(p + 2) = imm;
		e->p = p + 10;
	} else {
		put_u32(p, b ? 0x41u | opening << 8 : opening);
		p += b ? 2 : 1;
		e->p = put_u32(p, imm);
	}
}

EMIT_INLINE void emit_load_byte(struct emitter *e, u8 reg, struct ea ea)
{
	emit_any(e, &(struct enc){ .map = MAP_0F,
				   .opcode = 0xb6, /* MOVZX */
				   .reg = reg,
				   .is_mem = true,
				   .ea = ea });
}

EMIT_INLINE void emit_mov_mem_imm(struct emitter *e, bool w, struct ea ea, s32 imm)
{
	emit_insn(e, &(struct enc){ .w = w,
				    .opcode = 0xc7,
				    .is_mem = true,
				    .ea = ea,
				    .imm_len = 4,
				    .imm = (u32)imm });
}

/* An opcode of up to two bytes and a displacement, whose place is returned. */
EMIT_INLINE u8 *emit_branch(struct emitter *e, u16 opcode, u32 length)
{
	u8 *site = e->p + length;

	if (!emit_fits(e))
		return e->p;
	*(u64_unaligned *)e->p = opcode;
	e->p = site + 4;
	return site;
}

EMIT_INLINE u8 *emit_jcc(struct emitter *e, u8 cc)
{
	return emit_branch(e, 0x0f | (0x80 | cc) << 8, 2);
}

EMIT_INLINE u8 *emit_jmp(struct emitter *e)
{
	return emit_branch(e, 0xe9, 1);
}

EMIT_INLINE u8 *emit_call(struct emitter *e)
{
	return emit_branch(e, 0xe8, 1);
}

EMIT_INLINE void emit_patch(struct emitter *e, u8 *site, const u8 *target)
{
	s64 rel = target - (site + 4);

	if (e->full)
		return;
	must(rel == (s32)rel);
	*(s32_unaligned *)site = rel;
	if (target < e->start)
		emit_fixup(e, site, FIXUP_THUNK, 0);
}

#undef KNOWN

#endif
