// SPDX-License-Identifier: MIT
/*
 * Signals that the program sends itself, then a timer's, which come at any instruction of a loop.
 * What is printed depends on how far the loop was at every one.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/time.h>
#include <unistd.h>

#define OWN   60
#define TICKS 12

static volatile uint64_t work, history;
static volatile int ticks;

static void handler(int sig)
{
	history = history * 31 + work + sig;
	ticks += sig == SIGALRM;
}

int main(void)
{
	struct itimerval often = { { 0, 20000 }, { 0, 20000 } };

	signal(SIGUSR1, handler);
	signal(SIGALRM, handler);
	for (int i = 0; i < OWN; i++)
		kill(getpid(), SIGUSR1);
	setitimer(ITIMER_REAL, &often, NULL);
	while (ticks < TICKS)
		work++;
	printf("history %lx\n", history);
	return 0;
}
