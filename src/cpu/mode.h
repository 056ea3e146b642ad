/* SPDX-License-Identifier: MIT */
/*
 * The mode word: the state that changes what translated code for the same bytes looks like, and
 * what of it is counted. It is part of the key of a block. Not in it: the limit of the code
 * segment, which is another part of the key, and what is so rarely changed that all blocks are
 * dropped instead (engine/runtime/run.c, notice_rare_modes()). A block whose mode lacks a bit that
 * its code depends on would run in the wrong state. vCPU thread; general registers only.
 */
#ifndef CPU_MODE_H
#define CPU_MODE_H

#include "cpu/private.h"

#define MODE_CODE32    BIT(0) /* CS.D set; 16-bit code if neither this nor MODE_CODE64 */
#define MODE_CODE64    BIT(1)
#define MODE_CPL       (BIT(2) | BIT(3))
#define MODE_CPL_SHIFT 2
#define MODE_STACK32   BIT(4) /* SS.B; only without MODE_CODE64 */
/* CS, DS, ES, SS have base 0 and limit 4G and are usable, DS/ES/SS writable; always in
 * 64-bit code. */
#define MODE_FLAT      BIT(5)
/* Supervisor code that may touch user pages: CR4.SMAP clear or EFLAGS.AC set. Selects
 * TLB_KERNEL_AC. */
#define MODE_USER_OK   BIT(6)
#define MODE_FPU_TS    BIT(7)  /* CR0.TS */
#define MODE_FPU_EM    BIT(8)  /* CR0.EM */
#define MODE_FPU_MP    BIT(9)  /* CR0.MP */
#define MODE_SSE       BIT(10) /* CR4.OSFXSR */
#define MODE_AVX       BIT(11) /* CR4.OSXSAVE and XCR0 has SSE and AVX */
#define MODE_ALIGN     BIT(12) /* alignment checks: CR0.AM, EFLAGS.AC, CPL 3 */
/* One instruction a block: TF, guest debugging, instruction breakpoints. */
#define MODE_STEP      BIT(13)
#define MODE_LONG      BIT(14) /* EFER.LMA: without MODE_CODE64 this is compatibility mode */
#define MODE_PROT      BIT(15) /* CR0.PE and not virtual-8086 */
#define MODE_IOPL_OK   BIT(16) /* CPL <= IOPL */

#define MODE_TSC BIT(27) /* RDTSC is allowed, and the host's but for an offset */

/* What translated code counts besides instructions and branches, as far as cpu->port.wanted asks
 * for it: the number of a set of classes (priv->count_sets), and cycles. */
#define MODE_COUNT_SHIFT   28 /* to bit 31 */
#define MODE_COUNT_CYCLES  BIT(19)
#define MODE_COUNT_MISSES  BIT(20) /* of branches: one may reach a trip */
#define MODE_TRIP_BRANCHES BIT(21) /* all branches once more: their trip is near */

/* What translated code shows to the timing model. All of memory, or nothing of it: what a cache
 * holds depends on everything that went through it. */
#define MODE_OBSERVE_MEMORY   BIT(22)
#define MODE_OBSERVE_BRANCHES BIT(23)

/* All bits that depend on what is counted. */
#define MODE_COUNTING                                                              \
	((u32)MASK(31, MODE_COUNT_SHIFT) | MODE_COUNT_CYCLES | MODE_COUNT_MISSES | \
	 MODE_TRIP_BRANCHES | MODE_OBSERVE_MEMORY | MODE_OBSERVE_BRANCHES)

/* Classes that the timing model counts: contiguous in retire.def. */
#define OBSERVED_IN_MEMORY                                     \
	(RETIRE_RANGE(RETIRE_ITLB_MISSES, RETIRE_L1D_MISSES) | \
	 RETIRE_RANGE(RETIRE_LOAD_FORWARDS, RETIRE_L1D_FILLS))
#define OBSERVED_IN_BRANCHES RETIRE_RANGE(RETIRE_RETURN_MISSES, RETIRE_BRANCH_MISSES)

#define COUNT_BRANCHES                                                                          \
	(RETIRE_BIT(RETIRE_CONDITIONAL) | RETIRE_BIT(RETIRE_TAKEN) |                            \
	 RETIRE_BIT(RETIRE_NEAR_TAKEN) | RETIRE_BIT(RETIRE_COND_TAKEN) |                        \
	 RETIRE_BIT(RETIRE_NOT_TAKEN) | RETIRE_BIT(RETIRE_CALLS) | RETIRE_BIT(RETIRE_RETURNS) | \
	 RETIRE_BIT(RETIRE_INDIRECT) | RETIRE_BIT(RETIRE_FAR))
