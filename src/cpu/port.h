/* SPDX-License-Identifier: MIT */
/*
 * struct cpu_port: what a processor and its owner say to each other. The owner is the code that
 * calls engine_run(), normally the hypervisor.
 *
 * Who writes: each group of fields below says so. The owner writes its own only while engine_run()
 * is not running: on the vCPU's thread, or with the vCPU's lock held. The processor writes its own
 * only inside engine_run() and the functions of src/cpu. Both read all of it. Counts of the tally
 * may be read by any thread, one at a time.
 *
 * Translated code addresses the port with four-byte displacements: nothing here has to be near.
 * The one word that is asked of every loop, attention, is in struct cpu.
 */
#ifndef CPU_PORT_H
#define CPU_PORT_H

#include "base/types.h"
#include "hwpmu/retire.h"

enum event_kind {
	EVENT_NONE,
	EVENT_EXCEPTION, /* fault or trap: RIP as it stands is pushed */
	EVENT_SOFT_INT,	 /* INT n: RIP already points after the instruction */
	EVENT_SOFT_EXC,	 /* INT3, INTO: so does RIP here, or insn_len says how far that is */
	EVENT_INTR,	 /* external interrupt */
	EVENT_NMI,
};

/*
 * The one event to deliver before the next guest instruction (SDM 3A 6.14; like VM-entry event
 * injection).
 */
struct cpu_event {
	u8 kind;
	u8 vector;
	bool has_error;
	bool has_payload;  /* payload: CR2 for #PF, DR6 bits to set for #DB; applied at delivery */
	bool injected;	   /* by the hypervisor */
	bool own;	   /* of this processor's timer or counters: no other has written memory */
	u8 insn_len;	   /* of EVENT_SOFT_EXC: RIP points to the instruction, which is as long */
	bool for_debugger; /* a #DB that guest debugging claimed when it was raised: EXIT_DEBUG */
	u32 error;
	u64 payload;
};

enum exit_reason {
	EXIT_NONE,
	EXIT_BUDGET,	/* the instructions that were asked for retired, or the effort is used up */
	EXIT_PMI,	/* a counter overflowed or a sample is to be read; budget may be left */
	EXIT_ATTENTION, /* cpu->attention is set */
	EXIT_IO,	/* port.io; executed again once its state is IO_DONE */
	EXIT_MMIO,	/* port.mmio */
	EXIT_HLT,	/* HLT retired */
	EXIT_CPUID,	/* to EXIT_CR8_WRITE: for the hypervisor to do, then cpu_complete() */
	EXIT_RDMSR,
	EXIT_WRMSR,
	EXIT_RDPMC,
	EXIT_HYPERCALL, /* VMCALL or VMMCALL */
	EXIT_MONITOR,
	EXIT_MWAIT,
	EXIT_XSETBV,	 /* ECX, EDX:EAX; not yet checked */
	EXIT_CR8_WRITE,	 /* exit.value; checked */
	EXIT_IRQ_WINDOW, /* port.want_irq_window and an interrupt could be taken now */
	EXIT_NMI_WINDOW,
	EXIT_DEBUG, /* guest debugging: exit.debug */
	EXIT_TRIPLE_FAULT,
	EXIT_UNEMULATED, /* an access no emulator does; exit.insn_bytes */
	EXIT_HOST_FAULT, /* the program's memory for exit.gpa cannot be accessed */
	EXIT_BAD_STATE,	 /* guest state that no processor enters with */
};

struct cpu_exit {
	enum exit_reason reason;
	u8 insn_len; /* of the instruction that caused it, 0 if none */
	u8 insn_bytes[15];
	gpa_t gpa;
	u64 value;
	struct intercept *msr; /* of EXIT_RDMSR and EXIT_WRMSR; NULL without port.intercepts */
	struct {
		u64 pc, dr6, dr7;
		u32 exception; /* VEC_DB or VEC_BP */
	} debug;
};

enum io_state { IO_IDLE, IO_WANTED, IO_DONE };

#define IO_DATA_MAX    1024
#define MMIO_FRAGMENTS 16

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

#define TSC_SCALE_SHIFT 48
#define TSC_SCALE_ONE	BIT(TSC_SCALE_SHIFT)

struct coherence;
struct intercepts;
struct kept;
struct mem_map;
struct model;

struct cpu_port {
	/* The owner's, before the first run. */
	const struct model *model;     /* whose timing is modelled; NULL: none */
	struct coherence *caches;      /* of the machine; NULL: its processors share none */
	u32 caches_index;	       /* of this processor there */
	struct intercepts *intercepts; /* which MSRs of cpu->pmu need no exit; NULL: none */
	bool virtual_time;	       /* the TSC is made of the tally of cycles: time_base */
	bool full_timing;	       /* misses and mispredictions take time */
	u32 last_level;		       /* Kbytes of it that there are; 0: the model's */
	u32 last_level_life;	       /* cycles, with full timing; 0: it has no neighbours */
	bool harden;		       /* against speculation; known to engine_create() */
	bool seeded;		       /* RDRAND and RDSEED give what follows of `random` */
	u64 random;		       /* the seed; the processor moves it on */
	const struct kept *kept;       /* translations that other processes made; NULL: none */
	u64 foreign_rules; /* in which it differs from its vendor: vendor_exceptions() */

	/* The owner's, between two runs. */
	const struct mem_map *mem; /* guest memory; the map outlives the run */
	u64 tsc_offset, tsc_scale; /* guest TSC = time * scale >> 48, plus offset */
	u64 time_base;		   /* virtual time is this plus the cycles of all privileges */
	struct cpu_debug debug;
	bool want_irq_window, want_nmi_window;
	/* For one run: nothing else has written guest memory since the last. */
	bool memory_unchanged;
	bool may_end_early; /* for one run: the budget may end up to a block early */

	/*
	 * What is counted, and where a run has to end: decided by cpu->pmu when a run begins.
	 * Without a PMU (pmu.model is NULL) they are the owner's, and a trip ends a run with
	 * EXIT_BUDGET.
	 */
	retire_wanted wanted;	   /* classes of the tally that must grow */
	struct retire_trips trips; /* tallies at which the run ends */
	bool precise;		   /* last_rip is wanted */
	u32 observe;		   /* MODE_OBSERVE_*, besides what `wanted` needs */

	/* Both write it: the owner injects, the processor raises; taken when it is delivered. */
	struct cpu_event event;

	/* The processor's. */
	struct cpu_exit exit;
	struct retire_tally tally;
	/* Work besides plain instructions, in instructions that would take as long: iterations of
	 * REP, deliveries of events, and what cpu_effort() is told of. Grows; nothing architectural
	 * depends on it. */
	u64 effort;
	u64 last_rip; /* of the instruction with which a run ended at a trip; if `precise` */
	/* Running hash (base/trace.h) of the registers after each instruction that C alone
	 * executes, among them those that read a clock or a random number. The owner starts it with
	 * a number other than 0; 0: none is kept. */
	u64 digest;

	/* The processor asks, the owner answers. */
	struct cpu_io io;
	struct cpu_mmio mmio;
};

#endif
