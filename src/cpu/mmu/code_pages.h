/* SPDX-License-Identifier: MIT */
/*
 * Which guest physical pages this CPU holds translations of, with one bit per 64-byte line. The
 * engine adds pages, and sets and clears their lines; an entry goes only when all do. Code that
 * writes guest memory on this CPU asks with code_touches(), and notes a hit with code_written(),
 * which the engine acts on before the next block (mark, then act). Open addressing, never allocates
 * after creation; a full table makes the engine drop all translations. vCPU thread only; general
 * registers only.
 */
#ifndef CPU_MMU_CODE_PAGES_H
#define CPU_MMU_CODE_PAGES_H

#include "cpu/private.h"

#define CODE_PAGES_BITS 16

/* A linear page that the engine found the page at, and the number of that mapping, which no other
 * has; 0: none. */
struct code_mapping {
	u64 linear;
	u32 number;
};

/* Several, since programs have a library at different addresses. */
#define CODE_MAPPINGS 2

struct code_page {
	u64 gfn_plus_1; /* 0: empty */
	u64 lines;
	void *blocks;	      /* the engine's list of blocks on this page */
	u64 epoch;	      /* epoch in which the engine last compared the bytes */
	u64 entered[NSPACES]; /* priv->jump_drops when the page was noted as a target of jump[] */
	struct code_mapping mapping[CODE_MAPPINGS];
	u32 next_mapping; /* the one that is replaced next */
	/* The claims_id of the slot that claims it; 0: none does (cpu/mmu/shared_code.h). */
	u64 claim;
};

/* Lines of a page that were written. */
struct code_note {
	gpa_t page;
	u64 lines;
};

struct code_pages {
	u32 count;
	u64 stores;   /* that touched a line with code */
	u32 nwritten; /* notes in use; more than fit: everything counts as written */
	struct code_note written[16];
	struct code_page page[1u << CODE_PAGES_BITS];
};

struct code_pages *code_create(void);
void code_destroy(struct code_pages *pages);
void code_clear(struct code_pages *pages);
/* NULL: no translation on this page. */
struct code_page *code_find(struct code_pages *pages, gpa_t gpa);
struct code_page *code_add(struct code_pages *pages, gpa_t gpa); /* NULL: table full */

/* Does [gpa, gpa + size), within one page, touch a line with translated code? */
bool code_touches(struct code_pages *pages, gpa_t gpa, u32 size);
/* Notes that it was written. The engine finds the notes with nwritten. */
void code_written(struct code_pages *pages, gpa_t gpa, u32 size);

#endif
