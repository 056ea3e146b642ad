/* SPDX-License-Identifier: MIT */
/*
 * The inside of the engine. See docs/architecture.md, "The engine", for the design.
 *
 * Host registers while translated code runs:
 *
 *	RSP		struct cpu; below it the stack of helpers and signal handlers
 *	RCX RDX RBX RBP RSI RDI R8-R11	the guest's registers of the same name
 *	R12		guest RAX
 *	R15		guest RSP
 *	R13, RAX	scratch (S0, S1); RAX because LAHF and SETO AL save the flags through it
 *	R14		the countdown: see below
 *	guest R12-R15	in cpu->regs[]
 *
 * The countdown holds two numbers: minus the instructions left (plus one) in its upper 40 bits, and
 *the branches retired in its lower 24. A block adds its own constants once, at its head; the sign
 *tells that it asks for more than is left. Slices are short enough that the branch field cannot
 *overflow.
 */
#ifndef ENGINE_PRIV_H
#define ENGINE_PRIV_H

#include "cpu/cpu.h"
#include "cpu/mmu/code_pages.h"
#include "cpu/mode.h"
#include "engine/engine.h"
#include "engine/flag_recipe.h"
#include "engine/insn.h"

/* Displacements from RSP in translated code. */
#define CPU(field)  ((s32)offsetof(struct cpu, field))
#define PRIV(field) ((s32)offsetof(struct cpu_whole, priv.field))
#define HOT(field)  ((s32)offsetof(struct cpu_hot, field))

#define S0	       R13
#define S1	       RAX
#define COUNTDOWN      R14
#define HOST_GUEST_RAX R12
#define HOST_GUEST_RSP R15

#define COUNT_SHIFT 24
#define SLICE_MAX   (1u << 22)

#define BLOCK_INSNS ENGINE_BLOCK_INSNS

/* Why translated code came back: the value it returns to enter(). */
enum leave {
	LEAVE_LOOKUP,	  /* cpu->rip is next; its code is not known here. leave_arg is the block */
	LEAVE_RETURN,	  /* the same, by the return that ends block hot->returned_from */
	LEAVE_BAD_TARGET, /* the branch that ends block leave_arg has a non-canonical target */
	LEAVE_LINK,	  /* the same, and leave_arg is the link to patch */
	LEAVE_COMPLEX, /* leave_arg is the struct insn for sys_execute(); cpu->rip is its address */
	LEAVE_RAISE,   /* leave_arg is a vector to raise at cpu->rip */
	LEAVE_COUNTDOWN, /* leave_arg is the block that would overdraw; nothing of it ran */
	LEAVE_TRIP,	 /* the same, and it would reach a trip; its weights are added */
	LEAVE_HOT,	 /* leave_arg is the block; it has been executed often; nothing of it ran */
	LEAVE_ATTENTION, /* leave_arg is the block; cpu->attention is set */
	LEAVE_STEP,	 /* a one-instruction block is done */
	LEAVE_FAULT,	 /* a fault or exit in mid-block; state is complete */
};

#define NLEAVES (LEAVE_FAULT + 1)

/*
 * A patchable jump out of a block. One to another page is guarded: it is taken only while all that is
 * known of code is as old as when it was linked. Where it is not, as in another address space, the
 * jump cache serves; if that does not know the target either, or goes on for long, the link is made
 * anew.
 */
struct link {
	u8 *site;  /* the displacement, writable view */
	u8 *guard; /* the number of the generation that it holds for, the same view; NULL: it always does */
	u8 *stub;  /* where it goes while unlinked */
	u64 rip;   /* target */
	s32 patience; /* how often the guard may still fail before it is linked again */
	u8 linked;    /* how often it has been, up to a number */
	bool apart;   /* the block there is one of MODE_APART */
	struct block *to;
	struct link *next_in, **prev_in; /* in to->links_in */
};

