/* SPDX-License-Identifier: MIT */
/*
 * What the files of the engine share: blocks, links, the state of one engine, and the functions of
 * each file. See docs/architecture.md, "The engine", for the design.
 *
 * Host registers while translated code runs:
 *
 *      RSP             struct cpu; below it the stack of C code that it calls, and of signal
 *                      handlers
 *      RCX RDX RBX RBP RSI RDI R8-R11  the guest's registers of the same name
 *      R12             guest RAX
 *      R15             guest RSP
 *      R13, RAX        scratch (S0, S1); RAX because LAHF and SETO AL save the flags through it
 *      R14             the countdown: see below
 *      guest R12-R15   in cpu->regs[]
 *
 * The countdown holds two numbers: minus the instructions left (plus one) in its upper 40 bits, and
 * the branches retired in its lower 24. A block adds its own constants once, at its head; the
 * result is not negative if the block has more instructions than are left. Slices are short enough
 * that the branch field cannot overflow.
 */
#ifndef ENGINE_PRIV_H
#define ENGINE_PRIV_H

#include "base/kept.h"
#include "cpu/cpu.h"
#include "cpu/mmu/code_pages.h"
#include "cpu/mmu/mmu.h"
#include "cpu/mode.h"
#include "engine/code_memory.h"
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

/* Why translated code was left: the value it returns to enter(). */
enum leave {
	LEAVE_LOOKUP, /* cpu->rip is next; look its code up. leave_arg is the block that was left */
	LEAVE_RETURN, /* as LEAVE_LOOKUP, after the return that ends block hot->returned_from */
	LEAVE_BAD_TARGET, /* the branch that ends block leave_arg has a non-canonical target */
	LEAVE_LINK,	  /* as LEAVE_LOOKUP, and leave_arg is the link to patch */
	LEAVE_COMPLEX, /* leave_arg is the struct insn for sys_execute(); cpu->rip is its address */
	LEAVE_RAISE,   /* leave_arg is a vector to raise at cpu->rip */
	/* leave_arg is the block; nothing of it ran. It asks for more than the slice has, has found
	 * cpu->attention set, or has been executed often. */
	LEAVE_HEAD,
	/* leave_arg is the block that would reach a trip; nothing of it ran, its
	 * weights are added. */
	LEAVE_TRIP,
	LEAVE_STEP,  /* a one-instruction block is done */
	LEAVE_FAULT, /* a fault or exit in mid-block; state is complete */
};

#define NLEAVES (LEAVE_FAULT + 1)

/*
 * A patchable direct jump out of a block. One to another page is guarded: it is taken only while
 * that page is mapped as it was when it was linked (priv->mapped[]). If not, as in an address space
 * that has just begun, the branch uses the jump cache; it is linked again when that misses, or when
 * the guard has failed often.
 */
struct link {
	u8 *site;	 /* the displacement, writable view */
	u8 *guard;	 /* immediate that holds the mapping, writable view; NULL: it needs none */
	u8 *stub;	 /* where the jump leads while unlinked */
	u64 rip;	 /* target */
	u8 times_linked; /* how often it was linked, saturating */
	bool unshared;	 /* its target is a block of MODE_UNSHARED */
	struct block *to;
	struct link *next_in, **prev_in; /* in to->links_in */
};

#define LINK_SHIFT 6 /* links lie so far apart in meta: log2 */
_Static_assert(sizeof(struct link) >= 1 << LINK_SHIFT, "LINK_SHIFT");

/* Where an instruction's host code begins, for faults found by a signal or by C that the code
 * called. */
struct place {
	u32 host;  /* offset in the block's code */
	s16 guest; /* offset from the block's first byte */
	s16 next;  /* offset of the instruction that the block executes after it */
	u8 len : 4;
	u8 flags : 4;	/* PLACE_* */
	s8 rsp_pending; /* what must still be added to the guest's RSP, in units of 8 bytes */
	u8 index : 6;	/* of the instruction in the block */
	u8 calls : 1;	/* it is a call, and the block continues at its target */
	u8 recipe;	/* of the arithmetic flags: index + 1 in block->recipes; 0: none */
};

