/* SPDX-License-Identifier: MIT */
/*
 * The inside of the translator: one struct trans per block being made.
 *
 * Every guest instruction becomes: flags to where they are wanted, the address of its memory
 * operand through the soft TLB into S0, and the instruction itself with its registers renamed and
 * its memory operand replaced by [S0]. That last part is a struct native, because it is emitted
 * twice: in line, and out of line on the host address that slow_access() gave.
 */
#ifndef ENGINE_TRANSLATE_TRANS_H
#define ENGINE_TRANSLATE_TRANS_H

#include <Zydis/Zydis.h>

#include "engine/decode.h"
#include "engine/flag_recipe.h"
#include "engine/insn_table.h"
#include "engine/priv.h"
#include "engine/translate/emit.h"

#define SPILL(n)   (PRIV(spill) + 8 * (n))
#define IN_MEMORY  0xff /* instead of a host register */

/* Where the guest's arithmetic flags are. */
enum flags_at {
	FLAGS_IN_CPU,
	FLAGS_IN_HOST,
	FLAGS_IN_BOTH,
	FLAGS_BY_RECIPE, /* nowhere; nobody reads them, and an exception computes them: t->recipe */
	FLAGS_DEAD,	 /* nowhere, and nobody will ever see them */
};

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
	s32 offset;
	u64 imm;
};

#define NATIVE_TEMPS 3

/* One host instruction with all it needs around it. */
struct native {
	struct enc x;
	struct temp temp[NATIVE_TEMPS];
	u8 ntemps;
	bool wrap_rax, wrap_store; /* uses guest RAX implicitly; and writes it */
	bool spill_countdown;	   /* R14 is one of the temps */
	bool needs_flags, writes_flags;
	s8 rsp_delta; /* the guest's RSP moves by this when the instruction succeeds */
	u32 shape;    /* of a memory operand under an opmask: SHAPE_*; 0: it has none */
};

/*
 * What is known of an instruction whatever its displacement, its immediate and its address are:
 * decoder.c.
 */
struct decoded {
	u64 head; /* the bytes in front of these */
	u32 mode;
	u16 next;	/* of the same bucket: number in decoder->entry, from 1 */
	u8 head_length; /* 0: this is known of one instruction only */
	u8 disp_at, disp_size, imm_at, imm_size; /* in bytes */
	bool imm_signed;
	bool from_rip; /* the displacement counts from the next instruction */
	bool legacy;   /* encoding */
	u8 opcode, map; /* ZydisOpcodeMap */
	u8 category, isa_set; /* Zydis' */
	bool rex_b, rex_w;
	/* What follows is found out when it is first met: learn() of scan.c. The flags are masks
	 * of FL_ARITH. */
	bool known;
	bool may_fault, stores, quiet; /* as in struct scan */
	bool system;		       /* trans_system_candidate() */
	bool plain;		       /* translated as it is, whatever the mode */
	bool native;		       /* trans_native_build() knows it */
	u8 unit;		       /* trans_gate_unit() */
	u16 reads, writes, keeps;
	u16 regs_written;
	struct insn insn; /* the one that was decoded */
	struct native as_native;
} __attribute__((aligned(64)));

/* Where to look for one; and what helps to find the next before this one has arrived in the cache. */
struct decoder_bucket {
	u16 number; /* in decoder->entry, from 1; 0: none */
	u8 length;  /* of its instruction */
	bool branch;
};

#define DECODED_BITS 15
#define DECODED_MAX  12288

/* Of one processor. */
struct decoder {
	struct decoder_bucket bucket[1u << DECODED_BITS];
	u32 n, nonce; /* how many there are of the following */
	struct decoded once[BLOCK_INSNS + 1]; /* instructions of the block that are not remembered */
	struct decoded entry[DECODED_MAX];
	struct decoded nothing; /* is known of what is no instruction */
	/* The last that was decoded and not just remembered. */
	ZydisDecodedInstruction zi;
	ZydisDecodedOperand zops[ZYDIS_MAX_OPERAND_COUNT];
};

