/* SPDX-License-Identifier: MIT */
/*
 * The table of instructions, insn.def: the row of an instruction, and the facts that the row
 * states. Constant data, built by the compiler. The decoder looks the row up once; after that a
 * fact is one indexed load.
 */
#ifndef ENGINE_INSN_TABLE_H
#define ENGINE_INSN_TABLE_H

#include "engine/insn.h"

/* The rows, by mnemonic: INSN_MOV and so on. */
enum insn_id {
	INSN_OTHER, /* no row */
#define INSN(mnemonic, ...) INSN_##mnemonic,
#include "engine/insn.def"
	NINSNS,
};

/* Is it a branch for the tally of branches? */
enum insn_tally { TALLY_BY_CATEGORY, TALLY_BRANCH, TALLY_NO_BRANCH };

/* What it does to the stack, besides what its operands say. */
enum insn_stack { STACK_NONE, STACK_PUSH, STACK_POP, STACK_RETURN, STACK_FRAME };

/* What it leaves in its first operand, where emit_share.c can follow that. */
enum insn_result {
	RESULT_UNKNOWN,
	RESULT_MOVE,
	RESULT_XOR,
	RESULT_ADD,
	RESULT_SUB,
	RESULT_INC,
	RESULT_DEC,
	RESULT_LEA,
};

/* Of its memory operand: as encoding and size say, none, or that of its whole size. */
enum insn_alignment { ALIGNMENT_BY_SIZE, ALIGNMENT_NONE, ALIGNMENT_FULL };

/* A system instruction that need not end its block: always, if its source is a segment or control
 * register, or if it has no operands (MOVSD and CMPSD of SSE2 have some). */
enum insn_system { SYSTEM_NONE, SYSTEM_ALWAYS, SYSTEM_BY_SOURCE, SYSTEM_BARE };

/* Which control bits make it available: availability.c. */
enum insn_unit {
	UNIT_NONE, /* in a row: by its operands */
	UNIT_X87,
	UNIT_WAIT,
	UNIT_MMX,
	UNIT_SSE,
	UNIT_AVX,
	UNIT_AVX512,
};

/* It has forms that one vendor's processors do not have: availability.c. */
enum insn_form { FORM_ANY, FORM_PREFETCH, FORM_VEX_W };

/* Serializing instructions (SDM 3A 8.3): engine/runtime/serialize.h. */
enum insn_serializing {
	SERIALIZING_NOT,
	SERIALIZING_OFTEN,
	SERIALIZING_RARELY,
	SERIALIZING_BY_TARGET, /* in a row: often, if the target is a control or debug register */
};

/* What sys_quick() does of it. */
enum insn_quick { QUICK_NONE, QUICK_MOVS, QUICK_STOS };

/* 16 bytes, so that a row is found with a shift. */
struct insn_facts {
	u8 stack;	/* enum insn_stack */
	u8 result;	/* enum insn_result */
	u8 recipe;	/* enum recipe_kind how to compute the flags it leaves */
	u8 system;	/* enum insn_system */
	u8 unit;	/* enum insn_unit, where the operands do not tell */
	u8 serializing; /* enum insn_serializing */
	u8 access;	/* enum exit_reason of an access to an MSR or counter, which may pass */
	u8 index_size;	/* VSIB: bytes of an index */
	u8 seg;		/* LDS and its like: enum seg, the one that is loaded */

	u8 tally : 2;	  /* enum insn_tally */
	u8 alignment : 2; /* enum insn_alignment */
	u8 form : 2;	  /* enum insn_form */
	u8 quick : 2;	  /* enum insn_quick */

	bool host : 1;		    /* the way HOST */
	bool emitted : 1;	    /* the way EMIT */
	bool quiet : 1;		    /* does nothing, though it may name memory */
	bool conditional : 1;	    /* Jcc */
	bool followable : 1;	    /* the near, direct form may be followed within a block */
	bool counts_down : 1;	    /* LOOP: has changed RCX when its target turns out to be bad */
	bool may_fall_through : 1;  /* a branch that is neither a Jcc nor a LOOP, but may */
	bool clears_af : 1;	    /* AF is undefined on paper; every processor clears it */
	bool recipe_of_result : 1;  /* the recipe is of the first operand alone, not of both */
	bool divides : 1;	    /* may fault, even on registers */
	bool keeps_destination : 1; /* if the source is 0 */
	bool plain_move : 1;	    /* does the same to a guest register that is in memory */
	bool locks : 1;		    /* memory, with no prefix (SDM 3A 8.1.2.1) */
	bool waits_not : 1;	    /* for a pending x87 exception (SDM 1 8.6) */
	bool half_precision : 1;    /* converts; the vendors differ in how its memory is checked */
	bool vex_w_widens : 1; /* VEX.W: general registers, memory in their place; in 64-bit code */
	bool mask_keeps_faults : 1; /* an opmask does not suppress faults of its memory operand */
	bool random : 1;	    /* differs from run to run */
	bool outside : 1; /* gives what is neither in registers nor in memory; in traces */
} __attribute__((aligned(16)));

extern const struct insn_facts insn_table[NINSNS];

/* The row of a mnemonic of Zydis', or INSN_OTHER. */
enum insn_id insn_id_of(u32 mnemonic);

static inline const struct insn_facts *insn_facts(const struct insn *insn)
{
	return &insn_table[insn->id];
}

/* May a branch of this kind fall through? */
static inline bool insn_may_fall_through(const struct insn *insn)
{
	const struct insn_facts *facts = insn_facts(insn);

	return facts->conditional || facts->counts_down || facts->may_fall_through;
}

static inline struct insn_summary insn_summarize(const struct insn *insn)
{
	return (struct insn_summary){ .len = insn->len,
				      .is_branch = insn->is_branch,
				      .is_return = insn->id == INSN_RET,
				      .may_fall_through = insn_may_fall_through(insn) };
}

#endif
