/* SPDX-License-Identifier: MIT */
/*
 * The inside of the translator: one struct trans per block being made.
 *
 * Every guest instruction becomes: flags to where they are wanted, the address of its memory
 * operand through the soft TLB into S0, and the instruction itself with its registers renamed and
 * its memory operand replaced by [S0]. That last part is a struct native, because it is emitted
 * twice: in line, and out of line on the host address that slow_access() gave.
 *
 * All files of this room run while translating, between two visits to translated code: vCPU thread,
 * guest vector state live, general registers only, but for what Zydis decodes (scan.c, price.c),
 * after fpu_save().
 */
#ifndef ENGINE_TRANSLATE_TRANS_H
#define ENGINE_TRANSLATE_TRANS_H

#include <Zydis/Zydis.h>

#include "engine/decode.h"
#include "engine/flag_recipe.h"
#include "engine/insn_table.h"
#include "engine/price.h"
#include "engine/priv.h"
#include "engine/translate/decoder.h"

#define SPILL(n)  (PRIV(spill) + 8 * (n))
#define IN_MEMORY 0xff /* instead of a host register */

/* Where the guest's arithmetic flags are. */
enum flags_at {
	FLAGS_IN_CPU,
	FLAGS_IN_HOST,
	FLAGS_IN_BOTH,
	/* Not kept; no instruction reads them, and an exception computes them by t->recipe. */
	FLAGS_BY_RECIPE,
	FLAGS_DEAD, /* not kept; neither instructions nor exceptions can see them */
};

/* A slow path, emitted after the block's code. */
struct stub {
	struct native op;
	u8 *from; /* the displacement of the jump to it */
	const u8 *inline_op, *done;
	u32 desc;
	/* Offset in struct cpu of the TLB's tags, to recover the address; 0: it is in S0. */
	s32 tag;
	u8 index, recipe;
	enum flags_at flags;
	const u8 *retry; /* of a group's leader: where its check begins; else NULL */
	bool rsp_lazy;	 /* t->rsp_lazy and t->rsp_pending at the access */
	s32 rsp_pending;
};

#define MAX_STUBS (3 * BLOCK_INSNS)

/* A call of observe.c, emitted after the block's code. */
struct observe_stub {
	const u8 *entry;
	u8 *from;		       /* the displacement of the jump to it */
	const u8 *back, *counted_back; /* the latter: of a branch that may be counted; else NULL */
	u32 desc;
	u8 index; /* of the instruction */
	bool load_arg, load_s0;
	u64 arg, s0; /* for priv->observed_arg, for S0 */
	s32 left;    /* with counted_back: offset of struct sure's */
};

/* One each for accesses, lines of code, and both outcomes of a branch. Those of a full log are
 * fewer than the accesses that branches do not have. */
#define MAX_OBSERVE_STUBS (MAX_STUBS + 2 * BLOCK_INSNS + 2 * (MAX_SIDE_EXITS + 1))

/*
 * An instruction of the block, with the results of decoding and of the analysis of the whole block.
 * The flags are masks of FL_ARITH.
 */
struct scan {
	struct insn insn;
	struct decoded *decoded;
	u64 rip;
	s32 offset; /* from the block's first byte */
	int vector; /* vector to raise instead of executing it, or -1 */
	bool ends;  /* it is the block's last */
	/* A branch in the middle of the block, which continues at next; the other way exits to
	 * side. */
	bool continues;
	bool inverted; /* the block continues where the branch is taken */
	u64 next, side_target;
	bool may_fault; /* before it has changed any state */
	bool stores;	/* to memory */
	bool quiet;	/* a NOP or PREFETCH: its memory operand is not accessed */
	u16 reads, writes;
	u16 keeps;	  /* if it writes flags: those it leaves unchanged */
	u16 regs_written; /* one bit a general register */
	/* Of the flags before it: live are read later; exposed are visible if an instruction
	 * faults. */
	u16 live, exposed;
	bool merges;	      /* it writes some flags and keeps others that are live */
	struct recipe recipe; /* how to compute the flags it leaves */
	u8 group;	      /* in t->groups, or NO_GROUP */
	s64 at_offset;	      /* offset of its access from the leader's */
};

