// SPDX-License-Identifier: MIT
/*
 * Holds patterns in all vector and opmask registers until /tmp/enough exists, whatever happens to
 * the machine meanwhile. Exits with 1 if a register has changed. Without AVX-512 there is nothing
 * to hold.
 */
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
#define EACH_K ".irp n,0,1,2,3,4,5,6,7\n"

/* In a loop that uses no other registers. */
static void hold(const struct registers *from, struct registers *to)
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
			 : "memory", "cc");
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
	unsigned rounds = 0;

	if (!__builtin_cpu_supports("avx512bw")) {
		puts("vectors: the processor has no AVX-512");
		return 0;
	}
	while (access("/tmp/enough", F_OK)) {
		pattern(&before, rounds++);
		hold(&before, &after);
		if (memcmp(&before, &after, sizeof(before))) {
			printf("vectors: lost in round %u\n", rounds);
			return 1;
		}
	}
	printf("vectors: kept for %u rounds\n", rounds);
	return 0;
}
