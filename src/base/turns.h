/* SPDX-License-Identifier: MIT */
/*
 * A page that the process of a VM on virtual time (vm/time/device_wait.h) shares with the server of
 * its files (exec/share) and with `vpmu exec`: which of them waits for which.
 *
 * turns: of a device in another process. Odd while it works on what it was asked for, even while it
 * waits. The device makes it odd before it takes a request: a reader that finds the request taken,
 * and then an even number, knows that it has been served.
 *
 * calls: grows when a guest that waits for a call is to go on.
 *
 * waits: grows when the guest begins to wait for a call.
 *
 * date: of the VM, in ns since 1970, when it last asked a device for something.
 *
 * endless: not 0 if the guest waits for its devices, and its vCPUs for each other, however long the
 * host lets one of them stand still. Written before the VM is made.
 *
 * Calls libc's syscall(): not while guest vector state is live; errno may change.
 */
#ifndef BASE_TURNS_H
#define BASE_TURNS_H

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/types.h"

struct turns {
	u32 turns, calls, waits; /* atomic, futexes */
	u64 date;		 /* atomic */
	u32 endless;
};

static inline void turns_begin(struct turns *page)
{
	__atomic_fetch_or(&page->turns, 1, __ATOMIC_SEQ_CST);
}

static inline void turns_end(struct turns *page)
{
	if (!(__atomic_load_n(&page->turns, __ATOMIC_RELAXED) & 1))
		return;
	__atomic_add_fetch(&page->turns, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &page->turns, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static inline void turns_call(struct turns *page)
{
	__atomic_add_fetch(&page->calls, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &page->calls, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static inline void turns_note_wait(struct turns *page)
{
	__atomic_add_fetch(&page->waits, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &page->waits, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static inline u32 turns_read(u32 *word)
{
	return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

/* Sleeps until the word is no longer `seen` and its writer has woken the waiter, a signal comes, or
 * the time, below 1 s, is up. */
static inline void turns_wait(u32 *word, u32 seen, u64 ns)
{
	struct timespec limit = { .tv_nsec = ns };

	syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

#endif
