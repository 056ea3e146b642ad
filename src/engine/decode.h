/* SPDX-License-Identifier: MIT */
/*
 * Bytes to struct insn, by Zydis. Runs on the vCPU thread after fpu_save(): Zydis may use vector
 * registers.
 *
 * Operands are those an assembler would show, in its order: explicit ones and the implied register
 * of forms like SHL r, CL or IN AL, DX. Relative branch targets stay relative (imm is added to the
 * address of the next instruction).
 */
#ifndef ENGINE_DECODE_H
#define ENGINE_DECODE_H

#include <Zydis/Zydis.h>

#include "engine/insn.h"

enum decode_result {
	DECODE_OK,
	DECODE_SHORT,	 /* the instruction is longer than the `avail` bytes */
	DECODE_INVALID,	 /* #UD */
	DECODE_TOO_LONG, /* more than 15 bytes: #GP(0) */
};

/* Together with the mode: a processor without these instructions ignores their prefix and executes
 * BSF and BSR (SDM 2A LZCNT, 2B TZCNT). */
#define DECODE_NO_TZCNT BIT(30)
#define DECODE_NO_LZCNT BIT(31)

/* What else it depends on: of the mode word. Its other bits are in the way of the two above. */
#define DECODE_STATE (MODE_CODE32 | MODE_CODE64 | MODE_STACK32 | MODE_PROT)

/* zops: ZYDIS_MAX_OPERAND_COUNT of them. mode: DECODE_STATE of the mode word, and DECODE_NO_*. */
enum decode_result decode_insn(const u8 *bytes, u32 avail, u64 rip, u32 mode, struct insn *out,
			       ZydisDecodedInstruction *zi, ZydisDecodedOperand *zops);

/* The 64-bit register that this one is a part of; and its bit in a mask of general registers, 0 if
 * it is none. */
ZydisRegister decode_whole_register(ZydisRegister reg);
u16 decode_register_bit(ZydisRegister reg);

#endif
