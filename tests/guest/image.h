/* SPDX-License-Identifier: MIT */
/*
 * The memory of a small 64-bit guest, as tests start it: page tables, GDT, TSS, IDT, and the code
 * at IMAGE_CODE. Linear addresses are physical ones. Pure: it only fills the buffer it is given.
 */
#ifndef GUEST_IMAGE_H
#define GUEST_IMAGE_H

#ifndef __ASSEMBLER__
#include "base/types.h"
#endif

#define IMAGE_GDT	 0x1000 /* page 0 is not mapped */
#define IMAGE_TSS	 0x2000
#define IMAGE_IDT	 0x3000
#define IMAGE_PML4	 0x4000
#define IMAGE_PDPT	 0x5000
#define IMAGE_PD	 0x6000
#define IMAGE_PT	 0x7000 /* the first 2 MB, in 4 KB pages */
#define IMAGE_STUBS	 0x8000 /* one for each vector: HLT, for ever */
#define IMAGE_STUB_SIZE	 16
#define IMAGE_CODE	 0x10000
#define IMAGE_STACK	 0x80000 /* tops */
#define IMAGE_INT_STACK	 0x90000 /* of interrupts that come from CPL 3 */
#define IMAGE_USER_STACK 0xa0000
#define IMAGE_DATA	 0x100000 /* up to IMAGE_RAM */
#define IMAGE_RAM	 0x400000ull
#define IMAGE_MMIO	 0x400000 /* mapped, but no memory: 2 MB */

/* Selectors; user ones with RPL 3. In the order that SYSCALL and SYSRET want. */
#define IMAGE_CS     0x08
#define IMAGE_DS     0x10
#define IMAGE_UCS32  0x1b
#define IMAGE_UDS    0x23
#define IMAGE_UCS    0x2b
#define IMAGE_TR     0x30
#define IMAGE_STAR   ((u64)0x1b << 48 | (u64)IMAGE_CS << 32)
#define IMAGE_NGDT   8
#define IMAGE_NGATES 256

#define IMAGE_DONE_PORT 0xf4

#define IMAGE_HOLE 0x150000 /* for tests that unmap a page, here by convention */

#ifndef __ASSEMBLER__

/* A block of guest code: name_start and name_end, anywhere in this program's constants;
 * position-independent. */
#define GUEST_CODE(name, text)                                                         \
	extern const u8 name##_start[] __attribute__((visibility("hidden")));          \
	extern const u8 name##_end[] __attribute__((visibility("hidden")));            \
	__asm__(".pushsection .rodata\n.balign 16\n" #name "_start:\n" text "\n" #name \
		"_end:\n.popsection\n")

void image_build(u8 *ram, const void *code, size_t size);   /* ram: IMAGE_RAM bytes of zeros */
void image_gate(u8 *ram, u32 vector, u64 handler, u32 dpl); /* an interrupt gate to IMAGE_CS */
void image_ist(u8 *ram, u32 vector, u64 top); /* the gate switches to IST 1, whose top this is */
u64 *image_pte(u8 *ram, u64 address);	      /* of an address in the first 2 MB */

#endif /* __ASSEMBLER__ */

#endif