/* Before a block of so many instructions: what has been decoded stays where it is until the next
 * block. */
void decoder_make_room(struct decoder *decoder, u32 insns);
/* These bytes are about to be decoded: fetches what is known of them into the cache. */
void decoder_expect(const struct decoder *decoder, const u8 *bytes, u32 n, u32 mode);
/* An instruction like one that has been decoded; or false. */
bool decoder_recall(struct decoder *decoder, const u8 *bytes, u32 n, u64 rip, u32 mode,
		    struct insn *insn, struct decoded **which);
/* As decode_insn(), and it is remembered. Not with guest vector state live. */
enum decode_result decoder_decode(struct decoder *decoder, const u8 *bytes, u32 n, u64 rip, u32 mode,
				  struct insn *insn, struct decoded **which);

/* A slow path to be emitted behind the block. */
struct stub {
	struct native op;
	u8 *from; /* the displacement of the jump to it */
	const u8 *inline_op, *done;
	u32 desc;
	s32 tag; /* offset in struct cpu of the tag column, to recover the address; 0: it is in S0
		  */
	u8 index, recipe;
	enum flags_at flags;
	const u8 *retry; /* a leader's: where its check begins; else NULL */
	bool lazy;	 /* t->lazy and t->owed there */
	s32 owed;
};

#define MAX_STUBS (3 * BLOCK_INSNS)

/* A call of observe.c, to be emitted behind the block. */
struct observe_stub {
	const u8 *entry;
	u8 *from;	/* the displacement of the jump to it */
	const u8 *back;
	u32 desc;
	u8 index;	/* of the instruction */
	bool arg_in_rax, load_arg, load_s0;
	bool missed;	/* no call: a mispredicted conditional branch is counted */
	bool middle;	/* and the block goes on behind it */
	u64 arg, s0;	/* for priv->observed_arg, for S0 */
};

/* Accesses, lines, ways out of a branch. */
#define MAX_OBSERVE_STUBS (MAX_STUBS + 2 * BLOCK_INSNS + 2 * (MAX_SIDES + 1))

/*
 * An instruction of the block as decoding and the analysis of the whole block left it. The flags are masks of FL_ARITH.
 */
struct scan {
	struct insn insn;
	struct decoded *decoded;
	u64 rip;
	s32 offset;	/* from the block's first byte */
	int vector;	/* raised instead of executing it, or -1 */
	bool ends;	/* the block ends with it */
	bool through;	/* a branch that the block goes on behind, at next; if it goes elsewhere, to side */
	bool inverted;	/* it goes on where the branch is taken */
	u64 next, side;
	bool may_fault; /* before it has written anything */
	bool stores;	/* to memory */
	bool quiet;	/* a NOP or PREFETCH, which may name memory */
	u16 reads, writes;
	u16 keeps; /* an instruction that writes some: those it leaves as they were */
	u16 regs_written; /* one bit a general register */
	/* Of the flags before it: some are read later; some are seen if something faults. */
	u16 live, exposed;
	bool merges; /* writes some and keeps others that matter */
	struct recipe recipe; /* of the flags it leaves */
	u8 group;	      /* in t->groups, or NO_GROUP */
	s64 at_offset;	      /* where its access is, as seen from the group's leader */
};

#define NO_GROUP   0xff
#define NO_SLOT	   0xff
#define MAX_GROUPS 24

/* Accesses that share a check: emit_share.c. Offsets from the leader's access. */
struct group {
	u8 leader; /* which instruction */
	u8 members;
	u8 slot; /* of priv->share[] */
	bool write;
	s64 lo, hi;
};

/* A branch out of the middle of a block. */
struct side {
	u8 *site; /* the displacement of the jump */
	u64 target;
	enum flags_at flags;
	s32 owed;
	u8 index;
};

