// SPDX-License-Identifier: MIT
/*
 * Counts and samples itself while it computes, in user mode: instructions with a fixed period, and
 * branches. Prints instructions, branches, the number of samples and a hash of their addresses: the
 * same in every run, whatever happens to the machine meanwhile. Fails if there is not a sample for
 * each period.
 *
 * usage: migrate ROUNDS
 */
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PERIOD 5000011
#define PAGES  16 /* room for all samples of a run: they are read after it */

static void *must(void *p)
{
	if (p == MAP_FAILED) {
		perror("migrate");
		exit(1);
	}
	return p;
}

static int open_event(uint64_t config, uint64_t period, int group)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_HARDWARE,
		.size = sizeof(attr),
		.config = config,
		.sample_period = period,
		.sample_type = PERF_SAMPLE_IP,
		.disabled = group < 0,
		.exclude_kernel = 1,
		.exclude_hv = 1,
	};
	int fd = syscall(SYS_perf_event_open, &attr, 0, -1, group, 0);

	if (fd < 0) {
		perror("migrate: perf_event_open");
		exit(1);
	}
	return fd;
}

/* Registers only, so that nothing but NMIs and interrupts takes it out of user mode. */
static __attribute__((noinline)) uint64_t work(uint64_t rounds)
{
	uint64_t x = 88172645463325252ull, sum = 0;

	for (; rounds; rounds--) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		if (x & 1)
			sum += x;
		__asm__ volatile("" : "+r"(sum));
	}
	return sum;
}

struct sample {
	struct perf_event_header header;
	uint64_t ip;
};

static uint64_t hash_samples(const struct perf_event_mmap_page *page, unsigned int *n)
{
	const uint8_t *data = (const uint8_t *)page + sysconf(_SC_PAGESIZE);
	uint64_t hash = 0;

	for (uint64_t at = 0; at < page->data_head;
	     at += ((const struct sample *)(data + at))->header.size) {
		const struct sample *sample = (const struct sample *)(data + at);

		if (sample->header.type != PERF_RECORD_SAMPLE)
			continue;
		hash = hash * 31 + sample->ip;
		++*n;
	}
	return hash;
}

static uint64_t value(int fd)
{
	uint64_t v;

	if (read(fd, &v, sizeof(v)) != sizeof(v))
		exit(1);
	return v;
}

int main(int argc, char **argv)
{
	int instructions = open_event(PERF_COUNT_HW_INSTRUCTIONS, PERIOD, -1);
	int branches = open_event(PERF_COUNT_HW_BRANCH_INSTRUCTIONS, 0, instructions);
	void *page = must(mmap(NULL, (PAGES + 1) * sysconf(_SC_PAGESIZE), PROT_READ, MAP_SHARED,
			       instructions, 0));
	uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000000, hash, count;
	unsigned int samples = 0;

	ioctl(instructions, PERF_EVENT_IOC_ENABLE, 0);
	if (!work(rounds))
		return 1;
	ioctl(instructions, PERF_EVENT_IOC_DISABLE, 0);
	hash = hash_samples(page, &samples);
	count = value(instructions);
	printf("%llu %llu %u %llx\n", (unsigned long long)count,
	       (unsigned long long)value(branches), samples, (unsigned long long)hash);
	return samples != count / PERIOD; /* equal in every run is not enough: none would be, too */
}
