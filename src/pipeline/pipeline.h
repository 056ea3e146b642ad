/* SPDX-License-Identifier: MIT */
/*
 * The pipeline model: how many cycles straight-line code and loops take on a core of each CPU model
 * while every load hits L1 and every branch is predicted. Pure computation without state of its
 * own: the same input gives the same output. General registers only and no libc.
 *
 *   pipe_describe   an instruction as Zydis decoded it, reduced to uops, ports, latencies and
 *                   registers (form.c, table.c)
 *   pipe_simulate   iterations of a block: front end, renaming, ports, memory, retirement
 *                   (simulate.c), and what each part of the core alone would allow (bounds.c):
 *                   the largest of these bounds is the bottleneck
 *   pipe_price      what each instruction adds to the time of straight-line code, without a
 *                   simulation (price.c): a guest's cycles are the sum of these
 *
 * Facts are rows: cores.def (a model each), uops.def and zen4.def (ports and latencies), forms.def
 * (which mnemonic is what), facts.def (what else is known of it).
 */
#ifndef PIPELINE_PIPELINE_H
#define PIPELINE_PIPELINE_H

#include <Zydis/Zydis.h>

#include "base/types.h"
#include "x86/models.h"

#define PIPE_TICKS 120 /* a cycle: thirds, quarters, fifths, sixths and eighths are whole */
#define PIPE_PORTS 14
#define PIPE_INSNS 256 /* of one block */
#define PIPE_UOPS  12  /* of one instruction, besides its load and store */

struct pipe_core;

const struct pipe_core *pipe_core_of(enum model_set set); /* one bit of it; NULL: no such core */
u32 pipe_port_count(const struct pipe_core *core);
const char *pipe_port_name(const struct pipe_core *core, u32 port);
u32 pipe_width(const struct pipe_core *core); /* issue slots a cycle */

/* Places that an instruction reads and writes. Flags are two: the carry, and all others. */
enum pipe_place {
	PLACE_GPR = 0,
	PLACE_VEC = 16,
	PLACE_MASK = 48,
	PLACE_MMX = 56,
	PLACE_X87 = 64,
	PLACE_CARRY,
	PLACE_FLAGS,
	PIPE_PLACES,
};

struct pipe_places {
	u8 n, at[8];
};

struct pipe_mem {
	s64 disp;
	u8 base, index; /* places, or 0xff */
	u8 scale, size; /* size in bytes */
	bool rip;
};

struct pipe_uop {
	u16 ports;  /* one of these */
	u8 latency; /* cycles until a dependent uop may start */
	u8 divider; /* cycles for which it occupies the divider */
	bool twice; /* it occupies its port for two cycles */
};

/* How the uops of one instruction depend on one another. */
enum pipe_shape {
	SHAPE_CHAIN, /* each on the one before it */
	SHAPE_TREE,  /* the last on all others */
	SHAPE_WIDE,  /* none; the first gives the result */
	SHAPE_LATE,  /* a chain; what is both read and written enters with the last */
};

enum pipe_idiom {
	IDIOM_NONE,
	IDIOM_NOP,  /* a slot, no port */
	IDIOM_ZERO, /* a result that depends on nothing, no port */
	IDIOM_ONES, /* a result that depends on nothing, with a port */
	IDIOM_MOVE, /* may be done by renaming */
	IDIOM_ADD,  /* a small constant added: some cores do it while renaming */
	IDIOM_BRANCH,
};

/* Which units a result is from: passing it on to others may take longer. */
enum pipe_domain {
	DOMAIN_SLOW,   /* loads, IMUL and their like */
	DOMAIN_FOLDED, /* an addition that renaming did */
	DOMAIN_INT,
	DOMAIN_SHUFFLE,
	DOMAIN_VECTOR, /* vector logic, additions, comparisons, shifts */
	DOMAIN_FLOGIC, /* the same bits by instructions of floating point: ANDPS */
	DOMAIN_MUL,    /* vector multiplications of integers, AES */
	DOMAIN_FLOAT,
	DOMAIN_ADDER, /* floating-point additions */
};

