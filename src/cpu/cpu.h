/* SPDX-License-Identifier: MIT */
/*
 * struct cpu: the architectural state of one logical processor, and its port (cpu/port.h), through
 * which it and its owner talk. What the translator keeps besides lies after it, where only src/cpu
 * and src/engine can name it: cpu/private.h.
 *
 * Owned by the vCPU thread while it is inside engine_run(); by the thread that holds the vCPU's
 * lock otherwise. `attention` is the one field that other threads may write (atomically). Registers
 * that are written from outside need cpu_state_changed() before the next run.
 *
 * Below a struct cpu lies the stack on which translated code and its helpers run: while guest code
 * executes, the host's RSP *is* the struct cpu pointer. cpu_create() lays this out.
 */
#ifndef CPU_CPU_H
#define CPU_CPU_H

#include "base/types.h"
#include "cpu/port.h"
#include "cpu/xstate.h"
#include "hwpmu/branch.h"
#include "hwpmu/hwpmu.h"
#include "hwpmu/retire.h"
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
 * What a guest action came to. FAULT_RAISED: cpu->port.event holds an exception to deliver; the
 * instruction did not retire. FAULT_EXIT: the action needs the hypervisor; cpu->port.exit says
 * what, and the instruction will be executed again from its start.
 */
enum guest_fault { FAULT_NONE, FAULT_RAISED, FAULT_EXIT };

#define XSAVE_SIZE 4096

/* Bits of cpu->attention. With any other the uppermost is set: translated code looks at it alone.
 */
#define ATTENTION_OWNER	 1
#define ATTENTION_ENGINE 2 /* its own, or another's (cpu/mmu/exclusive.h) */
#define ATTENTION_CALL	 0x80

struct engine;

struct cpu {
	/* The first 128 bytes have one-byte displacements in translated code. Those without a name
	 * here are the translator's: struct cpu_hot. */
	u8 hot[7];
	u8 attention; /* not 0: leave translated code at the next block. Written by any thread */
	u8 hot_too[8];
	u64 regs[16]; /* complete outside translated code; inside only those it keeps in memory */
	u64 rip;
	u64 rflags; /* the arithmetic flags are current outside translated code only */

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
	u8 shadow; /* interrupt shadow: SHADOW_STI, SHADOW_SS. Begun with cpu_begin_shadow() */
	bool nmi_masked;
	bool a20_masked;
	u32 pending_db; /* DR6 bits of traps to raise when the instruction completes */

	/* What this processor can do: set by its owner from CPUID before the first run. */
	u64 features[FEATURE_WORDS];
	u64 cr4_allowed, efer_allowed, xcr0_allowed;
	struct xstate_layout xstate; /* of the standard format */
	u8 phys_bits;
	bool is_amd;

	struct cpu_port port;
	struct engine *engine; /* opaque but to src/engine; NULL before engine_create() */

	/* The physical PMU, and the last branches, which it shows: engine_attach_pmu(). */
	struct hwpmu pmu;
	struct branch_ring branches;

	/* x87 and vector state, as the host's XSAVEC64 writes it: cpu/fpu.h. */
	u8 xsave[XSAVE_SIZE] __attribute__((aligned(64)));
};

/* Translated code ends at the next block, for the reason of this bit. Any thread. */
static inline void cpu_call_attention(struct cpu *cpu, u8 reason)
{
	__atomic_fetch_or(&cpu->attention, reason | ATTENTION_CALL, __ATOMIC_SEQ_CST);
}

/* What is called for besides this reason, which is answered. */
static inline u8 cpu_attention_answered(struct cpu *cpu, u8 reason)
{
	u8 before = __atomic_load_n(&cpu->attention, __ATOMIC_RELAXED), after;

	do {
		after = before & ~reason;
		if (after == ATTENTION_CALL)
			after = 0;
	} while (!__atomic_compare_exchange_n(&cpu->attention, &before, after, true,
					      __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
	return after;
}

#define SHADOW_STI 1
#define SHADOW_SS  2

struct cpu *cpu_create(void); /* NULL: out of memory. In the state of a reset */
void cpu_destroy(struct cpu *cpu);
/* The values after power-up (SDM 3A 9.1.1); what INIT keeps the owner restores. */
void cpu_reset(struct cpu *cpu);

static inline bool cpu_has(const struct cpu *cpu, enum feature f)
{
	return cpu->features[f / 64] >> (f % 64) & 1;
}

/* Does this processor follow the rule, of its vendor or by foreign_rules? */
static inline bool cpu_follows(const struct cpu *cpu, enum vendor_rule rule)
{
	return vendor_follows(cpu->is_amd, rule) != (cpu->port.foreign_rules >> rule & 1);
}

/* Modelled cycles so far, at all privileges; the part of the last one is left out. */
static inline u64 cpu_cycles(const struct cpu *cpu)
{
	const u64 *ticks = cpu->port.tally.cycles;

	return (ticks[RETIRE_OS] + ticks[RETIRE_USR]) / TICKS_PER_CYCLE;
}

/* The time that the TSC is made of (vm/time/vm_time.h), outside translated code. */
static inline u64 cpu_time(const struct cpu *cpu)
{
	if (!cpu->port.virtual_time)
		return __builtin_ia32_rdtsc();
	return cpu->port.time_base + cpu_cycles(cpu);
}

/* Instructions retired so far, at all privileges. */
static inline u64 cpu_retired(const struct cpu *cpu)
{
	const u64 *instructions = cpu->port.tally.instructions;

	return instructions[RETIRE_OS] + instructions[RETIRE_USR];
}

/* Does the run end by the clock, so that it matters how long instructions take? */
static inline bool cpu_run_is_timed(const struct cpu *cpu)
{
	return cpu->port.may_end_early && !cpu->port.virtual_time;
}

/* C is at work for guest code, for as long as so many instructions may take, of ten nanoseconds
 * each. Nothing to a run that ends by a count or by virtual time. */
static inline void cpu_effort(struct cpu *cpu, u32 instructions)
{
	if (cpu_run_is_timed(cpu))
		cpu->port.effort += instructions;
}

static inline u64 cpu_tsc_at(const struct cpu *cpu, u64 time)
{
	return (u64)((unsigned __int128)time * cpu->port.tsc_scale >> TSC_SCALE_SHIFT) +
	       cpu->port.tsc_offset;
}

/* Adds n to every class of a set, for an instruction that C completes or takes back. */
static inline void cpu_tally(struct cpu *cpu, enum retire_privilege privilege,
			     retire_wanted classes, u64 n)
{
	for (; classes; classes &= classes - 1)
		((u64 *)&cpu->port.tally)[2 * retire_first(classes) + privilege] += n;
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
