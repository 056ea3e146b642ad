/* SPDX-License-Identifier: MIT */
/*
 * Executing one instruction while all other processors of the machine are stopped, as a bus lock
 * does (SDM 3A 8.1.2).
 *
 * Locked instructions are executed by the host, in place, and are atomic by that. Two kinds are
 * not: those whose bytes lie on two pages that are not neighbours on the host, and those that the
 * host does not let a program execute (engine/runtime/signal.c). They are executed in several
 * steps, between which no other processor may access memory, by locked instructions or by plain
 * loads and stores.
 *
 * A processor is *running* while it may access guest memory: within engine_run(). One that needs to
 * run exclusively
 *
 *      1. becomes the holder (there is at most one),
 *      2. sets cpu->attention of all that are running, and
 *      3. waits until none of them is.
 *
 * A processor that starts to run sets its flag first and looks for a holder second; the holder sets
 * its own mark first and looks at the flags second. So at least one of them sees the other (all
 * accesses are __ATOMIC_SEQ_CST). A running processor looks for a holder between two instructions,
 * and stops running while there is one.
 *
 * No wait is unconditional, since a handler of the program may hold up any thread and wait for
 * another vCPU: a processor whose owner calls for its attention gives up waiting, and leaves.
 *
 * Only processors are stopped. The hypervisor, the program and its devices may still write.
 *
 * vCPU threads, with guest vector state live: general registers only.
 */
#ifndef CPU_MMU_EXCLUSIVE_H
#define CPU_MMU_EXCLUSIVE_H

#include "cpu/cpu.h"
#include "cpu/mmu/shared_code.h"

struct exclusive {
	u32 holder; /* index of the processor that runs exclusively, plus 1; 0: none. A futex */
	u32 ncpus;
	struct exclusive_cpu {
		struct cpu *cpu;
		u32 running; /* 0 or 1. A futex */
	} __attribute__((aligned(64))) cpus[SHARED_CPUS];
};

/* For the owner of the machine: this is its processor of that number, counted without gaps. */
void exclusive_join(struct cpu *cpu, struct exclusive *machine, u32 index);

/* The processor is running from now on. False: it is not, since cpu->attention is set. */
bool exclusive_enter(struct cpu *cpu);
void exclusive_leave(struct cpu *cpu);

/* Does another processor run exclusively, or wait until it can? */
bool exclusive_wanted(const struct cpu *cpu);
/* Between two instructions: lets another processor run exclusively. False: as exclusive_enter(). */
bool exclusive_pause(struct cpu *cpu);

/*
 * No other processor runs until exclusive_end(). Between two instructions: another processor may
 * run exclusively first. False: cpu->attention is set, and the run has to end; the processor may be
 * running or not.
 */
bool exclusive_begin(struct cpu *cpu);
void exclusive_end(struct cpu *cpu);

#endif
