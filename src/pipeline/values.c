// SPDX-License-Identifier: MIT
/*
 * Which loads find what which store wrote depends on addresses, so the model follows the general
 * registers through the block as far as it can: moves, additions, shifts. It starts from the state
 * of the measured blocks (docs/model.md): every register holds a pointer of its own, and memory is
 * full of one pointer. What it cannot follow is unknown, and an unknown address matches no other.
 * What an instruction does to a register (struct pipe_effect) is found here as well. Pure.
 */
#include "pipeline/priv.h"

#define REGISTERS 0x12340000ull /* + 0x100 * number */
#define RSP	  4

void pipe_values_reset(struct pipe_values *values)
{
	for (u32 i = 0; i < 16; i++)
		values->reg[i] = REGISTERS + 0x100 * i;
	values->known = 0xffff;
}

static bool is_known(const struct pipe_values *values, u8 place)
{
	return place == NO_PLACE || (place < 16 && values->known >> place & 1);
}

static u64 value_of(const struct pipe_values *values, u8 place)
{
	return place == NO_PLACE ? 0 : values->reg[place];
}

#define RIP_DATA 0x40000000ull

u64 pipe_address(const struct pipe_values *values, const struct pipe_insn *insn)
{
	const struct pipe_mem *mem = &insn->mem;

	if (mem->rip)
		return RIP_DATA + (mem->disp & 0xfff);
	if (!is_known(values, mem->base) || !is_known(values, mem->index))
		return UNKNOWN_ADDRESS;
	return value_of(values, mem->base) + value_of(values, mem->index) * mem->scale +
	       (u64)mem->disp - (insn->pushes ? 8 : 0);
}

static u64 cut(u64 value, u8 size)
{
	return size >= 8 ? value : value & (BIT(8 * size) - 1);
}

static u64 sign_extend(u64 value, u8 size)
{
	u32 unused = 64 - 8 * size;

	return size >= 8 ? value : (u64)((s64)(value << unused) >> unused);
}

static u64 compute(const struct pipe_effect *effect, u64 dest, u64 src)
{
	u32 bits = 8 * effect->size;

	switch (effect->operation) {
	case EFFECT_EXTEND:
		return cut(src, effect->source_size);
	case EFFECT_SIGN_EXTEND:
		return sign_extend(cut(src, effect->source_size), effect->source_size);
	case EFFECT_ADD:
		return dest + src;
	case EFFECT_SUB:
		return dest - src;
	case EFFECT_AND:
		return dest & src;
	case EFFECT_OR:
		return dest | src;
	case EFFECT_XOR:
		return dest ^ src;
	case EFFECT_SHL:
		return dest << (src & (bits - 1));
	case EFFECT_SHR:
		return cut(dest, effect->size) >> (src & (bits - 1));
	case EFFECT_SAR:
		return (u64)((s64)sign_extend(dest, effect->size) >> (src & (bits - 1)));
	case EFFECT_MUL:
		return (effect->three ? (u64)effect->constant : dest) * src;
	case EFFECT_NEG:
		return -dest;
	case EFFECT_NOT:
		return ~dest;
	default:
		return src;
	}
}

static void set(struct pipe_values *values, u8 place, u8 size, u64 value, bool known)
{
	if (size < 4) {
		u64 mask = BIT(8 * size) - 1;

		known = known && is_known(values, place);
		value = (values->reg[place] & ~mask) | (value & mask);
	}
	values->reg[place] = cut(value, size < 4 ? 8 : size);
	values->known = known ? values->known | BIT(place) : values->known & ~BIT(place);
}

static void forget(struct pipe_values *values, const struct pipe_insn *insn)
{
	for (u32 i = 0; i < insn->writes.n; i++)
		if (insn->writes.at[i] < 16)
			values->known &= ~BIT(insn->writes.at[i]);
}

static bool needs_dest(u8 operation, bool three)
{
	return (operation >= EFFECT_ADD && operation <= EFFECT_NOT) && !three;
}

static bool ignores_source(u8 operation)
{
	return operation == EFFECT_NEG || operation == EFFECT_NOT;
}

