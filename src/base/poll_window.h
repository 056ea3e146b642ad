/* SPDX-License-Identifier: MIT */
/*
 * Looking again before sleeping. A thread that sleeps comes some 25 us late when it is woken, where
 * a processor of the host has to be woken for it, and most devices answer sooner. So a thread that
 * waits for another one looks again and again first, for as long as that was worth it before: the
 * window is learned as KVM learns how long a halted vCPU polls (halt_poll_ns and its relatives).
 *
 * Between two looks the processor is offered to others. If one takes it there are not processors
 * enough, and a thread that sleeps is better off: it is preferred when it is woken. Then nobody
 * looks for a while, which is short the first time: most threads that take a processor are done
 * with it soon.
 *
 * Calls libc: not while guest vector state is live; errno may change.
 */
#ifndef BASE_POLL_WINDOW_H
#define BASE_POLL_WINDOW_H

#include <sched.h>
#include <time.h>

#include "base/types.h"

#define POLL_FIRST_NS	   10000     /* KVM: halt_poll_ns_grow_start */
#define POLL_MOST_NS	   200000    /* KVM: halt_poll_ns */
#define POLL_TAKEN_NS	   50000     /* between two looks: another thread had the processor */
#define POLL_REST_FIRST_NS 1000000   /* after that */
#define POLL_REST_MOST_NS  100000000 /* if it happens again and again */

struct poll_window {
	u64 ns;		 /* how long the next wait looks; 0: it sleeps at once */
	u64 rests_until; /* CLOCK_MONOTONIC, ns: before that it does not grow */
	u64 rest;	 /* how long the last one was; halved by each wait that ends within `ns` */
};

struct poll_look {
	u64 begun, last, end;
};

static inline u64 poll_clock(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ull + ts.tv_nsec;
}

static inline u64 poll_limit(u64 ns, u64 least, u64 most)
{
	return ns < least ? least : ns > most ? most : ns;
}

/* A wait begins that ends by itself after `limit` ns. */
static inline struct poll_look poll_begin(const struct poll_window *window, u64 limit)
{
	u64 now = poll_clock();

	return (struct poll_look){ now, now, now + (window->ns < limit ? window->ns : limit) };
}

/* It looked, and found nothing: is it to look again? */
static inline bool poll_again(struct poll_window *window, struct poll_look *look)
{
	u64 now = poll_clock();

	if (now - look->last > POLL_TAKEN_NS) {
		window->ns = 0;
		window->rest = poll_limit(2 * window->rest, POLL_REST_FIRST_NS, POLL_REST_MOST_NS);
		window->rests_until = now + window->rest;
	}
	look->last = now;
	if (!window->ns || now >= look->end)
		return false;
	sched_yield();
	return true;
}

/* The wait is over. */
static inline void poll_learn(struct poll_window *window, const struct poll_look *look, u64 most)
{
	u64 now = poll_clock(), waited = now - look->begun;

	if (waited <= window->ns)
		window->rest /= 2;
	else if (waited > most)
		window->ns = window->ns / 2 < POLL_FIRST_NS ? 0 : window->ns / 2;
	else if (now >= window->rests_until)
		window->ns = window->ns ? 2 * window->ns : POLL_FIRST_NS;
	if (window->ns > most)
		window->ns = most;
}

#endif