#define COUNT_MEMORY                                                                             \
	(RETIRE_BIT(RETIRE_LOADS) | RETIRE_BIT(RETIRE_STORES) | RETIRE_BIT(RETIRE_LOAD_STORES) | \
	 RETIRE_BIT(RETIRE_ACCESSES))
#define COUNT_CYCLES RETIRE_RANGE(RETIRE_STORE_STALLS, RETIRE_CYCLES)

/* Of these, the ones that are counted apart from cycles, and only if an event asks for them. */
#define COUNT_CYCLE_PARTS     RETIRE_RANGE(RETIRE_FUSED, RETIRE_STALLS)
/* And those that the timing model counts, with full timing. */
#define OBSERVED_IN_PENALTIES RETIRE_RANGE(RETIRE_STORE_STALLS, RETIRE_BAD_SLOTS)

/* Classes that are in priv->packed while translated code counts them; all others in priv->live. */
#define COUNT_PACKED (COUNT_BRANCHES | COUNT_MEMORY | RETIRE_BIT(RETIRE_BRANCHES))

/* A block whose memory accesses share no checks (emit_share.c); never in priv->mode. */
#define MODE_UNSHARED BIT(17)

/* Blocks of one instruction, linked to the next: approaching the exact end of a run (count.c).
 * Never in priv->mode. */
#define MODE_SINGLE BIT(18)

/* Near branches are recorded at this privilege: branch_wanted(). */
#define MODE_LBR       BIT(24)
#define MODE_LBR_ANY   BIT(25) /* all kinds of them */
#define MODE_LBR_STACK BIT(26) /* as a call stack */

/* XCR0 enables AVX-512, which needs MODE_AVX as well. Not in the mode: engine/runtime/run.c. */
static inline bool cpu_avx512(const struct cpu *cpu)
{
	return (~cpu->xcr0 & XCR0_AVX512) == 0;
}

void cpu_update_mode(struct cpu *cpu);
/* As cpu_update_mode(), if only the PMU's state has changed. */
void cpu_update_counting(struct cpu *cpu);

/* The classes that code of this mode counts. Reference cycles are equal to cycles. */
static inline retire_wanted cpu_counts(const struct cpu *cpu, u32 mode)
{
	return cpu_priv(cpu)->count_sets[mode >> MODE_COUNT_SHIFT] |
	       (mode & MODE_COUNT_CYCLES ? RETIRE_BIT(RETIRE_CYCLES) : 0) |
	       (mode & MODE_TRIP_BRANCHES ? RETIRE_BIT(RETIRE_BRANCHES) : 0);
}

/* Those of them that are in priv->packed. */
static inline retire_wanted cpu_packs(const struct cpu *cpu, u32 mode)
{
	return cpu_priv(cpu)->count_sets[mode >> MODE_COUNT_SHIFT] & COUNT_PACKED;
}

/* The classes that the timing model adds to priv->live. */
static inline retire_wanted mode_observes(u32 mode)
{
	return (mode & MODE_OBSERVE_MEMORY ? OBSERVED_IN_MEMORY | OBSERVED_IN_PENALTIES : 0) |
	       (mode & MODE_OBSERVE_BRANCHES ? OBSERVED_IN_BRANCHES : 0);
}

/*
 * Alignment checking (SDM 3A 6.15, interrupt 17), for accesses of the program: is this one against
 * the rule? Checked before the page. cpu_alignment() is in mmu/linear.c.
 */
u32 cpu_alignment(const struct cpu *cpu, u32 size);

static inline bool cpu_misaligned(const struct cpu *cpu, gva_t gva, u32 size)
{
	return unlikely(cpu_priv(cpu)->mode & MODE_ALIGN) && (gva & (cpu_alignment(cpu, size) - 1));
}

static inline enum space mode_space(u32 mode)
{
	return (mode & MODE_CPL) == MODE_CPL ? SPACE_USR : SPACE_OS;
}

static inline enum tlb_set cpu_tlb_set(u32 mode)
{
	if ((mode & MODE_CPL) == MODE_CPL)
		return TLB_USER;
	return mode & MODE_USER_OK ? TLB_KERNEL_AC : TLB_KERNEL;
}

#endif
