// SPDX-License-Identifier: MIT
/*
 * What a sequence starts with: registers by the class the generator gave them, everything else
 * random with a leaning towards the edges. Vector and x87 state is an XSAVE area in standard
 * format.
 */
#include "diff.h"

#include <string.h>

/* Somewhere in the data pages; often aligned, sometimes right at the edge of a page or of the
 * sandbox. */
static u64 pointer(struct rng *r, u64 origin)
{
	u64 p = origin + rng_below(r, DATA_SIZE);

	switch (rng_below(r, 8)) {
	case 0:
		p = origin + rng_below(r, DATA_PAGES + 1) * PAGE_SIZE - 64 + rng_below(r, 128);
		break;
	case 1:
		return p;
	default: /* away from the edges */
		p = origin + rng_below(r, 3) * PAGE_SIZE + 0x300 + rng_below(r, 0x1000);
	}
	return rng_one_in(r, 4) ? p : p & ~63ull;
}

static u64 small(struct rng *r)
{
	switch (rng_below(r, 16)) {
	case 0:
		return rng_value(r);
	case 1:
		return -(u64)rng_below(r, 64);
	case 2:
	case 3:
		return rng_below(r, 80);
	default:
		return rng_below(r, 16) * 16;
	}
}

/* With this base an offset that is not canonical, by as much, is an address that is. */
#define LOWEST_BASE -BIT(47)

static u64 alias(struct rng *r)
{
	if (rng_one_in(r, 32))
		return -LOWEST_BASE;
	return rng_one_in(r, 3) ? HIGH_ALIAS : 0;
}

static u64 gpr(struct rng *r, enum register_class cls, u64 origin)
{
	switch (cls) {
	case CLASS_POINTER:
		return pointer(r, origin) + alias(r);
	case CLASS_SMALL:
		return small(r);
	default:
		return rng_one_in(r, 8) ? pointer(r, origin) : rng_value(r);
	}
}

static u64 flags(struct rng *r)
{
	u64 f = FL_FIX1 | FL_IF | (rng_next(r) & FL_ARITH);

	if (rng_one_in(r, 8))
		f |= FL_DF;
	if (rng_one_in(r, 32))
		f |= FL_AC;
	return f;
}

static void x87(struct rng *r, u8 *area)
{
	u16 fcw = 0x37f, fsw;

	if (rng_one_in(r, 3))
		fcw = 0x40 | (rng_next(r) & 0xf00) | 0x3f;
	if (rng_one_in(r, 6))
		fcw &= ~(rng_next(r) & 0x3f);
	fsw = rng_next(r) & 0x7f00; /* condition codes and TOP */
	if (rng_one_in(r, 12))
		fsw |= rng_next(r) & 0x3f;
	if (fsw & ~fcw & 0x3f)
		fsw |= 0x8080; /* ES and B follow from the rest */
	memcpy(area, &fcw, 2);
	memcpy(area + 2, &fsw, 2);
	area[4] = rng_one_in(r, 3) ? rng_next(r) : 0xff;
	for (u32 i = 0; i < 8; i++) {
		u8 *st = area + 32 + 16 * i;
		u16 exponent = rng_next(r);

		rng_floats(r, st, 8);
		if (!rng_one_in(r, 4))
			st[7] |= 0x80; /* the integer bit of a normal number */
		if (rng_one_in(r, 2))
			exponent = (exponent & 0x801f) + 0x3ff0;
		memcpy(st + 8, &exponent, 2);
	}
}

static void mxcsr(struct rng *r, u8 *area)
{
	u32 v = 0x1f80;

	if (rng_one_in(r, 3))
		v |= rng_next(r) & 0xe07f; /* rounding, FTZ, DAZ, sticky flags */
	if (rng_one_in(r, 12))
		v &= ~(rng_next(r) & 0x1f80);
	memcpy(area + 24, &v, 4);
}

static void vector(struct rng *r, enum register_class cls, u8 *all, u32 size)
{
	rng_floats(r, all, size);
	if (cls == CLASS_SMALL)
		for (u32 i = 0; i < size / 4; i++) {
			u32 v = rng_one_in(r, 12) ? rng_next(r) : rng_below(r, 64) * 4;

			memcpy(all + 4 * i, &v, 4);
		}
	if (cls == CLASS_SMALL && rng_one_in(r, 2)) /* indices of 64 bits */
		for (u32 i = 4; i < size; i += 8)
			memset(all + i, 0, 4);
}

static void low_vector(struct rng *r, enum register_class cls, struct state *in, u32 reg)
{
	u8 all[64] = { 0 };

	vector(r, cls, all, native_has_avx512() ? 64 : 32);
	memcpy(in->xsave + 160 + 16 * reg, all, 16);
	memcpy(in->xsave + XSAVE_YMM + 16 * reg, all + 16, 16);
	memcpy(in->zmm_high[reg], all + 32, 32);
}

