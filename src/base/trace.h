/* SPDX-License-Identifier: MIT */
/*
 * The trace of a deterministic guest (docs/clock.md, "Where two runs differ"): hashes of its state
 * after every so many instructions. The process of the VM writes records to a socket (VPMU_TRACE
 * describes it: vm/time/trace.h), `vpmu exec --trace-hash` puts a header before them and makes a
 * file of both, `vpmu diverge` compares two such files.
 *
 * Readers believe nothing: a guest may have got hold of the process that writes the records, and
 * files come from anywhere.
 */
#ifndef BASE_TRACE_H
#define BASE_TRACE_H

#include "base/types.h"

#define TRACE_EVERY	1000000u /* instructions between two records, unless the user says so */
#define TRACE_EVERY_MIN 1000u

/* --- records --- */

enum trace_kind {
	TRACE_HASH = 1,
	TRACE_STATE, /* followed by a struct trace_detail */
	TRACE_END,   /* the command has ended; the last record */
	TRACE_STOP,  /* so many instructions were asked for; the last record */
};

/* After `instruction` instructions of all vCPUs, counted from the resumption of the guest. */
struct trace_record {
	u32 kind; /* enum trace_kind */
	u32 vcpu; /* index of the vCPU whose turn it is */
	u64 instruction;
	u64 rip;
	u64 state; /* hash of its struct trace_state */
	/* Running hash of what came from outside of registers and memory: events and the
	 * instruction at which they were injected, answers to exits, clocks and random numbers that
	 * were read, turns of vCPUs with the state at their end. */
	u64 inputs;
};

struct trace_segment {
	u64 base, sel;
	u32 limit, attr;
};

/* Architectural state of a vCPU. No holes: it is hashed as bytes. */
struct trace_state {
	u64 regs[16], rip, rflags;
	struct trace_segment seg[6], ldtr, tr, gdtr, idtr;
	u64 cr0, cr2, cr3, cr4, cr8, efer, xcr0, xss, pkru;
	u64 dr[4], dr6, dr7;
	u64 star, lstar, cstar, sfmask, kernel_gs_base;
	u64 sysenter_cs, sysenter_esp, sysenter_eip, pat, tsc_aux, debugctl;
	u64 tsc;
	u64 blocked; /* bits 1:0 interrupt shadow, bit 2: NMIs are masked */
	u64 fcw, fsw, ftw, mxcsr;
	u64 st[8][2];
	u64 opmask[8];
	u64 zmm[32][8];
};

#define TRACE_EVENTS 4
#define TRACE_CODE   15

enum trace_event_kind {
	TRACE_INTERRUPT = 1, /* number: its vector */
	TRACE_NMI,
	TRACE_EXIT, /* what: enum trace_exit; number: port, address, MSR or leaf */
	TRACE_TURN, /* number: index of the vCPU that has got its turn */
};

enum trace_exit {
	TRACE_EXIT_OTHER,
	TRACE_EXIT_IN,
	TRACE_EXIT_OUT,
	TRACE_EXIT_MMIO,
	TRACE_EXIT_CPUID,
	TRACE_EXIT_RDMSR,
	TRACE_EXIT_WRMSR,
	TRACE_EXIT_RDPMC,
	TRACE_EXIT_HLT,
	TRACE_EXIT_HYPERCALL,
};

struct trace_event {
	u16 kind; /* enum trace_event_kind */
	u16 what;
	u32 vcpu;
	u64 number;
};

struct trace_detail {
	struct trace_state state;
	u8 code[TRACE_CODE]; /* at RIP: the next instruction */
	u8 code_size;
	u32 cpl, bits;	     /* bits: 16, 32 or 64 */
	u32 nevents, unused; /* since the last record; the first TRACE_EVENTS of them are kept */
	struct trace_event event[TRACE_EVENTS];
};

/* --- what VPMU_TRACE says --- */

/* Records after every `every` instructions; between `from` and `to` after every `step`, if that is
 * not 0, with states if `step` is 1. The trace ends at `to`, if that is not 0. */
struct trace_plan {
	u64 every, from, to, step;
};

/* --- files --- */

#define TRACE_MAGIC	      0x68736168756d7076ull /* "vpmuhash" */
#define TRACE_VERSION	      1u
#define TRACE_STRINGS_MAX     (8u << 20)
#define TRACE_COUNT_MAX	      (1u << 20)
/* Sums of two such numbers do not overflow. */
#define TRACE_INSTRUCTION_MAX (1ull << 62)

/* Then `strings` bytes: the working directory, the words of `vpmu exec`, the environment, each with
 * its NUL. Then records up to one that ends them. */
struct trace_header {
	u64 magic;
	u32 version, strings;
	u32 words, variables; /* how many of them */
	u64 every;
	u64 build;		    /* hash of the library */
	u64 input_size, input_hash; /* of standard input */
	char vpmu[32], model[32];   /* its version; the guest's processor. NUL-terminated */
};

#define TRACE_SEED 0x7472616365ull

/* A hash of n bytes, continued from `hash`. */
static inline u64 trace_hash(u64 hash, const void *data, size_t n)
{
	const u8 *bytes = data;
	const u64_unaligned *words = data;
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		hash = (hash ^ *words++) * 0x9e3779b97f4a7c15ull;
		hash ^= hash >> 32;
	}
	for (; i < n; i++)
		hash = (hash ^ bytes[i]) * 0x100000001b3ull;
	return hash;
}

static inline u64 trace_hash_word(u64 hash, u64 word)
{
	hash = (hash ^ word) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 32;
}

_Static_assert(sizeof(struct trace_record) == 40, "part of a file's format");
_Static_assert(sizeof(struct trace_header) == 120, "part of a file's format");

#endif