#define NO_GROUP   0xff
#define NO_SLOT	   0xff
#define MAX_GROUPS 24

/* Accesses that share a check: emit_share.c. lo, hi: range of the group, as offsets from the
 * leader's access. */
struct group {
	u8 leader; /* which instruction */
	u8 members;
	u8 slot; /* of priv->share[] */
	bool write;
	s64 lo, hi;
};

/* A side exit: a conditional branch out of the middle of a block. */
struct side_exit {
	u8 *site; /* the displacement of the jump */
	u64 target;
	enum flags_at flags;
	s32 rsp_pending;
	u8 index;
};

/* emit_jump_lookup.c: host code that jumps to the block for the guest address in S0, if jump[] has
 * it. */
struct jump_lookup {
	u8 *other_rip, *other_key; /* jumps of a miss, to be patched */
};

struct jump_lookup emit_jump_lookup(struct emitter *e, const struct engine *eng);
/* Misses continue here, with the address in S0. */
void emit_jump_lookup_missed(struct emitter *e, const struct jump_lookup *jump_lookups, u32 n);
/* After a miss: jumps there if the entry can be renewed. Destroys S1. */
void emit_jump_renew(struct emitter *e, const struct engine *eng);

#define MAX_SIDE_EXITS	 8
#define MAX_SITES	 (2 * BLOCK_INSNS + MAX_SIDE_EXITS + 2)
#define MAX_LINKS	 (3 + SHARE_SLOTS + MAX_SIDE_EXITS)
#define MAX_JUMP_LOOKUPS (1 + MAX_LINKS)

/* Bytes of a page, from one offset to another. */
struct source_range {
	u16 from, to;
};

#define MAX_RANGES 12

/* The bytes a block is made from, read from page copies only (code_cache.c, invariant 1). */
struct source {
	struct page_copy *copy[2];
	struct code_page *page[2];
	const u8 *host[2]; /* of the pages */
	u64 loaded[2];	   /* lines of the copies that hold current bytes */
	u64 used[2];	   /* lines that decoding read */
	/* What it read of the first page, for kept_block.c. */
	struct source_range range[MAX_RANGES];
	u32 nranges;
	bool many_ranges; /* there were more */
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
	bool shadow;	 /* the instruction before it was STI */
	bool special;	 /* the block changes mode or interrupt shadow: no branch in its middle */
	bool counts;	 /* its mode counts classes: cpu_counts() */
	bool weighs;	 /* and others ask for weights[] */

	struct scan scan[BLOCK_INSNS];
	bool rsp_lazy;	 /* RSP may be out of date, by t->rsp_pending, at the instruction at hand */
	s32 rsp_pending; /* what must still be added to the host's copy of the guest's RSP */
	u32 nscan, at;	 /* instructions; the one being translated */
	u32 iteration;	/* unrolled loop: index of the first instruction of the current iteration */
	u32 iterations; /* iterations that the loop usually makes */
	/* Of one iteration; its side exits but for the branch back. */
	u32 iteration_insns, iteration_side_exits;
	struct recipe recipe; /* of the flags that are in the host's flags now */
	u32 recipe_at;	      /* the instruction that left them */
	struct recipe recipes[BLOCK_INSNS];
	u32 nrecipes;
	u8 recipe_id; /* with FLAGS_BY_RECIPE: its number in recipes[], from 1 */