/* The arithmetic flags are in the host's flags, not in hot->aflags. */
#define PLACE_FLAGS_IN_HOST 1
#define PLACE_BRANCH	    4 /* it is a branch */
#define PLACE_SPILLED	    2 /* the countdown is in priv->spill[SPILL_COUNTDOWN] */
#define PLACE_PUSHES	    8 /* once completed, RSP must move by minus 8 more */

_Static_assert(BLOCK_INSNS < 1 << 6, "struct place");

/* Uses of priv->spill[]. */
enum spill {
	SPILL_HIGH8,	 /* a register whose bits 15:8 are an operand */
	SPILL_TARGET,	 /* of an indirect branch, while S0 is needed for something else */
	SPILL_BIT,	 /* bit offset of BT, BTS, BTR and BTC */
	SPILL_COUNTDOWN, /* the countdown while R14 is a third scratch register */
	SPILL_R14,	 /* R14 outside translated code */
	SPILL_ARG,	 /* argument of enum leave; entry point on the way in */
	SPILL_HOST,	 /* host address from slow_access() */
	SPILL_MASK,	 /* for slow_masked.c: the opmask register */
	SPILL_SHAPE,	 /* for slow_masked.c: SHAPE_* */
};

#define NO_GPA (~0ull)

struct block {
	/* What a look-up compares comes first, in one line of the host's cache. */
	u64 rip;
	gpa_t gpa, gpa2; /* gpa2: page of the last instruction's tail if it crosses, else NO_GPA */
	u32 mode;
	u32 limit; /* of the code segment: code_limit() */
	u16 ninsns, nplaces;
	bool hot;   /* retranslated over several branches, after it had been executed often */
	bool heats; /* it counts its executions, and may become hot */
	u8 nbranches, nlinks, nrecipes;
	u8 *code; /* writable view */
	struct block *next_hash;
	u32 number; /* in eng->by_address[] */
	/* What its last branch moved RSP by, to undo that if its target is not canonical. */
	s32 rsp_moved;
	u32 path; /* offset in meta of the struct branch_path of branches in its middle; 0: none */
	u32 before_hash; /* offset in meta, plus one, of the one before it in its chain; 0: none */
	const u8 *host2; /* host address of the page of gpa2 */
	/* Bitmaps of the 64-byte lines of its page(s) that it was made from; 0: dropped. */
	u64 lines, lines2;
	struct block *next_page, *next_page2;
	struct link *link; /* nlinks of them */
	struct link *links_in;
	struct place *places; /* ninsns of them, then the out-of-line ones: nplaces */
	struct recipe *recipes;
	struct weight *weights; /* one an instruction; NULL: the block counts no classes */
	u64 *charge;		/* with weights: what its head adds to priv->packed[] */
	struct insn *complex;	/* the last instruction, if C executes it */
	u64 *retired; /* of a processor with a profile: where its instructions are counted */
};

/* A live block was made from at least one line. */
static inline bool block_dropped(const struct block *block)
{
	return !block->lines;
}

/* The engine's part of a struct code_page: the bytes as they were translated. */
struct page_copy {
	struct block *blocks;
	u8 bytes[PAGE_SIZE];
};

/* A write that slow_commit() completes. */
struct slow_state {
	/* Where it goes, as one walk found it: what has been executed cannot fault. When not
	 * bounced, of the translations only gpa. */
	struct span span;
	/* The data is in the bounce buffer; else it was written in place, and only noted. */
	bool bounced;
	bool modifies; /* the instruction reads what it writes */
	bool faulted;  /* the access faulted, and nothing will be stored: slow_fault.c */
	u32 desc;      /* if the access faulted: its DESC_* word */
	u64 address;   /* and its address */
	u8 *data;
	u64 selected; /* elements under an opmask */
	u32 element;  /* the size of one; 0: there is no opmask */
};

/* Pages that entries of jump[] lead to: jump_cache.c, invariant 3. */
#define ENTERED_MAX 1024

struct entered_pages {
	u64 drops;	    /* value of priv->jump_drops[] for which the rest is valid */
	u64 lookups;	    /* look-ups that missed since entries of jump[] were last dropped */
	u64 insns_at_epoch; /* instructions retired when the epoch began */
	u32 n;
	struct entered_page {
		struct code_page *page;
		const u8 *host;
	} page[ENTERED_MAX];
};

