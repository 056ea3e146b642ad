// SPDX-License-Identifier: MIT
/*
 * One measurement: a process that repeats units of a workload until enough time has passed, and
 * around it what `perf stat` and `perf record -F 1000` would have the kernel do. The first unit is
 * not timed: it brings code and data in.
 */
#include <errno.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/work/work.h"

#define SAMPLE_HZ  1000
#define RING_PAGES 128 /* as perf record */
#define PAGE	   4096
#define EVENTS_MAX 16
#define BEGUN	   "work: begun\n"

struct event {
	int fd;
	struct perf_event_mmap_page *ring;
};

struct events {
	struct event event[EVENTS_MAX];
	unsigned count;
};

bool only_check;

uint64_t nanoseconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* --- the process that works --- */

/* Nanoseconds that this process was ready to run and did not: the second number of schedstat. */
static uint64_t waited(void)
{
	unsigned long long ran, waited;
	FILE *f = fopen("/proc/self/schedstat", "re");
	int found = f ? fscanf(f, "%llu %llu", &ran, &waited) : 0;

	if (f)
		fclose(f);
	return found == 2 ? waited : 0;
}

static void work(const struct workload *w, uint64_t span, struct outcome *outcome)
{
	uint64_t begun, waited_before, expected;

	only_check = !span;
	if (w->setup)
		w->setup();
	expected = w->unit();
	if (only_check) {
		*outcome = (struct outcome){ .units = 1, .nanoseconds = 1, .checksum = expected };
		return;
	}
	/* Whoever asked may want to know how much else the machine has to do from here on. */
	if (write(STDOUT_FILENO, BEGUN, strlen(BEGUN)) < 0)
		die("stdout");
	waited_before = waited();
	begun = nanoseconds();
	do {
		if (w->unit() != expected)
			outcome->failed = true;
		outcome->units++;
		outcome->nanoseconds = nanoseconds() - begun;
	} while (outcome->nanoseconds < span);
	outcome->waited = waited() - waited_before;
	outcome->checksum = expected;
}

/* A child that waits for a byte before it begins. */
static pid_t start(const struct workload *w, uint64_t span, struct outcome *outcome, int *go)
{
	int pipes[2];
	pid_t pid;
	char byte;

	if (pipe(pipes))
		return -1;
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pipes[1]);
		if (read(pipes[0], &byte, 1) == 1)
			work(w, span, outcome);
		_exit(0);
	}
	close(pipes[0]);
	*go = pipes[1];
	return pid;
}

/* --- perf --- */

static int event_open(struct perf_event_attr *attr, pid_t pid, int cpu)
{
	return (int)syscall(SYS_perf_event_open, attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
}

static int add_event(struct events *events, uint64_t config, pid_t pid)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_HARDWARE,
					.size = sizeof(attr),
					.config = config,
					.inherit = 1 };
	int fd = event_open(&attr, pid, -1);

	if (fd >= 0)
		events->event[events->count++] = (struct event){ .fd = fd };
	return fd < 0 ? -1 : 0;
}

/* An event on each CPU: only these may both be inherited and have a ring. */
static int add_sampling(struct events *events, pid_t pid)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_HARDWARE,
					.size = sizeof(attr),
					.config = PERF_COUNT_HW_CPU_CYCLES,
					.sample_freq = SAMPLE_HZ,
					.freq = 1,
					.inherit = 1,
					.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID |
						       PERF_SAMPLE_TIME | PERF_SAMPLE_PERIOD };
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	for (int cpu = 0; cpu < cpus && cpu < EVENTS_MAX; cpu++) {
		int fd = event_open(&attr, pid, cpu);
		void *ring;

		if (fd < 0)
			return -1;
		ring = mmap(NULL, (1 + RING_PAGES) * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		events->event[events->count++] = (struct event){ fd, ring };
		if (ring == MAP_FAILED)
			return -1;
	}
	return 0;
}

static int add_events(struct events *events, const char *state, pid_t pid)
{
	if (!strcmp(state, "plain"))
		return 0;
	if (!strcmp(state, "count"))
		return add_event(events, PERF_COUNT_HW_INSTRUCTIONS, pid) |
		       add_event(events, PERF_COUNT_HW_BRANCH_INSTRUCTIONS, pid);
	if (!strcmp(state, "cycles"))
		return add_event(events, PERF_COUNT_HW_INSTRUCTIONS, pid) |
		       add_event(events, PERF_COUNT_HW_CPU_CYCLES, pid);
	if (!strcmp(state, "sample"))
		return add_sampling(events, pid);
	errno = EINVAL;
	return -1;
}

static uint64_t samples(const struct perf_event_mmap_page *ring)
{
	const char *data = (const char *)ring + PAGE;
	uint64_t n = 0;

	for (uint64_t at = 0; at < ring->data_head;) {
		struct perf_event_header header;

		memcpy(&header, data + at % (RING_PAGES * PAGE), sizeof(header));
		n += header.type == PERF_RECORD_SAMPLE;
		at += header.size;
	}
	return n;
}

/* Counts, or how many samples there are; and the end of the events. */
static void close_events(struct events *events, char *details, size_t size)
{
	int used = 0;

	for (unsigned i = 0; i < events->count; i++) {
		struct event *e = &events->event[i];
		uint64_t value = 0;

		if (e->ring && e->ring != MAP_FAILED) {
			value = samples(e->ring);
			munmap(e->ring, (1 + RING_PAGES) * PAGE);
		} else if (read(e->fd, &value, sizeof(value)) != sizeof(value)) {
			value = 0;
		}
		used += snprintf(details + used, size - (size_t)used, " %llu",
				 (unsigned long long)value);
		close(e->fd);
	}
}

/* --- both --- */

int measure(const struct workload *w, const char *state, unsigned milliseconds,
	    struct outcome *outcome, char *details, size_t size)
{
	struct outcome *shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
				      -1, 0);
	struct events events = { .count = 0 };
	int go = -1, status = -1, error;
	pid_t pid;

	details[0] = '\0';
	if (shared == MAP_FAILED)
		return -1;
	pid = start(w, milliseconds * 1000000ull, shared, &go);
	error = pid < 0 ? -1 : add_events(&events, state, pid);
	if (error)
		snprintf(details, size, " %s", strerror(errno));
	else if (write(go, "", 1) != 1)
		error = -1;
	close(go);
	waitpid(pid, &status, 0);
	if (!error)
		close_events(&events, details, size);
	*outcome = *shared;
	munmap(shared, PAGE);
	return error || status || outcome->failed ? -1 : 0;
}
