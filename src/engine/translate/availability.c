// SPDX-License-Identifier: MIT
/*
 * Which instructions exist now: CPUID features, and the control bits that enable x87, MMX, SSE, AVX
 * and AVX-512 (SDM 1 13.1, 3A 2.5, 3A 13.1; 2A 2.4 for the order of #UD and #NM). Asked while
 * translating, for all instructions; those that C executes are checked by sys/dispatch.c as well.
 */
#include "engine/translate/trans.h"

/* Vectors of less than 512 bits: AVX512VL as well. */
#define NEEDS_VL BIT(15)

/* AVX-512: an instruction set of Zydis' for each vector length. */
#define AVX512(set, feature)                                           \
	[ZYDIS_ISA_SET_##set##_128] = (FEAT_##feature + 1) | NEEDS_VL, \
	[ZYDIS_ISA_SET_##set##_256] = (FEAT_##feature + 1) | NEEDS_VL, \
	[ZYDIS_ISA_SET_##set##_512] = FEAT_##feature + 1

/* By Zydis' instruction set: the feature plus one; 0: always there if its encoding is legacy, and
 * never with VEX or EVEX, such as the instructions of Knights Corner. */
static const u16 isa_features[ZYDIS_ISA_SET_MAX_VALUE + 1] = {
	AVX512(AVX512F, AVX512F),
	AVX512(AVX512CD, AVX512CD),
	AVX512(AVX512BW, AVX512BW),
	AVX512(AVX512DQ, AVX512DQ),
	AVX512(AVX512_IFMA, AVX512IFMA),
	AVX512(AVX512_VBMI, AVX512VBMI),
	AVX512(AVX512_VBMI2, AVX512VBMI2),
	AVX512(AVX512_VNNI, AVX512VNNI),
	AVX512(AVX512_BITALG, AVX512BITALG),
	AVX512(AVX512_VPOPCNTDQ, AVX512VPOPCNTDQ),
	AVX512(AVX512_GFNI, GFNI),
	AVX512(AVX512_VAES, VAES),
	AVX512(AVX512_VPCLMULQDQ, VPCLMUL),
	[ZYDIS_ISA_SET_AVX512F_128N] = FEAT_AVX512F + 1,
	[ZYDIS_ISA_SET_AVX512F_KOP] = FEAT_AVX512F + 1,
	[ZYDIS_ISA_SET_AVX512F_SCALAR] = FEAT_AVX512F + 1,
	[ZYDIS_ISA_SET_AVX512BW_128N] = FEAT_AVX512BW + 1,
	[ZYDIS_ISA_SET_AVX512BW_KOP] = FEAT_AVX512BW + 1,
	[ZYDIS_ISA_SET_AVX512DQ_128N] = FEAT_AVX512DQ + 1,
	[ZYDIS_ISA_SET_AVX512DQ_KOP] = FEAT_AVX512DQ + 1,
	[ZYDIS_ISA_SET_AVX512DQ_SCALAR] = FEAT_AVX512DQ + 1,
	[ZYDIS_ISA_SET_ADOX_ADCX] = FEAT_ADX + 1,
	[ZYDIS_ISA_SET_AES] = FEAT_AES + 1,
	[ZYDIS_ISA_SET_AVX] = FEAT_AVX + 1,
	[ZYDIS_ISA_SET_AVX2] = FEAT_AVX2 + 1,
	[ZYDIS_ISA_SET_AVX2GATHER] = FEAT_AVX2 + 1,
	[ZYDIS_ISA_SET_AVXAES] = FEAT_AES + 1,
	[ZYDIS_ISA_SET_AVX_GFNI] = FEAT_GFNI + 1,
	[ZYDIS_ISA_SET_AVX_VNNI] = FEAT_AVX_VNNI + 1,
	[ZYDIS_ISA_SET_BMI1] = FEAT_BMI1 + 1,
	[ZYDIS_ISA_SET_BMI2] = FEAT_BMI2 + 1,
	[ZYDIS_ISA_SET_CLFLUSHOPT] = FEAT_CLFLUSHOPT + 1,
	[ZYDIS_ISA_SET_CLFSH] = FEAT_CLFLUSH + 1,
	[ZYDIS_ISA_SET_CLWB] = FEAT_CLWB + 1,
	[ZYDIS_ISA_SET_CLZERO] = FEAT_CLZERO + 1,
	[ZYDIS_ISA_SET_CMOV] = FEAT_CMOV + 1,
	[ZYDIS_ISA_SET_CMPXCHG16B] = FEAT_CX16 + 1,
	[ZYDIS_ISA_SET_F16C] = FEAT_F16C + 1,
	[ZYDIS_ISA_SET_FCMOV] = FEAT_CMOV + 1,
	[ZYDIS_ISA_SET_FMA] = FEAT_FMA + 1,
	[ZYDIS_ISA_SET_FXSAVE] = FEAT_FXSR + 1,
	[ZYDIS_ISA_SET_FXSAVE64] = FEAT_FXSR + 1,
	[ZYDIS_ISA_SET_GFNI] = FEAT_GFNI + 1,
	[ZYDIS_ISA_SET_INVPCID] = FEAT_INVPCID + 1,
	[ZYDIS_ISA_SET_LZCNT] = FEAT_LZCNT + 1,
	[ZYDIS_ISA_SET_MOVBE] = FEAT_MOVBE + 1,
	[ZYDIS_ISA_SET_PCLMULQDQ] = FEAT_PCLMUL + 1,
	[ZYDIS_ISA_SET_PENTIUMMMX] = FEAT_MMX + 1,
	[ZYDIS_ISA_SET_POPCNT] = FEAT_POPCNT + 1,
	[ZYDIS_ISA_SET_RDPID] = FEAT_RDPID + 1,
	[ZYDIS_ISA_SET_RDRAND] = FEAT_RDRAND + 1,
	[ZYDIS_ISA_SET_RDSEED] = FEAT_RDSEED + 1,
	[ZYDIS_ISA_SET_RDTSCP] = FEAT_RDTSCP + 1,
	[ZYDIS_ISA_SET_RDWRFSGS] = FEAT_FSGSBASE + 1,
	[ZYDIS_ISA_SET_SHA] = FEAT_SHA + 1,
	[ZYDIS_ISA_SET_SMAP] = FEAT_SMAP + 1,
	[ZYDIS_ISA_SET_SSE] = FEAT_SSE + 1,
	[ZYDIS_ISA_SET_SSE2] = FEAT_SSE2 + 1,
	[ZYDIS_ISA_SET_SSE2MMX] = FEAT_SSE2 + 1,
	[ZYDIS_ISA_SET_SSE3] = FEAT_SSE3 + 1,
	[ZYDIS_ISA_SET_SSE3X87] = FEAT_SSE3 + 1,
	[ZYDIS_ISA_SET_SSE4] = FEAT_SSE41 + 1,
	[ZYDIS_ISA_SET_SSE42] = FEAT_SSE42 + 1,
	[ZYDIS_ISA_SET_SSE4A] = FEAT_SSE4A + 1,
	[ZYDIS_ISA_SET_SSEMXCSR] = FEAT_SSE + 1,
	[ZYDIS_ISA_SET_SSSE3] = FEAT_SSSE3 + 1,
	[ZYDIS_ISA_SET_SSSE3MMX] = FEAT_SSSE3 + 1,
	[ZYDIS_ISA_SET_VAES] = FEAT_VAES + 1,
	[ZYDIS_ISA_SET_VPCLMULQDQ] = FEAT_VPCLMUL + 1,
	[ZYDIS_ISA_SET_X87] = FEAT_FPU + 1,
	[ZYDIS_ISA_SET_XSAVE] = FEAT_XSAVE + 1,
	[ZYDIS_ISA_SET_XSAVEC] = FEAT_XSAVEC + 1,
	[ZYDIS_ISA_SET_XSAVEOPT] = FEAT_XSAVEOPT + 1,
	[ZYDIS_ISA_SET_XSAVES] = FEAT_XSAVES + 1,
};

static bool has_operand(const struct trans *t, enum reg_class cls)
{
	for (u32 i = 0; i < t->insn.nops; i++) {
		const struct operand *op = &t->insn.ops[i];

		if ((op->kind == OPERAND_REG && op->cls == cls) ||
		    (op->kind == OPERAND_MEM && op->index != NO_REG && op->index_cls == cls))
			return true;
	}
	return false;
}

static bool feature_missing(const struct trans *t)
{
	u16 row = isa_features[t->decoded->isa_set], feature = row & ~NEEDS_VL;

	if (t->decoded->unit == UNIT_AVX && !feature)
		return true;
	if (t->decoded->unit == UNIT_AVX512 &&
	    (!feature || !cpu_has(t->cpu, FEAT_AVX512F) ||
	     ((row & NEEDS_VL) && !cpu_has(t->cpu, FEAT_AVX512VL))))
		return true;
	return feature && !cpu_has(t->cpu, feature - 1);
}

u8 trans_gate_unit(const struct trans *t)
{
	enum insn_unit unit = insn_facts(&t->insn)->unit;

	if (t->insn.evex || t->zi->meta.category == ZYDIS_CATEGORY_KMASK)
		return UNIT_AVX512;
	if (t->zi->encoding == ZYDIS_INSTRUCTION_ENCODING_VEX &&
	    t->zi->meta.category != ZYDIS_CATEGORY_BMI1 &&
	    t->zi->meta.category != ZYDIS_CATEGORY_BMI2)
		return UNIT_AVX;
	if (unit != UNIT_NONE)
		return unit;
	switch (t->zi->meta.isa_set) {
	case ZYDIS_ISA_SET_X87:
	case ZYDIS_ISA_SET_FCMOV:
		return UNIT_X87;
	case ZYDIS_ISA_SET_SSEMXCSR:
		return UNIT_SSE;
	default:
		break;
	}
	if (has_operand(t, REG_VEC))
		return UNIT_SSE;
	return has_operand(t, REG_MMX) ? UNIT_MMX : UNIT_NONE;
}

static bool unit_undefined(const struct cpu *cpu, enum insn_unit unit, u32 mode)
{
	switch (unit) {
	case UNIT_MMX:
		return mode & MODE_FPU_EM;
	case UNIT_SSE:
		return (mode & MODE_FPU_EM) || !(mode & MODE_SSE);
	case UNIT_AVX512:
		if (!cpu_avx512(cpu))
			return true;
		/* fall through */
	case UNIT_AVX: /* neither in real nor in virtual-8086 mode */
		return !(mode & MODE_AVX) || !(mode & MODE_PROT);
	default:
		return false;
	}
}

static bool unit_unavailable(enum insn_unit unit, u32 mode)
{
	switch (unit) {
	case UNIT_NONE:
		return false;
	case UNIT_WAIT:
		return (mode & MODE_FPU_TS) && (mode & MODE_FPU_MP);
	case UNIT_X87:
		return mode & (MODE_FPU_TS | MODE_FPU_EM);
	default:
		return mode & MODE_FPU_TS;
	}
}

/* The VEX prefix of opcode map 0F3A has three bytes; other prefixes before it are none that look
 * like it. */
static bool vex_w(const struct insn *insn)
{
	u32 i = 0;

	while (i < insn->len && insn->bytes[i] != 0xc4)
		i++;
	return i + 2 < insn->len && (insn->bytes[i + 2] & 0x80);
}

/* Forms that one vendor's processors do not have. */
static bool form_undefined(const struct trans *t)
{
	switch (insn_facts(&t->insn)->form) {
	case FORM_PREFETCH:
		return t->decoded->map == ZYDIS_OPCODE_MAP_0F && t->decoded->opcode == 0x0d &&
		       !trans_memory_operand(t) && cpu_follows(t->cpu, RULE_PREFETCH_REGISTER_UD);
	case FORM_VEX_W:
		return !(t->mode & MODE_CODE64) && vex_w(&t->insn) &&
		       cpu_follows(t->cpu, RULE_VEX_W_UD);
	default:
		return false;
	}
}

bool trans_gate_never(const struct trans *t)
{
	return t->decoded->unit == UNIT_NONE && !isa_features[t->decoded->isa_set] &&
	       insn_facts(&t->insn)->form == FORM_ANY;
}

int trans_gate_vector(const struct trans *t)
{
	enum insn_unit unit = t->decoded->unit;

	if (feature_missing(t) || unit_undefined(t->cpu, unit, t->mode) || form_undefined(t))
		return VEC_UD;
	return unit_unavailable(unit, t->mode) ? VEC_NM : -1;
}
