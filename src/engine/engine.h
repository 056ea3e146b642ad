/* SPDX-License-Identifier: MIT */
/*
 * The processor: executes guest code until something needs its owner. It knows the state in struct
 * cpu and guest memory; it never calls up. One engine per struct cpu; engine_run() on the vCPU
 * thread only.
 */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include <signal.h>

#include "cpu/cpu.h"

#define ENGINE_BLOCK_INSNS 48 /* instructions in one block at most */

int engine_create(struct cpu *cpu); /* sets cpu->engine; 0 or -errno. Needed before engine_run */
void engine_destroy(struct cpu *cpu);

/* Gives it the PMU of a model, cpu->pmu, in the state of a reset. Before the first run. */
void engine_attach_pmu(struct cpu *cpu, const struct pmu_model *model);

/* After so many executions a block is retranslated as a hot block, together with what usually
 * follows it. That takes microseconds, which code executed only a few hundred times does not win
 * back. */
#define ENGINE_HOT_AFTER 512
/* For tests: fewer executions make hot blocks. */
void engine_set_hot_after(struct cpu *cpu, u32 executions);

/* Counts instructions by block, in memory that outlives the processor: base/profile.h. Before the
 * first run. */
struct profile;
void engine_set_profile(struct cpu *cpu, struct profile *profile);

/*
 * Delivers cpu->port.event, if any, then executes until an exit; at most `budget` instructions
 * retire, exactly, or, with cpu->port.may_end_early, up to a block less. A guest may keep its
 * processor busy with other work than plain instructions (cpu->port.effort): that ends the run with
 * EXIT_BUDGET, too, when it is as much as `budget`, or without cpu->port.may_end_early when what
 * retires nothing is ENGINE_EFFORT more. With cpu->port.may_end_early and real time, so does an
 * instruction for which processors are stopped, on all of them (cpu/mmu/exclusive.h). The PMU ends
 * it with EXIT_PMI after the instruction with which a counter overflowed. Returns
 * cpu->port.exit.reason. On return every register is in struct cpu and the vector state in
 * cpu->xsave.
 */
#define ENGINE_EFFORT (1ull << 22)
enum exit_reason engine_run(struct cpu *cpu, u64 budget);

/*
 * For the owner's SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGTRAP handlers: true if the signal came
 * from guest code or from a guarded access on this thread and has been dealt with (the context may
 * be changed). Async-signal-safe.
 */
bool engine_signal(int sig, siginfo_t *info, void *ucontext);

/*
 * Which guest instruction this thread executes, for the owner's handler of any signal, and the
 * registers that its stack is found by. False: none; the engine finds or makes code, or delivers an
 * event. Async-signal-safe.
 */
struct engine_where {
	u64 rip, rsp, rbp;
	u8 cpl;
};
bool engine_where(const struct cpu *cpu, const void *ucontext, struct engine_where *where);

/* The code cache: memory in use now, and since the processor was made. Its own thread. */
struct engine_cache {
	u64 bytes;    /* code and tables of translation blocks */
	u64 blocks;   /* translated so far */
	u64 flushes;  /* so far */
	u64 insns;    /* of blocks translated so far */
	u64 lookups;  /* of blocks: those that no link and no entry of the jump cache led to */
	u64 compared; /* lines of 64 bytes that were compared with what was translated */
	u64 written;  /* stores to bytes that blocks may have been made from */
	u64 dropped; /* blocks, since what they were made from changed or a hot one replaces them */
};
void engine_cache(const struct cpu *cpu, struct engine_cache *cache);

/* IBPB: the timing model forgets what it has predicted branches by. Any state but running. */
void engine_forget_branches(struct cpu *cpu);

/* Forget everything translated: guest memory was changed without the processor noticing. Not while
 * it runs. */
void engine_forget(struct cpu *cpu);

#endif
