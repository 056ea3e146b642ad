// SPDX-License-Identifier: MIT
/*
 * What an access costs in a working set of each size, on the host and in guests (bench/truth):
 *
 *	ladder [-r ROUNDS] KBYTES...
 *	ladder life
 *
 * prints "chase KBYTES CYCLES" and "stream KBYTES CYCLES": a chase of pointers through all lines in
 * random order, cycles a load; and reading the lines in order, 32 bytes at a time, cycles a line. The
 * best of the rounds. `life` prints "life CYCLES": for how long the last level keeps lines that are
 * not used, or "life 0" if that is longer than a tenth of a second. Where other machines use it too
 * they push the lines out. Memory is in pages of 2 Mbytes where the kernel has them, so that the caches
 * are measured and not the TLBs.
 */
#include "bench/work/cycles.h"

#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define LINE	 64u
#define HUGE	 (2ul << 20)
#define ACCESSES 200000u /* of a round, at least */

struct line {
	struct line *next;
	char rest[LINE - sizeof(struct line *)];
};

static struct line *lines;
static size_t nlines;
static volatile uintptr_t sink;

static uint32_t draw(uint64_t *state)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*state >> 33);
}

/* One cycle through all lines: Sattolo's shuffle. */
static void link_lines(void)
{
	uint32_t *order = malloc(nlines * sizeof(*order));
	uint64_t state = 1;

	if (!order)
		exit(1);
	for (size_t i = 0; i < nlines; i++)
		order[i] = (uint32_t)i;
	for (size_t i = nlines - 1; i > 0; i--) {
		size_t j = draw(&state) % i;
		uint32_t other = order[j];

		order[j] = order[i];
		order[i] = other;
	}
	for (size_t i = 0; i < nlines; i++)
		lines[order[i]].next = &lines[order[(i + 1) % nlines]];
	free(order);
}

static void make(size_t kbytes)
{
	size_t size = kbytes << 10, room = (size + 2 * HUGE - 1) & ~(HUGE - 1);
	char *memory = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		exit(1);
	memory = (char *)(((uintptr_t)memory + HUGE - 1) & ~(HUGE - 1));
	madvise(memory, size > HUGE ? size : HUGE, MADV_HUGEPAGE);
	lines = (struct line *)memory;
	nlines = size / LINE;
	link_lines();
}

static void chase(size_t n)
{
	const struct line *at = lines;

	for (size_t i = 0; i < n; i++)
		at = at->next;
	sink = (uintptr_t)at;
}

static __attribute__((target("avx2"))) void stream(size_t n)
{
	for (size_t done = 0; done < n; done += nlines)
		for (size_t i = 0; i < nlines; i++)
			__asm__ volatile("vmovdqa (%0), %%ymm0\nvmovdqa 32(%0), %%ymm1"
					 :
					 : "r"(&lines[i])
					 : "xmm0", "xmm1");
	_mm256_zeroupper();
}

static double time_of(const struct cycles *c, void (*work)(size_t), size_t n)
{
	double before = cycles_clock();
	struct cycles_reading from = cycles_read(c), to;

	work(n);
	to = cycles_read(c);
	return cycles_between(c, &from, &to, (before + cycles_clock()) / 2) / (double)n;
}

static void best(const struct cycles *c, const char *name, void (*work)(size_t), size_t kbytes,
		 unsigned rounds)
{
	size_t n = ACCESSES / nlines * nlines;
	double least = 1e9;

	n = n ? n : nlines;
	work(n);
	for (unsigned i = 0; i < rounds; i++) {
		double now = time_of(c, work, n);

		least = now < least ? now : least;
	}
	printf("%s %zu %.2f\n", name, kbytes, least);
	fflush(stdout);
}

/* --- for how long lines stay in the last level --- */

#define LIFE_KBYTES  256u /* the lines that wait: less than any second level has */
#define LIFE_TRIES   41u
#define LIFE_FIRST   50000u /* nanoseconds */
#define LIFE_MOST    100000000u

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static uint64_t now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* A load in the chase, in nanoseconds, after the lines have left the second level for the last and
 * have waited there. The median. */
static double waited(const volatile char *others, size_t size, uint64_t wait)
{
	double taken[LIFE_TRIES];

	for (unsigned i = 0; i < LIFE_TRIES; i++) {
		uint64_t begun;

		chase(nlines);
		for (size_t at = 0; at < size; at += LINE)
			(void)others[at];
		for (begun = now(); now() - begun < wait;)
			;
		begun = now();
		chase(nlines);
		taken[i] = (double)(now() - begun) / (double)nlines;
	}
	qsort(taken, LIFE_TRIES, sizeof(*taken), compare);
	return taken[LIFE_TRIES / 2];
}

/* Memory takes four times as long as the last level, or more. */
static int life(void)
{
	long second = sysconf(_SC_LEVEL2_CACHE_SIZE);
	size_t size = second > 0 ? 2 * (size_t)second : 4ul << 20;
	char *others = aligned_alloc(LINE, size);
	double clock = cycles_clock(), at_once, before;
	uint64_t wait = LIFE_FIRST;

	if (!others)
		return 1;
	memset(others, 1, size);
	make(LIFE_KBYTES);
	for (at_once = before = waited(others, size, 0); wait < LIFE_MOST; wait += wait / 2) {
		double here = waited(others, size, wait), edge = 2.5 * at_once;

		if (here > edge) { /* between this one and the one before */
			double part = (edge - before) / (here - before);

			printf("life %.0f\n", clock * (double)wait * (2 + part) / 3);
			return 0;
		}
		before = here;
	}
	puts("life 0");
	return 0;
}

int main(int argc, char **argv)
{
	struct cycles c = cycles_open();
	unsigned rounds = 1;
	int first = 1;

	if (argc > 2 && !strcmp(argv[1], "-r")) {
		rounds = (unsigned)atoi(argv[2]);
		first = 3;
	}
	if (argc == 2 && !strcmp(argv[1], "life"))
		return life();
	for (int i = first; i < argc; i++) {
		size_t kbytes = strtoul(argv[i], NULL, 0);

		if (!kbytes)
			return 2;
		make(kbytes);
		best(&c, "chase", chase, kbytes, rounds);
		best(&c, "stream", stream, kbytes, rounds);
	}
	return 0;
}