/* Of a conditional branch that a block goes on behind, and that is shown to the timing model. */
enum outcome { NO_OUTCOME, OUTCOME_NOT_TAKEN, OUTCOME_TAKEN };

/* Where an instruction's host code begins; for faults that come by signal or from helpers. */
struct place {
	u32 host;  /* offset in the block's code */
	s16 guest; /* offset from the block's first byte */
	s16 next;  /* the same, of the instruction that the block executes behind it */
	u8 len : 4;
	u8 flags : 4; /* PLACE_* */
	s8 owed;   /* what the stack pointer has yet to move by, in eights */
	u8 index : 6;	/* of the instruction in the block */
	u8 outcome : 2; /* enum outcome */
	u8 recipe; /* of the arithmetic flags: index + 1 in block->recipes; 0: none */
};

#define PLACE_FLAGS_IN_HOST                                                                 \
	1		/* the arithmetic flags are in the host's flags, not in hot->aflags \
			 */
#define PLACE_BRANCH  4 /* it is a branch */
#define PLACE_SPILLED 2 /* the countdown is in priv->spill[SPILL_COUNTDOWN] */
#define PLACE_PUSHES  8 /* when it is done, the stack pointer has to move by minus eight more */

_Static_assert(BLOCK_INSNS < 1 << 6, "struct place");

/* Uses of priv->spill[]. */
enum spill {
	SPILL_HIGH8,	 /* a register whose second byte is wanted */
	SPILL_TARGET,	 /* of an indirect call, while its return address is pushed */
	SPILL_BIT,	 /* bit offset of BT and its kin */
	SPILL_COUNTDOWN, /* R14 while it serves as a third scratch register */
	SPILL_R14,	 /* R14 outside translated code */
	SPILL_ARG,	 /* argument of enum leave; entry point on the way in */
	SPILL_HOST,	 /* host address from slow_access() */
	SPILL_MASK,	 /* for slow_masked.c: the opmask register */
	SPILL_SHAPE,	 /* for slow_masked.c: SHAPE_* */
};

#define NO_GPA (~0ull)

struct block {
	/* What looking for a block needs is in its first line of the cache. */
	u64 rip;
	gpa_t gpa, gpa2; /* gpa2: page of the last instruction's tail if it crosses, else NO_GPA */
	u32 mode;
	u32 limit; /* of the code segment: code_limit() */
	u16 ninsns;
	bool hot; /* made after it had been executed often: goes on behind branches */
	u8 *code; /* writable view */
	struct block *next_hash;
	u8 nbranches;
	s32 heat;      /* executions until it is hot */
	s32 rsp_moved; /* by that branch, if its target may turn out to be bad */
	u32 path; /* of the branches that it goes on behind: struct branch_path, in meta; 0: none */
	const u8 *host2; /* where the page of gpa2 is */
	u64 lines, lines2; /* 64-byte lines of the page(s) it was made from */
	struct block *next_page, *next_page2;
	struct link *link; /* nlinks of them */
	u32 nlinks;
	struct link *links_in;
	struct place *places; /* ninsns of them, then the out-of-line ones */
	u32 nplaces;
	struct recipe *recipes;
	struct weight *weights; /* one an instruction; NULL: nothing of them is counted */
	u64 *charge; /* with these: what it adds to priv->packed[] */
	struct insn *complex;	/* the last instruction, if C executes it */
	u64 *retired; /* of a processor with a profile: where its instructions are counted */
};

/* Every other block was made from some line of its page. */
static inline bool block_dropped(const struct block *block)
{
	return !block->lines;
}

/* Our side of a struct code_page: what the bytes were when they were translated. */
struct page_copy {
	struct block *blocks;
	u8 bytes[PAGE_SIZE];
};

