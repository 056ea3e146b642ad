// SPDX-License-Identifier: MIT
/*
 * CLOCK_MONOTONIC in milliseconds. Alone in its file, so that fuzz targets can have another clock.
 */
#include "cli/base/monotonic.h"

#include <time.h>

u64 monotonic_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000ull + ts.tv_nsec / 1000000;
}
