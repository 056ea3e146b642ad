/* SPDX-License-Identifier: MIT */
/*
 * The tables of the pipeline model and the state of a simulation, shared by its files.
 */
#ifndef PIPELINE_PRIV_H
#define PIPELINE_PRIV_H

#include "pipeline/pipeline.h"

#define NO_PLACE 0xff

/* Of uops.def; Zen 4 has that of Zen 3 but for the rows of zen4.def. */
enum pipe_column {
	COLUMN_SKYLAKE,
	COLUMN_ICELAKE,
	COLUMN_GOLDEN_COVE,
	COLUMN_ZEN3,
	COLUMN_ZEN4,
	PIPE_COLUMNS = COLUMN_ZEN4
};

struct pipe_core {
	enum model_set set;
	u8 column;
	u8 width, retire; /* slots a cycle */
	u8 lost;	  /* a slot of every so many cycles; 0: none */
	u16 rob, scheduler, loads, stores;
	/* Latency: general, XMM, wider registers; more with an index, with a scaled one. */
	u8 load[3], load_index, load_scaled;
	u8 forward, forward_vector,
		blocked;  /* cycles from a store's data, from its commit, to the load's result */
	u8 split;	  /* load uops more of a load that crosses lines */
	u8 page_split;	  /* and more yet of one that crosses pages */
	u8 split_latency; /* cycles more */
	u8 store_unit;	  /* bytes: a store that crosses such a boundary takes two cycles */
	u8 fetch, predecode, decoders, window, line, lines, cached, kept, lcp;
	u8 moves; /* slots of a cycle in which moves are eliminated */
	u8 delay; /* cycles from issue to a port */
	u16 p_load, p_load_vector, p_sta, p_std, p_std_vector, p_alu;
	/* Ports to which uops are bound when they start, the first free one, and not when they
	 * issue. */
	u16 p_late;
	/* Where the upper bytes AH to BH are taken out, which takes two cycles more; 0:
	 * no matter. */
	u16 p_high;
	struct pipe_uop folded_shift; /* of a result that renaming added to */
	bool moves_bytes, folds_adds, fast_adds, renames_memory, renames_stack, renames_addresses,
		groups_stores, checks_words, has_banks, jcc_erratum, fuses_nops, slow_crossings,
		late_index, zeroupper_first, amd;
	u8 ports;
	const char *const *port_names;
};

/* The rows of uops.def. */
enum uops_kind {
#define UOPS(name, ...) UOPS_##name,
#include "pipeline/uops.def"
#undef UOPS
	UOPS_KINDS,
	UOPS_UNKNOWN = UOPS_KINDS,
};

struct uops_run {
	u8 count, latency, divider;
	bool free; /* they take no slot */
	u16 ports;
};

#define UOPS_RUNS 4

struct uops_row {
	u8 shape, domain;
	struct uops_run run[PIPE_COLUMNS][UOPS_RUNS];
};

extern const struct uops_row pipe_uops[UOPS_KINDS];
/* UOPS_RUNS of them: what the core makes of the row. */
const struct uops_run *pipe_runs_of(const struct pipe_core *core, enum uops_kind kind);

/* Which conditions of a branch the instruction before it fuses with; of a branch, its condition. */
enum pipe_fusion { FUSES_NOTHING, FUSES_ZERO_SIGN, FUSES_CARRY_TOO, FUSES_ALL };

/* The rows of facts.def. */
struct pipe_facts {
	u8 effect;	       /* enum pipe_operation */
	u8 same;	       /* enum pipe_idiom: with one register of 32 bits or more twice */
	u8 fuses;	       /* enum pipe_fusion: unless its result goes to memory */
	u8 condition;	       /* enum pipe_fusion: of a conditional branch */
	bool fuses_on_amd : 1; /* only there */
	bool carry_alone : 1;  /* on AMD: with one register twice it needs the carry alone */
	bool nop : 1;
	bool copies : 1; /* between vector registers: the whole of it */
	bool merges : 1; /* keeps a part of the register that Zydis says it writes */
};

