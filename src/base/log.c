// SPDX-License-Identifier: MIT
/*
 * The log. The level is read from the environment once; lines are written with one write so that
 * threads do not interleave inside a line, and cut if they are too long. errno is kept.
 */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const level_names[] = { "error", "warn", "info", "debug" };

static int level_from_environment(void)
{
	const char *wanted = getenv("VPMU_LOG");

	for (int i = 0; wanted && i < (int)ARRAY_SIZE(level_names); i++)
		if (!strcmp(wanted, level_names[i]))
			return i;
	return LOG_WARN;
}

bool log_enabled(enum log_level level)
{
	static int threshold = -1;
	int t = __atomic_load_n(&threshold, __ATOMIC_RELAXED);

	if (t < 0) {
		t = level_from_environment();
		__atomic_store_n(&threshold, t, __ATOMIC_RELAXED);
	}
	return (int)level <= t;
}

void log_at(enum log_level level, const char *fmt, ...)
{
	int saved_errno = errno;
	char line[512];
	va_list ap;
	int n, m;

	if (!log_enabled(level))
		return;
	n = snprintf(line, sizeof(line), "vpmu: %s: ", level_names[level]);
	va_start(ap, fmt);
	m = vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap);
	va_end(ap);
	n += m < 0 ? 0 : m;
	if (n > (int)sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	if (write(STDERR_FILENO, line, n) < 0)
		n = 0; /* nowhere left to complain */
	errno = saved_errno;
}
