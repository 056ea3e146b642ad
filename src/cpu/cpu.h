/* SPDX-License-Identifier: MIT */
/*
 * struct cpu: everything architectural about one logical processor, and the few tables that
 * translated code reaches off its stack pointer. Owned by the vCPU thread while it is inside
 * engine_run(); by whoever holds the vCPU's lock otherwise. `attention` is the one field other
 * threads may write (atomically).
 *
 * Below a struct cpu lies the stack on which translated code and its helpers run: while guest code
 * executes, the host's RSP *is* the struct cpu pointer. cpu_create() lays this out.
 */
#ifndef CPU_CPU_H
#define CPU_CPU_H

#include "base/types.h"
#include "cpu/xstate.h"
#include "hwpmu/branch.h"
#include "hwpmu/hwpmu.h"
#include "hwpmu/retire.h"
#include "mem/mem.h"
#include "timing/timing.h"
#include "x86/features.h"
#include "x86/regs.h"
#include "x86/vendor.h"

#define CPU_STACK_SIZE (256ull << 10) /* of the stack below */

/* Segment attributes in the layout of VMX access rights (SDM 3C 24.4.1). */
#define SEG_TYPE      0xfu
#define SEG_S	      BIT(4)
#define SEG_DPL	      (3u << 5)
#define SEG_P	      BIT(7)
#define SEG_AVL	      BIT(12)
#define SEG_L	      BIT(13)
#define SEG_DB	      BIT(14)
#define SEG_G	      BIT(15)
#define SEG_UNUSABLE  BIT(16)
#define SEG_DPL_SHIFT 5

struct segment {
	u64 base;
	u32 limit; /* in bytes, granularity applied */
	u32 attr;
	u16 sel;
};

struct descriptor_table {
	u64 base;
	u16 limit;
};

/*
 * What a guest action came to. FAULT_RAISED: cpu->event holds an exception to deliver; the
 * instruction did not retire. FAULT_EXIT: the action needs the hypervisor; cpu->exit says what, and
 * the instruction will be executed again from its start.
 */
enum guest_fault { FAULT_NONE, FAULT_RAISED, FAULT_EXIT };

enum event_kind {
	EVENT_NONE,
	EVENT_EXCEPTION, /* fault or trap: RIP as it stands is pushed */
	EVENT_SOFT_INT,	 /* INT n: RIP already points behind it */
	EVENT_SOFT_EXC,	 /* INT3, INTO: the same */
	EVENT_INTR,	 /* external interrupt */
	EVENT_NMI,
};

/* The one event to deliver before the next guest instruction (SDM 3A 6.14; like VM-entry event
 * injection). */
struct cpu_event {
	u8 kind;
	u8 vector;
	bool has_error;
	bool has_payload; /* payload: CR2 for #PF, the DR6 bits to set for #DB; applied at delivery
			   */
	bool injected;	  /* by the hypervisor: guest debugging does not claim it again */
	bool own;	  /* of this processor's timer or counters: tells nothing of what others wrote */
	u32 error;
	u64 payload;
};

enum exit_reason {
	EXIT_NONE,
	EXIT_BUDGET,	/* as many instructions retired as were asked for, or cpu->effort is used up */
	EXIT_PMI,	/* a counter of cpu->pmu overflowed, or a sample is to be read, and budget may be left */
	EXIT_ATTENTION, /* cpu->attention is set */
	EXIT_IO,	/* exit.io; done by engine re-execution once io.done is set */
	EXIT_MMIO,	/* exit.mmio */
	EXIT_HLT,	/* HLT retired */
	EXIT_CPUID,	/* the following are for the hypervisor to do, then cpu_complete() */
	EXIT_RDMSR,
	EXIT_WRMSR,
	EXIT_RDPMC,
	EXIT_HYPERCALL, /* VMCALL or VMMCALL */
	EXIT_MONITOR,
	EXIT_MWAIT,
	EXIT_XSETBV,	 /* ECX, EDX:EAX; not yet checked */
	EXIT_CR8_WRITE,	 /* exit.value; checked */
	EXIT_IRQ_WINDOW, /* cpu->want_irq_window and an interrupt could be taken now */
	EXIT_NMI_WINDOW,
	EXIT_DEBUG, /* guest debugging: exit.debug */
	EXIT_TRIPLE_FAULT,
	EXIT_UNEMULATED, /* an access no emulator does; exit.insn_bytes */
	EXIT_HOST_FAULT, /* the program's memory behind exit.gpa cannot be accessed */
	EXIT_BAD_STATE,	 /* guest state that no processor enters with */
};

