// SPDX-License-Identifier: MIT
/*
 * Signals that stop a check are blocked while it runs, and pending until it waits for them.
 */
#include "cli/check/signals.h"

#include <stddef.h>

#include "base/types.h"

/* What is ignored stays so, as with nohup(1). But with SIGCHLD ignored no exit status is kept. */
void signals_block(struct check_signals *signals)
{
	static const int stopping[] = { SIGINT, SIGTERM, SIGHUP };
	const struct sigaction standard = { .sa_handler = SIG_DFL };
	struct sigaction action;

	sigemptyset(&signals->awaited);
	sigaddset(&signals->awaited, SIGCHLD);
	for (u32 i = 0; i < ARRAY_SIZE(stopping); i++)
		if (!sigaction(stopping[i], NULL, &action) && action.sa_handler != SIG_IGN)
			sigaddset(&signals->awaited, stopping[i]);
	sigaction(SIGCHLD, &standard, &signals->child);
	sigprocmask(SIG_BLOCK, &signals->awaited, &signals->unblocked);
}

void signals_restore(const struct check_signals *signals)
{
	sigaction(SIGCHLD, &signals->child, NULL);
	signals_unblock(signals);
}

void signals_unblock(const struct check_signals *signals)
{
	sigprocmask(SIG_SETMASK, &signals->unblocked, NULL);
}

int signals_wait(const struct check_signals *signals, const struct timespec *most)
{
	int signal = sigtimedwait(&signals->awaited, NULL, most);

	return signal <= 0 || signal == SIGCHLD ? 0 : signal;
}
