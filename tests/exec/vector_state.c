// SPDX-License-Identifier: MIT
/*
 * Holds a pattern in all vector and opmask registers across signals whose handler changes every one
 * of them, and across other processes that do the same. Prints how many rounds kept it; exits with
 * 1 if a round did not, with 4 if the processor has no AVX-512.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS	  3000
#define PROCESSES 3

struct registers {
	uint8_t zmm[32][64];
	uint64_t k[8];
};

#define EACH_ZMM                                                                            \
	".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27," \
	"28,29,30,31\n"
#define EACH_K ".irp n,0,1,2,3,4,5,6,7\n"
#define LOAD                                                           \
	EACH_ZMM "vmovdqu64 64*\\n(%[from]), %%zmm\\n\n.endr\n" EACH_K \
		 "kmovq 2048+8*\\n(%[from]), %%k\\n\n.endr\n"
#define STORE                                                        \
	EACH_ZMM "vmovdqu64 %%zmm\\n, 64*\\n(%[to])\n.endr\n" EACH_K \
		 "kmovq %%k\\n, 2048+8*\\n(%[to])\n.endr\n"
#define ALL_XMM                                                                                  \
	"xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
		"xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

static void pattern(struct registers *r, unsigned seed)
{
	uint8_t *bytes = (uint8_t *)r;

	for (size_t i = 0; i < sizeof(*r); i++)
		bytes[i] = (seed * 131 + i * 7) >> (i & 3);
}

static void change_all(int signal)
{
	static struct registers others;

	(void)signal;
	memset(&others, 0xa5, sizeof(others));
	__asm__ volatile(LOAD : : [from] "r"(&others) : "memory", ALL_XMM);
	__asm__ volatile("vzeroupper");
}

/* Nothing but the system call lies between loading and storing. */
static void hold(const struct registers *from, struct registers *to, long call, long a, long b)
{
	long result;

	__asm__ volatile(LOAD "syscall\n" STORE
			 : "=a"(result)
			 : "a"(call), "D"(a), "S"(b), [from] "r"(from), [to] "r"(to)
			 : "rcx", "r11", "memory", ALL_XMM);
	__asm__ volatile("vzeroupper");
}

static int rounds(unsigned seed)
{
	struct registers before, after;

	for (unsigned i = 0; i < ROUNDS; i++) {
		pattern(&before, seed + i);
		memset(&after, 0, sizeof(after));
		if (i & 1)
			hold(&before, &after, SYS_kill, getpid(), SIGUSR1);
		else
			hold(&before, &after, SYS_sched_yield, 0, 0);
		if (memcmp(&before, &after, sizeof(before))) {
			printf("round %u of %u: lost\n", i, seed);
			return 1;
		}
	}
	return 0;
}

int main(void)
{
	int failed = 0, status;

	if (!__builtin_cpu_supports("avx512bw")) {
		puts("SKIP: the processor has no AVX-512");
		return 4;
	}
	signal(SIGUSR1, change_all);
	for (unsigned i = 0; i < PROCESSES; i++)
		if (!fork())
			exit(rounds(i * 100000));
	for (unsigned i = 0; i < PROCESSES; i++)
		failed |= wait(&status) < 0 || status;
	printf("%u rounds of %u processes %s\n", ROUNDS, PROCESSES, failed ? "lost" : "kept");
	return failed;
}