/* emit_jump_lookup.c: host code that goes where S0 says, if jump[] knows it. */
struct jump_lookup {
	u8 *other_rip, *other_key; /* jumps of a miss, to be patched */
};

struct jump_lookup emit_jump_lookup(struct emitter *e, const struct engine *eng);
/* Misses continue here, with the address in S0. */
void emit_jump_lookup_missed(struct emitter *e, const struct jump_lookup *jump_lookups, u32 n);

#define MAX_SIDES 8
#define MAX_SITES (2 * BLOCK_INSNS + MAX_SIDES + 2)
#define MAX_LINKS (3 + SHARE_SLOTS + MAX_SIDES)
#define MAX_JUMP_LOOKUPS (1 + MAX_LINKS)

/* The bytes a block is made from: always the page copies, so that what was translated is what is
 * compared. */
struct source {
	struct page_copy *copy[2];
	struct code_page *page[2];
	const u8 *host[2]; /* of the pages */
	u64 loaded[2];	   /* lines of the copies that are current */
	u64 used[2];	   /* lines that decoding looked at */
};

struct trans {
	struct cpu *cpu;
	struct engine *eng;
	struct block *block;
	struct emitter e;
	u32 mode;
	enum flags_at flags;
	u64 rip;	 /* of the instruction at hand */
	u64 linear_base; /* of the code segment */
	s32 offset;	 /* of it from the block's first byte */
	u8 index;	 /* of it in the block */
	bool last;	 /* it ends the block */
	bool shadow;	 /* the one before it was STI */
	bool special;	 /* the block changes mode or shadow: it goes on behind no branch */

	struct scan scan[BLOCK_INSNS];
	bool lazy; /* the instruction at hand need not move the stack pointer, nor find it moved */
	s32 owed;  /* what it has yet to move by */
	u32 nscan, at;	      /* how many; which is being translated */
	u32 turn;	      /* a block that is a loop: the first of the turn at hand */
	u32 turns;	      /* that it usually has */
	u32 turn_insns, turn_sides; /* of one; sides but for the way back */
	struct recipe recipe; /* of the flags now in the host's flags */
	u32 recipe_at;	      /* which instruction left them */
	struct recipe recipes[BLOCK_INSNS];
	u32 nrecipes;
	u8 recipe_id; /* with FLAGS_BY_RECIPE: number of it, from 1 */

	struct group groups[MAX_GROUPS];
	u32 ngroups;
	u8 reached; /* the group whose address is in S0 behind instruction reached_at, or NO_GROUP */
	u32 reached_at;
	struct link links[MAX_LINKS];
	u32 nlinks;
	struct side sides[MAX_SIDES];
	u32 nsides;
	/* Of branches that the jump cache serves */
	struct jump_lookup jump_lookups[MAX_JUMP_LOOKUPS];
	u32 njump_lookups;
	struct branch_site *sites[MAX_SITES]; /* branches that are noted: emit_lbr.c */
	u32 nsites;
	const u8 *placed; /* up to here the place of the next note is in S1 */

	struct source source;
	u32 expected; /* the line of the page that decoder_expect() was told of, from 1 */
	struct insn insn;
	struct decoded *decoded;
	const ZydisDecodedInstruction *zi; /* as long as it is not known */
	const ZydisDecodedOperand *zops;

	/* Where what the head adds is filled in: to a class of priv->live[]; to a word of
	 * priv->packed[], of 8 bytes or 4. */
	struct added {
		enum retire_class class;
		u8 *imm;
	} added[NRETIRE];
	u32 nadded;
	u8 *packed[PACK_WORDS];
	bool wide[PACK_WORDS];
	u64 charge[PACK_WORDS];
	u8 *trip_from[2]; /* jumps for a block that would reach a trip */
	u32 nstubs, nplaces;
	struct stub stubs[MAX_STUBS];
	struct place places[BLOCK_INSNS + MAX_SIDES + 2 * MAX_STUBS + MAX_OBSERVE_STUBS];
	struct weight weights[BLOCK_INSNS];

