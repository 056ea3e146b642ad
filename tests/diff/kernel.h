/* SPDX-License-Identifier: MIT */
/*
 * Random kernel-mode code, executed three ways on the engine: one instruction at a time, in
 * ordinary blocks, and in hot blocks. The native CPU cannot be asked at CPL 0; the three must
 * agree.
 *
 * A case is a list of items, executed some rounds. An item is a few instructions; if one of them
 * faults, the handler logs the exception and goes on with the next item.
 */
#ifndef TESTS_DIFF_KERNEL_H
#define TESTS_DIFF_KERNEL_H

#include "diff/diff.h"
#include "guest/machine.h"

#define KERNEL_ITEM_BYTES 96
#define KERNEL_ITEMS	  14

struct kernel_item {
	u8 bytes[KERNEL_ITEM_BYTES];
	u32 n;
	const char *name;
};

struct kernel_case {
	struct kernel_item item[KERNEL_ITEMS];
	u32 nitems, rounds;
	bool la57;
	retire_wanted counted; /* besides instructions and branches */
	u64 cr4;	       /* bits that it begins with, besides */
	u64 regs[16];
};

/* --- kernel_code.c --- */

void kernel_generate(struct kernel_case *c, struct rng *r);
/* The code of a case, to lie at IMAGE_CODE; its size. */
u32 kernel_assemble(const struct kernel_case *c, u8 *out);

/* --- kernel_machine.c: memory, and the three ways --- */

enum kernel_way { WAY_STEPPED, WAY_BLOCKS, WAY_HOT, NWAYS };

/* Supervisor pages, but for those named. The last is mapped to other memory by the
 * second tables. */
#define KERNEL_USER_CODE 0xb0000 /* user */
#define KERNEL_RESUME	 0x100000
#define KERNEL_LOG_AT	 0x100008
#define KERNEL_ROUNDS	 0x100010
#define KERNEL_OPERANDS	 0x101000 /* descriptors for LGDT, INVPCID, far jumps */
#define KERNEL_DATA	 0x110000 /* pages of every kind: enum kernel_page */
#define KERNEL_LOG	 0x140000
#define KERNEL_LOG_ENTRY 64 /* vector, error code, the frame, CR2 */

enum kernel_page {
	KPAGE_PLAIN,
	KPAGE_READONLY,
	KPAGE_USER,
	KPAGE_USER_READONLY,
	KPAGE_GLOBAL,
	KPAGE_ABSENT,
	KPAGE_USER_NX,
	KPAGE_ALIAS,
	KPAGES
};

#define KERNEL_PAGE_CODE  0xff0 /* from here on a data page has code */
#define KERNEL_PAGE(page) (KERNEL_DATA + (page) * PAGE_SIZE)
#define KERNEL_TABLES	  2 /* that CR3 may name */

u64 kernel_cr3(bool la57, u32 table);

struct kernel_outcome {
	enum exit_reason reason;
	u64 faults; /* logged */
	struct cpu *cpu;
	u8 *ram;
};

void kernel_machines_create(void);
void kernel_machines_destroy(void);
void kernel_run(const struct kernel_case *c, enum kernel_way way, struct kernel_outcome *out);

#endif
