// SPDX-License-Identifier: MIT
/*
 * The decoder: what Zydis says, reduced to what the translator and the system instructions need
 * (SDM 2A 2.1, 2.2). vCPU thread, after fpu_save().
 */
#include "engine/decode.h"

#include "cpu/mode.h"
#include "engine/insn_table.h"

static ZydisMachineMode machine_mode(u32 mode)
{
	if (mode & MODE_CODE64)
		return ZYDIS_MACHINE_MODE_LONG_64;
	if (mode & MODE_CODE32)
		return ZYDIS_MACHINE_MODE_LEGACY_32;
	return mode & MODE_PROT ? ZYDIS_MACHINE_MODE_LEGACY_16 : ZYDIS_MACHINE_MODE_REAL_16;
}

static ZydisStackWidth stack_width(u32 mode)
{
	if (mode & MODE_CODE64)
		return ZYDIS_STACK_WIDTH_64;
	return mode & MODE_STACK32 ? ZYDIS_STACK_WIDTH_32 : ZYDIS_STACK_WIDTH_16;
}

/* MPX and CET are never offered, and CLDEMOTE is a hint: their encodings are the NOPs they were
 * before. */
static void decoder_init(ZydisDecoder *decoder, u32 mode)
{
	ZydisDecoderInit(decoder, machine_mode(mode), stack_width(mode));
	ZydisDecoderEnableMode(decoder, ZYDIS_DECODER_MODE_MPX, ZYAN_FALSE);
	ZydisDecoderEnableMode(decoder, ZYDIS_DECODER_MODE_CET, ZYAN_FALSE);
	ZydisDecoderEnableMode(decoder, ZYDIS_DECODER_MODE_CLDEMOTE, ZYAN_FALSE);
	if (mode & DECODE_NO_TZCNT)
		ZydisDecoderEnableMode(decoder, ZYDIS_DECODER_MODE_TZCNT, ZYAN_FALSE);
	if (mode & DECODE_NO_LZCNT)
		ZydisDecoderEnableMode(decoder, ZYDIS_DECODER_MODE_LZCNT, ZYAN_FALSE);
}

static enum decode_result failure(ZyanStatus status, u32 avail)
{
	if (status == ZYDIS_STATUS_INSTRUCTION_TOO_LONG)
		return DECODE_TOO_LONG;
	if (status == ZYDIS_STATUS_NO_MORE_DATA)
		return avail < INSN_MAX ? DECODE_SHORT : DECODE_TOO_LONG;
	return DECODE_INVALID;
}

static u8 gpr_number(ZydisRegister reg)
{
	return reg == ZYDIS_REGISTER_NONE ? NO_REG : (u8)ZydisRegisterGetId(reg);
}

/* AL-BL, AH-BH, SPL-DIL, R8B-R15B is Zydis' order of byte registers. */
static void decode_reg8(ZydisRegister reg, struct operand *op)
{
	u32 id = reg - ZYDIS_REGISTER_AL;

	op->high8 = id >= 4 && id < 8;
	op->reg = id < 4 ? id : id - 4;
}

static enum reg_class reg_class(ZydisRegister reg)
{
	switch (ZydisRegisterGetClass(reg)) {
	case ZYDIS_REGCLASS_GPR8:
	case ZYDIS_REGCLASS_GPR16:
	case ZYDIS_REGCLASS_GPR32:
	case ZYDIS_REGCLASS_GPR64:
		return REG_GPR;
	case ZYDIS_REGCLASS_SEGMENT:
		return REG_SEG;
	case ZYDIS_REGCLASS_CONTROL:
		return REG_CR;
	case ZYDIS_REGCLASS_DEBUG:
		return REG_DR;
	case ZYDIS_REGCLASS_XMM:
	case ZYDIS_REGCLASS_YMM:
	case ZYDIS_REGCLASS_ZMM:
		return REG_VEC;
	case ZYDIS_REGCLASS_MASK:
		return REG_MASK;
	case ZYDIS_REGCLASS_MMX:
		return REG_MMX;
	case ZYDIS_REGCLASS_X87:
		return REG_X87;
	default:
		return REG_OTHER;
	}
}

static void decode_reg(ZydisRegister reg, struct operand *op)
{
	op->kind = OPERAND_REG;
	op->cls = reg_class(reg);
	if (ZydisRegisterGetClass(reg) == ZYDIS_REGCLASS_GPR8)
		decode_reg8(reg, op);
	else
		op->reg = (u8)ZydisRegisterGetId(reg);
}

static bool is_ip(ZydisRegister reg)
{
	return reg == ZYDIS_REGISTER_RIP || reg == ZYDIS_REGISTER_EIP;
}

