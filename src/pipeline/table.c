// SPDX-License-Identifier: MIT
/*
 * The rows of the pipeline model: cores, what instructions are made of, and which mnemonic is what;
 * functions for the mnemonics whose uops depend on their operands. Pure.
 */
#include "pipeline/priv.h"

/* clang-format off */

/* Intel's ports by their numbers; A and B are 10 and 11. */
enum {
	NONE = 0,
	P0 = BIT(0), P1 = BIT(1), P4 = BIT(4), P5 = BIT(5), P6 = BIT(6),
	P01 = P0 | P1, P05 = P0 | P5, P06 = P0 | P6, P15 = P1 | P5, P015 = P01 | P5,
	P0156 = P015 | P6, P0156A = P0156 | BIT(10), P15A = P15 | BIT(10),
	P23 = BIT(2) | BIT(3), P237 = P23 | BIT(7), P23B = P23 | BIT(11), P78 = BIT(7) | BIT(8),
	P49 = BIT(4) | BIT(9),
};

/* Zen 3 and 4: four ALUs, three address units, two ways for stored data, four vector pipes and, as
 * fp4, one way out of vector registers. */
enum {
	Z_A0 = BIT(0), Z_A1 = BIT(1), Z_A2 = BIT(2),
	Z_A03 = BIT(0) | BIT(3), Z_A12 = BIT(1) | BIT(2),
	Z_ALU = 0xf, Z_AGU = 0x70, Z_AGU01 = 0x30, Z_STD = 0x180,
	Z_F0 = BIT(9), Z_F1 = BIT(10), Z_F2 = BIT(11), Z_F3 = BIT(12),
	Z_F01 = Z_F0 | Z_F1, Z_F03 = Z_F0 | Z_F3, Z_F12 = Z_F1 | Z_F2, Z_F23 = Z_F2 | Z_F3,
	Z_F123 = Z_F12 | Z_F3, Z_F0123 = Z_F01 | Z_F23, Z_FST = BIT(13),
};

/* clang-format on */

static const char *const intel_ports[] = { "p0", "p1", "p2", "p3", "p4",  "p5",
					   "p6", "p7", "p8", "p9", "p10", "p11" };
static const char *const amd_ports[] = { "alu0", "alu1", "alu2", "alu3", "agu0", "agu1", "agu2",
					 "st0",	 "st1",	 "fp0",	 "fp1",	 "fp2",	 "fp3",	 "fp4" };

static const struct pipe_core cores[] = {
#define INTEL_PORTS(n)	 n, .port_names = intel_ports
#define AMD_PORTS	 ARRAY_SIZE(amd_ports), .port_names = amd_ports
#define CORE(model, ...) { .set = model, __VA_ARGS__ },
#include "pipeline/cores.def"
#undef CORE
};

const struct pipe_core *pipe_core_of(enum model_set set)
{
	for (u32 i = 0; i < ARRAY_SIZE(cores); i++)
		if (cores[i].set == set)
			return &cores[i];
	return NULL;
}

u32 pipe_port_count(const struct pipe_core *core)
{
	return core->ports;
}

const char *pipe_port_name(const struct pipe_core *core, u32 port)
{
	return core->port_names[port];
}

u32 pipe_width(const struct pipe_core *core)
{
	return core->width;
}

const struct uops_row pipe_uops[UOPS_KINDS] = {
#define U(n, where, cycles)    { .count = n, .ports = where, .latency = cycles },
#define X(n, where, cycles)    { .count = n, .ports = where, .latency = cycles, .free = true },
#define D(where, cycles, busy) { .count = 1, .ports = where, .latency = cycles, .divider = busy },
#define UOPS(name, how, what, skylake, icelake, golden, zen) \
	[UOPS_##name] = { SHAPE_##how,                       \
			  DOMAIN_##what,                     \
			  { { skylake }, { icelake }, { golden }, { zen } } },
#include "pipeline/uops.def"
#undef UOPS
};

/* What of it Zen 4 has otherwise: those without a row have no uops here. */
static const struct {
	bool differs;
	struct uops_run run[UOPS_RUNS];
} zen4[UOPS_KINDS] = {
#define ZEN4(name, uops) [UOPS_##name] = { true, { uops } },
#include "pipeline/zen4.def"
#undef ZEN4
#undef U
#undef X
#undef D
};

const struct uops_run *pipe_runs_of(const struct pipe_core *core, enum uops_kind kind)
{
	if (core->column != COLUMN_ZEN4)
		return pipe_uops[kind].run[core->column];
	return zen4[kind].differs ? zen4[kind].run : pipe_uops[kind].run[COLUMN_ZEN3];
}

