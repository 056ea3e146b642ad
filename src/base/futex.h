/* SPDX-License-Identifier: MIT */
/*
 * Waiting for a word of this process to change, for code that must not call libc: the system call
 * itself (futex(2), private), which leaves vector registers and errno as they are. Words that
 * processes share: base/turns.h.
 */
#ifndef BASE_FUTEX_H
#define BASE_FUTEX_H

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>

#include "base/types.h"

static inline void futex_call(u32 *word, int op, u32 value, const struct timespec *timeout)
{
	register const struct timespec *r10 __asm__("r10") = timeout;
	long result = SYS_futex;

	__asm__ volatile("syscall"
			 : "+a"(result)
			 : "D"(word), "S"((long)(op | FUTEX_PRIVATE_FLAG)), "d"((long)value),
			   "r"(r10)
			 : "rcx", "r11", "memory");
}

/* Returns when the word is no longer `seen`, is woken, a signal came or the time (below
 * 1 s) is up. */
static inline void futex_wait(u32 *word, u32 seen, long timeout_ns)
{
	struct timespec timeout = { .tv_nsec = timeout_ns };

	futex_call(word, FUTEX_WAIT, seen, &timeout);
}

static inline void futex_wake_all(u32 *word)
{
	futex_call(word, FUTEX_WAKE, 0x7fffffff, NULL);
}

#endif
