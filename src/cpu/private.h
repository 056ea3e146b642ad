/* SPDX-License-Identifier: MIT */
/*
 * struct cpu_priv: what the translator, its code and the soft MMU keep of one processor besides its
 * architectural state. None of it is saved or restored: between two runs all of it can be dropped
 * and made again, but for the links to what the processors of a machine share (shared, exclusive).
 *
 * Only src/cpu and src/engine may read or write it, on the thread that is inside engine_run(), or
 * with the vCPU's lock held while no thread is. The owner of a processor sees struct cpu alone:
 * no header that src/vm may include leads here, and scripts/layers holds that. What the owner
 * needs of it has a function, in engine.h or in the header of the part.
 *
 * cpu_create() maps a struct cpu_whole, so that translated code reaches all of it off its stack
 * pointer, and so that cpu_priv() is an addition.
 */
#ifndef CPU_PRIVATE_H
#define CPU_PRIVATE_H

#include "cpu/cpu.h"
#include "hwpmu/branch.h"
#include "mem/mem.h"
#include "timing/timing.h"

/* The soft TLB: see cpu/mmu/mmu.h. */
#define TLB_BITS 14
#define TLB_SIZE (1u << TLB_BITS)

/* Two-level bitmap: a bit for each entry, and one for each 64 of them. */
struct tlb_bits {
	u64 some[TLB_SIZE / 4096];
	u64 bit[TLB_SIZE / 64];
};

struct tlb_entry {
	/* Page address for which this entry serves the access; else a tag that never matches. */
	u64 read, write;
	u64 host; /* host address of the page */
	u64 gpa;  /* guest physical address of the page */
};

enum tlb_set {
	TLB_KERNEL,
	TLB_KERNEL_AC, /* supervisor that may touch user pages */
	TLB_USER,
	NTLBS
};

/*
 * Whose code. Translations of user addresses are valid in one address space; those of the kernel's
 * addresses usually in all.
 */
enum space { SPACE_OS, SPACE_USR, NSPACES };

/* Address spaces whose user code may still have valid entries: CR3 with its PCID (SDM
 * 3A 4.10.1). */
#define SPACES_KEPT 8

struct space_kept {
	u64 cr3;
	u64 jump_generation, map_generation; /* 0: none */
};

/*
 * Pages that code was found on in the generation of jump[]. A linear page has its place by the low
 * bits of its number; there is the number of its mapping to a physical page (struct code_page),
 * which guards of links compare.
 */
#define MAPPED_PAGES 8192
#define MAPPED_KEPT  2048 /* of them, of a space whose generation is kept */

struct mapped_pages {
	u32 mapping[MAPPED_PAGES]; /* 0: none */
	u32 n;			   /* that are not 0; MAPPED_KEPT + 1: more than are in used[] */
	u16 used[MAPPED_KEPT];
};

struct mapped_kept {
	u32 n;
	struct {
		u32 place, mapping;
	} page[MAPPED_KEPT];
};

/* A Bloom filter of pages, by a hash of their numbers. */
#define FILTER_BITS 16

struct page_filter {
	u64 bits[(1u << FILTER_BITS) / 64];
};

#define TLB_SEVERAL 0xffff /* in tlb_writable[] */

/* The jump cache: guest address to translated code. See engine/runtime/jump_cache.c. */
#define JUMP_BITS 17
#define JUMP_SIZE (1u << JUMP_BITS)
#define JUMP_SPAN 8 /* bytes of code that have one entry */

/* Modes that have entries; the lower bits of jump_key. */
#define JUMP_MODE_BITS 4
#define JUMP_MODES     (1u << JUMP_MODE_BITS)

struct jump_entry {
	u64 rip;
	u32 key;  /* jump_key of the code that may follow it; 0: the entry is empty */
	u32 code; /* relative to code_base */
};

#define SHARE_SLOTS 12

/* Where calls will be returned to, by the stack pointer: see engine/translate/emit_return.c. */
#define RETURN_SLOTS 256

/* What cpu/fpu.c knows of the host: its features, found at creation, and its control words while
 * guest state is live. */