/* What happens to a general register, as far as values.c follows it. */
enum pipe_operation {
	EFFECT_UNKNOWN, /* what is written holds something unknown */
	EFFECT_MOVE,
	EFFECT_EXTEND,
	EFFECT_SIGN_EXTEND,
	EFFECT_LEA,
	EFFECT_ADD, /* from here to EFFECT_NOT: of the destination too */
	EFFECT_SUB,
	EFFECT_AND,
	EFFECT_OR,
	EFFECT_XOR,
	EFFECT_SHL,
	EFFECT_SHR,
	EFFECT_SAR,
	EFFECT_MUL,
	EFFECT_NEG,
	EFFECT_NOT,
	EFFECT_PUSH,
	EFFECT_POP,
};

enum pipe_source { SOURCE_REGISTER, SOURCE_MEMORY, SOURCE_CONSTANT };

struct pipe_effect {
	u8 operation;
	u8 dest, size; /* a register, or 0xff: memory; bytes */
	u8 from;       /* enum pipe_source */
	u8 source, source_size;
	bool three; /* IMUL: dest = source * constant */
	s64 constant;
};

struct pipe_insn {
	u16 mnemonic; /* ZydisMnemonic */
	u8 length;
	u8 idiom, shape, domain;
	u8 uops;    /* in uop[] */
	u8 slots;   /* of issue */
	u8 free;    /* of the uops, those that take no slot */
	u8 decoded; /* uops as decoders and uop cache see them: before un-lamination */
	u8 wide;    /* more entries of the uop cache that its constants need */
	u8 load_latency;
	bool load, store, vector; /* vector: of vector registers */
	bool twice;		  /* loads and stores its memory in two cycles */
	bool low_first;		  /* RAX has the result of the first uop */
	bool has_immediate;
	bool shifts;	 /* shift or rotate of a general register */
	bool lcp;	 /* length-changing prefix */
	bool fuses_next; /* is one uop with the conditional branch that follows */
	bool pushes, pops, touches_rsp;
	/* Base and displacement, for a general register: memory may be renamed. */
	bool plain_address;
	struct pipe_uop uop[PIPE_UOPS];
	struct pipe_places reads, writes, address;
	struct pipe_mem mem;
	struct pipe_effect effect;
};

/* Straight-line code, repeated; or a loop, whose last instruction is the branch back to
 * the first. */
struct pipe_block {
	u64 at; /* address of the first byte, for alignment */
	u32 count;
	bool loops;
	struct pipe_insn insn[PIPE_INSNS];
};

/* False: there is no row for it. */
bool pipe_describe(const struct pipe_core *core, const ZydisDecodedInstruction *in,
		   const ZydisDecodedOperand *ops, struct pipe_insn *insn);
/* To be called once, when the block is complete: fuses compares with branches. */
void pipe_fuse(const struct pipe_core *core, struct pipe_block *block);

enum pipe_bound {
	BOUND_FRONT_END,
	BOUND_ISSUE,
	BOUND_PORTS,
	BOUND_DIVIDER,
	BOUND_LATENCY,
	PIPE_BOUNDS
};

struct pipe_result {
	u32 ticks;		/* an iteration; so are the others */
	u32 slots;		/* issued, with those of the stack engine, in ticks */
	u32 port[PIPE_PORTS];	/* uops that each port executed, in ticks */
	u32 bound[PIPE_BOUNDS]; /* what that part alone would take */
	u16 bound_ports;	/* of BOUND_PORTS */
	bool decoded;		/* the uop cache does not hold it */
};

struct pipe_work; /* the caller allocates pipe_work_size() bytes, aligned for u64 */
size_t pipe_work_size(void);

/* Ticks that an iteration of a loop takes by its dependencies alone. */
u32 pipe_loop_latency(const struct pipe_core *core, const struct pipe_block *block,
		      struct pipe_work *work);