	gpa_t observed_line; /* of the instruction before; NO_GPA: none */
	u32 nobserve_stubs;
	struct observe_stub observe_stubs[MAX_OBSERVE_STUBS];
};

static inline u64 trans_next_rip(const struct trans *t)
{
	u64 next = t->rip + t->insn.len;

	return t->mode & MODE_CODE64 ? next : (u32)next;
}

/* The host register of a guest register, or IN_MEMORY. */
static inline u8 host_reg(u8 guest)
{
	return guest == RAX   ? HOST_GUEST_RAX
	       : guest == RSP ? HOST_GUEST_RSP
	       : guest >= R12 ? IN_MEMORY
			      : guest;
}

/* What a place says of the flags. */
static inline u8 trans_recipe(const struct trans *t)
{
	return t->flags == FLAGS_BY_RECIPE ? t->recipe_id : 0;
}

/* scan.c: decodes the instructions of the block. */
/* How translated code names what belongs to a block. */
static inline u32 meta_offset(const struct trans *t, const void *meta)
{
	return (u32)((const u8 *)meta - t->eng->meta);
}

enum scan_result { SCAN_OK, SCAN_FAULT, SCAN_FULL };
enum scan_result scan_block(struct trans *t, enum guest_fault *fault);
bool scan_could_go_on(const struct trans *t); /* if the block were a hot one */
void scan_select(struct trans *t, u32 i); /* makes it the instruction at hand */

/* emit_flags.c */
void trans_flags_learn(const struct trans *t, struct decoded *d); /* of the instruction at hand */
void trans_flags_classify(const struct trans *t, struct scan *s);
void trans_flags_analyse(struct trans *t); /* of the block */
/* Before the host's flags are destroyed: saves them if they matter */
void emit_flags_keep(struct trans *t);
void emit_flags_save(struct trans *t);	  /* before others look for them in hot->aflags */
void emit_flags_restore(struct trans *t); /* before they are needed */
void emit_flags_cook(struct trans *t);	  /* a recipe at last: into hot->aflags. Destroys S0, S1 and
					the    host's flags */

/* emit_memory.c */
/* Computes the effective address, without segment, into a host register. Destroys S1, not the
 * flags. */
void emit_address(struct trans *t, const struct operand *op, u8 dest);
/* The same, of 64 or only 32 bits. */
void emit_address_sized(struct trans *t, const struct operand *op, u8 dest, bool wide);
/* The address is in S0: turns it into a host address, in line or by a stub that executes n. */
void emit_access_begin(struct trans *t, u32 size, enum seg seg, u32 rw, const struct native *n);
/* All of it for a place at the stack pointer plus delta: address, check, n. */
void emit_access_stack(struct trans *t, s32 delta, u32 size, u32 rw, const struct native *n);
/* And for an operand. */
void emit_access_operand(struct trans *t, const struct operand *op, u32 size, u32 rw,
			 const struct native *n);
void emit_stubs(struct trans *t);

/* emit_share.c */
void trans_share_analyse(struct trans *t);
bool trans_share_leads(const struct trans *t);	 /* is the access at hand the first of a group? */
bool trans_share_follows(const struct trans *t); /* one of the others? */
/* For those: makes n use the group's address */
void trans_share_reach(struct trans *t, struct native *n);
void trans_share_reached(struct trans *t, const struct native *n); /* S0 is still what it was */
/* From the leader's operand to the group's first byte */
s64 trans_share_shift(const struct trans *t);
u32 trans_share_span(const struct trans *t);
/* The host address of the group's first byte is in S0: for the others, and for n. */
void emit_share_keep(struct trans *t, struct native *n);

/* emit_native.c */
void emit_native(struct trans *t, const struct native *n);
/* False: not one that can be renamed */
bool trans_native_build(const struct trans *t, struct native *n);
void trans_native_learn(const struct trans *t, struct decoded *d);
void trans_native_flags(const struct trans *t, struct native *n); /* behind trans_flags_analyse() */
struct temp trans_temp_guest(u8 guest, u8 host, bool load, bool store);
/* Moves a guest register of `size` bytes (zero-extended) into a host register, and back. */
void emit_guest_get(struct trans *t, u8 guest, u8 host);
void emit_guest_set(struct trans *t, u8 guest, u8 host, u8 size);