/* Opmask registers: few bits, all but a few, those of one end, anything. */
static u64 opmask(struct rng *r)
{
	u64 one = BIT(rng_below(r, 64)), few = BIT(rng_below(r, 16)) | BIT(rng_below(r, 16));

	switch (rng_below(r, 8)) {
	case 0:
		return 0;
	case 1:
		return ~0ull;
	case 2:
		return few;
	case 3:
		return ~few;
	case 4:
		return BIT(rng_below(r, 17)) - 1;
	case 5:
		return -BIT(rng_below(r, 17));
	case 6:
		return one;
	default:
		return rng_next(r);
	}
}

static void avx512(struct state *in, const struct sequence *seq, struct rng *r)
{
	if (!native_has_avx512())
		return;
	for (u32 i = 0; i < 8; i++)
		in->mask[i] = opmask(r);
	for (u32 i = 0; i < 16 && !seq->is32; i++)
		vector(r, seq->vec_class[16 + i], in->zmm16[i], 64);
}

/*
 * IRET to a stack of 16 bits leaves the upper half of ESP as it is in the kernel (SDM 2A IRET),
 * which Linux makes up for: what it is in the guest's kernel is the one that both sides agree on.
 */
#define KERNEL_ESP_HIGH 0x80000000u

static void local_segments(struct state *in, const struct sequence *seq, struct rng *r)
{
	in->sel[CS] = SEL_LDT(seq->is16 ? LDT_CODE16 : LDT_CODE32);
	in->sel[SS] = ldt_pick_stack(r);
	in->sel[DS] = ldt_pick_data(r);
	in->sel[ES] = ldt_pick_data(r);
	in->sel[FS] = ldt_pick_data(r);
	in->sel[GS] = ldt_pick_data(r);
	in->fs_base = in->sel[FS] == SEL_LDT(LDT_CODE32) ? LDT_CODE_BASE : DATA_BASE;
	in->gs_base = in->sel[GS] == SEL_LDT(LDT_CODE32) ? LDT_CODE_BASE : DATA_BASE;
	if (ldt_is_stack16(in->sel[SS]))
		in->gpr[RSP] = KERNEL_ESP_HIGH | (u16)in->gpr[RSP];
}

static bool moves_strings(const struct sequence *seq)
{
	for (u32 i = 0; i < seq->n; i++)
		switch (seq->items[i].mnemonic) {
		case ZYDIS_MNEMONIC_MOVSB:
		case ZYDIS_MNEMONIC_MOVSW:
		case ZYDIS_MNEMONIC_MOVSD:
		case ZYDIS_MNEMONIC_MOVSQ:
			return true;
		default:
			break;
		}
	return false;
}

/* Intel's REP MOVS looks for overlap by linear address (measured): moved onto itself through the
 * other mapping, a string does not read back what it has written. */
static void join_aliases(struct state *in, const struct sequence *seq)
{
	if (!seq->is32 && moves_strings(seq))
		in->gpr[RDI] = (in->gpr[RDI] & ~HIGH_ALIAS) | (in->gpr[RSI] & HIGH_ALIAS);
}

void input_random(struct state *in, const struct sequence *seq, struct rng *r)
{
	memset(in, 0, sizeof(*in));
	for (u32 i = 0; i < 16; i++) {
		in->gpr[i] = gpr(r, seq->gpr_class[i], data_origin(seq));
		if (seq->is32)
			in->gpr[i] = i < 8 ? (u32)in->gpr[i] : 0;
		low_vector(r, seq->vec_class[i], in, i);
	}
	if (seq->is32) /* they do not exist there, and the two sides may keep them or not */
		for (u32 i = 8; i < 16; i++) {
			memset(in->xsave + 160 + 16 * i, 0, 16);
			memset(in->xsave + XSAVE_YMM + 16 * i, 0, 16);
			memset(in->zmm_high[i], 0, 32);
		}
	avx512(in, seq, r);
	join_aliases(in, seq);
	in->rip = seq->start;
	in->rflags = flags(r);
	in->fs_base = rng_below(r, 32) * 16 + (rng_one_in(r, 8) ? HIGH_ALIAS : 0);
	in->gs_base = rng_one_in(r, 4) ? rng_value(r) & MASK(43, 0) : rng_below(r, 0x200);
	if (!seq->is32 && rng_one_in(r, 8))
		in->gs_base = LOWEST_BASE;
	in->sel[CS] = seq->is32 ? SEL_USER32 : SEL_USER64;
	in->sel[SS] = SEL_USER_DS;
	in->sel[DS] = in->sel[ES] = seq->is32 ? SEL_USER_DS : 0;
	if (seq->ldt)
		local_segments(in, seq, r);
	x87(r, in->xsave);
	mxcsr(r, in->xsave);
	in->xsave[XSAVE_HEADER] = 7;
}