/* A write that slow_commit() completes. */
struct slow_state {
	gva_t address;
	u32 size;
	bool bounced; /* the data is in the bounce buffer; else it is in place and only code is
			 watched */
	bool refused; /* it has faulted, and there is nothing to be stored: slow_fault.c */
	u32 desc;     /* then: what the address is */
	u8 *data;
	u64 selected; /* elements under an opmask */
	u32 element;  /* the size of one; 0: there is no opmask */
	gpa_t gpa[2]; /* the pages written, when not bounced */
	u32 part[2];
};

/* Pages that jump[] leads to. */
#define ENTERED_MAX 1024

struct entered {
	u64 drops;   /* priv->drops that these are of */
	u64 lookups; /* since jump[] was last dropped */
	u64 since;   /* with so many instructions retired the epoch began */
	u32 n;
	struct entered_page {
		struct code_page *page;
		const u8 *host;
	} page[ENTERED_MAX];
};

/* A page that was claimed, and some processor may not know yet: cpu/mmu/shared_code.h. */
struct unheard {
	struct code_page *page;
	u64 number;
};

#define UNHEARD_MAX 256

#define FETCH_CACHE 256

struct fetch_kind {
	u8 shift; /* log2 of the guest's page */
	bool global;
};

struct fetch_entry {
	u64 page, generation;
	gpa_t gpa;
	hva_t host;
	u8 cpl;
	struct fetch_kind kind;
	bool valid;
};

struct engine {
	/* Code memory, mapped twice: code_memory.h. */
	u8 *code_rw, *code_rx;
	u8 *code_first, *code_next, *code_limit; /* writable view; first: behind the thunks */
	/* Everything else that belongs to blocks: bump-allocated, dropped as a whole. */
	u8 *meta, *meta_next, *meta_limit;
	u8 *code_ready, *meta_ready; /* what lies before these is mapped */
	bool huge;		     /* the next of meta will be on huge pages */
	struct block **by_address; /* blocks in order of code address */
	u32 *begins;		   /* where the code of each begins: an array to search in */
	struct block **by_hash;	   /* BLOCK_HASHES chains */
	struct decoder *decoder;   /* decoder.c */
	u32 nblocks;
	u64 jumps_base; /* the code segment that jump[] is about where code is not flat */
	u32 jumps_limit;
	u8 linear_bits; /* of the addresses that blocks check */
	bool avx512;	/* blocks were translated with XCR0 enabling it */
	struct fetch_entry fetch[FETCH_CACHE];

	struct entered entered[NSPACES];
	struct unheard unheard[UNHEARD_MAX]; /* in the order of their numbers */
	u32 nunheard;
	u64 unheard_more; /* the number of the last that did not fit; 0: none */