/* A stack-based address means SS unless overridden; without FS or GS all are alike in 64-bit code,
 * but for #SS in place of #GP. */
static u8 memory_segment(const ZydisDecodedOperandMem *mem, u8 override)
{
	u8 base = gpr_number(mem->base);

	if (override != NO_REG)
		return override;
	return !is_ip(mem->base) && (base == RSP || base == RBP) ? SS : DS;
}

static void decode_mem(const ZydisDecodedOperandMem *mem, u64 next, const struct insn *insn,
		       struct operand *op)
{
	op->kind = OPERAND_MEM;
	op->seg = memory_segment(mem, insn->seg);
	op->base = is_ip(mem->base) ? NO_REG : gpr_number(mem->base);
	op->index = gpr_number(mem->index);
	op->index_cls = op->index == NO_REG ? REG_GPR : reg_class(mem->index);
	op->scale = mem->scale ? mem->scale : 1;
	op->imm = mem->disp.value;
	if (is_ip(mem->base))
		op->imm = (s64)((u64)op->imm + next);
	if (is_ip(mem->base) && insn->addrsize == 4)
		op->imm = (u32)op->imm;
}

static void decode_operand(const ZydisDecodedOperand *zop, u64 next, const struct insn *insn,
			   struct operand *op)
{
	op->size = zop->size / 8 > 255 ? 0 : zop->size / 8;
	op->read = zop->actions & ZYDIS_OPERAND_ACTION_MASK_READ;
	op->written = zop->actions & ZYDIS_OPERAND_ACTION_MASK_WRITE;
	op->base = op->index = op->reg = NO_REG;
	switch (zop->type) {
	case ZYDIS_OPERAND_TYPE_REGISTER:
		decode_reg(zop->reg.value, op);
		break;
	case ZYDIS_OPERAND_TYPE_MEMORY:
		decode_mem(&zop->mem, next, insn, op);
		break;
	case ZYDIS_OPERAND_TYPE_POINTER:
		op->kind = OPERAND_FAR;
		op->imm = zop->ptr.offset;
		op->selector = zop->ptr.segment;
		break;
	case ZYDIS_OPERAND_TYPE_IMMEDIATE:
		op->kind = OPERAND_IMM;
		op->imm = zop->imm.value.s;
		break;
	default:
		break;
	}
}

static u8 prefix_segment(u8 prefix)
{
	switch (prefix) {
	case 0x26:
		return ES;
	case 0x2e:
		return CS;
	case 0x36:
		return SS;
	case 0x3e:
		return DS;
	case 0x64:
		return FS;
	case 0x65:
		return GS;
	default:
		return NO_REG;
	}
}

static void decode_prefix(u8 value, bool selects_opcode, bool code64, struct insn *insn)
{
	u8 seg = prefix_segment(value);

	if (seg != NO_REG && (!code64 || seg == FS || seg == GS))
		insn->seg = seg;
	if (value == 0xf0)
		insn->prefixes |= PREFIX_LOCK;
	if (value == 0x66)
		insn->prefixes |= PREFIX_66;
	if (selects_opcode || (value != 0xf2 && value != 0xf3))
		return;
	insn->prefixes &= ~(PREFIX_REP | PREFIX_REPNE);
	insn->prefixes |= value == 0xf2 ? PREFIX_REPNE : PREFIX_REP;
}

static void decode_prefixes(const ZydisDecodedInstruction *zi, bool code64, struct insn *insn)
{
	/* Zydis calls the REP of string instructions mandatory as well. */
	bool string = zi->meta.category == ZYDIS_CATEGORY_STRINGOP ||
		      zi->meta.category == ZYDIS_CATEGORY_IOSTRINGOP;

	insn->seg = NO_REG;
	for (u32 i = 0; i < zi->raw.prefix_count; i++)
		decode_prefix(zi->raw.prefixes[i].value,
			      zi->raw.prefixes[i].type == ZYDIS_PREFIX_TYPE_MANDATORY && !string,
			      code64, insn);
}

/* Byte instructions have the operand size that their prefixes say, which REP INSB does not need but
 * PUSH imm8 does. */
static u8 operand_size(const ZydisDecodedInstruction *zi, u32 mode, u8 prefixes)
{
	bool large = mode & (MODE_CODE32 | MODE_CODE64);

	if (zi->operand_width > 8)
		return zi->operand_width / 8;
	if (zi->raw.rex.W)
		return 8;
	return large == !(prefixes & PREFIX_66) ? 4 : 2;
}