/* A claim of a page that some processor may not have acknowledged: cpu/mmu/shared_code.h. */
struct unacked_claim {
	struct code_page *page;
	u64 number;
};

#define UNACKED_MAX 256

#define NO_RIP BIT(63) /* not canonical */

#define FETCH_CACHE 2048

struct fetch_kind {
	u8 shift; /* log2 of the size of the guest's page */
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
	struct code_memory code;
	u8 *code_rw, *code_rx; /* of it */
	/* Writable view; first: where blocks begin, after the thunks. */
	u8 *code_first, *code_next, *code_limit;
	/* Tables of blocks: bump-allocated, dropped as a whole. */
	u8 *meta, *meta_next, *meta_limit;
	/* Memory below these is mapped. Moved by cache_populate(), or by its thread. */
	u8 *code_ready, *meta_ready;
	u32 margin;	/* bytes that are mapped beyond what is used, or more memory is wanted */
	bool huge_meta; /* the next memory of meta is mapped as huge pages */
	struct populator *populator; /* code_cache_memory.c */
	bool populating;	     /* its thread was asked for memory, and is not done */
	struct block **by_address; /* all blocks since the last flush, in the order of their code */
	s32 *until_hot;	  /* of each: executions left until it is retranslated as a hot block */
	u32 *code_starts; /* offset of each block's code, for binary search */
	u64 *by_hash;	  /* BLOCK_HASHES chains of live blocks: code_cache.c */
	/* Failures of a link's guard until it is linked again: link_misses(). Side by side, since
	 * each run of a program begins with failures of all its guards. */
	s8 *guard_misses;
	struct decoder *decoder; /* decoder.c */
	struct pricing *pricing; /* price.h */
	u32 nblocks;
	u64 jump_cs_base; /* code segment for which jump[] holds, where code is not flat */
	u32 jump_cs_limit;
	u8 linear_bits; /* width of the linear addresses that live blocks check */
	bool avx512;	/* live blocks were translated with AVX-512 enabled in XCR0 */
	struct fetch_entry fetch[FETCH_CACHE];

	struct entered_pages entered[NSPACES];
	struct unacked_claim unacked[UNACKED_MAX]; /* ascending by number */
	u32 nunacked;
	u64 unacked_overflow; /* the highest number that did not fit; 0: none */