	bool inside; /* translated code is on the stack: no block may be dropped */
	bool executing; /* C executes the instruction at cpu->port.last_rip */
	bool notice; /* epoch_notice() before the next entry */
	u64 epoch; /* grows whenever code may have been changed by others; not 0 */
	u64 since[NSPACES]; /* the last one in which that may have been code of the space */
	u64 slice;     /* instructions the countdown started from */
	u64 budget;    /* instructions that may retire beyond the slice */
	u64 effort_from; /* cpu->port.effort when the run began */
	u64 effort_most; /* how much more of it there may be */
	bool step;     /* the next instruction is to be executed alone */
	bool whole;    /* the slice is all that is left, and not a part of it */
	bool held;     /* it ends one instruction in front of a trip: count.c */
	bool near;     /* the slice ends within a block: its rest is executed in blocks of one */
	bool spent;    /* what is left of the budget is less than a block, and need not be used */
	bool alone;    /* the next instruction is to be executed while all other processors stand still */
	bool owed;     /* an instruction that reached a trip before it was done: execute it, whatever comes */
	bool counting; /* the countdown, priv->live[] and priv->packed[] have begun: count.h */
	u32 counting_mode; /* what they have begun for: MODE_COUNTING of the mode */
	bool both;	   /* no trip is of one privilege alone */
	retire_wanted counted; /* the classes that are in priv->live[] */
	retire_wanted packed;  /* those that are in priv->packed[] */
	s64 live_from[NRETIRE];	/* what they began at */
	u64 packed_from[PACK_WORDS]; /* the same of priv->packed[] */
	u64 guards; /* of these */
	u64 exit_rip;  /* where engine_run() last returned: MMIO answers are for that instruction */
	u64 era;       /* of all generations in jump[], links and return slots: jump_cache.c */
	u64 *enterable;		/* of the checking build: code_check.c */
	u64 returns_key[NTLBS]; /* jump_key with which priv->returns[] hold; NO_KEY: with none */
	u32 modes[16];	/* modes seen; their index is part of jump_key */
	u32 nmodes;
	u32 last_mode[NSPACES]; /* index of the one that was last asked for */
	enum guest_fault left;	   /* with LEAVE_FAULT: why; FAULT_NONE: the instruction is done */
	bool heating;		   /* the block being made is to be a hot one */
	bool again;		   /* but it is not: it is to be executed again */
	struct slow_state pending; /* between slow_access() and slow_commit() */
	/* Entry points of the generated runtime, executable view. */
	bool has_rorx; /* the host has */
	u64 (*enter)(struct cpu *cpu, const void *code);
	u8 *jump_lookup;				 /* writable view: goes where S0 says */
	u8 *leave, *slow, *share, *commit, *call, *pass; /* writable view */
	/* The same: emit_entry.c, "Ways out" */
	u8 *leave_with[NLEAVES], *guard_failed, *jump_missed;
	u8 *log_full; /* the same */
	u8 *beyond;   /* the same, for a branch that leaves its segment */
	u8 *check_jump, *check_return; /* the same, of the checking build */
	u8 *observe_access, *observe_fetch, *observe_branch, *observe_trip;
	u64 blocks_made, flushes;
	u64 deaths; /* of blocks, and flushes: invariant 7 */
	s32 heat; /* executions after which a block is made again */
	struct profile *profile; /* base/profile.h; NULL: none */
	u64 *profiled;		 /* the counter of the block that was visited last */
	u64 profiled_at;	 /* count_instructions() when it was */
};

/* emit_entry.c */
bool emit_thunks(struct engine *eng);

/* code_cache_memory.c, code_cache.c */
#define MAX_BLOCKS	(1u << 20)
#define BLOCK_HASH_BITS 18
#define BLOCK_HASHES	(1u << BLOCK_HASH_BITS)

int cache_create(struct engine *eng);
void cache_destroy(struct engine *eng);
/* Maps what the next blocks will take. Not with guest vector state live. */
void cache_populate(struct engine *eng);

#define CACHE_STRIDE (256u << 10) /* mapped at once */

static inline bool cache_wants_memory(const struct engine *eng)
{
	return eng->code_ready < eng->code_next + CACHE_STRIDE ||
	       eng->meta_ready < eng->meta_next + CACHE_STRIDE;
}

void cache_flush(struct cpu *cpu);
void *cache_alloc(struct engine *eng, size_t size); /* NULL: full */
struct block *cache_alloc_block(struct engine *eng); /* the same */
bool cache_room(const struct engine *eng);	    /* for one more block, whatever its size */
struct block *cache_find(const struct cpu *cpu, u64 rip, gpa_t gpa, u32 mode);
void cache_prefetch(const struct engine *eng, u64 rip, gpa_t gpa, u32 mode); /* for it */
void cache_insert(struct cpu *cpu, struct block *block); /* its pages come from cache_page() */
bool cache_holds(const struct engine *eng, u64 host_pc); /* code of a block; executable view */
struct block *cache_by_code(const struct engine *eng, const u8 *host_pc); /* executable view */
struct page_copy *cache_page(struct cpu *cpu, gpa_t gpa);		  /* NULL: full */
void cache_verify(struct cpu *cpu, struct code_page *page, const u8 *host);
void cache_doubt(struct cpu *cpu, gpa_t gpa); /* the page is to be verified when next entered */
void cache_written(struct cpu *cpu);
/* Others may have changed code: compares what they may have changed unnoticed. Returns whether it may
 * be anything at all. */