bool pipe_values_step(struct pipe_values *values, const struct pipe_insn *insn, const u64 *loaded,
		      u64 *result)
{
	const struct pipe_effect *effect = &insn->effect;
	bool known = true;
	u64 src = 0, dest = 0;

	if (effect->operation == EFFECT_UNKNOWN) {
		forget(values, insn);
		return false;
	}
	if (effect->operation == EFFECT_LEA) {
		src = pipe_address(values, insn);
		known = src != UNKNOWN_ADDRESS && !insn->mem.rip;
	} else if (effect->from == SOURCE_MEMORY) {
		known = loaded;
		src = loaded ? *loaded : 0;
	} else if (effect->from == SOURCE_CONSTANT) {
		src = (u64)effect->constant;
	} else if (!ignores_source(effect->operation)) {
		known = is_known(values, effect->source);
		src = value_of(values, effect->source);
	}
	if (needs_dest(effect->operation, effect->three)) {
		bool in_memory = effect->dest == NO_PLACE;

		known = known && (in_memory ? loaded != NULL : is_known(values, effect->dest));
		dest = in_memory ? (loaded ? *loaded : 0) : value_of(values, effect->dest);
	}
	*result = compute(effect, dest, src);
	if (effect->operation == EFFECT_PUSH)
		values->reg[RSP] -= 8;
	if (effect->operation == EFFECT_POP)
		values->reg[RSP] += 8;
	if (effect->dest < ARRAY_SIZE(values->reg) && effect->operation != EFFECT_PUSH)
		set(values, effect->dest, effect->size, *result, known);
	return known;
}

/* --- which effect an instruction has --- */

static bool is_general(ZydisRegister reg)
{
	return reg >= ZYDIS_REGISTER_AL && reg <= ZYDIS_REGISTER_R15 &&
	       !(reg >= ZYDIS_REGISTER_AH && reg <= ZYDIS_REGISTER_BH);
}

static u8 general_place(ZydisRegister reg)
{
	if (reg >= ZYDIS_REGISTER_AX)
		return (reg - ZYDIS_REGISTER_AX) % 16;
	return reg < ZYDIS_REGISTER_AH ? reg - ZYDIS_REGISTER_AL : reg - ZYDIS_REGISTER_AL - 4;
}

/* False: a source that is not followed. */
static bool see_source(const ZydisDecodedOperand *op, struct pipe_effect *effect)
{
	effect->source_size = op->size / 8;
	switch (op->type) {
	case ZYDIS_OPERAND_TYPE_REGISTER:
		effect->from = SOURCE_REGISTER;
		effect->source = general_place(op->reg.value);
		return is_general(op->reg.value);
	case ZYDIS_OPERAND_TYPE_MEMORY:
		effect->from = SOURCE_MEMORY;
		return true;
	case ZYDIS_OPERAND_TYPE_IMMEDIATE:
		effect->from = SOURCE_CONSTANT;
		effect->constant = op->imm.value.s;
		return true;
	default:
		return false;
	}
}

static bool see_effect(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops,
		       struct pipe_effect *effect)
{
	u32 n = in->operand_count_visible;
	bool pushes = effect->operation == EFFECT_PUSH;

	if (!n || (effect->operation == EFFECT_MUL && n == 1))
		return false;
	effect->dest = NO_PLACE;
	effect->size = ops[0].size / 8;
	if (ops[0].type == ZYDIS_OPERAND_TYPE_REGISTER && !pushes) {
		if (!is_general(ops[0].reg.value))
			return false;
		effect->dest = general_place(ops[0].reg.value);
	}
	if (effect->operation == EFFECT_POP) {
		effect->from = SOURCE_MEMORY;
		return ops[0].type == ZYDIS_OPERAND_TYPE_REGISTER;
	}
	if (pushes)
		return see_source(&ops[0], effect);
	if (n == 1) {
		effect->from = SOURCE_CONSTANT;
		effect->constant = 1;
		return true;
	}
	effect->three = n == 3;
	if (!see_source(&ops[1], effect))
		return false;
	if (n == 3)
		effect->constant = ops[2].imm.value.s;
	return true;
}

void pipe_effect_of(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops,
		    struct pipe_insn *insn)
{
	insn->effect.operation = pipe_facts_of(in->mnemonic)->effect;
	if (insn->effect.operation != EFFECT_UNKNOWN && !see_effect(in, ops, &insn->effect))
		insn->effect.operation = EFFECT_UNKNOWN;
}