	struct group groups[MAX_GROUPS];
	u32 ngroups;
	/* The group whose host address is in S0 after instruction s0_group_at, or NO_GROUP. */
	u8 s0_group;
	u32 s0_group_at;
	struct link links[MAX_LINKS];
	u32 nlinks;
	struct side_exit side_exits[MAX_SIDE_EXITS];
	u32 nside_exits;
	/* look-ups of indirect branches, whose misses are patched at the end */
	struct jump_lookup jump_lookups[MAX_JUMP_LOOKUPS];
	u32 njump_lookups;
	struct branch_site *sites[MAX_SITES]; /* branches that are recorded: emit_lbr.c */
	u32 nsites;

	struct source source;
	bool keeps; /* the block will be kept, under this key: kept_block.c */
	u64 key[2], page_key[2], circumstances[2];
	struct fixups fixups;
	struct insn *copies[BLOCK_INSNS + 1]; /* instructions that C executes */
	u32 ncopies;
	u32 ahead_from, ahead_to; /* offsets in the page between which decoder_prefetch() looked */
	u32 decode_mode;	  /* trans_decode_mode() */
	struct insn insn;
	struct decoded *decoded;
	const ZydisDecodedInstruction *zi; /* NULL once the instruction's properties are known */
	const ZydisDecodedOperand *zops;

	/* Immediates of the head that are filled in at the end: what it adds to a class of
	 * priv->live[]; to a word of priv->packed[], of 8 bytes if wide, else 4. */
	struct added {
		enum retire_class class;
		u8 *imm;
	} added[NRETIRE];
	u32 nadded;
	u8 *packed_imm[PACK_WORDS];
	bool packed_wide[PACK_WORDS];
	u64 charge[PACK_WORDS];
	u8 *trip_from[2]; /* jumps taken if the block would reach a trip */
	u32 nstubs, nplaces;
	struct stub stubs[MAX_STUBS];
	struct place places[BLOCK_INSNS + MAX_SIDE_EXITS + 2 * MAX_STUBS + MAX_OBSERVE_STUBS];
	struct weight weights[BLOCK_INSNS];

	gpa_t observed_line; /* line of the previous instruction; NO_GPA: none */
	u32 nobserve_stubs;
	struct observe_stub observe_stubs[MAX_OBSERVE_STUBS];
};

_Static_assert(MAX_LINKS < 1 << 8 && BLOCK_INSNS < 1 << 8 &&
		       sizeof(((struct trans *)0)->places) / sizeof(struct place) < 1 << 16,
	       "struct block counts them");

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

/* The recipe that a place names, 0: none. */
static inline u8 trans_recipe(const struct trans *t)
{
	return t->flags == FLAGS_BY_RECIPE ? t->recipe_id : 0;
}

/* Translated code refers to tables of blocks by their offsets in meta. */
static inline u32 meta_offset(const struct trans *t, const void *meta)
{
	return (u32)((const u8 *)meta - t->eng->meta);
}

/* One by one: compilers clear a struct by REP STOS, which takes longer. */
static inline struct link *trans_new_link(struct link *link, u64 target)
{
	link->site = link->guard = link->stub = NULL;
	link->rip = target;
	link->times_linked = 0;
	link->unshared = false;
	link->to = NULL;
	link->next_in = NULL;
	link->prev_in = NULL;
	return link;
}

/* scan.c: decodes the instructions of the block. */
enum scan_result { SCAN_OK, SCAN_FAULT, SCAN_FULL };
u32 trans_decode_mode(const struct trans *t);
/* How many bytes an instruction may have before it leaves its code segment. */
u32 trans_room_in_segment(const struct trans *t, u64 rip);
enum scan_result scan_block(struct trans *t, enum guest_fault *fault);
void scan_expect(struct trans *t); /* the block is likely to be decoded: prefetches for it */
/* Would a hot block continue after its last branch? */
bool scan_could_continue(const struct trans *t);
void scan_select(struct trans *t, u32 i); /* makes instruction i the one at hand */

/* price.c: sets the weights' ticks, after scan_block(). */
void trans_price_block(struct trans *t);
void trans_price_learn(const struct trans *t, struct decoded *d); /* of the instruction at hand */

