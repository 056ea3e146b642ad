/* SPDX-License-Identifier: MIT */
/*
 * Signals that stop a check, taken while it waits and at no other time.
 */
#ifndef CLI_CHECK_SIGNALS_H
#define CLI_CHECK_SIGNALS_H

#include <signal.h>
#include <time.h>

struct check_signals {
	sigset_t awaited;	/* those that stop us, and SIGCHLD; blocked from start to end */
	sigset_t unblocked;	/* as the mask was */
	struct sigaction child; /* as SIGCHLD was */
};

void signals_block(struct check_signals *signals);
void signals_restore(const struct check_signals *signals);
/* In a child: the mask as it was. */
void signals_unblock(const struct check_signals *signals);
/* Waits at most so long, NULL: without limit. The number of a signal that stops us; 0: none came,
 * or SIGCHLD. */
int signals_wait(const struct check_signals *signals, const struct timespec *most);

#endif