	/* Translated code is on the stack: no block may be dropped (code_check.h, 3). */
	bool in_translated_code;
	bool executing; /* C executes the instruction at cpu->port.last_rip */
	/* The instruction that C executed last, while cpu->port.precise: it may have changed the
	 * mode, so that its bytes would be decoded wrongly afterwards. len 0: translated code has
	 * run since then. */
	struct insn_summary executed;
	bool check_pending; /* epoch_check() before the next entry */
	/* Grows whenever another processor, the program or a device may have changed
	 * code; never 0. */
	u64 epoch;
	/* The epoch since which code of the space counts as unverified. */
	u64 changed_epoch[NSPACES];
	bool epoch_due[NSPACES]; /* one begins when code of the space is next entered */
	u64 slice;	  /* instructions that the countdown started from; at most SLICE_MAX */
	u64 budget;	  /* instructions that may retire after the slice */
	u64 effort_start; /* cpu->port.effort when the run began */
	u64 effort_limit; /* how much more of it there may be */
	bool single_step; /* the next block has one instruction and ends the visit: MODE_STEP */
	/* The next block, if it is at this RIP, is one of MODE_UNSHARED: a check that several
	 * accesses share has failed. NO_RIP: it is not. */
	u64 unshared_next;
	/* Bounded by the budget or a trip, not by a share: a new slice would be no longer. */
	bool last_slice;
	/* The slice ends one instruction before a trip: count.c, invariant 7. */
	bool stops_before_trip;
	/* The slice ends within a block: blocks of one instruction run until then. */
	bool single_insns;
	/* Less than a block is left of the budget, and cpu->port.may_end_early lets the run end; or
	 * count_end_timed() ends it. */
	bool budget_exhausted;
	/* The next instruction is executed while all other processors are stopped. */
	bool run_exclusive;
	/* The instruction at RIP reached a trip before it completed: execute it before anything
	 * else. */
	bool finish_insn;
	/* The countdown, priv->live[] and priv->packed[] count: count.c, invariant 1. */
	bool counting;
	u32 counting_mode;	      /* MODE_COUNTING bits of the mode they count for */
	bool trips_span_privileges;   /* every armed trip counts both privileges */
	retire_wanted live_classes;   /* classes that count in priv->live[] */
	retire_wanted packed_classes; /* classes that count in priv->packed[] */
	s64 live_start[NRETIRE];      /* values that priv->live[] started from */
	u64 packed_start[PACK_WORDS]; /* values that priv->packed[] started from */
	/* RIP when engine_run() last returned: answers to MMIO and port I/O are for it. */
	u64 exit_rip;
	u64 era;	/* era of all generations in use: jump_cache.c, invariant 1 */
	u64 *enterable; /* checking build: bitmap of bytes of code memory that may be entered */
	/* jump_key for which the slots of priv->returns[] are valid; NO_KEY: for none. */
	u64 returns_key[NTLBS];
	u32 modes[JUMP_MODES]; /* modes in use; their index is part of jump_key */
	u32 nmodes;
	u32 last_mode[NSPACES]; /* index of the mode looked up last */
	/* With LEAVE_FAULT: why; FAULT_NONE: the instruction completed. */
	enum guest_fault leave_fault;
	bool translating_hot;	   /* the block being translated will be a hot one */
	bool recall_failed;	   /* the last one that was looked for was not kept */
	bool reexecute;		   /* with LEAVE_FAULT: re-execute the instruction; no fault */
	struct slow_state pending; /* between slow_access() and slow_commit() */
	bool has_rorx;		   /* the host executes RORX */
	bool fences;		   /* thunks have them: emit_entry.c */
	/* Entry points of the generated runtime (emit_entry.c). enter: executable view. */
	u64 (*enter)(struct cpu *cpu, const void *code);
	u8 *jump_lookup; /* writable view: jumps to the block for the guest address in S0 */
	u8 *leave, *slow, *share, *commit, *call, *pass; /* writable view */
	/* Writable view: exits from blocks (emit_entry.c, "Ways out") */
	u8 *leave_with[NLEAVES], *guard_failed, *jump_missed;
	u8 *log_full;	  /* writable view: calls observe_log_full() */
	u8 *beyond_limit; /* writable view: exit stub for a branch beyond the code-segment limit */
	u8 *check_jump, *check_return; /* writable view: calls into C of the checking build */
	u8 *observe_access, *observe_fetch;
	u8 *observe_taken, *observe_not_taken, *observe_indirect, *observe_return;
	u64 blocks_made, blocks_recalled, flushes;
	u64 insns_translated, lookups, lines_compared, single_drops; /* as engine_cache() tells */
	/* Grows with each dropped block and each flush: code_check.h, invariant 7. */
	u64 blocks_dropped;
	s32 hot_after;		 /* executions after which a block is retranslated as a hot one */
	struct profile *profile; /* base/profile.h; NULL: none */
	struct kept_buffer kept; /* kept_block.c */
	u64 kept_page;		 /* the common hash of the last page that was looked for */
	u32 last_mapping;	 /* the last number of a mapping given */
	u64 news_ready;		 /* bytes of the news that are mapped, as code_ready */
	u64 *profiled;		 /* the counter of the block that was visited last */
	u64 profiled_at;	 /* count_instructions() when it was */
};

/* emit_entry.c */
bool emit_thunks(struct engine *eng);

/* block_hash.c */
#define BLOCK_HASH_BITS 21
#define BLOCK_HASHES	(1u << BLOCK_HASH_BITS)

struct block *cache_find(const struct cpu *cpu, u64 rip, gpa_t gpa, u32 mode);
void cache_prefetch(const struct cpu *cpu, u64 rip, gpa_t gpa, u32 mode); /* hint before it */
void block_hash_add(const struct engine *eng, struct block *block);
void block_hash_remove(const struct engine *eng, struct block *block);
void block_hash_clear(const struct engine *eng); /* of all blocks since the last flush */

