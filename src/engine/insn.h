/* SPDX-License-Identifier: MIT */
/*
 * A decoded guest instruction, small enough to keep with a block. Decoding uses Zydis
 * (engine/decode.c); the mnemonics are Zydis'.
 */
#ifndef ENGINE_INSN_H
#define ENGINE_INSN_H

#include "base/bytes.h"
#include "base/types.h"
#include "hwpmu/retire.h"
#include "x86/regs.h"

#define INSN_MAX 15 /* bytes */

enum operand_kind { OPERAND_NONE, OPERAND_REG, OPERAND_MEM, OPERAND_IMM, OPERAND_FAR };

enum reg_class {
	REG_GPR, /* reg 0-15, size 1, 2, 4, 8; high8 for AH, CH, DH, BH as reg 0-3 */
	REG_SEG, /* enum seg */
	REG_CR,
	REG_DR,
	REG_VEC,  /* XMM, YMM and ZMM, by size; reg 0-31 */
	REG_MASK, /* opmask registers */
	REG_MMX,
	REG_X87,
	REG_OTHER,
};

#define NO_REG 0xff

struct operand {
	u8 kind; /* enum operand_kind */
	/* In bytes; 0 when the instruction has no one size (XSAVE, FXSAVE: larger than 255). */
	u8 size;
	u8 cls; /* enum reg_class */
	u8 reg;
	bool high8;
	bool read, written;
	u8 seg;		       /* memory: enum seg */
	u8 base, index, scale; /* gpr or NO_REG; RIP-relative is folded into imm with base NO_REG */
	u8 index_cls;	       /* REG_VEC for gathers */
	u16 selector;	       /* of a far pointer */
	s64 imm;	       /* displacement, immediate, or the offset of a far pointer */
};

enum insn_prefix { PREFIX_LOCK = 1, PREFIX_REP = 2, PREFIX_REPNE = 4, PREFIX_66 = 8 };

/* What an instruction adds to the tallies when it retires, besides itself and the branch tally. */
struct weight {
	/* Classes it adds one to; those of a conditional branch's outcome are added on
	 * each path. */
	retire_exact classes;
	/* Its price (price.h), the part of it in which issue slots are idle, and that of
	 * HEAVY_SLOTS; 0 where cycles are not counted. */
	u16 ticks, wait, heavy;
	bool fused; /* with the branch after it */
};

static inline u32 weight_of(const struct weight *weight, enum retire_class class)
{
	switch (class) {
	case RETIRE_CYCLES:
		return weight->ticks;
	case RETIRE_USED_SLOTS:
	case RETIRE_ISSUED_SLOTS:
		return weight->ticks - weight->wait;
	case RETIRE_HEAVY_SLOTS:
		return weight->heavy;
	case RETIRE_BACKEND_SLOTS:
		return weight->wait;
	case RETIRE_FUSED:
		return weight->fused;
	case RETIRE_STALLS:
	case RETIRE_BACKEND_STALLS:
		return weight->ticks > TICKS_PER_CYCLE ? weight->ticks - TICKS_PER_CYCLE : 0;
	default:
		return class < 32 && (weight->classes >> class & 1);
	}
}

#define INSN_OPERANDS 4

struct insn {
	u16 mnemonic; /* ZydisMnemonic */
	u16 id;	      /* enum insn_id: its row of insn.def */
	u8 len;
	u8 opsize;   /* effective operand size in bytes: 2, 4, 8 */
	u8 addrsize; /* effective address size in bytes: 2, 4, 8 */
	u8 prefixes;
	u8 nops;	/* operands as decode.h lists them */
	bool is_branch; /* counts in the branch tally */
	bool far;	/* JMP, CALL, RET between segments */
	u8 seg;		/* of implied memory operands (XLAT, MASKMOVQ): the override or DS */
	bool evex;
	u8 mask;   /* EVEX: the opmask register, which is no operand; 0: none */
	u8 vector; /* VEX and EVEX: vector length in bytes */
	/* What most instructions have, and what is known of all with their head, is in one line of
	 * the host's cache: decoder.h. */
	struct operand ops[INSN_OPERANDS];
	u8 bytes[INSN_MAX];
	struct weight weight; /* set by the translator */
};

_Static_assert(offsetof(struct insn, ops[2]) == 64, "one line of the host's cache");

/* All but bytes and weight. */
static inline void insn_copy_form(struct insn *to, const struct insn *from)
{
	bytes_copy_words(to, from, offsetof(struct insn, ops[2]));
	for (u32 i = 2; i < from->nops; i++)
		to->ops[i] = from->ops[i];
}

/* Copies without the operands that it does not have, of which the first two are empty. Not by an
 * assignment, which compilers make a REP MOVS that takes longer: it is done three times for each
 * instruction that is translated. */
static inline void insn_copy(struct insn *to, const struct insn *from)
{
	const size_t tail = offsetof(struct insn, bytes);

	_Static_assert(offsetof(struct insn, bytes) % 8 == 0 && sizeof(struct insn) % 8 == 0,
		       "copied in words");
	insn_copy_form(to, from);
	bytes_copy_words((u8 *)to + tail, (const u8 *)from + tail, sizeof(*to) - tail);
}

/* What samples tell of an instruction. */
struct insn_summary {
	u8 len;
	bool is_branch, is_return, may_fall_through;
};

#endif
