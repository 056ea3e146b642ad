// SPDX-License-Identifier: MIT
/*
 * From a decoded instruction to what the core makes of it: the places it reads and writes, its
 * memory operand, idioms that renaming does, uops and issue slots. Pure.
 */
#include "pipeline/priv.h"

#include "base/bytes.h"

static bool between(ZydisRegister reg, ZydisRegister first, ZydisRegister last)
{
	return reg >= first && reg <= last;
}

/* AL-BL, AH-BH, SPL-DIL, R8B-R15B is Zydis' order of byte registers. */
static u8 byte_place(u32 id)
{
	return id < 4 ? id : id < 8 ? id - 4 : id - 4;
}

static u8 place_of(ZydisRegister reg)
{
	if (between(reg, ZYDIS_REGISTER_AL, ZYDIS_REGISTER_R15B))
		return byte_place(reg - ZYDIS_REGISTER_AL);
	if (between(reg, ZYDIS_REGISTER_AX, ZYDIS_REGISTER_R15))
		return (reg - ZYDIS_REGISTER_AX) % 16;
	if (pipe_is_vector(reg))
		return PLACE_VEC + (reg - ZYDIS_REGISTER_XMM0) % 32;
	if (between(reg, ZYDIS_REGISTER_K0, ZYDIS_REGISTER_K7))
		return PLACE_MASK + (reg - ZYDIS_REGISTER_K0);
	if (between(reg, ZYDIS_REGISTER_MM0, ZYDIS_REGISTER_MM7))
		return PLACE_MMX + (reg - ZYDIS_REGISTER_MM0);
	if (between(reg, ZYDIS_REGISTER_ST0, ZYDIS_REGISTER_ST7))
		return PLACE_X87;
	return NO_PLACE;
}

static bool is_partial(ZydisRegister reg)
{
	return between(reg, ZYDIS_REGISTER_AL, ZYDIS_REGISTER_R15B) ||
	       between(reg, ZYDIS_REGISTER_AX, ZYDIS_REGISTER_R15W);
}

static bool is_high_byte(ZydisRegister reg)
{
	return between(reg, ZYDIS_REGISTER_AH, ZYDIS_REGISTER_BH);
}

static void add_place(struct pipe_places *places, u8 place)
{
	if (place == NO_PLACE || places->n == ARRAY_SIZE(places->at))
		return;
	for (u32 i = 0; i < places->n; i++)
		if (places->at[i] == place)
			return;
	places->at[places->n++] = place;
}

/* --- operands --- */