enum io_state { IO_IDLE, IO_WANTED, IO_DONE };

#define IO_DATA_MAX    1024
#define MMIO_FRAGMENTS 16

struct cpu_exit {
	enum exit_reason reason;
	u8 insn_len; /* of the instruction that caused it, 0 if none */
	u8 insn_bytes[15];
	gpa_t gpa;
	u64 value;
	struct intercept *msr; /* of EXIT_RDMSR and EXIT_WRMSR; NULL without cpu->intercepts */
	struct {
		u64 pc, dr6, dr7;
		u32 exception; /* VEC_DB or VEC_BP */
	} debug;
};

/*
 * Port I/O in flight. The engine fills the request and exits; the owner answers by setting state to
 * IO_DONE (IN: with data filled in) and re-enters; the engine executes the instruction again and
 * finds its answer. A request whose rip no longer is the guest's is dropped.
 */
struct cpu_io {
	enum io_state state;
	bool in;
	u8 size;
	u16 port;
	u32 count; /* elements; more than one for REP INS, REP OUTS */
	u64 rip;
	u8 data[IO_DATA_MAX];
};

/*
 * MMIO in flight, in fragments of at most 8 bytes that do not cross 8-byte lines. Reads: the
 * instruction exits at its first unanswered read and is executed again when the answer is there;
 * earlier answers are kept until the instruction completes. Writes: queued while the instruction
 * completes, then delivered one exit each.
 */
struct mmio_fragment {
	gpa_t gpa;
	u8 len;
	bool answered;
	u8 data[8];
};

struct cpu_mmio {
	u32 nreads, read_pos;	/* answers held; how many of them this execution has consumed */
	u32 nwrites, write_pos; /* queued; how many are delivered */
	struct mmio_fragment reads[MMIO_FRAGMENTS], writes[MMIO_FRAGMENTS];
};

/* KVM_SET_GUEST_DEBUG as the processor sees it. */
struct cpu_debug {
	bool single_step; /* EXIT_DEBUG after each instruction */
	bool software_bp; /* INT3 is EXIT_DEBUG */
	bool hardware_bp; /* dr[], dr7 below replace the guest's for matching */
	bool block_irq;
	u64 dr[4], dr7;
};

/* The soft TLB: see cpu/mmu.h. */
#define TLB_BITS 14
#define TLB_SIZE (1u << TLB_BITS)

/* A bit an entry, and one for each 64 of them: few are quickly found among many. */
struct tlb_bits {
	u64 some[TLB_SIZE / 4096];
	u64 bit[TLB_SIZE / 64];
};

struct tlb_entry {
	u64 read, write; /* page address for which this entry serves the access; else a tag that
			    never matches */
	u64 host;	 /* host address of the page */
	u64 gpa;	 /* guest physical address of the page */
};

enum tlb_set {
	TLB_KERNEL,
	TLB_KERNEL_AC,
	TLB_USER,
	NTLBS
}; /* AC: supervisor that may touch user pages */

/*
 * Whose code: what is known of the linear addresses of user code goes with its address space, what is
 * known of the kernel's usually stays.
 */
enum space { SPACE_OS, SPACE_USR, NSPACES };

/* Address spaces that user code may come back to: CR3 with its PCID (SDM 3A 4.10.1). */
#define SPACES_KEPT 8

struct space_kept {
	u64 cr3;
	u64 jump_generation, map_generation; /* 0: none */
};

/* Pages, by a hash of their numbers, that code was fetched from. */
#define FILTER_BITS 16

struct page_filter {
	u64 bits[(1u << FILTER_BITS) / 64];
};

/* The jump cache: guest address to translated code. See engine/jump.c. */
#define JUMP_BITS 16
#define JUMP_SIZE (1u << JUMP_BITS)

