// SPDX-License-Identifier: MIT
/*
 * Protection keys as Linux has them: a page whose key forbids reading or writing raises SIGSEGV
 * with that key, for the program and, as EFAULT, for the kernel; each thread has rights of its own.
 * Prints a line for each; exits with 4 if the processor has no keys.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROUNDS	3000
#define THREADS 3

static sigjmp_buf refused;
static volatile int code, key_of_fault;
static char *page;
static int key;

static void caught(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	code = info->si_code;
	key_of_fault = info->si_pkey;
	siglongjmp(refused, 1);
}

/* A handler begins with rights of its own, and leaves them behind when it jumps. */
static const char *outcome(int rights, int store)
{
	pkey_set(key, rights);
	if (sigsetjmp(refused, 1))
		return code == SEGV_PKUERR && key_of_fault == key ? "refused by its key"
								  : "refused";
	if (store)
		*(volatile char *)page = 1;
	else
		(void)*(volatile char *)page;
	return "done";
}

static void show(const char *name, int rights)
{
	int ends[2];

	printf("%s: load %s", name, outcome(rights, 0));
	printf(", store %s", outcome(rights, 1));
	pkey_set(key, rights);
	if (!pipe(ends))
		printf(", the kernel reads %zd\n", write(ends[1], page, 16));
}

/* Rights that another thread gives itself are not this one's. */
static void *alternate(void *number)
{
	uintptr_t lost = 0;

	for (uintptr_t i = (uintptr_t)number; i < ROUNDS; i++) {
		int rights = i & 1 ? PKEY_DISABLE_ACCESS : 0;

		pkey_set(key, rights);
		if (i % 7 == 0)
			usleep(1);
		lost += pkey_get(key) != rights || (!rights && page[1] != 5);
	}
	return (void *)lost;
}

int main(void)
{
	struct sigaction action = { .sa_sigaction = caught, .sa_flags = SA_SIGINFO | SA_NODEFER };
	pthread_t threads[THREADS];
	uintptr_t lost = 0;
	void *result;

	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	page[1] = 5;
	key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
	if (key < 0 || pkey_mprotect(page, 4096, PROT_READ | PROT_WRITE, key)) {
		puts("SKIP: the processor has no protection keys");
		return 4;
	}
	sigaction(SIGSEGV, &action, NULL);
	show("no access", PKEY_DISABLE_ACCESS);
	show("no stores", PKEY_DISABLE_WRITE);
	show("all", 0);
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, alternate, (void *)i);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &result);
		lost += (uintptr_t)result;
	}
	printf("%zu rights of threads lost, own: %d\n", (size_t)lost, pkey_get(key));
	return 0;
}
