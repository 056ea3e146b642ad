// SPDX-License-Identifier: MIT
/*
 * The memory of the code cache: reserved once, mapped lazily, so that a processor that runs little
 * costs little. Created and destroyed while the processor does not run. cache_populate() faults in
 * what the next blocks will fill. It is called between two visits to translated code, after
 * fpu_save(): libc is allowed.
 *
 * A program that starts fills a hundred megabytes in its first second, and the host takes a tenth
 * of that time to find and clear them. So each processor has a thread, which maps memory ahead of
 * it once it has made many blocks, and the tables that programs with much code touch page by page
 * as soon as it makes the first. The thread is made with the processor: a VMM may forbid its
 * threads to make others later (seccomp). Invariants:
 *
 *  1. The thread calls madvise() and reads no memory that it maps.
 *  2. While eng->populating is set, what is mapped (code_ready and the like) is the thread's;
 *     else it is the processor's, which is the only one to set it.
 *  3. No run waits for the thread: memory that it has not mapped yet is faulted in when it is
 *     used.
 *
 * The same thread puts huge pages under code that stays. Cold code waits for the host's TLB, but a
 * huge page costs as much as some thousand blocks: programs that end within a second are better
 * off without.
 */
#include "engine/code_check.h"
#include "engine/translate/trans.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "engine/code_memory.h"
#include "engine/price.h"

#ifndef MADV_POPULATE_READ /* Linux 5.14 */
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE /* Linux 6.1 */
#define MADV_COLLAPSE 25
#endif

#define CODE_SIZE (384u << 20)
#define META_SIZE (768u << 20)
#define HUGE_PAGE (2u << 20)
#define HASH_SIZE (BLOCK_HASHES * sizeof(u64))
/* A huge page that takes longer to fault in is slower than 512 small ones. */
#define HUGE_NS	  1000000

/* A processor that has made so much code asks the thread, which maps so much ahead of it. */
#define THREAD_AFTER	(CACHE_STRIDE / 2)
#define THREAD_AHEAD	(8 * CACHE_STRIDE)
#define THREAD_STACK	(64u << 10)
/* Code stays if no memory for more was wanted for so long. */
#define SETTLED_SECONDS 1

/* Memory up to these addresses is needed soon. */
struct wanted {
	const u8 *code, *meta;
	u8 *news; /* NULL: none of it */
	u64 news_until;
};

/* A table of which a program touches all parts soon, each page with a fault of its own. */
struct table {
	void *at;
	size_t size;
	int populate; /* MADV_POPULATE_* */
};

struct populator {
	struct engine *eng;
	pthread_t thread;
	pid_t owner; /* a child of fork() has the memory, but not the thread */
	bool has_thread;
	bool ending;
	sem_t asked;
	struct wanted wanted;
	struct table tables[3]; /* written before the first request */
	u32 ntables, tables_mapped;
	u64 filled;    /* bytes of code memory, when it was asked last */
	u64 collapsed; /* of them, with huge pages under them */
	bool no_more;  /* the host has none */
};