struct jump_entry {
	u64 rip;
	u32 key;  /* cpu->jump_key of the code that may follow it; 0: the entry is empty */
	u32 code; /* relative to cpu->code_base */
};

#define SHARE_SLOTS 12

/* Where calls will be returned to, by the stack pointer: see engine/trans_return.c. */
#define RETURN_SLOTS 256

#define XSAVE_SIZE 4096

/* What cpu/fpu.c knows of the host: found at creation, and its control words while guest state is
 * live. */
struct host_fpu {
	u64 features; /* components saved and restored, as in XCR0; 0: only FXSAVE exists */
	bool compacts; /* has XSAVEC: cpu->xsave is in the compacted form */
	u32 mxcsr_mask;
	u32 mxcsr;
	u16 fcw;
};

#define TSC_SCALE_SHIFT 48
#define TSC_SCALE_ONE	BIT(TSC_SCALE_SHIFT)

struct engine;
struct code_pages;
struct shared_code;
struct exclusive;
struct hwpmu;
struct intercepts;

#define COUNT_SETS 16 /* a number has four bits of the mode */
#define PACK_WORDS  4 /* of counts: engine/pack.h */
#define PACK_FIELDS 4 /* of a word */

/* Bits of cpu->attention. */
#define ATTENTION_OWNER	 1
#define ATTENTION_ENGINE 2 /* the engine's own or another processor's (cpu/exclusive.h), cleared by the engine */

struct cpu {
	/* Hot for translated code: the first 128 bytes have one-byte displacements. */
	u32 aflags; /* arithmetic flags while translated code runs: LAHF's byte in 15:8, OF in bit 0
		     */
	u32 returned_from; /* number of the block whose return is under way */
	/* Not 0: leave translated code at the next block. Written by any thread. Code that counts looks
	 * at it as the lowest byte of a word whose others are the guards of cpu->packed[]. */
	u8 attention __attribute__((aligned(8)));
	u8 guards[7];
	u64 regs[16];  /* complete outside translated code; inside only those it keeps in memory */
	u64 rip;
	u64 rflags;   /* the arithmetic flags are current outside translated code only */
	u32 jump_key;	 /* of the entries of jump[] that may be followed now; never 0 */
	u32 jump_spread; /* XORed into addresses to find their entry of jump[] */
	u64 code_base;	 /* host address that code in jump[] is relative to */
	u64 jump_generation[NSPACES]; /* another number when no entry of jump[] may be used any more */
	u64 spill[10]; /* scratch of translated code */
	u64 share[SHARE_SLOTS]; /* the same: host addresses that accesses share */
	u64 packed[PACK_WORDS]; /* counts of translated code: engine/pack.h */
	u64 host_rsp; /* the stack to return to */
	u64 tsc_offset, tsc_scale; /* guest TSC = time * scale >> 48, plus offset */
	u64 time_base; /* time is the host's TSC, or if virtual, this plus the cycles of all privileges */

	struct segment seg[NSEGS], ldtr, tr;
	struct descriptor_table gdtr, idtr;
	u64 cr0, cr2, cr3, cr4, cr8, efer;
	u64 dr[4], dr6, dr7;
	u64 xcr0, xss;
	u64 pkru; /* 32 bits; as XSAVE has it */
	u64 star, lstar, cstar, sfmask, kernel_gs_base;
	u64 sysenter_cs, sysenter_esp, sysenter_eip;
	u64 pat, tsc_aux, debugctl;
	u64 pdptr[4]; /* PAE paging without long mode */
	u8 cpl;
	bool nmi_masked;
	u8 shadow; /* interrupt shadow: SHADOW_STI, SHADOW_SS. Begun with cpu_begin_shadow() */
	u8 fresh;  /* FRESH_*: what the instruction that is completing has just begun */
	bool a20_masked;

	/* What this processor can do: set by its owner from CPUID before the first run. */
	u64 features[FEATURE_WORDS];
	u64 cr4_allowed, efer_allowed, xcr0_allowed;
	struct xstate_layout xstate; /* of the standard format */
	u8 phys_bits;
	bool is_amd;
	bool virtual_time; /* the owner's, before the first run */
	bool seeded;	   /* the same: RDRAND and RDSEED give what follows of `random` */
	u64 random;
	bool harden; /* guest addresses are masked against speculation; the owner's, before the first run */
	u64 foreign_rules; /* of the other vendor: 0 but in tests (RULE_*, cpu_follows()) */