/* emit_flags.c */
void trans_flags_learn(const struct trans *t, struct decoded *d); /* of the instruction at hand */
void trans_flags_classify(const struct trans *t, struct scan *s, const struct decoded *d);
void trans_flags_analyse(struct trans *t); /* of the block */
/* Before code that destroys the host's flags: saves them if they are live */
void emit_flags_keep(struct trans *t);
/* Saves them where other blocks and C expect them, hot->aflags. */
void emit_flags_save(struct trans *t);
void emit_flags_restore(struct trans *t); /* before they are needed */
/* Computes them by the recipe into hot->aflags. Destroys S0, S1 and the host's flags. */
void emit_flags_materialize(struct trans *t);

/* emit_memory.c */
/* Computes the effective address, without segment, into a host register. Destroys S1, not the
 * flags. */
void emit_address(struct trans *t, const struct operand *op, u8 dest);
/* As emit_address(), with 64 or 32 bits. */
void emit_address_sized(struct trans *t, const struct operand *op, u8 dest, bool wide);
/* The address is in S0: turns it into a host address, in line or by a stub that executes n. */
void emit_access_begin(struct trans *t, u32 size, enum seg seg, u32 rw, const struct native *n);
/* An access at the stack pointer plus delta: computes the address, checks it, emits n. */
void emit_access_stack(struct trans *t, s32 delta, u32 size, u32 rw, const struct native *n);
/* The same for a memory operand. */
void emit_access_operand(struct trans *t, const struct operand *op, u32 size, u32 rw,
			 const struct native *n);
void emit_stubs(struct trans *t);

/* emit_share.c */
void trans_share_learn(const struct trans *t, struct decoded *d); /* of the instruction at hand */
void trans_share_analyse(struct trans *t);
bool trans_share_leads(const struct trans *t);	 /* is the access at hand a group's leader? */
bool trans_share_follows(const struct trans *t); /* is it a member that is not the leader? */
/* For members: makes n use the group's host address */
void trans_share_reach(struct trans *t, struct native *n);
/* After n: S0 still holds the group's address. */
void trans_share_reached(struct trans *t, const struct native *n);
/* From the leader's access to the group's first byte */
s64 trans_share_shift(const struct trans *t);
u32 trans_share_span(const struct trans *t);
/* The host address of the group's first byte is in S0: keeps it for the members, and makes n use
 * it. */
void emit_share_keep(struct trans *t, struct native *n);

/* emit_native.c */
void emit_native(struct trans *t, const struct native *n);
/* The instruction at hand, if nothing but flags and registers is to be taken care of. */
bool emit_native_bare(struct trans *t);
/* false: its operands cannot be renamed */
bool trans_native_build(const struct trans *t, struct native *n);
void trans_native_learn(const struct trans *t, struct decoded *d);
void trans_native_flags(const struct trans *t, struct native *n); /* after trans_flags_analyse() */
struct temp trans_temp_guest(u8 guest, u8 host, bool load, bool store);
/* Moves a guest register of `size` bytes (zero-extended) into a host register, and back. */
void emit_guest_get(struct trans *t, u8 guest, u8 host);
void emit_guest_set(struct trans *t, u8 guest, u8 host, u8 size);

/* emit_mask.c: SHAPE_* of the instruction at hand, for struct native. */
u32 trans_mask_shape(const struct trans *t);
/* Emits what slow_access() has to know of the opmask. */
void emit_mask(struct trans *t, const struct native *n);

/* emit_count.c */
void trans_count_weigh(struct trans *t); /* computes the weight of the instruction at hand */
/* The classes that a conditional branch counts in if it is taken, or if it is not. */
retire_wanted trans_count_direction(bool taken);
/* What the block's head charges for an instruction. */
struct weight trans_count_weight(const struct scan *s);
/* A conditional branch that ends a block is charged for both outcomes: each takes back what the
 * other would have counted. */