/* MOVSS and MOVSD between registers merge; loads clear the rest. */
static bool moves_scalar(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops)
{
	return (in->mnemonic == ZYDIS_MNEMONIC_MOVSS || in->mnemonic == ZYDIS_MNEMONIC_MOVSD) &&
	       ops[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
	       ops[1].type == ZYDIS_OPERAND_TYPE_REGISTER;
}

static void see_register(const ZydisDecodedOperand *op, bool merges, struct pipe_insn *insn)
{
	u8 place = place_of(op->reg.value);
	bool writes = op->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE;
	bool reads =
		op->actions & (ZYDIS_OPERAND_ACTION_MASK_READ | ZYDIS_OPERAND_ACTION_CONDWRITE);

	if (writes)
		add_place(&insn->writes, place);
	if (reads || (writes && (merges || is_partial(op->reg.value))))
		add_place(&insn->reads, place);
	if (op->visibility != ZYDIS_OPERAND_VISIBILITY_HIDDEN && place == PLACE_GPR + 4)
		insn->touches_rsp = true;
}

static void see_memory(const ZydisDecodedOperand *op, struct pipe_insn *insn)
{
	const ZydisDecodedOperandMem *mem = &op->mem;

	insn->mem.base = place_of(mem->base);
	insn->mem.index = place_of(mem->index);
	insn->mem.scale = mem->scale;
	insn->mem.disp = mem->disp.value;
	insn->mem.size = op->size / 8 > 64 ? 64 : op->size / 8;
	insn->mem.rip = mem->base == ZYDIS_REGISTER_RIP || mem->base == ZYDIS_REGISTER_EIP;
	add_place(&insn->address, insn->mem.base);
	add_place(&insn->address, insn->mem.index);
	if (op->visibility != ZYDIS_OPERAND_VISIBILITY_HIDDEN && mem->base == ZYDIS_REGISTER_RSP)
		insn->touches_rsp = true;
	if (mem->type == ZYDIS_MEMOP_TYPE_AGEN) {
		add_place(&insn->reads, insn->mem.base);
		add_place(&insn->reads, insn->mem.index);
		return;
	}
	insn->load |= !!(op->actions & ZYDIS_OPERAND_ACTION_MASK_READ);
	insn->store |= !!(op->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE);
}

#define NOT_CARRY                                                                    \
	(ZYDIS_CPUFLAG_PF | ZYDIS_CPUFLAG_AF | ZYDIS_CPUFLAG_ZF | ZYDIS_CPUFLAG_SF | \
	 ZYDIS_CPUFLAG_OF)

static void see_flags(const ZydisAccessedFlags *flags, struct pipe_insn *insn)
{
	u32 written;

	if (!flags)
		return;
	written = flags->modified | flags->set_0 | flags->set_1 | flags->undefined;
	if (flags->tested & ZYDIS_CPUFLAG_CF)
		add_place(&insn->reads, PLACE_CARRY);
	if (flags->tested & NOT_CARRY)
		add_place(&insn->reads, PLACE_FLAGS);
	if (written & ZYDIS_CPUFLAG_CF)
		add_place(&insn->writes, PLACE_CARRY);
	if (written & NOT_CARRY)
		add_place(&insn->writes, PLACE_FLAGS);
}

static void see_operands(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops,
			 struct pipe_insn *insn)
{
	for (u32 i = 0; i < in->operand_count; i++) {
		bool merges =
			i == 0 && (pipe_facts_of(in->mnemonic)->merges || moves_scalar(in, ops));

		/* K0 as a mask stands for all elements. */
		if (ops[i].encoding == ZYDIS_OPERAND_ENCODING_MASK &&
		    ops[i].reg.value == ZYDIS_REGISTER_K0)
			continue;
		/* The stack engine keeps RSP: PUSH and POP wait for other writes of it only. */
		if (ops[i].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		    !((insn->pushes || insn->pops) &&
		      ops[i].visibility == ZYDIS_OPERAND_VISIBILITY_HIDDEN))
			see_register(&ops[i], merges, insn);
		else if (ops[i].type == ZYDIS_OPERAND_TYPE_MEMORY)
			see_memory(&ops[i], insn);
	}
	see_flags(in->cpu_flags, insn);
}

/* --- idioms --- */

static bool same_registers(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops)
{
	u32 last = in->operand_count_visible - 1u;

	return in->operand_count_visible >= 2 && ops[last].type == ZYDIS_OPERAND_TYPE_REGISTER &&
	       ops[last - 1].type == ZYDIS_OPERAND_TYPE_REGISTER &&
	       ops[last].reg.value == ops[last - 1].reg.value;
}

/* CVTSS2SD XMM0, XMM0: what is merged is also what is converted. */
static bool merges_its_source(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops)
{
	u32 last = in->operand_count_visible - 1u;

	return in->operand_count_visible >= 2 && ops[0].type == ZYDIS_OPERAND_TYPE_REGISTER &&
	       ops[last].type == ZYDIS_OPERAND_TYPE_REGISTER && pipe_is_vector(ops[0].reg.value) &&
	       place_of(ops[last].reg.value) == place_of(ops[0].reg.value);
}

static bool moves_whole(const struct pipe_core *core, const ZydisDecodedInstruction *in,
			const ZydisDecodedOperand *ops)
{
	const struct pipe_facts *facts = pipe_facts_of(in->mnemonic);

	if (in->operand_count_visible == 3 && ops[1].type == ZYDIS_OPERAND_TYPE_REGISTER &&
	    ops[1].reg.value == ZYDIS_REGISTER_K0) /* all elements */
		return facts->copies && ops[2].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		       ops[0].type == ZYDIS_OPERAND_TYPE_REGISTER;
	if (in->operand_count_visible != 2 || ops[0].type != ZYDIS_OPERAND_TYPE_REGISTER ||
	    ops[1].type != ZYDIS_OPERAND_TYPE_REGISTER ||
	    (ops[0].reg.value == ops[1].reg.value && !core->amd))
		return false;
	switch (facts->effect) {
	case EFFECT_MOVE:
		return ops[0].size >= 32;
	case EFFECT_EXTEND: /* MOVZX of another register's low byte */
		return core->moves_bytes && ops[0].size >= 32 && ops[1].size == 8 &&
		       !is_high_byte(ops[1].reg.value) &&
		       place_of(ops[0].reg.value) != place_of(ops[1].reg.value);
	default:
		return facts->copies;
	}
}

#define FOLDED_MAX 1023

/* ADD, SUB, INC, DEC of a small constant, and the LEA that does the same. */
static bool adds_constant(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops)
{
	if (ops[0].type != ZYDIS_OPERAND_TYPE_REGISTER || ops[0].size != 64)
		return false;
	switch (pipe_facts_of(in->mnemonic)->effect) {
	case EFFECT_ADD:
	case EFFECT_SUB:
		if (in->operand_count_visible == 1) /* INC, DEC */
			return true;
		return ops[1].type == ZYDIS_OPERAND_TYPE_IMMEDIATE &&
		       ops[1].imm.value.s <= FOLDED_MAX && ops[1].imm.value.s >= -FOLDED_MAX;
	case EFFECT_LEA:
		return ops[1].mem.index == ZYDIS_REGISTER_NONE &&
		       ops[1].mem.disp.value <= FOLDED_MAX &&
		       ops[1].mem.disp.value >= -FOLDED_MAX &&
		       place_of(ops[1].mem.base) != NO_PLACE;
	default:
		return false;
	}
}

static u8 idiom_of(const struct pipe_core *core, const ZydisDecodedInstruction *in,
		   const ZydisDecodedOperand *ops)
{
	const struct pipe_facts *facts = pipe_facts_of(in->mnemonic);

	if (facts->nop)
		return IDIOM_NOP;
	if (in->meta.category == ZYDIS_CATEGORY_COND_BR ||
	    in->meta.category == ZYDIS_CATEGORY_UNCOND_BR)
		return IDIOM_BRANCH;
	if (same_registers(in, ops) && ops[0].size >= 32 && facts->same)
		return facts->same;
	if (moves_whole(core, in, ops))
		return IDIOM_MOVE;
	return adds_constant(in, ops) ? IDIOM_ADD : IDIOM_NONE;
}

/* --- uops and slots --- */

static u16 vector_bits(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops)
{
	u16 bits = 0;

	for (u32 i = 0; i < in->operand_count_visible; i++)
		if (ops[i].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		    pipe_is_vector(ops[i].reg.value) && ops[i].size > bits)
			bits = ops[i].size;
	return bits;
}

/* Conversions from general registers are as wide as the general register. */
static u16 operation_bits(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops)
{
	for (u32 i = 0; i < in->operand_count_visible; i++)
		if (ops[i].type == ZYDIS_OPERAND_TYPE_REGISTER &&
		    place_of(ops[i].reg.value) < PLACE_VEC)
			return ops[i].size;
	return in->operand_count_visible ? ops[in->operand_count_visible > 1 ? 1 : 0].size
					 : in->operand_width;
}

/* 512 bits: port 1 has joined port 0, and port 5 has a multiplier too. */
static u16 ports_of(const struct pipe_core *core, u16 ports, u16 vector)
{
	if (vector < 512 || core->amd || !(ports & BIT(1)))
		return ports;
	return (ports & ~BIT(1)) | BIT(0) | BIT(5);
}

static void add_uops(const struct pipe_core *core, enum uops_kind kind, u16 vector,
		     struct pipe_insn *insn)
{
	const struct uops_row *row = &pipe_uops[kind];
	const struct uops_run *run = pipe_runs_of(core, kind);
	bool wide = core->amd && vector == 512; /* Zen 4 works on 256 bits at a time */

	for (u32 r = 0; r < UOPS_RUNS; r++, run++) {
		if (!run->ports)
			insn->slots += run->count;
		for (u32 i = 0; run->ports && i < run->count && insn->uops < PIPE_UOPS; i++)
			insn->uop[insn->uops++] = (struct pipe_uop){
				.ports = ports_of(core, run->ports, vector),
				.latency = run->latency,
				.divider = run->divider * (wide ? 2 : 1),
				.twice = wide && !run->free && !(run->ports & core->p_alu),
			};
		if (run->free)
			insn->free += run->count;
	}
	insn->shape = row->shape;
	insn->domain = row->domain;
	if (row->domain == DOMAIN_INT && insn->uops && insn->uop[0].latency > 1)
		insn->domain = DOMAIN_SLOW;
}

static void slow_high_bytes(const struct pipe_core *core, const ZydisDecodedInstruction *in,
			    const ZydisDecodedOperand *ops, struct pipe_insn *insn)
{
	for (u32 i = 0; i < in->operand_count_visible; i++)
		if (ops[i].type == ZYDIS_OPERAND_TYPE_REGISTER && is_high_byte(ops[i].reg.value) &&
		    ops[i].actions & ZYDIS_OPERAND_ACTION_MASK_READ && core->p_high && insn->uops) {
			insn->uop[0].ports = core->p_high;
			insn->uop[0].latency += 2;
			return;
		}
}

/*
 * A micro-fused load and operation stays one through renaming unless the address has an index and
 * the destination is not also the first source (Intel 248966, un-lamination; and measured).
 */
static bool unlaminates(const struct pipe_insn *insn, const ZydisDecodedInstruction *in)
{
	if (insn->mem.rip)
		return insn->has_immediate;
	if (insn->mem.index == NO_PLACE)
		return false;
	if (insn->load && insn->store)
		return true;
	if (insn->store)
		return false;
	return in->encoding != ZYDIS_INSTRUCTION_ENCODING_LEGACY || insn->has_immediate;
}

/* On Zen: a store of what the instruction computed or loaded, or else an operation or a store of
 * general registers with base and index. */
static bool has_second_slot(const struct pipe_insn *insn)
{
	if (insn->store && (insn->load || insn->uops))
		return true;
	return !insn->vector && insn->mem.base != NO_PLACE && insn->mem.index != NO_PLACE &&
	       (insn->store || (insn->load && insn->uops));
}

static void count_slots(const struct pipe_core *core, const ZydisDecodedInstruction *in,
			struct pipe_insn *insn)
{
	u32 slots = insn->uops + insn->slots - insn->free;

	if ((insn->load || (insn->store && core->amd)) && !slots)
		slots = 1;
	if (core->amd)
		slots += has_second_slot(insn);
	else if (insn->store)
		slots++;
	insn->slots = slots ? slots : 1;
	insn->decoded = insn->slots;
	if (!core->amd && (insn->load || insn->store) && (insn->uops || insn->mem.rip) &&
	    unlaminates(insn, in))
		insn->slots++;
}

static u8 load_latency(const struct pipe_core *core, const struct pipe_insn *insn, u16 vector)
{
	return core->load[vector > 128 ? 2
			  : vector     ? 1
				       : 0] +
	       (insn->mem.index != NO_PLACE ? core->load_index : 0) +
	       (insn->mem.index != NO_PLACE && insn->mem.scale > 1 ? core->load_scaled : 0);
}

/* Which loads and stores Golden Cove renames was found by measurement: not RMW of a register, not
 * CMOV. */
static bool has_plain_address(const struct pipe_core *core, const ZydisDecodedInstruction *in,
			      const ZydisDecodedOperand *ops, const struct pipe_insn *insn)
{
	bool of_register =
		in->operand_count_visible > 1 && ops[1].type == ZYDIS_OPERAND_TYPE_REGISTER;

	if (core->renames_addresses)
		return insn->mem.base != NO_PLACE && insn->mem.size >= 4 &&
		       (insn->store || !insn->uops || in->meta.category == ZYDIS_CATEGORY_CMOV);
	if (core->renames_stack)
		return insn->mem.base == PLACE_GPR + 4 && insn->mem.index == NO_PLACE &&
		       (insn->store || (!insn->uops && insn->mem.size >= 4));
	return insn->mem.base != NO_PLACE && insn->mem.index == NO_PLACE && !insn->mem.rip &&
	       !(insn->load && insn->store && of_register) &&
	       in->meta.category != ZYDIS_CATEGORY_CMOV;
}

/* XCHG with memory locks without a prefix. */
static bool is_locked(const ZydisDecodedInstruction *in, const struct pipe_insn *insn)
{
	return in->attributes & ZYDIS_ATTRIB_HAS_LOCK ||
	       (in->mnemonic == ZYDIS_MNEMONIC_XCHG && insn->store);
}

bool pipe_describe(const struct pipe_core *core, const ZydisDecodedInstruction *in,
		   const ZydisDecodedOperand *ops, struct pipe_insn *insn)
{
	struct form_key key = { .in = in, .ops = ops, .column = core->column };
	enum uops_kind kind;

	bytes_fill(insn, 0, sizeof(*insn));
	insn->mnemonic = in->mnemonic;
	insn->length = in->length;
	insn->mem.base = insn->mem.index = NO_PLACE;
	insn->idiom = idiom_of(core, in, ops);
	insn->pushes = in->mnemonic == ZYDIS_MNEMONIC_PUSH;
	insn->pops = in->mnemonic == ZYDIS_MNEMONIC_POP;
	if (insn->idiom != IDIOM_NOP)
		see_operands(in, ops, insn);
	key.width = operation_bits(in, ops);
	key.vector = vector_bits(in, ops);
	key.from_mem = insn->load;
	key.to_mem = insn->store;
	kind = is_locked(in, insn) ? UOPS_LOCKED : pipe_kind_of(&key);
	if (kind == UOPS_UNKNOWN || in->attributes & (ZYDIS_ATTRIB_HAS_REP | ZYDIS_ATTRIB_HAS_REPE |
						      ZYDIS_ATTRIB_HAS_REPNE))
		return false;
	insn->vector = key.vector;
	insn->twice = core->amd && insn->mem.size > 32;
	insn->load_latency = load_latency(core, insn, key.vector);
	insn->has_immediate = in->raw.imm[0].size && !in->raw.imm[0].is_relative;
	insn->wide = in->raw.imm[0].size == 64;
	insn->lcp = in->attributes & ZYDIS_ATTRIB_HAS_OPERANDSIZE && in->raw.imm[0].size == 16;
	if (!(key.copies && (insn->load || insn->store)))
		add_uops(core, kind, key.vector, insn);
	insn->plain_address = has_plain_address(core, in, ops, insn) && !key.vector;
	slow_high_bytes(core, in, ops, insn);
	insn->shifts = kind == UOPS_SHIFT || kind == UOPS_SHIFT_CL;
	if (insn->shape == SHAPE_LATE && merges_its_source(in, ops))
		insn->shape = SHAPE_CHAIN;
	if (core->amd && pipe_facts_of(in->mnemonic)->carry_alone && same_registers(in, ops))
		insn->reads = (struct pipe_places){ .n = 1, .at = { PLACE_CARRY } };
	insn->low_first = kind == UOPS_MUL64 || (kind == UOPS_MUL32 && core->amd);
	count_slots(core, in, insn);
	pipe_effect_of(in, ops, insn);
	return true;
}