/* code_cache_memory.c, code_cache.c */
#define MAX_BLOCKS (2u << 20)

int cache_create(struct engine *eng);
void cache_destroy(struct engine *eng);
/* Maps memory for the next blocks, or lets a thread do it. Not while guest vector state is live:
 * calls libc. */
void cache_populate(struct cpu *cpu);

#define CACHE_STRIDE (256u << 10) /* step by which memory is mapped */

static inline bool cache_wants_memory(const struct engine *eng)
{
	return !__atomic_load_n(&eng->populating, __ATOMIC_ACQUIRE) &&
	       ((eng->code_ready < eng->code_next + eng->margin &&
		 eng->code_ready < eng->code_limit) ||
		(eng->meta_ready < eng->meta_next + eng->margin &&
		 eng->meta_ready < eng->meta_limit));
}

void cache_flush(struct cpu *cpu);
void *cache_alloc(struct engine *eng, size_t size);	 /* NULL: full */
struct block *cache_alloc_block(struct engine *eng);	 /* NULL: full */
bool cache_room(const struct engine *eng);		 /* room for one more block of any size? */
void cache_insert(struct cpu *cpu, struct block *block); /* its pages come from cache_page() */
bool cache_holds(const struct engine *eng, u64 host_pc); /* code of a block; executable view */
struct block *cache_by_code(const struct engine *eng, const u8 *host_pc); /* executable view */
struct page_copy *cache_page(struct cpu *cpu, gpa_t gpa);		  /* NULL: full */
void cache_verify(struct cpu *cpu, struct code_page *page, const u8 *host);
/* Hint before cache_verify(). */
void cache_expect(const struct code_page *page, const u8 *host);
/* Verify the page when it is next entered. */
void cache_mark_unverified(struct cpu *cpu, gpa_t gpa);
void cache_written(struct cpu *cpu);
/* Code may have been changed by other processors, the program or a device: verifies pages whose
 * claims are not acknowledged by all. Returns whether any other page may have changed. */
bool cache_check_shared(struct cpu *cpu);
/* Would epoch_check() find work to do? No side effects. */
bool cache_check_due(const struct cpu *cpu);
void cache_drop(struct cpu *cpu, struct block *block);
void link_set(const struct engine *eng, struct link *link, struct block *to);
void link_renew(const struct cpu *cpu, struct link *link, struct block *to); /* a guarded one */

#define NO_KEY BIT(32) /* longer than any jump_key */

static inline const u8 *exec_view(const struct engine *eng, const u8 *rw)
{
	return rw + (eng->code_rx - eng->code_rw);
}

static inline s8 *link_misses(const struct engine *eng, const struct link *link)
{
	return &eng->guard_misses[((const u8 *)link - eng->meta) >> LINK_SHIFT];
}

/* The limit of the current code segment. In 64-bit code there is none. */
static inline u32 code_limit(const struct cpu *cpu, u32 mode)
{
	return mode & (MODE_CODE64 | MODE_FLAT) ? ~0u : cpu->seg[CS].limit;
}

/* The space whose code this processor executes. */
static inline enum space space_of(const struct cpu *cpu)
{
	return cpu->cpl == 3 ? SPACE_USR : SPACE_OS;
}

/* Has the page been verified in the current epoch of the space that executes? */
static inline bool page_verified(const struct cpu *cpu, const struct code_page *page)
{
	return page->epoch >= cpu->engine->changed_epoch[space_of(cpu)];
}

/* find_block.c: the block at cpu->rip for this mode, made if there is none. NULL:
 * *fault says why. */
struct block *block_find(struct cpu *cpu, u32 mode, enum guest_fault *fault);

static inline u64 linear_rip(const struct cpu *cpu)
{
	return cpu_priv(cpu)->mode & MODE_CODE64 ? cpu->rip : (u32)(cpu->seg[CS].base + cpu->rip);
}