/* emit_mask.c: of the instruction at hand, for struct native. */
u32 trans_mask_shape(const struct trans *t);
/* For slow_access(): what it has to know of the opmask. */
void emit_mask(struct trans *t, const struct native *n);

/* emit_count.c */
void trans_count_weigh(struct trans *t); /* the instruction at hand */
/* The classes that a conditional branch is of by the way it goes. */
retire_wanted trans_count_way(bool taken);
/* What the block's head charges for an instruction. */
struct weight trans_count_weight(const struct scan *s);
/* Of a conditional branch that ends a block: each way takes back what only the other one is. */
bool trans_count_corrects(const struct trans *t, bool taken);
void emit_count_went(struct trans *t, bool taken);
/* A conditional branch in the middle leaves the block. */
void emit_count_leave(struct trans *t, u32 index, bool taken);
/* Does the head look at cpu->attention with its counts? */
bool trans_count_watches(const struct trans *t);
void emit_call_attention(struct trans *t); /* the next block shall not begin */
/* A conditional branch was mispredicted. The jump that is taken if that reaches a trip; or NULL. */
u8 *emit_count_missed(struct trans *t, bool taken);
/* The instruction there is done and has reached a trip: the next block shall not begin. */
void emit_count_reached(struct trans *t, u64 rip);
/* Emits: that instruction and those behind it do not retire */
void emit_count_give_back(struct trans *t, u32 index);
/* That instruction may be the last of a run. Destroys S0. */
void emit_last_rip(struct trans *t, u64 rip);
void emit_count_begin_block(struct trans *t); /* at the head, behind the checks */
bool emit_count_end_block(struct trans *t);   /* behind the block; false: cache full */

/* emit_lbr.c: a near branch is taken, and ends the block. Destroys the flags and S1; S0 too, or
 * keeps the target in it. */
void emit_lbr_record_direct(struct trans *t, enum branch_kind kind, u64 target);
void emit_lbr_record_indirect(struct trans *t, enum branch_kind kind);
/* The block goes on behind it */
void emit_lbr_record_through(struct trans *t, enum branch_kind kind);
bool trans_lbr_looks(const struct trans *t); /* does that emit anything? */
/* The block is left in front of that instruction, or behind it if it is no branch that is taken. */
void emit_lbr_leave(struct trans *t, u32 index);
/* ZF: was the taken conditional branch at hand predicted? Destroys S1, not the flags. */
void emit_lbr_outcome(struct trans *t);
void emit_lbr_begin_block(struct trans *t);
void emit_lbr_end_block(struct trans *t);
/* emit_observe.c: each does nothing unless the mode asks for it. Destroy S1 and the flags. */
void emit_observe_insn(struct trans *t); /* at the start of each */
/* Host address in S0, offset of its TLB entry in S1 */
void emit_observe_data(struct trans *t, u32 desc);
void emit_observe_conditional(struct trans *t, bool taken); /* it ends the block */
void emit_observe_through(struct trans *t, bool taken);	    /* it does not */
/* The block is left, but by a conditional branch */
void emit_observe_leave(struct trans *t, u32 index);
/* Are conditional branches shown to the model without a call of C? */
bool trans_observe_in_line(const struct trans *t);
void emit_observe_indirect(struct trans *t); /* target in S0 */
/* Besides emit_observe_indirect(); destroys S0 */
void emit_observe_call(struct trans *t);
void emit_observe_return(struct trans *t);	  /* target in S0 */
void emit_observe_jump(struct trans *t);	  /* direct */
void emit_observe_log(struct trans *t, u8 *from); /* from: a jump if it is full */
void emit_observe_stubs(struct trans *t);

