// SPDX-License-Identifier: MIT
/*
 * Threads that race for a mutex. What is printed depends on the order in which they got it, at
 * every turn.
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

#define THREADS 4
#define TURNS	300

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static uint64_t history;

static void *run(void *id)
{
	for (int i = 0; i < TURNS; i++) {
		pthread_mutex_lock(&mutex);
		history = history * 31 + (uintptr_t)id;
		pthread_mutex_unlock(&mutex);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, run, (void *)(i + 1)))
			return 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	printf("history %lx\n", history);
	return 0;
}
