// SPDX-License-Identifier: MIT
/*
 * ftest with the mispredictions of each function counted, where ftest itself is sampled: RDPMC reads
 * the counter wherever control leaves a function, and the function is charged what it has grown by.
 * No interrupt and no instruction's address are part of that. Prints a line for each function.
 */
#include <err.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAIN, BAR, FOO, QUX, FUNCTIONS };

static const volatile struct perf_event_mmap_page *page;
static uint64_t last, count[FUNCTIONS];

/* As perf_event_open(2) has it. In a function of its own, its branches would be in the history of
 * calls that the predictor sees. */
__attribute__((always_inline)) static inline uint64_t read_counter(void)
{
	uint32_t lock, low, high, unused;
	uint64_t value;

	do {
		lock = page->lock;
		__asm__ volatile("rdpmc" : "=a"(low), "=d"(high) : "c"(page->index - 1) : "memory");
		unused = 64 - page->pmc_width;
		value = (low | (uint64_t)high << 32) << unused;
		value = page->offset + ((int64_t)value >> unused);
	} while (lock != page->lock);
	return value;
}

static void begin(void)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HARDWARE,
		.size = sizeof(attr),
		.config = PERF_COUNT_HW_BRANCH_MISSES,
		.pinned = 1,
		.exclude_kernel = 1,
	};
	int fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);

	if (fd < 0)
		err(1, "perf_event_open");
	page = mmap(NULL, sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED)
		err(1, "mmap");
	if (!page->cap_user_rdpmc || !page->index)
		errx(1, "RDPMC does not read this counter");
	last = read_counter();
}

static void end(void)
{
	static const char *const name[] = { "main", "bar", "foo", "qux" };

	for (int i = 0; i < FUNCTIONS; i++)
		printf("%s %llu\n", name[i], (unsigned long long)count[i]);
}

#define BEGIN() begin()
#define END() end()
#define LEAVE(function) \
	do { \
		uint64_t now_ = read_counter(); \
		count[function] += now_ - last; \
		last = now_; \
	} while (0)

#include "lab/ftest.c"