/* --- forms that one row cannot tell --- */

static bool by_cl(const struct form_key *key)
{
	const ZydisDecodedOperand *count = &key->ops[key->in->operand_count_visible - 1];

	return count->type == ZYDIS_OPERAND_TYPE_REGISTER && count->reg.value == ZYDIS_REGISTER_CL;
}

static bool by_one(const struct form_key *key)
{
	const ZydisDecodedOperand *count = &key->ops[1];

	return count->type == ZYDIS_OPERAND_TYPE_IMMEDIATE && !key->in->raw.imm[0].size;
}

static enum uops_kind shift(struct form_key *key)
{
	return by_cl(key) ? UOPS_SHIFT_CL : UOPS_SHIFT;
}

static enum uops_kind rotate(struct form_key *key)
{
	if (by_cl(key))
		return UOPS_SHIFT_CL;
	return by_one(key) ? UOPS_ROTATE_1 : UOPS_SHIFT;
}

static enum uops_kind rotate_carry(struct form_key *key)
{
	return by_one(key) ? UOPS_CARRY_1 : UOPS_CARRY_N;
}

static enum uops_kind shift_double(struct form_key *key)
{
	return by_cl(key) ? UOPS_SHIFT2_CL : UOPS_SHIFT2;
}

/* One operand: a double-width product. Three with 16 bits: the immediate is merged by a uop of its
 * own. */
static enum uops_kind imul(struct form_key *key)
{
	if (key->in->operand_count_visible == 1)
		return key->width == 8 ? UOPS_MUL8 : key->width == 64 ? UOPS_MUL64 : UOPS_MUL32;
	return key->in->operand_count_visible == 3 && key->width == 16 ? UOPS_IMUL16I : UOPS_IMUL;
}

static enum uops_kind lea(struct form_key *key)
{
	const ZydisDecodedOperandMem *mem = &key->ops[1].mem;
	bool indexed = mem->index != ZYDIS_REGISTER_NONE, based = mem->base != ZYDIS_REGISTER_NONE;
	bool scaled = indexed && mem->scale > 1;

	if (key->width == 16)
		return UOPS_LEA_16;
	if (mem->base == ZYDIS_REGISTER_RIP)
		return UOPS_LEA_RIP;
	if (indexed && based && key->in->raw.disp.size) /* also one of 0, as [RBP+RAX] needs it */
		return scaled ? UOPS_LEA_ALL : UOPS_LEA_THREE;
	return scaled ? UOPS_LEA_SCALED : UOPS_LEA;
}

/* A load extends on its own, except to 16 bits, on Golden Cove and on Zen. */
static enum uops_kind movsx(struct form_key *key)
{
	key->copies = key->width != 16 && key->column < COLUMN_GOLDEN_COVE;
	return UOPS_MOVSX;
}

static enum uops_kind movd(struct form_key *key)
{
	bool vector_dest, vector_src;

	key->copies = true;
	if (key->from_mem || key->to_mem)
		return UOPS_NOTHING;
	vector_dest = pipe_is_vector(key->ops[0].reg.value);
	vector_src = pipe_is_vector(key->ops[1].reg.value);
	if (vector_dest == vector_src)
		return UOPS_VLOGIC;
	return vector_dest ? UOPS_TO_VEC : UOPS_TO_GPR;
}

/* By a constant, or by a count in an XMM register, which has to be spread over a wider vector. */
static enum uops_kind vector_shift(struct form_key *key)
{
	const ZydisDecodedOperand *count = &key->ops[key->in->operand_count_visible - 1];

	if (count->type == ZYDIS_OPERAND_TYPE_IMMEDIATE)
		return UOPS_VSHIFT;
	return key->vector > 128 ? UOPS_VSHIFT_Y : UOPS_VSHIFT_X;
}

/* A load of 8 or 16 bits is merged into its register. */
static enum uops_kind mov(struct form_key *key)
{
	key->copies = key->to_mem || key->width >= 32;
	return UOPS_ALU;
}

/* By a constant, or by counts in a register. */
static enum uops_kind permute_lanes(struct form_key *key)
{
	const ZydisDecodedOperand *how = &key->ops[key->in->operand_count_visible - 1];

	return how->type == ZYDIS_OPERAND_TYPE_IMMEDIATE ? UOPS_VSHUF5 : UOPS_VPACK;
}

/* An element into all: of memory it is the load alone. */
static enum uops_kind spread(struct form_key *key)
{
	const ZydisDecodedOperand *from = &key->ops[key->in->operand_count_visible - 1];

