/* SPDX-License-Identifier: MIT */
/*
 * x87, SSE, AVX and AVX-512 state: in the host's registers while guest code runs and in the
 * engine's own C code (built without vector instructions), in cpu->xsave elsewhere. vCPU thread.
 *
 * While it is there x87, SSE and AVX are complete. A component of AVX-512 is there only if its bit
 * of XSTATE_BV is set; else it is in its initial state, all zero, and its bytes are undefined.
 */
#ifndef CPU_FPU_H
#define CPU_FPU_H

#include "cpu/cpu.h"

/* To cpu->xsave, host control words restored; does nothing unless fpu_live. */
void fpu_save(struct cpu *cpu);
void fpu_load(struct cpu *cpu);	  /* the reverse; does nothing if fpu_live */
void fpu_reload(struct cpu *cpu); /* loads cpu->xsave over the live state */
/* Has the x87 store that was just executed stored anything? An unmasked exception but that of
 * precision keeps it from it (SDM 1 8.5). The state is live, and none was pending before. */
bool fpu_x87_stored(void);

/* The bits of MXCSR that the host has: what a guest may set. */
u32 fpu_mxcsr_mask(const struct cpu *cpu);

void fpu_probe(struct cpu *cpu); /* at creation: what the host can save and restore */
void fpu_reset(struct cpu *cpu); /* the state after power-up, in cpu->xsave; not while fpu_live */
/* After cpu->xsave was filled from outside: clears what XRSTOR would refuse. fpu_load() does it,
 * too. */
void fpu_sanitise(struct cpu *cpu);

/* Components of AVX-512 that are not in the image become zeros there: to be read, or to be written
 * to, which makes them part of the state. Not while fpu_live. */
void fpu_fill_initial(struct cpu *cpu, u64 components);
void fpu_make_present(struct cpu *cpu, u64 components);

/* Where a component of XSAVE is kept, and its offset in an image with all of them. PKRU has a field
 * of its own, since no host register holds it. */
u8 *fpu_component(struct cpu *cpu, u32 component);
u32 fpu_component_at(u32 component);

/* Offsets in cpu->xsave: of the compacted form with all components there are (SDM 1 13.4). */
enum xsave_offset {
	XSAVE_FCW = 0,
	XSAVE_FSW = 2,
	XSAVE_FTW = 4, /* a bit for each register that is not empty */
	XSAVE_FIP = 8,
	XSAVE_FDP = 16,
	XSAVE_MXCSR = 24,
	XSAVE_MXCSR_MASK = 28,
	XSAVE_ST0 = 32,
	XSAVE_XMM0 = 160,
	XSAVE_LEGACY_END = 416,
	XSAVE_XSTATE_BV = 512,
	XSAVE_XCOMP_BV = 520,
	XSAVE_YMM0_HIGH = 576,
	XSAVE_OPMASK = 832,
	XSAVE_ZMM0_HIGH = 896, /* bits 511:256 of the first 16 registers */
	XSAVE_ZMM16 = 1408,    /* all of the other 16 */
	XSAVE_END = 2432,
};

#endif
