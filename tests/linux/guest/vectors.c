// SPDX-License-Identifier: MIT
/*
 * Holds patterns in all vector and opmask registers until /tmp/enough exists, whatever happens to
 * the machine meanwhile. Exits with 1 if a register has changed. Without AVX-512 these are the 16
 * registers of AVX.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SPINS 20000000

struct registers {
	uint8_t zmm[32][64];
	uint64_t k[8];
};

#define EACH_ZMM                                                                            \
	".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27," \
	"28,29,30,31\n"
#define EACH_YMM ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n"
#define EACH_K	 ".irp n,0,1,2,3,4,5,6,7\n"
#define ALL_XMM                                                                                  \
	"xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
		"xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

/* In a loop that uses no other registers. */
static void hold_avx512(const struct registers *from, struct registers *to)
{
	uint64_t spins = SPINS;

	__asm__ volatile(EACH_ZMM "vmovdqu64 64*\\n(%[from]), %%zmm\\n\n.endr\n" EACH_K
				  "kmovq 2048+8*\\n(%[from]), %%k\\n\n.endr\n"
				  "1: dec %[spins]\n"
				  "jnz 1b\n" EACH_ZMM
				  "vmovdqu64 %%zmm\\n, 64*\\n(%[to])\n.endr\n" EACH_K
				  "kmovq %%k\\n, 2048+8*\\n(%[to])\n.endr\n"
				  "vzeroupper\n"
			 : [spins] "+r"(spins)
			 : [from] "r"(from), [to] "r"(to)
			 : "memory", "cc", ALL_XMM);
}

/* The upper half of each register, and others, stay as they are in memory. */
static void hold_avx(const struct registers *from, struct registers *to)
{
	uint64_t spins = SPINS;

	*to = *from;
	__asm__ volatile(EACH_YMM "vmovdqu 64*\\n(%[from]), %%ymm\\n\n.endr\n"
				  "1: dec %[spins]\n"
				  "jnz 1b\n" EACH_YMM "vmovdqu %%ymm\\n, 64*\\n(%[to])\n.endr\n"
				  "vzeroupper\n"
			 : [spins] "+r"(spins)
			 : [from] "r"(from), [to] "r"(to)
			 : "memory", "cc", ALL_XMM);
}

static void pattern(struct registers *r, unsigned seed)
{
	uint8_t *bytes = (uint8_t *)r;

	for (size_t i = 0; i < sizeof(*r); i++)
		bytes[i] = (seed * 131 + i * 7) >> (i & 3);
}

int main(void)
{
	static struct registers before, after;
	bool avx512 = __builtin_cpu_supports("avx512bw");
	unsigned rounds = 0;

	while (access("/tmp/enough", F_OK)) {
		pattern(&before, rounds++);
		(avx512 ? hold_avx512 : hold_avx)(&before, &after);
		if (memcmp(&before, &after, sizeof(before))) {
			printf("vectors: lost in round %u\n", rounds);
			return 1;
		}
	}
	printf("vectors: %s kept for %u rounds\n", avx512 ? "AVX-512" : "AVX", rounds);
	return 0;
}