bool cache_notice(struct cpu *cpu);
bool cache_notice_due(const struct cpu *cpu); /* would epoch_notice() do anything? Changes nothing */
void cache_drop(struct cpu *cpu, struct block *block);
void link_set(const struct engine *eng, struct link *link, struct block *to);
void link_renew(const struct cpu *cpu, struct link *link, struct block *to); /* a guarded one */
void links_forget(struct engine *eng); /* all that are guarded */

#define NO_KEY BIT(32) /* longer than any jump_key */

static inline const u8 *exec_view(const struct engine *eng, const u8 *rw)
{
	return rw + (eng->code_rx - eng->code_rw);
}

/* jump_cache.c: the jump cache, and epochs. */
void returns_forget(struct engine *eng); /* before the next entry */
void epoch_begin(struct cpu *cpu, enum space space); /* others may have changed code of the space */
/* The same, if somebody has made himself heard: cpu/mmu/shared_code.h */
void epoch_notice(struct cpu *cpu);
void jump_clear(struct cpu *cpu);
void jump_update_key(struct cpu *cpu, u32 mode);
u32 jump_mode(const struct cpu *cpu); /* that the key is for */
/* What lies in the code segment that the processor is in. In 64-bit code there is no limit. */
static inline u32 code_limit(const struct cpu *cpu, u32 mode)
{
	return mode & (MODE_CODE64 | MODE_FLAT) ? ~0u : cpu->seg[CS].limit;
}

/* Code of this mode looks into the jump cache; what is short-lived does not, and leaves its entries
 * to the others. */
static inline bool jump_usable(u32 mode)
{
	return !(mode & (MODE_STEP | MODE_CUT));
}
/* Where translated code would jump to from here without asking, or NULL. Updates the key. */
const void *jump_known(struct cpu *cpu, u32 mode);
/* This block is at RIP. Its pages must have been noted. */
void jump_remember(struct cpu *cpu, const struct block *block);
void jump_forget(struct cpu *cpu, const struct block *block); /* it is to be no more */
void jump_note_page(struct cpu *cpu, struct code_page *page, const u8 *host);
/* Do the notes hold still? Not if everything has been dropped since. */
bool jump_noted(const struct cpu *cpu);

/* Whose code this processor executes. */
static inline enum space space_of(const struct cpu *cpu)
{
	return cpu->cpl == 3 ? SPACE_USR : SPACE_OS;
}

/* Has it been compared since code like that which is executed may have been changed? */
static inline bool page_fresh(const struct cpu *cpu, const struct code_page *page)
{
	return page->epoch >= cpu->engine->since[space_of(cpu)];
}

/* find_block.c: the block at cpu->rip for this mode, made if there is none. NULL: *fault says why.
 */
struct block *block_find(struct cpu *cpu, u32 mode, enum guest_fault *fault);

static inline u64 linear_rip(const struct cpu *cpu)
{
	return cpu_priv(cpu)->mode & MODE_CODE64 ? cpu->rip : (u32)(cpu->seg[CS].base + cpu->rip);
}

/* fetch.c: where the code at a linear address is; checks that it may be executed. */
enum guest_fault fetch_page(struct cpu *cpu, u64 linear, gpa_t *gpa, const u8 **host);
/* Of the page that code which is being executed lies on. */
struct fetch_kind fetch_kind(struct cpu *cpu, u64 linear);

/*
 * translate.c: makes the block at cpu->rip, whose first byte is at gpa and host, for this mode.
 * Returns NULL with *fault set when fetching faults, with FAULT_NONE when the cache is full. May save
 * the guest's vector state.
 */
struct block *translate(struct cpu *cpu, u32 mode, gpa_t gpa, const u8 *host,
			enum guest_fault *fault);