	struct cpu_event event;
	struct cpu_exit exit;
	struct cpu_io io;
	struct cpu_mmio mmio;
	struct cpu_debug debug;
	bool want_irq_window, want_nmi_window;
	u32 pending_db;	 /* DR6 bits of traps (BS, data breakpoints) to raise when the instruction
			    completes */

	struct retire_tally tally;
	/* Work that retires no instruction, in instructions that would take as long: iterations of REP,
	 * deliveries of events. Grows; nothing architectural depends on it. */
	u64 effort;
	s64 live[NRETIRE]; /* what grows of it while guest code runs, from minus what is left to a trip: engine/count.h */
	struct retire_trips trips; /* where to end the run; read at engine_run() */
	bool branches_near;	   /* to one of their trips: code counts them itself */
	retire_wanted count_sets[COUNT_SETS]; /* that translated code counts, by their number in the mode */
	u32 count_set; /* the last one that was not empty */
	struct branch_ring branches;
	struct branch_log branch_log; /* empty outside translated code */
	bool precise;	/* last_rip is wanted; read at engine_run() */
	u64 last_rip;	/* where the instruction with which a run ended at a trip is */
	bool same_memory;     /* the owner's, for one engine_run(): nobody else has had a turn since the last */
	bool loose;	      /* the owner's, for one engine_run(): the budget may end up to a block early */
	retire_wanted wanted; /* which classes of it must grow; read at engine_run() */
	retire_wanted coded;  /* those that code counts, which may be more: cpu/mode.c */
	u64 coded_until;      /* then at the latest, in instructions, they are what is wanted */
	struct intercepts *intercepts; /* which MSRs of `pmu` need no exit; the owner's. NULL: none */
	const struct mem_map *mem;
	const struct mem_slot *last_slot; /* found last, in the map of this generation: cpu_slot() */
	u64 last_generation;
	struct shared_code *shared; /* the owner's, of the whole machine: cpu/shared.h. NULL: always look */
	u32 shared_index;	    /* of this processor there */
	u64 news_seen, acknowledged;
	struct exclusive *exclusive; /* the owner's, of the whole machine: cpu/exclusive.h. NULL: this is all of it */
	u32 exclusive_index;	     /* of this processor there */
	bool alone;		     /* all other processors stand still */
	u64 claims_generation; /* of the slots that this processor's claims are in */
	struct code_pages *code; /* pages this CPU has translations of: see cpu/code.h */
	struct engine *engine;
	u32 mode;	    /* MODE_* of cpu/mode.h, recomputed by cpu_update_mode() */
	struct host_fpu host_fpu;
	bool fpu_live;	    /* x87 and vector state is in the host's registers, not in xsave */
	bool watch_active;  /* some data breakpoint is armed: pages in watch_page[] stay out of the
			       TLB */

	u8 slots; /* that a cycle has to issue instructions; at least 1 */
	const struct model *model; /* whose timing is modelled; set by the owner before engine_create(). NULL: none */
	struct timing timing;
	bool timing_stale;    /* its TLBs do not know of all changes: cpu/observe.h */
	u32 observe;	      /* MODE_OBSERVE_*, besides what `wanted` needs; read at engine_run() */
	u32 observed_tlb;     /* from translated code to engine/observe.c: offset of a TLB entry in its set */
	u64 observed_arg;     /* the same: key of a line, or address of a branch */