struct host_fpu {
	u64 features;  /* components saved and restored, as in XCR0; 0: only FXSAVE exists */
	bool compacts; /* has XSAVEC: cpu->xsave is in the compacted form */
	u32 mxcsr_mask;
	u32 mxcsr;
	u16 fcw;
};

#define COUNT_SETS  16 /* a number has four bits of the mode */
#define PACK_WORDS  4  /* of counts: engine/count_pack.h */
#define PACK_FIELDS 4  /* of a word */

struct code_pages;
struct shared_code;
struct exclusive;

struct cpu_priv {
	/* Hot for translated code: one line of the cache. */
	u32 jump_key;	 /* of the entries of jump[] that may be followed now; never 0 */
	u32 jump_spread; /* XORed into addresses to find their entry of jump[] */
	u64 code_base;	 /* host address that code in jump[] is relative to */
	u64 jump_generation[NSPACES]; /* changes when entries of jump[] become invalid */
	u64 packed[PACK_WORDS];	      /* counts of translated code: engine/count_pack.h */

	u64 spill[10];		/* scratch of translated code: enum spill */
	u64 share[SHARE_SLOTS]; /* host addresses that accesses of a block share */
	u64 guards;		/* of the fields of packed[] */
	s8 *guard_misses;	/* of the engine's links */
	const u32 *mapped_now;	/* mapped[] of the space that jump_key is for */
	u64 host_rsp;		/* the stack to return to */

	/* From translated code to engine/runtime/observe.c. */
	u32 observed_tlb;   /* offset of a TLB entry in its set */
	u64 observed_arg;   /* key of a line, or address of a branch */
	u32 observed_ahead; /* of the block, after the instruction: see OBSERVE_AHEAD() */

	u32 mode;	   /* MODE_* of cpu/mode.h, recomputed by cpu_update_mode() */
	u8 begun;	   /* BEGUN_*: what the completing instruction itself has begun */
	bool fpu_live;	   /* x87 and vector state is in the host's registers, not in cpu->xsave */
	bool watch_active; /* a data breakpoint is armed: its pages stay out of the TLB */
	struct host_fpu host_fpu;

	/* Counting: engine/runtime/count.h. */
	s64 live[NRETIRE]; /* grows while guest code runs, from minus the distance to the trip */
	bool branch_trip_near; /* a trip of branches is near: code counts branches in live[], too */
	retire_wanted count_sets[COUNT_SETS]; /* that code counts, by their number in the mode */
	u32 count_set;			      /* number of the last set that was not empty */
	retire_wanted code_classes; /* what code counts: port.wanted, or more. See cpu/mode.c */
	/* Tally of instructions at which the superset is reduced to what is wanted. */
	u64 code_classes_until;
	struct branch_log branch_log; /* empty outside translated code */

	/* Guest memory and its code. */
	const struct mem_slot *last_slot; /* found last: cpu_slot() */
	u64 last_generation;		  /* of the map that it was found in */
	/* Pages this CPU has translations of: see cpu/mmu/code_pages.h */
	struct code_pages *code;
	u64 claims_generation;	    /* of the slots that this processor's claims are in */
	struct shared_code *shared; /* of the machine: shared_join(). NULL: always look */
	u32 shared_index;	    /* of this processor there */
	u64 changes_seen, acknowledged;
	struct exclusive *exclusive; /* of the machine: exclusive_join(). NULL: the only CPU */
	u32 exclusive_index;	     /* of this processor there */
	bool others_stopped;	     /* all other processors are stopped (cpu/mmu/exclusive.h) */

	/* The timing model. */
	u8 issue_slots;	   /* issue slots of a cycle; at least 1 */
	bool timing_stale; /* the model's TLBs have missed invalidations: cpu/observe.h */
	struct timing timing;

	/* Linear addresses: cpu/mmu/tlb.c; code at them: engine/runtime/jump_cache.c. */
	u64 map_generation[NSPACES]; /* changes when addresses of code must be walked again */
	u64 last_jump, last_map;     /* the last generation given, of jumps and of maps */
	u64 jump_drops[NSPACES]; /* how often all entries of jump[] for the space were dropped */
	bool kernel_code_local;	 /* some of the kernel's code is on pages that are not global */
	bool kernel_code_low;	 /* some of the kernel's code is at addresses of the lower half */
	bool user_code_global;	 /* user code of some space kept is on global pages */
	struct space_kept kept_spaces[SPACES_KEPT];
	struct mapped_kept mapped_kept[SPACES_KEPT]; /* of each of these */
	struct mapped_pages mapped[NSPACES];
	u32 next_kept_space;

