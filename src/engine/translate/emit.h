/* SPDX-License-Identifier: MIT */
/*
 * The assembler: one encoder for all instructions that translated code consists of (SDM 2A 2), and
 * short names for the ones used most. An emitter that runs out of room stops writing and sets
 * `full`.
 */
#ifndef ENGINE_TRANSLATE_EMIT_H
#define ENGINE_TRANSLATE_EMIT_H

#include "base/must.h"
#include "base/types.h"
#include "x86/regs.h"

/*
 * A place in a block's code that is not the same in another process: kept_block.c. What a kept
 * block has there, and what it becomes:
 */
enum fixup_kind {
	FIXUP_THUNK, /* 32 bits: a displacement, of a block at the start of code memory; another */
	FIXUP_BLOCK64, /* 64 bits: an offset in struct block; an address */
	FIXUP_INSN64,  /* 64 bits: `index`; the address of this struct insn of the block's */
	FIXUP_BLOCK32, /* 32 bits: unused; the block's offset in meta */
	FIXUP_LINK32,  /* 32 bits: `index`; the offset in meta of this link of the block's */
	FIXUP_NUMBER,  /* 32 bits: unused; the block's number */
	FIXUP_HEAT,    /* 32 bits: unused; a displacement, where the block's heat is counted */
	FIXUP_LANDING, /* no bits: code may be entered here */
	/* Of line number `index` of the block's page, as physical memory has it: */
	FIXUP_LINE, /* 64 bits: `index`; a displacement, where its buffer is, and its key */
	FIXUP_KEY,  /* 32 bits: `index`; its key */
	NFIXUP_KINDS,
};

struct fixup {
	u16 at; /* offset in the block's code */
	u8 kind, index;
};

#define MAX_FIXUPS 512

struct fixups {
	u32 n;
	bool lost; /* there were too many */
	u16 counts[NFIXUP_KINDS];
	struct fixup fixup[MAX_FIXUPS];
};

static inline void fixups_clear(struct fixups *fixups)
{
	fixups->n = 0;
	fixups->lost = false;
	for (u32 kind = 0; kind < NFIXUP_KINDS; kind++)
		fixups->counts[kind] = 0;
}

struct emitter {
	u8 *p, *limit;	   /* the writable view of code memory */
	ptrdiff_t to_exec; /* add to reach the executable view */
	bool full;
	const u8 *start;       /* of the block; thunks are below */
	struct fixups *fixups; /* NULL: none are noted */
};

#define NO_BASE 0xff

/* A host memory operand. */
struct ea {
	u8 base, index, scale; /* registers, or NO_BASE; scale 1, 2, 4, 8 */
	s32 disp;
};

enum opcode_map { MAP_ONE, MAP_0F, MAP_0F38, MAP_0F3A };

/* One instruction to encode. */
struct enc {
	bool p66, lock, w, force_rex;
	bool is_mem;
	bool no_modrm; /* the register, if any, is in the opcode: rm */
	u8 rep;	       /* 0, 0xf2, 0xf3 */
	u8 map;	       /* enum opcode_map */
	u8 opcode;
	u8 reg, rm; /* of EVEX: 0 to 31 */
	struct ea ea;
	bool vex, evex;
	u8 vex_l, vex_pp, vvvv; /* of EVEX: L'L, or the rounding control; vvvv with V' */
	u8 mask;		/* EVEX.aaa */
	bool zeroing;		/* EVEX.z */
	bool evex_b; /* broadcast; rounding control or suppressed exceptions of registers */
	u8 imm_len;
	u8 nready; /* bytes of ready; 0: none */
	bool ready_whole;
	/* The bytes in front of the immediate, if they were put together before; if not
	 * ready_whole, those in front of a displacement of one byte from S0. */
	u64 ready;
	u64 imm;
};

/* As emit_insn() and emit_rm(), for instructions of which the compiler knows little. */
void emit_any(struct emitter *e, const struct enc *x);
/* Puts x->ready together, if there is room for it. */
void emit_make_ready(struct enc *x, u8 s0);
void emit_rm_any(struct emitter *e, bool w, u8 opcode, u8 reg, struct ea ea);
/* What was emitted, or will be patched, at this place is not the same in another process. */
void emit_fixup(struct emitter *e, const u8 *at, enum fixup_kind kind, u32 index);

#define OP_MOV_STORE 0x89
#define OP_MOV_LOAD  0x8b
#define OP_LEA	     0x8d
#define OP_ADD	     0x03
#define OP_ADD_STORE 0x01
#define OP_OR	     0x0b
#define OP_TEST	     0x85
#define OP_AND	     0x23
#define OP_XOR	     0x33
#define OP_CMP	     0x3b
#define GROUP_ADD    0
#define GROUP_OR     1
#define GROUP_ADC    2
#define GROUP_AND    4
#define GROUP_SUB    5
#define GROUP_XOR    6
#define GROUP_CMP    7
#define SHIFT_SHL    4
#define SHIFT_SHR    5
#define SHIFT_SAR    7

#define CC_O  0
#define CC_AE 3
#define CC_E  4
#define CC_NE 5
#define CC_BE 6
#define CC_S  8
#define CC_NS 9
#define CC_NP 11
#define CC_GE 13

static inline struct ea ea_base(u8 base, s32 disp)
{
	return (struct ea){ .base = base, .index = NO_BASE, .scale = 1, .disp = disp };
}

/*
 * emit_inline.h:
 *
 *   emit_insn()                        one instruction
 *   emit_u8(), emit_u32(), emit_u64()  bytes
 *   emit_rr(), emit_rm()               op reg, rm on registers; op reg, [ea]. Opcodes of the
 *                                      one-byte map
 *   emit_group1(), emit_group1_mem()   the immediate group: /ext with a 32-bit (or 8-bit, where it
 *                                      fits) immediate
 *   emit_shift()                       by a constant
 *   emit_mov_imm()                     the shortest; flags untouched
 *   emit_mov_mem_imm()
 *   emit_load_byte()                   zero-extended
 *   emit_jcc(), emit_jmp(), emit_call()  with a 32-bit displacement, whose place is returned
 *   emit_patch()                       fills it in; site and target in the writable view
 */
#include "engine/translate/emit_inline.h"

#endif
