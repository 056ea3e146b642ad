// SPDX-License-Identifier: MIT
/*
 * The PMU as a program in a Linux guest meets it: exact counts of a loop with a known number of
 * instructions, samples of it at a fixed period, user-space RDPMC, and more events than counters.
 */
#include <errno.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE	   4096
#define RING_PAGES 64
#define MANY	   24
#define MANY_LOOPS 5000 /* for one of them, at most */

static int failures;

#define expect(what, ...)                    \
	do {                                 \
		if (!(what)) {               \
			failures++;          \
			printf("not so: ");  \
			printf(__VA_ARGS__); \
			printf("\n");        \
		}                            \
	} while (0)

/* Four instructions a round, the last of them its only branch. */
extern const char loop_begin[], loop_end[];

static __attribute__((noinline)) void loop(uint64_t rounds)
{
	__asm__ volatile(".globl loop_begin\n\t.globl loop_end\n"
			 "loop_begin: nop\n\t"
			 "nop\n\t"
			 "dec %0\n\t"
			 "jnz loop_begin\n"
			 "loop_end:"
			 : "+r"(rounds));
}

static int open_event(uint32_t type, uint64_t config, uint64_t period, int group)
{
	struct perf_event_attr attr = {
		.type = type,
		.size = sizeof(attr),
		.config = config,
		.sample_period = period,
		.sample_type = PERF_SAMPLE_IP,
		.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING,
		.disabled = group < 0,
		.exclude_kernel = 1,
		.exclude_hv = 1,
	};
	int fd = syscall(SYS_perf_event_open, &attr, 0, -1, group, 0);

	if (fd < 0) {
		printf("event %u/%#lx: %s\n", type, (unsigned long)config, strerror(errno));
		exit(1);
	}
	return fd;
}

static uint64_t count(int fd, uint64_t *running)
{
	uint64_t v[3] = { 0 };

	if (read(fd, v, sizeof(v)) != sizeof(v))
		exit(1);
	if (running)
		*running = v[2];
	return v[0];
}

/* What one event counts of a loop. */
static uint64_t measure(int fd, uint64_t rounds)
{
	ioctl(fd, PERF_EVENT_IOC_RESET, 0);
	ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
	loop(rounds);
	ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
	return count(fd, NULL);
}

static void counts_are_exact(const char *name, uint64_t config, uint64_t per_round)
{
	int fd = open_event(PERF_TYPE_HARDWARE, config, 0, -1);
	uint64_t once = measure(fd, 1000), again = measure(fd, 1000), more = measure(fd, 1001000);

	printf("%s: %lu for 1000 rounds\n", name, (unsigned long)once);
	expect(once == again, "%s: %lu, then %lu", name, (unsigned long)once, (unsigned long)again);
	expect(more - once == 1000000 * per_round, "%s: %lu in 1000000 rounds", name,
	       (unsigned long)(more - once));
	close(fd);
}

/* A pointer on every other line of more memory than first and second levels hold, in an order that
 * cannot be predicted, so that no prefetcher helps, not the one of pairs of lines either; and a
 * branch that goes by the pointer. */
#define LINES 131072

struct line {
	struct line *next;
	char rest[120];
};

static struct line *wander(struct line *at)
{
	static volatile unsigned odd;

	for (unsigned i = 0; i < LINES; i++) {
		at = at->next;
		if ((uintptr_t)at * 0x9e3779b97f4a7c15u >> 63)
			odd++;
	}
	return at;
}

