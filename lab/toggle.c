// SPDX-License-Identifier: MIT
/*
 * Runs in a guest on an AMD model: opens k counters for this task, then `turns` times gives the
 * last one another period, for which the kernel stops all counters of the PMU and starts them
 * again.
 *
 * usage: toggle K TURNS
 */
#include <err.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PERIOD (1ull << 40)

/* Instructions, cycles, branches, mispredictions, dispatched loads and stores, loads. */
static const uint64_t events[] = { 0xc0, 0x76, 0xc2, 0xc3, 0x0729, 0x0129 };

static int open_counter(uint64_t event)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_RAW,
		.size = sizeof(attr),
		.config = event,
		.sample_period = PERIOD,
		.exclude_kernel = 1,
	};
	int fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);

	if (fd < 0)
		err(1, "perf_event_open");
	return fd;
}

int main(int argc, char **argv)
{
	int k = argc > 2 ? atoi(argv[1]) : 0, turns = argc > 2 ? atoi(argv[2]) : 0, last = -1;

	if (k < 1 || k > (int)(sizeof(events) / sizeof(*events)))
		errx(2, "usage: toggle K TURNS");
	for (int i = 0; i < k; i++)
		last = open_counter(events[i]);
	for (int turn = 0; turn < turns; turn++) {
		uint64_t period = PERIOD + turn;

		if (ioctl(last, PERF_EVENT_IOC_PERIOD, &period))
			err(1, "PERF_EVENT_IOC_PERIOD");
	}
	return 0;
}
