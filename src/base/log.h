/* SPDX-License-Identifier: MIT */
/*
 * The log: one line per call on stderr, filtered by VPMU_LOG=error|warn|info|debug (default warn).
 * Callable from any thread; not from a signal handler, and not while guest vector state is live
 * (fpu_save first).
 */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/types.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

bool log_enabled(enum log_level level);
__attribute__((format(printf, 2, 3))) void log_at(enum log_level level, const char *fmt, ...);

#define log_error(...) log_at(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_at(LOG_WARN, __VA_ARGS__)
#define log_info(...)  (log_enabled(LOG_INFO) ? log_at(LOG_INFO, __VA_ARGS__) : (void)0)
#define log_debug(...) (log_enabled(LOG_DEBUG) ? log_at(LOG_DEBUG, __VA_ARGS__) : (void)0)

/* Logs a line the first time this place is reached, and never again. */
#define log_once(level, ...)                                             \
	do {                                                             \
		static bool said;                                        \
		if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED)) \
			log_at(level, __VA_ARGS__);                      \
	} while (0)

#endif
