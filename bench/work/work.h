/* SPDX-License-Identifier: MIT */
/*
 * The workloads of the benchmark. Each is a function that does one unit of work, natively some
 * milliseconds, and returns a checksum of what it computed. Units are repeated until enough time has
 * passed, so that slow machines do fewer of them: time is compared by the unit, and checksums are
 * the same on every machine.
 */
#ifndef WORK_H
#define WORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which machine it needs. */
enum work_kind {
	ON_ONE_CPU,
	ON_TWO_CPUS,
};

struct workload {
	const char *name, *group;
	enum work_kind kind;
	void (*setup)(void); /* not timed; may be NULL */
	uint64_t (*unit)(void);
};

extern const struct workload workloads[];
extern const unsigned workload_count;

#define WORK(name, group, kind, setup, unit) uint64_t unit(void);
#define WORK_SETUP(setup)		     void setup(void);
#include "bench/work/work.def"
#undef WORK
#undef WORK_SETUP

/* What a workload found out, for the process that started it. */
struct outcome {
	uint64_t units, nanoseconds, checksum;
	uint64_t waited; /* of these, how many the process waited for a CPU */
	bool failed; /* two units had different checksums */
};

/* measure.c: runs a workload in a process of its own for about so many milliseconds. State is one
 * of "plain", "count", "cycles", "sample": what the kernel's perf does meanwhile. Writes what perf
 * found into details. Returns 0 or -1 with a reason in details. */
int measure(const struct workload *w, const char *state, unsigned milliseconds,
	    struct outcome *outcome, char *details, size_t size);

/* count.c: prints the cycles of so many units, so many times, and how much of its time the process was
 * in the kernel. */
void count(const struct workload *w, unsigned units, unsigned rounds);

/* Only the checksum is wanted, of as little as will do: the time asked for is 0. */
extern bool only_check;

/* compile.c: where its compiler and the preprocessed sources lie. */
extern const char *compile_folder;

uint64_t nanoseconds(void);
void die(const char *what) __attribute__((noreturn));

/* FNV-1a. */
#define HASH_START 0xcbf29ce484222325ull

static inline uint64_t hash(uint64_t sum, const void *data, size_t size)
{
	const uint8_t *p = data;

	while (size--)
		sum = (sum ^ *p++) * 0x100000001b3ull;
	return sum;
}

static inline uint64_t hash_number(uint64_t sum, uint64_t value)
{
	return hash(sum, &value, sizeof(value));
}

/* A linear congruential generator (Knuth's MMIX): the same numbers everywhere. */
static inline uint32_t random_next(uint64_t *state)
{
	*state = *state * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*state >> 33);
}

#endif
