/* SPDX-License-Identifier: MIT */
/*
 * What is remembered of decoded instructions (decoder.c): what Zydis said of one, what the
 * translator found out about it, and the host instruction that it becomes. Whatever files of this
 * room learn of an instruction that is the same each time is a member of struct decoded: it is
 * found out once, and a program that starts has a million instructions translated. Used while
 * translating.
 */
#ifndef ENGINE_TRANSLATE_DECODER_H
#define ENGINE_TRANSLATE_DECODER_H

#include <Zydis/Zydis.h>

#include "engine/decode.h"
#include "engine/flag_recipe.h"
#include "engine/insn_table.h"
#include "engine/price.h"
#include "engine/priv.h"
#include "engine/translate/emit.h"

enum temp_kind {
	TEMP_CPU,   /* a guest register or spill slot in struct cpu, at offset */
	TEMP_HIGH8, /* bits 15:8 of a host register */
	TEMP_IMM,   /* a constant */
};

/* A scratch register that stands for an operand during one native instruction. */
struct temp {
	u8 kind, host;
	bool load, store;
	u8 home;
	union {
		s32 offset; /* TEMP_CPU */
		u64 imm;    /* TEMP_IMM */
	};
};

#define NATIVE_TEMPS 3

/* One host instruction with all it needs around it. */
struct native {
	struct enc x;
	u8 ntemps;
	bool wrap_rax, wrap_store; /* uses guest RAX implicitly; and writes it */
	bool spill_countdown;	   /* R14 is one of the temps */
	bool needs_flags, writes_flags;
	s8 rsp_delta; /* the guest's RSP moves by this when the instruction succeeds */
	u32 shape;    /* of a memory operand under an opmask: SHAPE_*; 0: it has none */
	struct temp temp[NATIVE_TEMPS];
};

/*
 * What is known of an instruction regardless of its displacement, immediate and address:
 * decoder.c.
 */
struct decoded {
	u64 head; /* the bytes up to displacement and immediate */
	u32 mode;
	u16 next;	/* next in its bucket: number in decoder->entry, from 1; 0: last */
	u8 head_length; /* bytes of head; 0: valid for one instruction only */
	u8 disp_at, disp_size, imm_at, imm_size; /* in bytes */
	u8 disp_operand, imm_operand;		 /* which has the constant; NO_OPERAND: none */
	u8 opcode, map;				 /* ZydisOpcodeMap */
	u8 category, isa_set;			 /* Zydis' */
	bool imm_signed : 1;
	bool from_rip : 1; /* the displacement is relative to the next instruction */
	bool legacy : 1;   /* not VEX or EVEX */
	bool rex_b : 1, rex_w : 1;
	/* The rest is filled in when the instruction is first scanned: learn() of scan.c. The flags
	 * are masks of FL_ARITH. */
	bool known : 1;
	bool may_fault : 1, stores : 1, quiet : 1; /* as in struct scan */
	bool system : 1;			   /* trans_system_candidate() */
	bool plain : 1;				   /* trans_translatable in every mode */
	bool native : 1;			   /* trans_native_build() can rename it */
	bool bare : 1;				   /* emit_native_bare() can emit it */
	bool always_there : 1;			   /* trans_gate_never() */
	bool recipe_has_imm : 1;
	bool priced : 1; /* decoder->need[need] is known: price.c */
	u8 unit;	 /* trans_gate_unit() */
	u8 lazy;	 /* enum stack_lazy */
	u8 access;	 /* for emit_share.c: enum share_access */
	u8 leaves;	 /* for emit_share.c: enum share_leaves */
	u16 need;
	u16 reads, writes, keeps;
	u16 regs_written;
	struct recipe recipe; /* as in struct scan, but for the immediate */
	retire_exact classes; /* of its weight */
	struct native as_native __attribute__((aligned(64)));
	struct insn insn __attribute__((aligned(64))); /* as it was first decoded */
} __attribute__((aligned(64)));

/* Of most, three lines are read: this much, the native instruction without its temps, and the
 * instruction with two operands. */
_Static_assert(offsetof(struct decoded, as_native) == 64 && offsetof(struct native, temp) <= 64 &&
		       offsetof(struct decoded, insn) == 192,
	       "decoder_prefetch()");

#define NO_OPERAND 0xff

/* May the guest's RSP be out of date at an instruction that is no branch, or one within a block? */
enum stack_lazy { LAZY_NEVER, LAZY_BY_DISPLACEMENT, LAZY_ALWAYS };

/* gcc, started once, has some 20,000 heads. */
#define DECODED_BITS 15
#define DECODED_MAX  24576

/* By which an instruction is known: decoder.c. */
struct head {
	u64 bytes;
	u32 bucket;
	u16 at;	   /* offset from the start of the page */
	u8 length; /* 0: it has none */
};

#define HEADS_AHEAD 16

/* Those of the instructions to come, as far as they were guessed. */
struct heads {
	u32 n, next;
	struct head head[HEADS_AHEAD];
};

/* Of one processor. */
struct decoder {
	struct heads ahead;		/* of the line that was prefetched last */
	u16 bucket[1u << DECODED_BITS]; /* first in entry[], from 1; 0: none */
	u32 n, nuncached;		/* entries in use, of entry[] and of the array before it */
	/* Instructions of the current block that are not kept. */
	struct decoded uncached[BLOCK_INSNS + 1];
	struct decoded entry[DECODED_MAX];
	struct decoded invalid; /* stands for bytes that are no instruction */
	/* Of entry[], uncached[] and `invalid`, for those who count cycles. */
	struct pipe_need need[DECODED_MAX + BLOCK_INSNS + 2];
	/* The instruction that Zydis decoded last. */
	ZydisDecodedInstruction zi;
	ZydisDecodedOperand zops[ZYDIS_MAX_OPERAND_COUNT];
};

/* Before a block of so many instructions: entries stay valid until the next call. */
void decoder_make_room(struct decoder *decoder, u32 insns);
/* These bytes, at an offset of the page, will be decoded soon: prefetches their entries. Returns
 * the offset at which to go on with more bytes; 0: nowhere. */
u32 decoder_prefetch(struct decoder *decoder, const u8 *bytes, u32 n, u32 at, u32 mode);
void decoder_expect_none(struct decoder *decoder); /* forgets which those were */
/* The entry of these bytes, or NULL: they were not decoded before; and their immediate. */
struct decoded *decoder_find(struct decoder *decoder, const u8 *bytes, u32 n, u32 mode);
s64 decoder_immediate(const struct decoded *d, const u8 *bytes, u32 n);
/* As decoder_find(), for bytes at an offset of the page, where decoder_prefetch() may have found
 * their head. */
struct decoded *decoder_recall_ahead(struct decoder *decoder, const u8 *bytes, u32 n, u32 at,
				     u32 mode);
/* Fills in the instruction of an entry, with the constants of the n bytes at hand. */
void decoder_fill_in(const struct decoded *d, const u8 *bytes, u32 n, u64 rip, struct insn *insn);
/* Both; false: they were not decoded before. */
bool decoder_recall(struct decoder *decoder, const u8 *bytes, u32 n, u64 rip, u32 mode,
		    struct insn *insn, struct decoded **which);
/* As decode_insn(), and keeps the result. Not with guest vector state live. */
enum decode_result decoder_decode(struct decoder *decoder, const u8 *bytes, u32 n, u64 rip,
				  u32 mode, struct insn *insn, struct decoded **which);

#endif