	const void *returns[NTLBS][RETURN_SLOTS];
	struct tlb_entry tlb[NTLBS][TLB_SIZE] __attribute__((aligned(64)));
	/* Log2 of the size of an entry's page in the guest, for INVLPG. */
	u8 tlb_shift[NTLBS][TLB_SIZE];
	struct tlb_bits tlb_used[NTLBS];    /* entries that may serve an address */
	struct tlb_bits tlb_local[NTLBS];   /* of these, entries of pages that are not global */
	u64 tlb_code[NTLBS][TLB_SIZE / 64]; /* lacking a write tag for code alone */
	u64 tlb_large; /* filter of the gigabytes in which entries of pages larger than 2 MB lie */
	struct page_filter tlb_2m; /* pages of 2 MB that there are entries of */
	/* By a hash of the physical page, entries with a write tag: the number of the only one,
	 * from 1, or TLB_SEVERAL; 0: there is none. */
	u16 tlb_writable[1u << FILTER_BITS];
	struct page_filter fetched, fetched_large; /* pages; 2M regions with code on large pages */
	struct jump_entry jump[JUMP_SIZE] __attribute__((aligned(64)));
	u32 jump_mapping[JUMP_SIZE]; /* of an entry's page, by which it is renewed; 0: it is not */
	bool jump_used;		     /* something was entered since jump[] was emptied */
	u8 bounce[256] __attribute__((aligned(64)));
} __attribute__((aligned(64)));

/* cpu_finish_instruction() ends what the previous instruction began, but not what this one did. */
#define BEGUN_SHADOW 1
#define BEGUN_RF     2 /* IRET loaded RF */
#define BEGUN_TF     4 /* SYSCALL, SYSRET, INT n: TF as it now is decides on a single-step trap */

/* The bytes ahead of the registers: cpu->hot[] and cpu->attention. */
struct cpu_hot {
	/* What the countdown runs up to: 0, or less than all that it can be. */
	union {
		s64 limit;
		struct {
			u8 zero[7];
			u8 attention;
		};
	};
	u32 aflags; /* arithmetic flags in translated code: LAHF's byte in 15:8, OF in bit 0 */
	u32 returned_from; /* number of the block whose return is under way */
};

struct cpu_whole {
	union {
		struct cpu cpu;
		struct cpu_hot hot;
	};
	struct cpu_priv priv;
};

_Static_assert(offsetof(struct cpu, attention) == offsetof(struct cpu_hot, attention) &&
		       offsetof(struct cpu, regs) == sizeof(struct cpu_hot),
	       "struct cpu_hot lies over what struct cpu leaves out");
_Static_assert(offsetof(struct cpu, regs) + 14 * sizeof(u64) <= 128,
	       "flags, attention and the registers up to R13 have one-byte displacements");
_Static_assert(offsetof(struct cpu_priv, spill) == 64, "the hot fields share a line of the cache");

/* Of a const cpu, too: its caller may look up what it already knows (as netdev_priv() in Linux). */
static inline struct cpu_priv *cpu_priv(const struct cpu *cpu)
{
	return &((struct cpu_whole *)cpu)->priv;
}

static inline struct cpu_hot *cpu_hot(const struct cpu *cpu)
{
	return &((struct cpu_whole *)cpu)->hot;
}

/* Which entry of jump[] an address has. Few entries for each page of code, so that a program which
 * starts touches few pages of them. What has to make room moves to the entry beside, which is in
 * the same line of the cache. */
static inline u32 cpu_jump_index(u64 rip, u32 spread)
{
	return (rip ^ spread) / JUMP_SPAN & (JUMP_SIZE - 1);
}

static inline u32 cpu_jump_beside(u32 index)
{
	return index ^ 1;
}

#endif