bool trans_count_needs_fix(const struct trans *t, bool taken);
void emit_count_fix_direction(struct trans *t, bool taken);
/* A side exit: refunds the rest of the block. */
void emit_count_leave(struct trans *t, u32 index, bool taken);
void emit_call_attention(struct trans *t); /* emits: no further block begins */
/* Emits the refund of that instruction and all later ones */
void emit_count_give_back(struct trans *t, u32 index);
/* Stores rip to cpu->port.last_rip: the instruction may be the last of a run. Destroys S0. */
void emit_last_rip(struct trans *t, u64 rip);
void emit_count_begin_block(struct trans *t); /* at the block's head, after the checks */
bool emit_count_end_block(struct trans *t);   /* after the block's code; false: cache full */

/* emit_lbr.c: a near branch is taken, and ends the block. Destroys the flags and S1; S0 too, or
 * keeps the target in it. */
void emit_lbr_record_direct(struct trans *t, enum branch_kind kind, u64 target);
void emit_lbr_record_indirect(struct trans *t, enum branch_kind kind);
/* A branch in the middle of the block */
void emit_lbr_record_continued(struct trans *t, enum branch_kind kind);
bool trans_lbr_looks(const struct trans *t); /* do these functions emit anything? */
/* The block is left before that instruction, or after it if it is not a taken branch. */
void emit_lbr_leave(struct trans *t, u32 index);
/* The taken conditional branch at hand was predicted. ZF is set. Destroys S1. */
void emit_lbr_outcome(struct trans *t);
/* Index in branch_verdict.predicted[] for the conditional branch at hand; or BRANCH_UNNOTED, or
 * BRANCH_UNRECORDED. */
u32 trans_lbr_outcome(const struct trans *t, bool taken);
void emit_lbr_begin_block(struct trans *t);
void emit_lbr_end_block(struct trans *t);
/* emit_observe.c: each emits nothing unless the mode asks for it. Destroy S1 and the flags. */
void emit_observe_insn(struct trans *t); /* at the start of each */
/* Offset of the access's TLB entry in S1; keeps S1 and the flags. */
void emit_observe_entry(struct trans *t);
/* Then, with its host address in S0 */
void emit_observe_data(struct trans *t, u32 desc);
/* Branches destroy S0 as well. */
void emit_observe_conditional(struct trans *t, bool taken); /* the block's last */
void emit_observe_continued(struct trans *t, bool taken);   /* in its middle */
/* Do verdicts on conditional branches have a place of their own in branch_verdict? */
bool trans_observe_in_line(const struct trans *t);
void emit_observe_indirect(struct trans *t);	  /* target in S0, unchanged */
void emit_observe_call(struct trans *t);	  /* before emit_observe_jump() or _indirect() */
void emit_observe_return(struct trans *t);	  /* target in S0, unchanged */
void emit_observe_jump(struct trans *t);	  /* direct, or a direct call */
void emit_observe_log(struct trans *t, u8 *from); /* from: the jump taken if the log is full */
void emit_observe_stubs(struct trans *t);

/* source.c */
void source_begin(struct source *s);
bool source_open(struct trans *t, u32 which, gpa_t gpa, const u8 *host); /* false: cache full */
/* Up to 15 bytes at an offset from the first page's start; how many, 0 if the program's memory
 * faults. */
u32 source_bytes(struct trans *t, u32 offset, u8 *out);
/* The same, where they are, or else copied to out; how many in *n. */
const u8 *source_view(struct trans *t, u32 offset, u8 *out, u32 *n);
/* The byte at an offset, and what is after it in lines that have been read. */
const u8 *source_at(const struct trans *t, u32 offset);
bool source_spans(const struct trans *t); /* has the second page been opened? */
/* The lines of the first page that have these bytes. */
static inline u64 source_lines(u32 from, u32 to)
{
	return MASK((to - 1) / 64, from / 64);
}

/* Makes the copy of these lines of the first page current, without using them; or of these bytes.
 * False: the program's memory faults. */