/* 1 <= block->count <= PIPE_INSNS. `decoded`: as if the uop cache held nothing. */
void pipe_simulate(const struct pipe_core *core, const struct pipe_block *block, bool decoded,
		   struct pipe_work *work, struct pipe_result *result);

/* --- prices: price.c --- */

#define PIPE_USES	8
#define PIPE_EDGES	7
#define PIPE_RESULTS	5
#define PIPE_LOOP_INSNS 1024 /* of a loop whose latency is priced */
#define PIPE_SHORT_LOOP 64   /* and of one whose stores and loads are followed, too */
#define PIPE_LINE	64   /* bytes; segments end with the last instruction that begins in one */
#define PIPE_STRETCH	512  /* bytes; chains of straight-line code are cut at multiples of it */
#define PIPE_STRAIGHT	4    /* lines of straight-line code after one whose chain is priced */

struct pipe_use {
	u16 ports; /* one of these */
	u16 uops;
};

/* A place that an instruction reads, and cycles from there to its results. */
struct pipe_edge {
	u8 place, latency;
};

/* A call is a direct one. */
enum pipe_branch {
	BRANCH_NONE,
	BRANCH_CONDITIONAL,
	BRANCH_CALL,
	BRANCH_RETURN,
	BRANCH_OTHER,
};

/* What an instruction needs of the core, whatever is around it and whatever its constants are:
 * instructions that differ in displacement and immediate alone need the same. */
struct pipe_need {
	u8 slots, divider;
	u8 fuses, condition; /* enum pipe_fusion */
	u8 branch;	     /* enum pipe_branch */
	u8 cycles;	     /* its price, if that is fixed: it ends its segment */
	u8 uses, edges, results;
	struct pipe_edge edge[PIPE_EDGES];
	u8 result[PIPE_RESULTS]; /* places that it writes */
	struct pipe_use use[PIPE_USES];
};

/* An instruction in memory. */
struct pipe_piece {
	const struct pipe_need *need;
	u32 at; /* offset in its page */
	u8 length;
	s64 jump; /* of a direct branch: bytes from its end to its target */
};

struct pipe_price {
	u16 slots;  /* of issue */
	u16 wait;   /* ticks */
	bool fused; /* with the branch after it */
};

void pipe_need(const struct pipe_core *core, const ZydisDecodedInstruction *in,
	       const ZydisDecodedOperand *ops, struct pipe_need *need);
bool pipe_ends_segment(const struct pipe_piece *piece);
/* Does the code go on after it, whatever the next instruction is? */
bool pipe_falls_through(const struct pipe_piece *piece);
/* Prices of pieces, each of which follows the one before it in memory unless that ends a segment.
 * The price of a piece holds if all pieces are there up to the first that does not fall through, or
 * up to the end of its stretch and PIPE_STRAIGHT lines more, or of the page. */
void pipe_price(const struct pipe_core *core, const struct pipe_piece *piece, u32 n,
		struct pipe_price *price);
u32 pipe_price_ticks(const struct pipe_core *core, const struct pipe_price *price);
/* May it be part of a loop whose latency is priced? One that is not described may not be, nor a
 * call, unless the pieces after it are what it calls, up to its return, without branches. */
bool pipe_fits_loop(const struct pipe_piece *piece, bool is_last);
/* Ticks of the slots that make an instruction a heavy one: RETIRE_HEAVY_SLOTS. */
u32 pipe_price_heavy(const struct pipe_core *core, const struct pipe_price *price);
/* Ticks by which an iteration takes longer than the sum of its prices, for the branch back, which
 * is the last piece; n <= PIPE_LOOP_INSNS. Negative: it takes less, by no more than that branch
 * waits for its port. `loop` has the same instructions, described, and is
 * changed. */
s32 pipe_loop_wait(const struct pipe_core *core, const struct pipe_piece *piece, u32 n,
		   struct pipe_block *loop, struct pipe_work *work);

#endif