static void *map_lazily(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

static int map_code(struct engine *eng)
{
	int r = code_memory_map(&eng->code, CODE_SIZE, MAX_BLOCKS * sizeof(*eng->until_hot));

	eng->code_rw = eng->code.rw;
	eng->code_rx = eng->code.rx;
	eng->until_hot = (s32 *)eng->code.data;
	return r;
}

/* Faulting pages in one by one would take longer than filling them. Where the host lacks
 * MADV_POPULATE_WRITE they are. */
static void populate(u8 **ready, const u8 *until, const u8 *limit)
{
	while (*ready < until && *ready < limit) {
		madvise(*ready, CACHE_STRIDE, MADV_POPULATE_WRITE);
		*ready += CACHE_STRIDE;
	}
}

/* Both views. */
static void populate_code(struct engine *eng, const u8 *until)
{
	u8 *first = eng->code_ready;

	populate(&eng->code_ready, until, eng->code_limit);
	if (eng->code_ready != first)
		madvise(eng->code_rx + (first - eng->code_rw), eng->code_ready - first,
			MADV_POPULATE_READ);
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
static void populate_meta(struct engine *eng, const u8 *until)
{
	u64 begun = thread_ns();
	u8 *next_huge;

	populate(&eng->meta_ready, until, eng->meta_limit);
	if (!eng->huge_meta || thread_ns() - begun < HUGE_NS)
		return;
	eng->huge_meta = false;
	next_huge = eng->meta_ready + -(uintptr_t)eng->meta_ready % HUGE_PAGE;
	if (next_huge < eng->meta_limit)
		madvise(next_huge, eng->meta_limit - next_huge, MADV_NOHUGEPAGE);
}

static void populate_news(struct engine *eng, const struct wanted *w)
{
	if (!w->news || w->news_until <= eng->news_ready)
		return;
	madvise(w->news + eng->news_ready, w->news_until - eng->news_ready, MADV_POPULATE_WRITE);
	eng->news_ready = w->news_until;
}

static void populate_all(struct engine *eng, const struct wanted *w)
{
	populate_code(eng, w->code);
	populate_meta(eng, w->meta);
	populate_news(eng, w);
}

/* --- the thread --- */

static bool may_collapse(const struct populator *p)
{
	return !p->no_more && p->collapsed + HUGE_PAGE <= p->filled;
}

static bool was_asked(struct populator *p)
{
	int requests;

	return sem_getvalue(&p->asked, &requests) || requests;
}

static void collapse_one(struct populator *p)
{
	p->no_more = madvise(p->eng->code_rx + p->collapsed, HUGE_PAGE, MADV_COLLAPSE);
	p->collapsed += HUGE_PAGE;
}

/* False: the processor wanted nothing for a while, and code may get huge pages. */
static bool wait_for_request(struct populator *p)
{
	struct timespec until;
	int r;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += SETTLED_SECONDS;
	do
		r = may_collapse(p) ? sem_clockwait(&p->asked, CLOCK_MONOTONIC, &until)
				    : sem_wait(&p->asked);
	while (r && errno == EINTR);
	return !r;
}

/* Where the host has no huge page, or what is mapped has none, they are small ones. */
static void populate_tables(struct populator *p)
{
	for (; p->tables_mapped < p->ntables; p->tables_mapped++) {
		const struct table *table = &p->tables[p->tables_mapped];

		madvise(table->at, table->size, MADV_HUGEPAGE);
		madvise(table->at, table->size, table->populate);
	}
}

static void serve_request(struct populator *p)
{
	populate_all(p->eng, &p->wanted);
	p->filled = p->wanted.code - THREAD_AHEAD - p->eng->code_rw;
	__atomic_store_n(&p->eng->populating, false, __ATOMIC_RELEASE);
}

static void *work(void *arg)
{
	struct populator *p = arg;

	for (;;) {
		if (!wait_for_request(p)) {
			while (may_collapse(p) && !was_asked(p))
				collapse_one(p);
			continue;
		}
		if (p->ending)
			return NULL;
		populate_tables(p);
		if (__atomic_load_n(&p->eng->populating, __ATOMIC_ACQUIRE))
			serve_request(p);
	}
}

/* Signals are for the threads of the program. */
static bool start_thread(struct populator *p)
{
	sigset_t all, before;
	pthread_attr_t attr;
	int r;

	sigfillset(&all);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, THREAD_STACK);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	r = pthread_create(&p->thread, &attr, work, p);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	p->owner = getpid();
	if (!r)
		pthread_setname_np(p->thread, "vpmu-memory");
	return !r;
}

static void end_thread(struct populator *p)
{
	if (!p->has_thread || p->owner != getpid())
		return;
	p->ending = true;
	sem_post(&p->asked);
	pthread_join(p->thread, NULL);
}

static bool create_populator(struct engine *eng)
{
	struct populator *p = map_lazily(sizeof(*p));

	if (!p)
		return false;
	p->eng = eng;
	sem_init(&p->asked, 0, 0);
	p->has_thread = start_thread(p); /* without one the processor maps memory itself */
	eng->populator = p;
	return true;
}

static void destroy_populator(struct populator *p)
{
	if (!p)
		return;
	end_thread(p);
	sem_destroy(&p->asked);
	munmap(p, sizeof(*p));
}

/* What is kept of a block takes twice as much as its code; but where most blocks are recalled,
 * there are few news. */
static void want_news(struct engine *eng, struct kept_news *news, u64 ahead, struct wanted *w)
{
	u64 used = READ_ONCE(news->next), next = used + offsetof(struct kept_news, data);
	u64 until = (next + (used < 2 * ahead ? used : 2 * ahead)) & PAGE_MASK;

	if (eng->news_ready < next)
		eng->news_ready = next & PAGE_MASK;
	if (until > KEPT_NEWS_SIZE)
		return;
	w->news = (u8 *)news;
	w->news_until = until;
}

static void add_table(struct populator *p, void *from, const void *to, int populate)
{
	u8 *at = (u8 *)((uintptr_t)from & PAGE_MASK);

	p->tables[p->ntables++] = (struct table){ at, (const u8 *)to - at, populate };
}

static void want_tables(struct cpu *cpu)
{
	struct cpu_priv *priv = cpu_priv(cpu);
	const struct kept *kept = cpu->port.kept;
	struct engine *eng = cpu->engine;
	struct populator *p = eng->populator;

	if (p->ntables || !p->has_thread)
		return;
	add_table(p, priv->tlb, priv + 1, MADV_POPULATE_WRITE);
	add_table(p, eng->by_hash, (u8 *)eng->by_hash + HASH_SIZE, MADV_POPULATE_WRITE);
	if (kept && kept->store)
		add_table(p, (u8 *)kept->store, kept->store + KEPT_DATA_AT, MADV_POPULATE_READ);
	sem_post(&p->asked);
}

void cache_populate(struct cpu *cpu)
{
	const struct kept *kept = cpu->port.kept;
	struct engine *eng = cpu->engine;
	bool by_thread =
		eng->populator->has_thread && eng->code_next - eng->code_first > THREAD_AFTER;
	u64 ahead = by_thread ? THREAD_AHEAD : CACHE_STRIDE;
	struct wanted w = { .code = eng->code_next + ahead, .meta = eng->meta_next + ahead };

	want_tables(cpu);
	if (kept && kept->news)
		want_news(eng, kept->news, ahead, &w);
	if (!by_thread) {
		populate_all(eng, &w);
		return;
	}
	eng->margin = THREAD_AHEAD / 2;
	eng->populator->wanted = w;
	__atomic_store_n(&eng->populating, true, __ATOMIC_RELEASE);
	sem_post(&eng->populator->asked);
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
	eng->by_hash = map_lazily(HASH_SIZE);
	eng->guard_misses = map_lazily(META_SIZE >> LINK_SHIFT);
	eng->decoder = map_lazily(sizeof(*eng->decoder));
	eng->pricing = map_lazily(price_memory_size());
	if (CHECKING)
		eng->enterable = map_lazily(CODE_SIZE / 8);
	if (!eng->meta || !eng->by_address || !eng->code_starts || !eng->by_hash ||
	    !eng->guard_misses || !eng->decoder || !eng->pricing || (CHECKING && !eng->enterable))
		return -ENOMEM;
	if (!create_populator(eng))
		return -ENOMEM;
	ask_for_huge_pages(eng);
	eng->margin = CACHE_STRIDE;
	eng->code_next = eng->code_ready = eng->code_rw;
	eng->code_limit = eng->code_rw + CODE_SIZE;
	eng->meta_next = eng->meta_ready = eng->meta;
	eng->meta_limit = eng->meta + META_SIZE;
	if (!emit_thunks(eng))
		return -ENOMEM;
	eng->code_first = eng->code_next;
	return 0;
}

void cache_destroy(struct engine *eng)
{
	destroy_populator(eng->populator);
	code_memory_unmap(&eng->code);
	if (eng->meta)
		munmap(eng->meta, META_SIZE);
	if (eng->by_address)
		munmap(eng->by_address, MAX_BLOCKS * sizeof(*eng->by_address));
	if (eng->code_starts)
		munmap(eng->code_starts, MAX_BLOCKS * sizeof(*eng->code_starts));
	if (eng->by_hash)
		munmap(eng->by_hash, HASH_SIZE);
	if (eng->guard_misses)
		munmap(eng->guard_misses, META_SIZE >> LINK_SHIFT);
	if (eng->enterable)
		munmap(eng->enterable, CODE_SIZE / 8);
	if (eng->decoder)
		munmap(eng->decoder, sizeof(*eng->decoder));
	if (eng->pricing)
		munmap(eng->pricing, price_memory_size());
}