bool source_load_lines(struct trans *t, u64 lines);
static inline bool source_load(struct trans *t, u32 from, u32 to)
{
	u64 missing = source_lines(from, to) & ~t->source.loaded[0];

	return likely(!missing) || source_load_lines(t, missing);
}

/* kept_block.c: finds the block among those that were kept, and makes it; false: it is to be
 * translated. Sets t->keeps. */
bool kept_block_recall(struct trans *t);
/* Keeps the block, which is complete and not linked yet. */
void kept_block_add(struct trans *t);

/* emit_return.c */
/* After a call's push: emits the landing. Destroys S0, S1 and the flags. */
void emit_return_note(struct trans *t);
/* After a return's pop: jumps to S0 by the slot; false: not in this mode. */
bool emit_return_jump(struct trans *t, u32 popped);

/* availability.c: may this instruction be executed in this mode? Returns the vector to raise, or
 * -1. */
int trans_gate_vector(const struct trans *t);
u8 trans_gate_unit(const struct trans *t); /* for struct decoded */
/* Can it be executed in each mode, by each processor? Its unit is known. */
bool trans_gate_never(const struct trans *t);

/* emit_system.c */
/* The block ends with this instruction. If it accesses the PMU and is not intercepted, executes it
 * and goes to the next one; else falls through. */
void emit_passthrough(struct trans *t, const struct insn *insn);
/* A system instruction that may be emitted: trans_system_learn() says so, and the mode
 * allows it. */
bool trans_system_candidate(const struct trans *t, const struct decoded *d);
bool trans_system_learn(const struct insn *insn); /* for struct decoded */
void emit_system_shadow_ends(struct trans *t);

/* translate.c: t->block as it is at first. */
void trans_begin_block(struct trans *t, u64 rip, gpa_t gpa);

/* translate.c: copies that live as long as the block, of data and of the instruction at hand; NULL:
 * cache full. */
void *trans_keep(struct trans *t, const void *data, u32 size);
struct insn *trans_copy_insn(struct trans *t);
/* The host instruction emitted last ends with this immediate of 64 bits. */
void trans_note_pointer(struct trans *t, u64 pointer);

/* translate.c: of the instruction at hand; NULL: it has none. */
const struct operand *trans_memory_operand(const struct trans *t);

/* translate.c: is it an instruction without effect? */
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
/* site: the displacement of the jump */
void emit_block_link(struct trans *t, u64 target, u8 *site, bool apart);
void emit_block_end_indirect(struct trans *t); /* target in S0 */
void emit_side_exits(struct trans *t);
void emit_misses(struct trans *t);
bool emit_links(struct trans *t); /* false: cache full */
bool trans_branch_conditional(const struct trans *t);
u64 trans_branch_target(const struct trans *t); /* of a direct branch */
/* Is it outside of the code segment? */
bool trans_branch_beyond(const struct trans *t, u64 target);
void emit_block_leave(struct trans *t, enum leave why, u64 arg, u64 rip);
/* As emit_block_leave(), by one of the engine's thunks, whose argument is the block. */
void emit_block_leave_with(struct trans *t, const u8 *thunk);
void emit_push_value(struct trans *t, struct temp value, u8 size);
/* MOV [S0], reg or MOV reg, [S0], by the opcode, of this size. */
struct native trans_native_move(u8 opcode, u8 reg, u8 size);
/* Adds delta to the guest's RSP: now, or to t->rsp_pending if t->rsp_lazy. */
void emit_stack_move(struct trans *t, s32 delta);
void emit_stack_settle(struct trans *t);      /* brings RSP up to date. Destroys nothing */
bool trans_stack_lazy(const struct trans *t); /* for t->rsp_lazy */
u8 trans_stack_learn(const struct trans *t);  /* for struct decoded */
/* from + delta, wrapped to the width of the stack, into a host register. Destroys S1, not the
 * flags. */
void emit_stack_pointer(struct trans *t, u8 dest, u8 from, s32 delta);

#endif
