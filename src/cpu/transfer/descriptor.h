/* SPDX-License-Identifier: MIT */
/*
 * Descriptors in the guest's tables: finding, checking and marking them, shared by segment loads,
 * far transfers and event delivery. `ext` is the EXT bit of error codes: ERROR_EXT while an event
 * from outside the program is delivered, else 0. vCPU thread; general registers only.
 */
#ifndef CPU_TRANSFER_DESCRIPTOR_H
#define CPU_TRANSFER_DESCRIPTOR_H

#include "cpu/cpu.h"
#include "x86/descriptor.h"

struct descriptor {
	u64 lo, hi; /* hi: valid after descriptor_extend() only */
	u32 attr;   /* SEG_* */
	u16 sel;
};

/* Reads a descriptor from the GDT or LDT. *found: it lies within the table. */
enum guest_fault descriptor_find(struct cpu *cpu, u16 sel, struct descriptor *d, bool *found);
/* Reads the descriptor; raises `vector` with the selector as error code if the table does not have
 * it. */
enum guest_fault descriptor_read(struct cpu *cpu, u16 sel, enum vector vector, u32 ext,
				 struct descriptor *d);
/* System descriptors have 16 bytes in long mode: reads the upper half, raises #GP(selector). */
enum guest_fault descriptor_extend(struct cpu *cpu, struct descriptor *d);
/* Sets the accessed flag in the table, if it is clear. */
enum guest_fault descriptor_mark_accessed(struct cpu *cpu, struct descriptor *d);
/* The same for the busy flag of a TSS: #GP(selector) if another processor has set it since the
 * descriptor was read. */
enum guest_fault descriptor_mark_busy(struct cpu *cpu, struct descriptor *tss, u32 ext);
enum guest_fault descriptor_mark_available(struct cpu *cpu, struct descriptor *tss);

/* Raises an exception that names a selector. */
enum guest_fault descriptor_fault(struct cpu *cpu, enum vector vector, u16 sel, u32 ext);

/* What a segment register holds after loading it. */
struct segment descriptor_segment(const struct descriptor *d);
struct segment segment_null(u16 sel);
struct segment segment_vm86(u16 sel);
/* The segments of SYSCALL and its kin, which no table defines: base 0, limit 4G. */
struct segment segment_flat_code(u16 sel, u8 dpl, bool code64);
struct segment segment_flat_stack(u16 sel, u8 dpl);

/*
 * Checks and marks a stack segment for privilege `cpl` (not null): `vector` with the selector as
 * error code if it does not fit, #SS if it is not present.
 */
enum guest_fault descriptor_read_stack(struct cpu *cpu, u16 sel, u8 cpl, enum vector vector,
				       u32 ext, struct descriptor *d);

/* Checks a data segment (not null) against the current privilege; #NP if it is not present. */
enum guest_fault descriptor_read_data(struct cpu *cpu, u16 sel, enum vector vector, u32 ext,
				      struct descriptor *d);
/* May this privilege and the selector's RPL use the segment as data? */
bool descriptor_privileged(const struct cpu *cpu, const struct descriptor *d);

/* Puts the target of a transfer into *rip: canonical or within the limit, else #GP(ext). */
enum guest_fault descriptor_target(struct cpu *cpu, const struct descriptor *cs, u64 *rip, u32 ext);

/* A 64-bit stack pointer from the TSS; #TS(TR) if it lies beyond the limit. */
enum guest_fault tss64_read(struct cpu *cpu, u32 offset, u32 ext, u64 *rsp);
/* Stack pointer and segment of an inner privilege level from a 16- or 32-bit TSS. */
enum guest_fault tss_read_stack(struct cpu *cpu, u8 cpl, u32 ext, u32 *esp, u16 *ss);

/* What no emulator does: ends in EXIT_UNEMULATED. */
enum guest_fault cpu_unemulated(struct cpu *cpu);

static inline u8 descriptor_dpl(const struct descriptor *d)
{
	return (d->attr & SEG_DPL) >> SEG_DPL_SHIFT;
}

static inline u32 descriptor_type(const struct descriptor *d)
{
	return d->attr & SEG_TYPE;
}

static inline bool descriptor_is_code(const struct descriptor *d)
{
	return (d->attr & SEG_S) && (d->attr & TYPE_CODE);
}

static inline bool descriptor_is_conforming(const struct descriptor *d)
{
	return descriptor_is_code(d) && (d->attr & TYPE_CONFORMING);
}

static inline bool descriptor_is_stack(const struct descriptor *d)
{
	return (d->attr & SEG_S) && !(d->attr & TYPE_CODE) && (d->attr & TYPE_WRITABLE);
}

static inline bool descriptor_is_readable(const struct descriptor *d)
{
	return (d->attr & SEG_S) && (!(d->attr & TYPE_CODE) || (d->attr & TYPE_WRITABLE));
}

/* Code for 64-bit mode; only meaningful in long mode. */
static inline bool descriptor_is_code64(const struct cpu *cpu, const struct descriptor *d)
{
	return cpu_long_mode(cpu) && (d->attr & SEG_L);
}

/* Protected mode proper, compatibility and 64-bit mode: selectors name descriptors. */
static inline bool cpu_has_descriptors(const struct cpu *cpu)
{
	return (cpu->cr0 & CR0_PE) && !(cpu->rflags & FL_VM);
}

#endif