const struct pipe_facts *pipe_facts_of(u32 mnemonic); /* ZydisMnemonic */

/* What the row depends on besides the mnemonic. */
struct form_key {
	const ZydisDecodedInstruction *in;
	const ZydisDecodedOperand *ops;
	u8 column;
	u16 width;  /* bits, of the operation */
	u16 vector; /* bits, of the longest vector register; 0 */
	bool from_mem, to_mem;
	bool copies; /* set: the form with memory is the load or store alone */
};

enum uops_kind pipe_kind_of(struct form_key *key);

/* Zydis numbers registers class by class; its own functions may use vector registers and are not
 * called here. */
static inline bool pipe_is_vector(ZydisRegister reg)
{
	return reg >= ZYDIS_REGISTER_XMM0 && reg <= ZYDIS_REGISTER_ZMM31;
}

static inline u32 later(u32 a, u32 b)
{
	return a > b ? a : b;
}

/* --- what bounds.c and price.c share --- */

/* Is it executed on a port? */
bool pipe_needs_port(const struct pipe_core *core, const struct pipe_insn *insn);
/* The time of uops that cannot leave these ports, shared evenly by them. */
u32 pipe_confined(const struct pipe_use *sets, u32 n, u16 ports);

/* --- chains of dependencies, for prices: chain.c --- */

/* Edges and results of a need. `renamed`: the results are there as soon as what it reads is. */
void pipe_chain_edges(const struct pipe_core *core, const struct pipe_insn *insn, bool renamed,
		      struct pipe_need *need);
/* Does what it reads there enter with the last uop? simulate.c. */
bool pipe_enters_late(const struct pipe_core *core, const struct pipe_insn *insn, u8 place);

#define CHAIN_ENDS 16

/* The longest paths from the places that instructions find to those that they leave. */
struct pipe_chain {
	u32 ends;
	u8 end[CHAIN_ENDS];		   /* places that were written */
	u16 path[CHAIN_ENDS][PIPE_PLACES]; /* from each place to that end, cycles + 1; 0: none */
};

void pipe_chain_begin(struct pipe_chain *chain);
/* Before those that were added. */
void pipe_chain_add(struct pipe_chain *chain, const struct pipe_need *need);
/* Ticks that a turn takes if the instructions repeat. */
u32 pipe_chain_turn(const struct pipe_chain *chain);
/* Ticks of an iteration of a loop. */
u32 pipe_chain_loop(const struct pipe_piece *piece, u32 n);

/* With which conditions it fuses: fuse.c. */
enum pipe_fusion pipe_fusion_of(const struct pipe_core *core, const struct pipe_insn *insn);

/* --- values of general registers, where they are known: values.c --- */

struct pipe_values {
	u64 reg[16];
	u16 known;
};

#define UNKNOWN_ADDRESS (~0ull)

void pipe_values_reset(struct pipe_values *values);
void pipe_effect_of(const ZydisDecodedInstruction *in, const ZydisDecodedOperand *ops,
		    struct pipe_insn *insn);
u64 pipe_address(const struct pipe_values *values, const struct pipe_insn *insn);
/* `loaded`: what memory holds there, NULL if unknown. False: `result` is unknown. */
bool pipe_values_step(struct pipe_values *values, const struct pipe_insn *insn, const u64 *loaded,
		      u64 *result);

/* --- the front end: front.c --- */

struct pipe_front {
	u64 at;	   /* address of the next instruction */
	u64 block; /* fetched last: address / core->fetch */
	/* Decoders: cycle of the predecoder, instructions that it found in it. Uop cache: lines of
	 * this cycle, entries left of the line. */
	u32 predecode_cycle, in_block;
	u32 decode, in_cycle; /* cycle of delivery; instructions, or entries, delivered in it */
};

/* The cycle in which the decoders, or the uop cache, deliver the next instruction. */
u32 pipe_decode(struct pipe_front *front, const struct pipe_core *core,
		const struct pipe_insn *insn);
u32 pipe_fetch_cached(struct pipe_front *front, const struct pipe_core *core,
		      const struct pipe_block *block, u32 index);
