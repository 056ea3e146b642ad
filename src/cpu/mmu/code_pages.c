// SPDX-License-Identifier: MIT
/*
 * The table of guest physical pages with translated code: open addressing with linear probing, at
 * most three quarters full. Its memory is mapped lazily, so that a vCPU that never runs costs
 * nothing. vCPU thread; general registers only, but for creation and destruction.
 */
#include "cpu/mmu/code_pages.h"

#include <sys/mman.h>

#include "base/bytes.h"

#define NPAGES	  (1u << CODE_PAGES_BITS)
#define MAX_COUNT (NPAGES / 4 * 3)
#define LINE_BITS 6
#define RUN_BITS  4 /* log2 of the pages whose entries lie together */
#define NWRITTEN  ARRAY_SIZE(((struct code_pages *)0)->written)

struct code_pages *code_create(void)
{
	struct code_pages *pages = mmap(NULL, sizeof(*pages), PROT_READ | PROT_WRITE,
					MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return pages == MAP_FAILED ? NULL : pages;
}

void code_destroy(struct code_pages *pages)
{
	if (pages)
		munmap(pages, sizeof(*pages));
}

void code_clear(struct code_pages *pages)
{
	if (pages->count)
		bytes_fill(pages->page, 0, sizeof(pages->page));
	pages->count = 0;
	pages->nwritten = 0;
}

/* Pages of a file are mostly neighbours. Their entries share a page of this table, and so the one
 * page fault that it takes. */
static u32 first_place(u64 gfn)
{
	u32 run = (gfn >> RUN_BITS) * 0x9e3779b97f4a7c15ull >> (64 - CODE_PAGES_BITS + RUN_BITS);

	return run << RUN_BITS | (gfn & MASK(RUN_BITS - 1, 0));
}

/* The page's entry, or the empty one where it would go. */
static struct code_page *probe(struct code_pages *pages, u64 gfn)
{
	u32 i = first_place(gfn);

	while (pages->page[i].gfn_plus_1 && pages->page[i].gfn_plus_1 != gfn + 1)
		i = (i + 1) % NPAGES;
	return &pages->page[i];
}

struct code_page *code_find(struct code_pages *pages, gpa_t gpa)
{
	struct code_page *page = probe(pages, gpa >> PAGE_SHIFT);

	return page->gfn_plus_1 ? page : NULL;
}

struct code_page *code_add(struct code_pages *pages, gpa_t gpa)
{
	struct code_page *page = probe(pages, gpa >> PAGE_SHIFT);

	if (page->gfn_plus_1)
		return page;
	if (pages->count >= MAX_COUNT)
		return NULL;
	pages->count++;
	page->gfn_plus_1 = (gpa >> PAGE_SHIFT) + 1;
	return page;
}

/* One bit for each line that [gpa, gpa + size) touches. */
static u64 lines_of(gpa_t gpa, u32 size)
{
	u32 first = (gpa & ~PAGE_MASK) >> LINE_BITS;
	u32 last = ((gpa & ~PAGE_MASK) + size - 1) >> LINE_BITS;

	return MASK(last, first);
}

static u64 lines_hit(struct code_pages *pages, gpa_t gpa, u32 size)
{
	const struct code_page *page = code_find(pages, gpa);

	return page && size ? page->lines & lines_of(gpa, size) : 0;
}

bool code_touches(struct code_pages *pages, gpa_t gpa, u32 size)
{
	return lines_hit(pages, gpa, size);
}

void code_written(struct code_pages *pages, gpa_t gpa, u32 size)
{
	u64 lines = lines_hit(pages, gpa, size);
	gpa_t page = gpa & PAGE_MASK;
	u32 n = pages->nwritten;

	pages->stores += !!lines;
	if (!lines || n > NWRITTEN)
		return;
	if (n && pages->written[n - 1].page == page) {
		pages->written[n - 1].lines |= lines;
		return;
	}
	if (n < NWRITTEN)
		pages->written[n] = (struct code_note){ page, lines };
	pages->nwritten = n + 1;
}
