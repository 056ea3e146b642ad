// SPDX-License-Identifier: MIT
/*
 * `make demo`: a guest in a few instructions. It counts the primes below 30000 in 64-bit mode and
 * prints the number through a serial port; this program, an ordinary user of the KVM API, shows it
 * and says what happened.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "guest/kvm_guest.h"

#define SERIAL_PORT 0x3f8

GUEST_CODE(demo, "	mov $1, %ebx\n" /* primes found: 2 */
		 "	mov $3, %ecx\n" /* candidate */
		 "1:	mov $3, %esi\n" /* divisor */
		 "2:	mov %esi, %eax\n"
		 "	imul %esi, %eax\n"
		 "	cmp %ecx, %eax\n"
		 "	ja 3f\n"
		 "	mov %ecx, %eax\n"
		 "	xor %edx, %edx\n"
		 "	div %esi\n"
		 "	test %edx, %edx\n"
		 "	jz 4f\n"
		 "	add $2, %esi\n"
		 "	jmp 2b\n"
		 "3:	inc %ebx\n"
		 "4:	add $2, %ecx\n"
		 "	cmp $30000, %ecx\n"
		 "	jb 1b\n"
		 "	mov %ebx, %eax\n"
		 "	mov $10, %esi\n"
		 "	xor %edi, %edi\n"
		 "5:	xor %edx, %edx\n" /* decimal digits, on the stack */
		 "	div %esi\n"
		 "	add $'0', %edx\n"
		 "	push %rdx\n"
		 "	inc %edi\n"
		 "	test %eax, %eax\n"
		 "	jnz 5b\n"
		 "	mov $0x3f8, %edx\n"
		 "6:	pop %rax\n"
		 "	out %al, %dx\n"
		 "	dec %edi\n"
		 "	jnz 6b\n"
		 "	hlt\n");

static double seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* The number that the guest printed; counts its exits. */
static int run(struct kvm_guest *g, int *exits)
{
	char text[16] = "";
	unsigned n = 0;

	for (;;) {
		int reason = kvm_guest_run(g, 0);

		++*exits;
		if (reason == KVM_EXIT_HLT)
			return atoi(text);
		if (reason != KVM_EXIT_IO || g->run[0]->io.port != SERIAL_PORT ||
		    n + 1 >= sizeof(text)) {
			fprintf(stderr, "demo: unexpected exit %d\n", reason);
			exit(1);
		}
		text[n++] = *(char *)kvm_io_data(g->run[0]);
	}
}

int main(void)
{
	struct kvm_guest guest;
	int exits = 0, primes;
	double start;

	kvm_guest_create(&guest, demo_start, (size_t)(demo_end - demo_start), 1);
	start = seconds();
	primes = run(&guest, &exits);
	printf("A 64-bit guest of %d bytes of code found %d primes below 30000 in %.3f s\n",
	       (int)(demo_end - demo_start), primes, seconds() - start);
	printf("and told us through its serial port in %d exits (KVM_EXIT_IO, KVM_EXIT_HLT).\n",
	       exits);
	kvm_guest_destroy(&guest);
	return primes == 3245 ? 0 : 1;
}