/* source.c */
bool source_open(struct trans *t, u32 which, gpa_t gpa, const u8 *host); /* false: cache full */
/* Up to 15 bytes at an offset from the first page's start; how many, 0 if the program's memory
 * faults. */
u32 source_bytes(struct trans *t, u32 offset, u8 *out);
/* What is left there of a line that has been read. */
const u8 *source_rest(const struct trans *t, u32 offset, u32 *n);
bool source_spans(const struct trans *t); /* has the second page been opened? */

/* emit_return.c */
void emit_return_note(struct trans *t); /* a call has pushed: destroys S0, S1 and the flags */
bool emit_return_jump(struct trans *t, u32 popped); /* a return to S0 has; false: not this way */

/* availability.c: may this instruction be executed now? Returns the vector to raise, or -1. */
int trans_gate_vector(const struct trans *t);
u8 trans_gate_unit(const struct trans *t); /* for struct decoded */

/* emit_system.c */
/* The block ends with this instruction: if it accesses the PMU, goes on behind it if nobody wants
 * to see that; falls through otherwise. */
void emit_passthrough(struct trans *t, const struct insn *insn);
/* A system instruction that may be emitted: trans_system_learn() says so, and the mode allows it.
 */
bool trans_system_candidate(const struct trans *t, const struct decoded *d);
bool trans_system_learn(const struct insn *insn); /* for struct decoded */
void emit_system_shadow_ends(struct trans *t);

/* translate.c: of the instruction at hand; NULL: it has none. */
const struct operand *trans_memory_operand(const struct trans *t);

/* translate.c: an instruction that does nothing. */
bool trans_does_nothing(const struct trans *t);

/* translate.c: can the instruction at hand be translated in any mode? */
bool trans_translatable(const struct trans *t);

/*
 * The functions that rows of insn.def name with EMIT: emit_branch.c, emit_stack.c,
 * emit_system.c, translate.c. They emit the instruction at hand; false: this form is not theirs,
 * and nothing was emitted.
 */
typedef bool emit_fn(struct trans *t);
#define EMIT(name)		  emit_fn emit_insn_##name;
#define INSN(mnemonic, ways, ...) ways
#include "engine/insn.def"

/* emit_branch.c, emit_stack.c */
bool trans_stack_known(const struct trans *t); /* PUSH, POP or LEAVE that is translated */
void emit_block_end_direct(struct trans *t, u64 target);
/* Site: a jump to be linked */
void emit_block_link(struct trans *t, u64 target, u8 *site, bool apart);
void emit_block_end_indirect(struct trans *t); /* target in S0 */
void emit_sides(struct trans *t);
void emit_misses(struct trans *t);
bool emit_links(struct trans *t); /* false: cache full */
/* Of a direct branch: where it goes. */
bool trans_branch_conditional(const struct trans *t);
u64 trans_branch_target(const struct trans *t);
/* Is it outside of the code segment? */
bool trans_branch_beyond(const struct trans *t, u64 target);
void emit_block_leave(struct trans *t, enum leave why, u64 arg, u64 rip);
/* The same by one of the engine's thunks, for what it takes: a block or link. */
void emit_block_leave_with(struct trans *t, const u8 *thunk, const void *what);
void emit_push_value(struct trans *t, struct temp value, u8 size);
/* MOV [S0], reg or MOV reg, [S0], by the opcode, of a size. */
struct native trans_native_move(u8 opcode, u8 reg, u8 size);
/* The guest's RSP moves: now, or with others later. */
void emit_stack_move(struct trans *t, s32 delta);
void emit_stack_settle(struct trans *t); /* it is what the guest would find. Destroys nothing */
bool trans_stack_lazy(const struct trans *t); /* for t->lazy */
/* from + delta, wrapped to the width of the stack, into a host register. Destroys S1, not the
 * flags. */
void emit_stack_pointer(struct trans *t, u8 dest, u8 from, s32 delta);

#endif