static struct line *make_ring(void)
{
	struct line *lines = mmap(NULL, LINES * sizeof(*lines), PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	unsigned seed = 1;

	if (lines == MAP_FAILED)
		exit(1);
	madvise(lines, LINES * sizeof(*lines), MADV_NOHUGEPAGE);
	for (unsigned i = 0; i < LINES; i++)
		lines[i].next = &lines[i];
	for (unsigned i = LINES - 1; i; i--) { /* one cycle through all: Sattolo */
		unsigned j = (seed = seed * 1103515245 + 12345) / 65536 * 37 % i;
		struct line *next = lines[i].next;

		lines[i].next = lines[j].next;
		lines[j].next = next;
	}
	return lines;
}

/* Lines and translations are to be fetched again. */
static void make_cold(struct line *ring)
{
	for (unsigned i = 0; i < LINES; i++)
		__builtin_ia32_clflush(&ring[i]);
	/* Taking a right away flushes. */
	if (mprotect(ring, LINES * sizeof(*ring), PROT_READ | PROT_WRITE) ||
	    mprotect(ring, LINES * sizeof(*ring), PROT_READ))
		exit(1);
}

static void wandering_counts(struct line *ring, const char *name, uint32_t type, uint64_t config,
			     uint64_t least, uint64_t most)
{
	int fd = open_event(type, config, 0, -1);
	uint64_t n;

	ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
	make_cold(ring);
	wander(ring);
	ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
	n = count(fd, NULL);
	printf("%s: %lu\n", name, (unsigned long)n);
	expect(n >= least && n <= most, "%s: %lu, not %lu to %lu", name, (unsigned long)n,
	       (unsigned long)least, (unsigned long)most);
	close(fd);
}

#define CACHE(id, result)                                                                  \
	PERF_TYPE_HW_CACHE, (PERF_COUNT_HW_CACHE_##id | PERF_COUNT_HW_CACHE_OP_READ << 8 | \
			     PERF_COUNT_HW_CACHE_RESULT_##result << 16)

/* What perf names for everybody, on each model: bounds that follow of the ring's size. */
static void generic_events_make_sense(void)
{
	struct line *ring = make_ring();
	const uint64_t n = LINES, all = 40 * n;

	wandering_counts(ring, "cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES, n, all);
	wandering_counts(ring, "branch-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_MISSES,
			 n / 4, n * 3 / 4);
	wandering_counts(ring, "cache-references", PERF_TYPE_HARDWARE,
			 PERF_COUNT_HW_CACHE_REFERENCES, n / 2, 2 * n);
	wandering_counts(ring, "cache-misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES,
			 n / 2, 2 * n);
	wandering_counts(ring, "L1-dcache-loads", CACHE(L1D, ACCESS), n, all);
	wandering_counts(ring, "L1-dcache-load-misses", CACHE(L1D, MISS), n / 2, 2 * n);
	wandering_counts(ring, "dTLB-load-misses", CACHE(DTLB, MISS), n / 64, n);
	wandering_counts(ring, "iTLB-load-misses", CACHE(ITLB, MISS), 0, n / 10);
	munmap(ring, LINES * sizeof(*ring));
}

/* Which of the loop's instructions is this? They have 1, 1, 3 and 2 bytes. */
static unsigned place(uint64_t ip)
{
	uint64_t offset = ip - (uintptr_t)loop_begin;

	return offset < 2 ? offset : offset < 5 ? 2 : 3;
}

/* Samples lie exactly a period apart: if that is a number of rounds, all at one instruction. */
static void samples_are_exact(uint64_t period, uint64_t rounds)
{
	int fd = open_event(PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, period, -1);
	struct perf_event_mmap_page *page =
		mmap(NULL, (1 + RING_PAGES) * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	const char *data = (const char *)page + PAGE;
	uint64_t n = 0, at[4] = { 0 }, others = 0, expected;

	if (page == MAP_FAILED)
		exit(1);
	expected = measure(fd, rounds) / period;
	for (uint64_t pos = 0; pos < page->data_head;) {
		struct perf_event_header header;
		uint64_t ip;

		memcpy(&header, data + pos % (RING_PAGES * PAGE), sizeof(header));
		memcpy(&ip, data + pos % (RING_PAGES * PAGE) + sizeof(header), sizeof(ip));
		pos += header.size;
		if (header.type != PERF_RECORD_SAMPLE)
			continue;
		n++;
		if (ip >= (uintptr_t)loop_begin && ip < (uintptr_t)loop_end)
			at[place(ip)]++;
		else
			others++;
	}
	printf("period %lu: %lu samples, at nop %lu, nop %lu, dec %lu, jnz %lu, elsewhere %lu\n",
	       (unsigned long)period, (unsigned long)n, (unsigned long)at[0], (unsigned long)at[1],
	       (unsigned long)at[2], (unsigned long)at[3], (unsigned long)others);
	expect(n == expected, "%lu samples of %lu", (unsigned long)n, (unsigned long)expected);
	expect((!!at[0] + !!at[1] + !!at[2] + !!at[3]) == 1, "samples at several instructions");
	munmap(page, (1 + RING_PAGES) * PAGE);
	close(fd);
}

static uint64_t rdpmc(uint32_t index)
{
	uint32_t low, high;

	__asm__ volatile("rdpmc" : "=a"(low), "=d"(high) : "c"(index));
	return low | (uint64_t)high << 32;
}

static void user_space_reads_its_counter(void)
{
	int fd = open_event(PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS, 0, -1);
	struct perf_event_mmap_page *page = mmap(NULL, PAGE, PROT_READ, MAP_SHARED, fd, 0);
	uint64_t before, after;

	if (page == MAP_FAILED)
		exit(1);
	ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
	expect(page->cap_user_rdpmc && page->index, "RDPMC is offered");
	before = rdpmc(page->index - 1);
	loop(1000);
	after = rdpmc(page->index - 1);
	printf("rdpmc: %lu\n", (unsigned long)(after - before));
	expect(after - before >= 4000 && after - before < 4100, "%lu by RDPMC",
	       (unsigned long)(after - before));
	close(fd);
}

static int has_run(int fd)
{
	uint64_t running;

	return count(fd, &running) && running;
}

/* They turn with the kernel's tick, which comes late on a busy host. */
static void many_events_take_turns(void)
{
	int fd[MANY];

	for (int i = 0; i < MANY; i++)
		fd[i] = open_event(PERF_TYPE_HARDWARE, PERF_COUNT_HW_BRANCH_INSTRUCTIONS, 0, -1);
	for (int i = 0; i < MANY; i++)
		ioctl(fd[i], PERF_EVENT_IOC_ENABLE, 0);
	for (int i = 0; i < MANY; i++) {
		for (int loops = 0; loops < MANY_LOOPS && !has_run(fd[i]); loops++)
			loop(1000000);
		expect(has_run(fd[i]), "event %d never ran", i);
	}
	for (int i = 0; i < MANY; i++)
		close(fd[i]);
}

int main(void)
{
	counts_are_exact("instructions", PERF_COUNT_HW_INSTRUCTIONS, 4);
	counts_are_exact("branches", PERF_COUNT_HW_BRANCH_INSTRUCTIONS, 1);
	generic_events_make_sense();
	samples_are_exact(1000, 50000);
	samples_are_exact(10000, 250000);
	user_space_reads_its_counter();
	many_events_take_turns();
	printf("%d failures\n", failures);
	return !!failures;
}