/* fetch.c: where the code at a linear address is; checks that it may be executed. */
enum guest_fault fetch_page(struct cpu *cpu, u64 linear, gpa_t *gpa, const u8 **host);
/* The kind of page that executing code lies on. */
struct fetch_kind fetch_kind(struct cpu *cpu, u64 linear);

/*
 * translate.c: translates the block at cpu->rip, whose first byte is at gpa and host, for this
 * mode. Returns NULL with *fault set when fetching faults, with FAULT_NONE when the cache is full.
 * May save the guest's vector state.
 */
struct block *translate(struct cpu *cpu, u32 mode, gpa_t gpa, const u8 *host,
			enum guest_fault *fault);

/* call_insn.c: called from translated code; executes a struct insn */
u64 call_insn(struct cpu *cpu, u64 insn, u32 unused, const u8 *return_pc);

/*
 * passthrough.c: called from translated code; executes the block's last instruction, which accesses
 * the PMU. `access` is its exit if the hypervisor intercepts it. SLOW_COMMIT: nothing has happened,
 * leave with LEAVE_COMPLEX.
 */
u64 passthrough_insn(struct cpu *cpu, u64 insn, u32 access, const u8 *return_pc);

/* Flags: all in rflags outside translated code; inside, the arithmetic ones are in aflags. */
static inline void flags_to_aflags(struct cpu *cpu)
{
	cpu_hot(cpu)->aflags = (cpu->rflags & 0xff) << 8 | !!(cpu->rflags & FL_OF);
}

static inline void flags_from_aflags(struct cpu *cpu)
{
	u64 arith = (cpu_hot(cpu)->aflags >> 8 & (FL_ARITH & 0xff)) |
		    (cpu_hot(cpu)->aflags & 1 ? FL_OF : 0);

	cpu->rflags = (cpu->rflags & ~FL_ARITH) | arith;
}

/* What an access is, for the slow path: an immediate in translated code. */
#define DESC_SIZE	 0xffu /* bytes */
#define DESC_WRITE	 BIT(8)
#define DESC_READ	 BIT(9)	 /* with DESC_WRITE: read-modify-write */
#define DESC_SEG_SHIFT	 10	 /* enum seg, with DESC_OFFSET */
#define DESC_OFFSET	 BIT(13) /* the address is an offset in that segment */
#define DESC_LAST	 BIT(14) /* the block's last instruction: leave at the next block instead */
#define DESC_X87	 BIT(15) /* no emulator does x87 to MMIO: KVM */
#define DESC_ALIGN	 BIT(16) /* must be aligned to its size */
#define DESC_STEP	 BIT(17) /* for observe.c: the instruction is executed alone */
#define DESC_GROUP_WRITE BIT(18) /* for slow_share(): the page must be writable as well */
#define DESC_UNALIGNED	 BIT(19) /* no alignment check */
#define DESC_SET_SHIFT	 20	 /* for observe.c: enum tlb_set */
#define DESC_COMPUTES	 BIT(22) /* for slow_fault.c: before it finds its address bad */
#define DESC_CLEARS_TOP	 BIT(23) /* for slow_fault.c: the x87's, if it faults */
#define DESC_LOCK	 BIT(24) /* atomic: a locked read-modify-write */
#define DESC_MASKED	 BIT(25) /* under an opmask, for slow_masked.c: priv->spill[] has it */
#define DESC_REALIGN	 BIT(26) /* a misaligned operand that the host may refuse; read only */
#define DESC_TRIP	 BIT(27) /* for observe.c: what was observed reached a trip */

/* What an opmask means for the memory operand. Two fields are how many of its bits count, and how
 * many elements there are: bit i selects element i modulo that number. */
#define SHAPE_SIZE	     0xfu /* of an element, in bytes */
#define SHAPE_BITS_SHIFT     4
#define SHAPE_ELEMENTS_SHIFT 12
/* compressed: as many elements from the first as bits are set. */
#define SHAPE_PACKED	     BIT(20)
#define SHAPE_WHOLE	     BIT(21) /* faults are not suppressed: the whole operand is checked */

/* observe.c: called from translated code, like slow_access(); priv->observed_arg has the key of a
 * fetched line, or the address of a branch. */