static bool is_branch(const ZydisDecodedInstruction *zi, enum insn_tally tally)
{
	if (tally != TALLY_BY_CATEGORY)
		return tally == TALLY_BRANCH;
	switch (zi->meta.category) {
	case ZYDIS_CATEGORY_COND_BR:
	case ZYDIS_CATEGORY_UNCOND_BR:
	case ZYDIS_CATEGORY_CALL:
	case ZYDIS_CATEGORY_RET:
	case ZYDIS_CATEGORY_SYSCALL:
	case ZYDIS_CATEGORY_SYSRET:
		return true;
	default:
		return false;
	}
}

static void fill(const u8 *bytes, u64 rip, u32 mode, struct insn *insn,
		 const ZydisDecodedInstruction *zi, const ZydisDecodedOperand *zops)
{
	u32 nops = zi->operand_count_visible;

	*insn = (struct insn){ .mnemonic = zi->mnemonic,
			       .id = insn_id_of(zi->mnemonic),
			       .len = zi->length };
	for (u32 i = 0; i < zi->length; i++)
		insn->bytes[i] = bytes[i];
	decode_prefixes(zi, mode & MODE_CODE64, insn);
	insn->opsize = operand_size(zi, mode, insn->prefixes);
	insn->addrsize = zi->address_width / 8;
	insn->is_branch = is_branch(zi, insn_facts(insn)->tally);
	insn->far = zi->meta.branch_type == ZYDIS_BRANCH_TYPE_FAR;
	insn->evex = zi->encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX;
	insn->mask = insn->evex ? zi->raw.evex.aaa : 0;
	insn->vector = zi->avx.vector_length / 8;
	insn->nops = nops < INSN_OPERANDS ? nops : INSN_OPERANDS;
	for (u32 i = 0; i < insn->nops; i++)
		decode_operand(&zops[i], rip + zi->length, insn, &insn->ops[i]);
	if (insn->seg == NO_REG)
		insn->seg = DS;
}

/* A SIB byte that says "no base, but a displacement" says so with any REX.B. Zydis 4.0 takes R13D
 * for the base when addresses have 32 bits, and drops the displacement. */
static void correct_address(const ZydisDecodedInstruction *zi, ZydisDecodedOperand *zops)
{
	bool no_base = (zi->attributes & ZYDIS_ATTRIB_HAS_SIB) && zi->raw.modrm.mod == 0 &&
		       zi->raw.sib.base == 5;

	for (u32 i = 0; no_base && i < zi->operand_count; i++) {
		ZydisDecodedOperandMem *mem = &zops[i].mem;

		if (zops[i].type != ZYDIS_OPERAND_TYPE_MEMORY || mem->base != ZYDIS_REGISTER_R13D)
			continue;
		mem->base = ZYDIS_REGISTER_NONE;
		mem->disp.has_displacement = ZYAN_TRUE;
		mem->disp.value = zi->raw.disp.value;
	}
}

/* Zydis lists the opmask register of EVEX.aaa among the operands; struct insn has it apart. */
static void leave_out_mask(ZydisDecodedInstruction *zi, ZydisDecodedOperand *zops)
{
	u32 n = 0;

	for (u32 i = 0; i < zi->operand_count; i++) {
		if (zops[i].encoding != ZYDIS_OPERAND_ENCODING_MASK)
			zops[n++] = zops[i];
		else
			zi->operand_count_visible--;
	}
	zi->operand_count = n;
}

ZydisRegister decode_whole_register(ZydisRegister reg)
{
	return ZydisRegisterGetLargestEnclosing(ZYDIS_MACHINE_MODE_LONG_64, reg);
}

u16 decode_register_bit(ZydisRegister reg)
{
	ZydisRegister whole = decode_whole_register(reg);

	if (ZydisRegisterGetClass(whole) != ZYDIS_REGCLASS_GPR64)
		return 0;
	return BIT(ZydisRegisterGetId(whole));
}

enum decode_result decode_insn(const u8 *bytes, u32 avail, u64 rip, u32 mode, struct insn *out,
			       ZydisDecodedInstruction *zi, ZydisDecodedOperand *zops)
{
	/* Code of one mode comes in runs. */
	static __thread ZydisDecoder decoder __attribute__((tls_model("initial-exec")));
	static __thread u32 made_for __attribute__((tls_model("initial-exec"))) = ~0u;
	ZyanStatus status;

	if (mode != made_for)
		decoder_init(&decoder, mode);
	made_for = mode;
	status = ZydisDecoderDecodeFull(&decoder, bytes, avail < INSN_MAX ? avail : INSN_MAX, zi,
					zops);
	if (!ZYAN_SUCCESS(status))
		return failure(status, avail);
	correct_address(zi, zops);
	if (zi->encoding == ZYDIS_INSTRUCTION_ENCODING_EVEX)
		leave_out_mask(zi, zops);
	fill(bytes, rip, mode, out, zi, zops);
	return DECODE_OK;
}