void pipe_jump(struct pipe_front *front, const struct pipe_core *core, u64 at);
/* Code that the uop cache cannot hold. */
bool pipe_is_uncacheable(const struct pipe_core *core, const struct pipe_insn *insns, u32 count,
			 u64 at);

/* --- the state of a simulation --- */

/* That a uop may start after the issue of the youngest: a power of two. */
#define RING_CYCLES 16384u
#define RING_STORES 128u /* remembered, at least core->stores: a power of two */
#define RING_LOADS  256u
#define RING_ROB    512u
#define RING_GROUPS 8u /* more than commit in the cycles in which they matter */

struct pipe_store {
	u64 address, value;
	u32 issued, data, commit; /* cycles */
	u8 size;
	bool known, plain;
	u8 from; /* enum pipe_domain of the data */
	struct pipe_mem mem;
	u64 slot; /* before it */
};

/* Stores that leave together. */
struct pipe_group {
	u64 unit, bytes; /* address / core->store_unit; written ones, a bit each */
	u32 at;		 /* cycle of the first */
};

struct pipe_work {
	const struct pipe_core *core;
	bool ideal;		 /* dependencies alone: unlimited width, ports and buffers */
	u16 pending[PIPE_PORTS]; /* uops bound to a port that have not started */
	u32 waiting;		 /* all of them */
	u32 cycle, used;	 /* of issue: slots used of it */
	u32 deliver;		 /* cycle in which the front end has the instruction */
	u64 slot;		 /* issued so far */
	u32 retired[RING_ROB], last_retired, retired_then;
	u32 ready[PIPE_PLACES];
	u8 domain[PIPE_PLACES];
	u64 written[16]; /* general registers: the slot of the last instruction that wrote it */
	struct pipe_store store[RING_STORES];
	u32 stores, loads;
	u32 load_retired[RING_LOADS];
	u32 last_commit, commits;
	u64 last_unit; /* address / core->store_unit */
	struct pipe_group group[RING_GROUPS];
	u32 groups;	  /* closed: the next one is open */
	bool stack_moved; /* the stack engine has an offset that RSP lacks */
	struct pipe_values values;
	struct pipe_front front;
	u32 port_uops[PIPE_PORTS];
	/* Not used while `ideal`. By cycle: ports on which a uop starts, and the divider; loads of
	 * each 4 bytes of a line, two bits each. */
	u16 busy[RING_CYCLES];
	u32 banks[RING_CYCLES];
};

/* Issue, ports, retirement: backend.c. */
void pipe_begin_slots(struct pipe_work *w, u32 slots);
void pipe_end_slots(struct pipe_work *w, u32 slots);
u32 pipe_issue(struct pipe_work *w);
u32 pipe_start(struct pipe_work *w, const struct pipe_uop *uop, u32 ready);
/* The same of a load: sapphirerapids reads the same 4 bytes of lines only twice a cycle. */
u32 pipe_start_load(struct pipe_work *w, u32 ready, u64 address, const struct pipe_insn *insn);
void pipe_retire(struct pipe_work *w, u32 complete);

/* Loads and stores: memory.c. */
struct pipe_access {
	u64 address; /* or UNKNOWN_ADDRESS */
	u64 value;
	bool known; /* the value is */
	u32 issued, done;
	u64 slot; /* before it */
};

void pipe_load(struct pipe_work *w, const struct pipe_insn *insn, struct pipe_access *access);
u32 pipe_store_uops(struct pipe_work *w, const struct pipe_insn *insn, u32 ready, u32 *data);
void pipe_remember_store(struct pipe_work *w, const struct pipe_insn *insn,
			 const struct pipe_access *access, u32 data, u8 from);
/* The cycle from which the load or store has a buffer. */
u32 pipe_buffer_free(const struct pipe_work *w, const struct pipe_insn *insn);

/* bounds.c; result->slots and ->decoded are set. */
void pipe_bounds(const struct pipe_core *core, const struct pipe_block *block, u32 latency,
		 struct pipe_result *result);

#endif