/* slow_access.c: called from translated code */
u64 slow_access(struct cpu *cpu, u64 address, u32 desc, const u8 *return_pc);
u64 slow_share(struct cpu *cpu, u64 address, u32 desc, const u8 *return_pc);
u64 slow_commit(struct cpu *cpu, u64 unused, u32 desc, const u8 *return_pc);
u64 slow_beyond(struct cpu *cpu, u64 unused, u32 pushes, const u8 *return_pc);
/* slow_fault.c: the access of slow_access() faults, or exits; and the instruction has been
 * executed. */
u64 slow_fault_access(struct cpu *cpu, enum guest_fault fault, u64 address, u32 desc,
		      const u8 *return_pc);
enum guest_fault slow_fault_computed(struct cpu *cpu);
/* The access to a linear address that has been checked. */
u64 slow_span(struct cpu *cpu, gva_t gva, u32 desc, u32 access, const u8 *return_pc);
bool slow_vector_misaligned(u64 address, u32 desc);
/* An address of translated code, with a DESC_* word, to a linear one. */
enum guest_fault slow_linear(struct cpu *cpu, u64 address, u32 desc, u32 access, gva_t *out);
/* For a call whose target is bad: would its push fault? Where calls push first, it is made. */
enum guest_fault slow_try_push(struct cpu *cpu, u32 size, u64 value);

/* slow_masked.c: slow_access() of an operand under an opmask. */
u64 slow_masked_access(struct cpu *cpu, u64 address, u32 desc, const u8 *return_pc);
/* What it has selected, for the bounce buffer; and between that and guest memory. */
void slow_masked_select(const struct cpu *cpu, struct slow_state *pending);
enum guest_fault slow_masked_read(struct cpu *cpu, u32 access);
enum guest_fault slow_masked_write(struct cpu *cpu);
/* Data breakpoints of the selected elements, the first of them at gva. */
void slow_masked_watch(struct cpu *cpu, gva_t gva, u32 access);

/* call_insn.c: the same; executes a struct insn */
u64 call_insn(struct cpu *cpu, u64 insn, u32 unused, const u8 *return_pc);

/*
 * passthrough.c: the same; one that accesses the PMU, with which the block ends. `access` is the
 * exit that it is if the hypervisor wants it. SLOW_COMMIT: nothing has happened, leave with
 * LEAVE_COMPLEX.
 */
u64 passthrough_insn(struct cpu *cpu, u64 insn, u32 access, const u8 *return_pc);

/* Flags: whole in rflags outside translated code, arithmetic ones in aflags inside. */
static inline void flags_in(struct cpu *cpu)
{
	cpu_hot(cpu)->aflags = (cpu->rflags & 0xff) << 8 | !!(cpu->rflags & FL_OF);
}

static inline void flags_out(struct cpu *cpu)
{
	u64 arith = (cpu_hot(cpu)->aflags >> 8 & (FL_ARITH & 0xff)) |
		    (cpu_hot(cpu)->aflags & 1 ? FL_OF : 0);

	cpu->rflags = (cpu->rflags & ~FL_ARITH) | arith;
}

/* What an access is, for the slow path: an immediate in translated code. */
#define DESC_SIZE      0xffu /* bytes */
#define DESC_WRITE     BIT(8)
#define DESC_READ      BIT(9)  /* with DESC_WRITE: read-modify-write */
#define DESC_SEG_SHIFT 10      /* enum seg, with DESC_OFFSET */
#define DESC_OFFSET    BIT(13) /* the address is an offset in that segment */
#define DESC_LAST      BIT(14) /* the block's last instruction: leave at the next block instead */
#define DESC_X87       BIT(15) /* no emulator does x87 to MMIO: KVM */
#define DESC_ALIGN     BIT(16) /* must be aligned to its size */
#define DESC_STEP      BIT(17) /* for observe.c: the instruction is executed alone */
#define DESC_GROUP_WRITE BIT(18) /* for slow_share(): the page must be writable as well */
#define DESC_UNALIGNED	 BIT(19) /* no alignment check */
#define DESC_SET_SHIFT 20      /* for observe.c: enum tlb_set */
#define DESC_COMPUTES	 BIT(22) /* for slow_fault.c: before it finds its address bad */
#define DESC_CLEARS_TOP	 BIT(23) /* for slow_fault.c: the x87's, if it faults */
#define DESC_LOCK      BIT(24) /* atomic: a locked read-modify-write */
#define DESC_MASKED	 BIT(25) /* under an opmask, for slow_masked.c: priv->spill[] has it */

