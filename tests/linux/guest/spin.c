// SPDX-License-Identifier: MIT
/*
 * Something for profilers to find: `spin ROUNDS [PROCESSES]` spends nearly all its time in
 * hot_loop(), in as many processes. Ends when its parent does.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

/* Four instructions a round, one of them a branch. */
__attribute__((noinline, used)) void hot_loop(uint64_t rounds)
{
	__asm__ volatile("1: add $1, %%rax\n\t"
			 "lea 3(%%rax), %%rdx\n\t"
			 "dec %0\n\t"
			 "jnz 1b"
			 : "+r"(rounds)
			 :
			 : "rax", "rdx", "cc");
}

int main(int argc, char **argv)
{
	uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000000;
	int others = argc > 2 ? atoi(argv[2]) - 1 : 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (others-- > 0)
		if (!fork()) {
			hot_loop(rounds);
			_exit(0);
		}
	hot_loop(rounds);
	while (wait(NULL) > 0)
		;
	return 0;
}
