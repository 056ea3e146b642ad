// SPDX-License-Identifier: MIT
/*
 * The memory of the code cache: reserved once, mapped lazily, so that a processor that runs little
 * costs little. Created and destroyed while the processor does not run. cache_populate(), which
 * faults in what the next blocks will fill, is called between two visits to translated code, after
 * fpu_save(): libc is allowed.
 */
#include "engine/code_check.h"
#include "engine/translate/trans.h"

#include <errno.h>
#include <sys/mman.h>
#include <time.h>

#include "engine/code_memory.h"
#include "engine/price.h"

#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

#define CODE_SIZE (384u << 20)
#define META_SIZE (768u << 20)
#define HUGE_PAGE (2u << 20)
/* A huge page that takes longer to fault in is slower than 512 small ones. */
#define HUGE_NS	  1000000

static void *map_lazily(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static int map_code(struct engine *eng)
{
	struct code_memory code;
	int r = code_memory_map(&code, CODE_SIZE);

	eng->code_rw = code.rw;
	eng->code_rx = code.rx;
	return r;
}

/* One page fault in place of 512, for memory beyond what a processor that runs little needs. */
static void ask_for_huge_pages(struct engine *eng)
{
	eng->huge_meta = !madvise(eng->meta + HUGE_PAGE, META_SIZE - HUGE_PAGE, MADV_HUGEPAGE);
}

int cache_create(struct engine *eng)
{
	int ret = map_code(eng);

	if (ret)
		return ret;
	eng->meta = map_lazily(META_SIZE);
	eng->by_address = map_lazily(MAX_BLOCKS * sizeof(*eng->by_address));
	eng->code_starts = map_lazily(MAX_BLOCKS * sizeof(*eng->code_starts));
	eng->by_hash = map_lazily(BLOCK_HASHES * sizeof(*eng->by_hash));
	eng->decoder = map_lazily(sizeof(*eng->decoder));
	eng->pricing = map_lazily(price_memory_size());
	if (CHECKING)
		eng->enterable = map_lazily(CODE_SIZE / 8);
	if (!eng->meta || !eng->by_address || !eng->code_starts || !eng->by_hash || !eng->decoder ||
	    !eng->pricing || (CHECKING && !eng->enterable))
		return -ENOMEM;
	ask_for_huge_pages(eng);
	eng->code_next = eng->code_ready = eng->code_rw;
	eng->code_limit = eng->code_rw + CODE_SIZE;
	eng->meta_next = eng->meta_ready = eng->meta;
	eng->meta_limit = eng->meta + META_SIZE;
	if (!emit_thunks(eng))
		return -ENOMEM;
	eng->code_first = eng->code_next;
	return 0;
}

/* Faulting pages in one by one would take longer than filling them. Where the host lacks
 * MADV_POPULATE_WRITE they are. */
static void populate(const u8 *next, u8 **ready, const u8 *limit)
{
	while (*ready < next + CACHE_STRIDE && *ready < limit) {
		madvise(*ready, CACHE_STRIDE, MADV_POPULATE_WRITE);
		*ready += CACHE_STRIDE;
	}
}

static u64 thread_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

/*
 * If this host is a virtual machine, its free memory may have been given back to the host below
 * (free page reporting), which has to find 512 pages before there is a huge one: that takes several
 * times as long as 512 small pages. The first huge page that is slow is the last one asked for.
 */
static void populate_meta(struct engine *eng)
{
	u64 begun = thread_ns();
	u8 *next_huge;

	populate(eng->meta_next, &eng->meta_ready, eng->meta_limit);
	if (!eng->huge_meta || thread_ns() - begun < HUGE_NS)
		return;
	eng->huge_meta = false;
	next_huge = eng->meta_ready + -(uintptr_t)eng->meta_ready % HUGE_PAGE;
	if (next_huge < eng->meta_limit)
		madvise(next_huge, eng->meta_limit - next_huge, MADV_NOHUGEPAGE);
}

/* What is kept of a block takes about as much as all else of it: two steps ahead will do. */
static void populate_news(struct engine *eng, struct kept_news *news)
{
	u64 next = READ_ONCE(news->next) + offsetof(struct kept_news, data);
	u64 until = (next + 2 * CACHE_STRIDE) & PAGE_MASK;

	if (eng->news_ready < next)
		eng->news_ready = next & PAGE_MASK;
	if (until <= eng->news_ready || until > KEPT_NEWS_SIZE)
		return;
	madvise((u8 *)news + eng->news_ready, until - eng->news_ready, MADV_POPULATE_WRITE);
	eng->news_ready = until;
}

void cache_populate(struct engine *eng, const struct kept *kept)
{
	u8 *code = eng->code_ready;

	if (kept && kept->news)
		populate_news(eng, kept->news);

	populate(eng->code_next, &eng->code_ready, eng->code_limit);
	if (eng->code_ready != code)
		madvise(eng->code_rx + (code - eng->code_rw), eng->code_ready - code,
			MADV_POPULATE_READ);
	populate_meta(eng);
}

void cache_destroy(struct engine *eng)
{
	struct code_memory code = { .rw = eng->code_rw, .rx = eng->code_rx };

	code_memory_unmap(&code, CODE_SIZE);
	if (eng->meta)
		munmap(eng->meta, META_SIZE);
	if (eng->by_address)
		munmap(eng->by_address, MAX_BLOCKS * sizeof(*eng->by_address));
	if (eng->code_starts)
		munmap(eng->code_starts, MAX_BLOCKS * sizeof(*eng->code_starts));
	if (eng->by_hash)
		munmap(eng->by_hash, BLOCK_HASHES * sizeof(*eng->by_hash));
	if (eng->enterable)
		munmap(eng->enterable, CODE_SIZE / 8);
	if (eng->decoder)
		munmap(eng->decoder, sizeof(*eng->decoder));
	if (eng->pricing)
		munmap(eng->pricing, price_memory_size());
}