/* What an opmask means for the memory operand. Bit i of the first SHAPE_BITS ones selects element i
 * modulo SHAPE_ELEMENTS. */
#define SHAPE_SIZE	     0xfu /* of an element, in bytes */
#define SHAPE_BITS_SHIFT     4
#define SHAPE_ELEMENTS_SHIFT 12
#define SHAPE_PACKED	     BIT(20) /* compressed: as many elements from the first as bits are set */
#define SHAPE_WHOLE	     BIT(21) /* faults are not suppressed: all of the operand is looked at */

/* observe.c: called from translated code, like slow_access(); fetches and branches have their line's
 * key or their address in priv->observed_arg. */
enum observe_kind { OBSERVE_TAKEN, OBSERVE_NOT_TAKEN, OBSERVE_INDIRECT, OBSERVE_RETURN };

u64 observe_access(struct cpu *cpu, u64 host, u32 desc, const u8 *return_pc);
u64 observe_fetch(struct cpu *cpu, u64 linear, u32 desc, const u8 *return_pc);
u64 observe_branch(struct cpu *cpu, u64 target, u32 kind, const u8 *return_pc);
/* The log of branches is full; S0 stays what it is. */
/* A branch in the middle of a block has reached a trip. */
u64 observe_trip(struct cpu *cpu, u64 s0, u32 unused, const u8 *return_pc);
u64 observe_log_full(struct cpu *cpu, u64 s0, u32 unused, const u8 *return_pc);
/* A block is left in its middle: what it would have said where it ends. Nothing has been given back
 * yet. */
void observe_part(struct cpu *cpu, const struct block *block, const struct place *place,
		  bool completed);
void observe_settle(struct cpu *cpu); /* makes records of what translated code noted */
/* Before an instruction that may be described when it has run. */
void observe_alone(struct cpu *cpu);
/* Behind an access that C observed: leaves translated code if a trip is reached. */
u64 observe_end(struct cpu *cpu, u32 desc, const u8 *return_pc, u64 otherwise);

/* Results of slow_access, in RAX. */
#define SLOW_DIRECT 0 /* go on in line with the host address */
#define SLOW_COMMIT 1 /* execute on the host address out of line, then commit */
#define SLOW_LEAVE  2 /* leave translated code: LEAVE_FAULT */

/* unwind.c */
struct place *place_find(const struct engine *eng, const struct block *block, const u8 *host_pc);
u64 place_refund(const struct block *block, u32 retired);
/* Takes back what a weight added to the classes that code of this mode counts. */
void weight_refund(struct cpu *cpu, u32 mode, const struct weight *weight);
/* The same for what follows the first `retired` instructions of a block. */
void place_refund_weights(struct cpu *cpu, const struct block *block, u32 retired);
/* Sets RIP to the place's instruction (or the one behind, if it completed: then last_rip to the
 * place's), exit.insn_len, and gives back the count. */
void place_unwind(struct cpu *cpu, const struct block *block, const struct place *place,
		  bool completed);
/* For C that translated code has called: the block is left, before or behind the instruction. The
 * call belongs to it; what it returns to may belong to the next one. */
u64 place_leave(struct cpu *cpu, const u8 *return_pc, enum guest_fault fault, bool completed);

/* signal.c: the processor whose code this thread is about to run, or NULL. */
void signal_running(struct cpu *cpu);

#endif
