/* SPDX-License-Identifier: MIT */
/*
 * User cycles and instructions of this thread, for programs that run on the host and in guests:
 * counted by perf where there is a PMU, which in guests is the model that is compared. Without one
 * cycles are CPU time by the core's clock, which a chain of dependent ADDs tells, and instructions
 * are 0.
 */
#ifndef WORK_CYCLES_H
#define WORK_CYCLES_H

#include <linux/perf_event.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CHAIN_TURNS 20000u /* of ten ADDs each */
#define CHAIN_TIMES 5u

struct cycles {
	int fd[2]; /* cycles and instructions, or -1 */
};

/* From some time in the past. */
struct cycles_reading {
	uint64_t cycles, instructions, nanoseconds; /* CPU time, in the kernel too */
};

static inline int cycles_event(uint64_t config)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_HARDWARE,
					.size = sizeof(attr),
					.config = config,
					.exclude_kernel = 1,
					.exclude_hv = 1 };

	return (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static inline struct cycles cycles_open(void)
{
	return (struct cycles){ { cycles_event(PERF_COUNT_HW_CPU_CYCLES),
				  cycles_event(PERF_COUNT_HW_INSTRUCTIONS) } };
}

static inline uint64_t cycles_of_event(int fd)
{
	uint64_t value;

	return fd >= 0 && read(fd, &value, sizeof(value)) == sizeof(value) ? value : 0;
}

static inline uint64_t cycles_nanoseconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline struct cycles_reading cycles_read(const struct cycles *c)
{
	return (struct cycles_reading){ cycles_of_event(c->fd[0]), cycles_of_event(c->fd[1]),
					cycles_nanoseconds() };
}

static inline uint64_t cycles_chain(void)
{
	uint64_t begun = cycles_nanoseconds(), turns = CHAIN_TURNS;

	__asm__ volatile("1:\n.rept 10\nadd %%rax, %%rax\n.endr\ndec %0\njnz 1b"
			 : "+r"(turns)
			 :
			 : "rax", "cc");
	return cycles_nanoseconds() - begun;
}

/* Cycles in a nanosecond: the core's clock now. */
static inline double cycles_clock(void)
{
	uint64_t best = UINT64_MAX;

	for (unsigned i = 0; i < CHAIN_TIMES; i++) {
		uint64_t taken = cycles_chain();

		best = taken < best ? taken : best;
	}
	return 10.0 * CHAIN_TURNS / (double)best;
}

/* Of the time between two readings, with the clock's figures from before and after. */
static inline double cycles_between(const struct cycles *c, const struct cycles_reading *from,
				    const struct cycles_reading *to, double clock)
{
	if (c->fd[0] >= 0)
		return (double)(to->cycles - from->cycles);
	return (double)(to->nanoseconds - from->nanoseconds) * clock;
}

/* Seconds that this process was in user mode and in the kernel, by the kernel's ticks. */
static inline void cycles_seconds(double seconds[2])
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	seconds[0] = (double)usage.ru_utime.tv_sec + (double)usage.ru_utime.tv_usec / 1e6;
	seconds[1] = (double)usage.ru_stime.tv_sec + (double)usage.ru_stime.tv_usec / 1e6;
}

#endif