#define OBSERVE_MIDDLE	      BIT(0) /* of a block, which is left if the branch reaches a trip */
#define OBSERVE_MISSED	      BIT(1) /* the branch was mispredicted */
#define OBSERVE_OUTCOME_SHIFT 2	     /* trans_lbr_outcome() */

/* What a block has been charged for instructions after the one at hand: ticks and instructions. */
#define OBSERVE_AHEAD(ticks, insns) ((ticks) << 6 | (insns))
#define OBSERVE_AHEAD_INSNS	    63u
#define OBSERVE_AHEAD_SHIFT	    6

_Static_assert(BLOCK_INSNS <= OBSERVE_AHEAD_INSNS && BLOCK_INSNS * 0xffffull < BIT(31 - 6),
	       "OBSERVE_AHEAD()");

/* Before a run. */
void observe_begin(struct cpu *cpu);
/* With full timing, before C observes accesses of the instruction that calls it from translated
 * code; or of one that ends its block. */
void observe_at(struct cpu *cpu, const u8 *return_pc);
void observe_at_end(struct cpu *cpu);
/* 0, or what to call observe_trip() with. They, and those for branches, are called with some
 * registers only in the host's (emit_entry.c, make_quick()). */
u64 observe_access(struct cpu *cpu, u64 host, u32 desc);
u64 observe_fetch(struct cpu *cpu, u64 linear, u32 desc);
u64 observe_trip(struct cpu *cpu, u64 s0, u32 desc, const u8 *return_pc);
/* A branch to a target, by its kind: 0, or what to call observe_missed() with. */
u64 observe_taken(struct cpu *cpu, u64 target, u32 desc);
u64 observe_not_taken(struct cpu *cpu, u64 target, u32 desc);
u64 observe_indirect(struct cpu *cpu, u64 target, u32 desc);
u64 observe_return(struct cpu *cpu, u64 target, u32 desc);
/* Returns with S0 unchanged, as observe_trip() and the next. */
u64 observe_missed(struct cpu *cpu, u64 target, u32 desc, const u8 *return_pc);
/* The log of branches is full. */
u64 observe_log_full(struct cpu *cpu, u64 s0, u32 unused, const u8 *return_pc);
/* A block is left in its middle: notes what it would have noted at its end. Its counts are not
 * refunded yet. */
void observe_partial_block(struct cpu *cpu, const struct block *block, const struct place *place,
			   bool completed);
void observe_settle(struct cpu *cpu); /* turns the notes of translated code into branch records */
/* Before a visit to translated code: of one instruction, if a sample may describe it. */
void observe_visit(struct cpu *cpu);
/* After an access that C observed: leaves translated code if a trip is reached. */
u64 observe_end(struct cpu *cpu, u32 desc, const u8 *return_pc, u64 otherwise);

/* Results of slow_access, in RAX. */
#define SLOW_DIRECT 0 /* continue in line with the host address */
#define SLOW_COMMIT 1 /* execute on the host address out of line, then commit */
#define SLOW_LEAVE  2 /* leave translated code: LEAVE_FAULT */

/* unwind.c */
struct place *place_find(const struct engine *eng, const struct block *block, const u8 *host_pc);
u64 place_refund(const struct block *block, u32 retired);
/* Takes an instruction's weight back from the classes that code of this mode counts. */
void weight_refund(struct cpu *cpu, u32 mode, const struct weight *weight);
/* Takes back the weights of all but the first `retired` instructions of a block. */
void place_refund_weights(struct cpu *cpu, const struct block *block, u32 retired);
/* Sets RIP to the place's instruction (or, if it completed, to the next one, and last_rip to the
 * place's) and exit.insn_len, and refunds what did not retire. */
void place_unwind(struct cpu *cpu, const struct block *block, const struct place *place,
		  bool completed);
/* For C that translated code called: leaves the block before the instruction, or after it if it
 * completed. The instruction is that of the call; the return address may belong to the next one. */
u64 place_leave(struct cpu *cpu, const u8 *return_pc, enum guest_fault fault, bool completed);

/* signal.c: tells the signal handlers which processor this thread runs; NULL: none. */
void signal_running(struct cpu *cpu);

#endif
