/* SPDX-License-Identifier: MIT */
/*
 * A struct cpu in long mode with identity-mapped memory and the tables a small kernel would have:
 * GDT, LDT, IDT with a handler for every vector, TSS. For tests of segments and events.
 */
#ifndef UNIT_GUEST_TABLES_H
#define UNIT_GUEST_TABLES_H

#include "unit/paged_cpu.h"
#include "x86/descriptor.h"

/* Selectors with RPL 0; those of user segments are used with RPL 3. */
enum {
	SEL_KCODE64 = 0x08,
	SEL_KDATA = 0x10,
	SEL_UCODE32 = 0x18, /* in SYSRET's order */
	SEL_UDATA = 0x20,
	SEL_UCODE64 = 0x28,
	SEL_TSS = 0x30, /* two slots; so are the other system segments and gates */
	SEL_LDT = 0x40,
	SEL_KCODE32 = 0x50,
	SEL_CONFORMING = 0x58,
	SEL_ABSENT_DATA = 0x60,
	SEL_READONLY = 0x68,
	SEL_EXECONLY = 0x70,
	SEL_GATE = 0x78, /* call gate, DPL 3, to SEL_KCODE64 */
	SEL_ABSENT_CODE = 0x88,
	SEL_STACK16 = 0x90,    /* DPL 3, B clear */
	SEL_CODE_MIXED = 0x98, /* L and D */
	SEL_CODE_RING1 = 0xa0,
	SEL_DATA_RING1 = 0xa8,
	SEL_TSS_FAR = 0xb0, /* base not canonical */
	SEL_LDT_ABSENT = 0xc0,
	SEL_GATE_KERNEL = 0xd0, /* call gate, DPL 0 */
	SEL_GATE_ABSENT = 0xe0,
	SEL_TSS_BUSY = 0xf0,
	GDT_LIMIT = 0xff,
	SEL_BEYOND = 0x100,
	SEL_IN_LDT = 0x08 | SEL_TI, /* a data segment */
	LDT_LIMIT = 0x0f,
};

#define GDT	     0x200000
#define IDT	     0x201000
#define TSS	     0x202000
#define LDT	     0x203000
#define KERNEL_STACK 0x300000
#define USER_STACK   0x310000
#define RSP0	     0x320000
#define IST1	     0x330008 /* not aligned */
#define UNMAPPED     0x40000000
#define NONCANONICAL 0x900000000000ull
#define CODE	     0x280000 /* where RIP stands */
#define HANDLER(v)   (0x400000 + (v) * 16ull)

enum where { KERNEL64, KERNEL32, USER64, USER32, RING1 };

void tables_init(struct paged_cpu *p);
/* The same for cmocka, where the state of a test is its struct paged_cpu. */
int tables_setup(void **state);
int tables_teardown(void **state);
/* Puts the processor there: CS, SS, data segments, RSP, RIP at CODE, flags with IF. */
void tables_enter(struct paged_cpu *p, enum where where);

/* Writes a descriptor: attr as in struct segment, limit in pages if it has SEG_G. */
void tables_descriptor(struct paged_cpu *p, u16 sel, u64 base, u32 limit, u32 attr);
void tables_gate(struct paged_cpu *p, u8 vector, u64 offset, u16 sel, u32 attr, u32 ist);
/* A present call gate of DPL 3 in the GDT, to HANDLER(0). */
void tables_call_gate(struct paged_cpu *p, u16 sel, u16 target);
u64 tables_word(const struct paged_cpu *p, gpa_t at);
void tables_set_word(struct paged_cpu *p, gpa_t at, u64 value);

/* In 64-bit code of the kernel, at that address, with the null SS of a change of privilege. */
void assert_in_kernel(const struct cpu *cpu, u64 rip);

/* The outcome of an operation, to compare with what a test expects; vector -1: none raised. */
struct outcome {
	int vector;
	u32 error;
};
struct outcome outcome_of(const struct cpu *cpu, enum guest_fault fault);

#define OK	       ((struct outcome){ -1, 0 })
#define RAISES(v, err) ((struct outcome){ v, err })

#endif