	key->copies = true;
	if (from->type == ZYDIS_OPERAND_TYPE_REGISTER && !pipe_is_vector(from->reg.value))
		return UOPS_VSPREAD_GPR;
	return key->vector > 128 ? UOPS_VSPREAD : UOPS_VSPREAD_X;
}

static bool is_mask(const ZydisDecodedOperand *op)
{
	return op->type == ZYDIS_OPERAND_TYPE_REGISTER && op->reg.value >= ZYDIS_REGISTER_K0 &&
	       op->reg.value <= ZYDIS_REGISTER_K7;
}

static enum uops_kind kmov(struct form_key *key)
{
	key->copies = true;
	if (!is_mask(&key->ops[0]))
		return key->in->mnemonic == ZYDIS_MNEMONIC_KMOVQ ? UOPS_MASK_OUT64 : UOPS_MASK_OUT;
	return is_mask(&key->ops[1]) ? UOPS_MASK_MOVE : UOPS_MASK_IN;
}

static enum uops_kind bswap(struct form_key *key)
{
	return key->width == 64 ? UOPS_BSWAP64 : UOPS_BSWAP32;
}

static enum uops_kind by_width(const struct form_key *key, enum uops_kind w8, enum uops_kind w16,
			       enum uops_kind w32, enum uops_kind w64)
{
	switch (key->width) {
	case 8:
		return w8;
	case 16:
		return w16;
	case 64:
		return w64;
	default:
		return w32;
	}
}

const struct pipe_facts *pipe_facts_of(u32 mnemonic)
{
	static const struct pipe_facts facts[ZYDIS_MNEMONIC_MAX_VALUE + 1] = {
#define FACTS(mnemonic, ...) [ZYDIS_MNEMONIC_##mnemonic] = { __VA_ARGS__ },
#include "pipeline/facts.def"
#undef FACTS
	};

	return &facts[mnemonic];
}

/* The cases are the rows of forms.def: which uops one means may depend on operands, so that a row
 * is code. */
static enum uops_kind kind_of(struct form_key *key)
{
	bool has_mem = key->from_mem || key->to_mem;

	switch (key->in->mnemonic) {
		/* clang-format off */
#define CASE(mnemonic) case ZYDIS_MNEMONIC_##mnemonic
#define FORM(mnemonic, kind) CASE(mnemonic): return UOPS_##kind;
#define BOTH(mnemonic, kind) EACH(mnemonic): return UOPS_##kind;
#define MOVE(mnemonic, kind) CASE(mnemonic): key->copies = true; return UOPS_##kind;
#define EACH(mnemonic) CASE(mnemonic): CASE(V##mnemonic)
#define VMOVE(mnemonic, kind) EACH(mnemonic): key->copies = true; return UOPS_##kind;
#define WIDTH(mnemonic, a, b, c, d) \
	CASE(mnemonic): return by_width(key, UOPS_##a, UOPS_##b, UOPS_##c, UOPS_##d);
#define YMM(mnemonic, x, y) CASE(mnemonic): return key->vector > 128 ? UOPS_##y : UOPS_##x;
#define YMM2F(mnemonic, x, y) EACH(mnemonic): return key->vector > 128 ? UOPS_##y : UOPS_##x;
#define YMM2(mnemonic) EACH(mnemonic): return key->vector > 128 ? UOPS_VEXTEND : UOPS_VEXTEND_X;
#define SPREAD(mnemonic) CASE(mnemonic): return spread(key);
#define MEM(mnemonic, reg, mem) CASE(mnemonic): return has_mem ? UOPS_##mem : UOPS_##reg;
#define BOTHMEM(mnemonic, reg, mem) EACH(mnemonic): return has_mem ? UOPS_##mem : UOPS_##reg;
#define HALF(mnemonic, kind) EACH(mnemonic): return key->to_mem ? UOPS_NOTHING : UOPS_##kind;
#define SHIFTS(mnemonic) EACH(mnemonic): return vector_shift(key);
#define FUSED(mnemonic) \
	CASE(mnemonic##PS): CASE(mnemonic##PD): CASE(mnemonic##SS): CASE(mnemonic##SD): return UOPS_FMA;
#define PICK(mnemonic, function) CASE(mnemonic): return function(key);
#include "pipeline/forms.def"
		/* clang-format on */
	default:
		return UOPS_UNKNOWN;
	}
}

/* A comparison of AVX-512 gives a mask, whatever it compares. */
enum uops_kind pipe_kind_of(struct form_key *key)
{
	enum uops_kind kind = kind_of(key);
	bool compares = kind == UOPS_VCMP || kind == UOPS_VCMPGTQ || kind == UOPS_FCMP;

	return compares && is_mask(&key->ops[0]) ? UOPS_MASK_CMP : kind;
}