	const void *returns[NTLBS][RETURN_SLOTS];
	struct tlb_entry tlb[NTLBS][TLB_SIZE];
	u8 tlb_shift[NTLBS][TLB_SIZE]; /* size of the guest's page behind an entry: for INVLPG */
	struct tlb_bits tlb_used[NTLBS];  /* entries that may serve an address */
	struct tlb_bits tlb_local[NTLBS]; /* of these, entries of pages that are not global */
	u64 tlb_code[NTLBS][TLB_SIZE / 64]; /* those that lack a write tag for translated code alone */
	u64 tlb_large; /* a hash of the gigabytes that entries of pages larger than 2 MB lie in */
	struct page_filter tlb_2m; /* pages of 2 MB that there are entries of */
	struct page_filter tlb_writable; /* physical pages with a write tag in some entry */
	u64 map_generation[NSPACES]; /* another number when linear addresses of code are to be walked
					again */
	u64 last_jump, last_map;     /* numbers of generations given so far */
	u64 drops[NSPACES];	     /* how often what jump[] knows of a space has become useless */
	bool kernel_code_local;	     /* some of the kernel's code is on pages that are not global */
	bool kernel_code_low;	     /* or at addresses that are usually the user's */
	bool user_code_global;	     /* some user code, of any address space kept, is on global pages */
	struct space_kept kept[SPACES_KEPT];
	u32 next_kept;
	struct page_filter fetched, fetched_large; /* pages; 2M regions with code on large pages */
	struct jump_entry jump[JUMP_SIZE];
	u8 bounce[256] __attribute__((aligned(64)));
	u8 xsave[XSAVE_SIZE]
		__attribute__((aligned(64))); /* as the host's XSAVEC64 writes it: cpu/fpu.h */

	/*
	 * The physical PMU: engine_attach_pmu(). It decides `wanted`, `trips`, `precise` and `observe`.
	 * Without it (pmu.model is NULL) they are the owner's, and a trip ends a run with EXIT_BUDGET.
	 */
	struct hwpmu pmu;
};

#define SHADOW_STI 1
#define SHADOW_SS  2

/* cpu_finish_instruction() ends what the previous instruction began, but not what this one did. */
#define FRESH_SHADOW 1
#define FRESH_RF     2 /* IRET loaded RF */
#define FRESH_TF     4 /* SYSCALL, SYSRET, INT n: TF as it now is decides on a single-step trap */

struct cpu *cpu_create(void); /* NULL: out of memory. In the state of a reset */
void cpu_destroy(struct cpu *cpu);
void cpu_reset(struct cpu *cpu); /* INIT/power-up values of SDM 3A 9.1.1 */

/* Which entry of jump[] an address has. Neighbouring instructions seldom are branch targets. */
static inline u32 cpu_jump_index(u64 rip, u32 spread)
{
	return (rip ^ spread) >> 1 & (JUMP_SIZE - 1);
}

static inline bool cpu_has(const struct cpu *cpu, enum feature f)
{
	return cpu->features[f / 64] >> (f % 64) & 1;
}

/* Does it what only one vendor's processors do? */
static inline bool cpu_follows(const struct cpu *cpu, enum vendor_rule rule)
{
	return vendor_follows(cpu->is_amd, rule) != (cpu->foreign_rules >> rule & 1);
}

/* The time that the TSC is made of (vm/time.h), outside translated code. */
static inline u64 cpu_time(const struct cpu *cpu)
{
	if (!cpu->virtual_time)
		return __builtin_ia32_rdtsc();
	return cpu->time_base + cpu->tally.cycles[RETIRE_OS] + cpu->tally.cycles[RETIRE_USR];
}

static inline u64 cpu_tsc_at(const struct cpu *cpu, u64 time)
{
	return (u64)((unsigned __int128)time * cpu->tsc_scale >> TSC_SCALE_SHIFT) + cpu->tsc_offset;
}

/* Adds to every class of a set, for an instruction that C completes or takes back. */
static inline void cpu_tally(struct cpu *cpu, enum retire_privilege privilege, retire_wanted classes,
			     u64 n)
{
	for (; classes; classes &= classes - 1)
		((u64 *)&cpu->tally)[2 * __builtin_ctzll(classes) + privilege] += n;
}

static inline enum retire_privilege cpu_privilege(const struct cpu *cpu)
{
	return cpu->cpl ? RETIRE_USR : RETIRE_OS;
}

static inline bool cpu_long_mode(const struct cpu *cpu)
{
	return cpu->efer & EFER_LMA;
}

static inline bool cpu_code64(const struct cpu *cpu)
{
	return cpu_long_mode(cpu) && (cpu->seg[CS].attr & SEG_L);
}

#endif
