// SPDX-License-Identifier: MIT
/*
 * Two threads, each on a CPU of its own, count in words that are DISTANCE bytes apart, for
 * tests/exec/c2c: with a load and a store, or with ADD. Prints the address of the first. TOGETHER:
 * neither is ever more than twice LEAD rounds ahead, so that the words are written by turns however
 * rarely the host lets both CPUs run at once.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

static struct {
	volatile long left;
	char between[DISTANCE - sizeof(long)];
	volatile long right;
	char after[4096 - DISTANCE - sizeof(long)];
} counts __attribute__((aligned(4096)));

static long rounds;

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		exit(2);
}

#ifdef ADD
#define INCREMENT(word) __asm__ volatile("addq $1, %0" : "+m"(word))
#else
#define INCREMENT(word) ((word)++)
#endif

#define LEAD 1000

static inline void wait_for(volatile long *other, long i)
{
#ifdef TOGETHER
	while (i % LEAD == 0 && *other + LEAD < i)
		__builtin_ia32_pause();
#else
	(void)other, (void)i;
#endif
}

__attribute__((noinline)) static void count_left(void)
{
	for (long i = 0; i < rounds; i++) {
		wait_for(&counts.right, i);
		INCREMENT(counts.left);
	}
}

__attribute__((noinline)) static void count_right(void)
{
	for (long i = 0; i < rounds; i++) {
		wait_for(&counts.left, i);
		INCREMENT(counts.right);
	}
}

static void *second(void *arg)
{
	pin(1);
	count_right();
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	if (argc != 2)
		return 2;
	rounds = atol(argv[1]);
	printf("%p\n", (void *)&counts);
	if (pthread_create(&thread, NULL, second, NULL))
		return 2;
	pin(0);
	count_left();
	return pthread_join(thread, NULL) ? 2 : 0;
}
