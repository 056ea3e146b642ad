/* SPDX-License-Identifier: MIT */
/*
 * What is run with trips: code that does something of every class, in 0x100 bytes and a handler for
 * #DE after them.
 */
#ifndef TESTS_GUEST_TRIPS_H
#define TESTS_GUEST_TRIPS_H

#include "cpu/mode.h"
#include "guest/machine.h"

#define FOREVER (~0ull >> 1)
#define MOST	32000 /* instructions of it */
#define WANT_ALL \
	(COUNT_BRANCHES | COUNT_MEMORY | COUNT_CYCLES | OBSERVED_IN_MEMORY | OBSERVED_IN_BRANCHES)

/* Loads, stores, calls, jumps taken and not, divisions that fault and are skipped, long blocks; and
 * strings, and accesses to page after page, across lines and across pages. */
GUEST_CODE(work, "mov $60, %ecx\n"
		 "mov $0x100ffa, %r8d\n"
		 "1: mov (%rsp), %rax\n"
		 "addq $1, -72(%rsp)\n"
		 "add $4100, %r8\n"
		 "mov (%r8), %rdx\n"
		 "addq $1, 60(%r8)\n"
		 "pushq (%r8)\n"
		 "popq 128(%r8)\n"
		 "push %rcx\n"
		 "lea 256(%r8), %rsi\n"
		 "lea 0x40000(%r8), %rdi\n"
		 "mov $100, %ecx\n"
		 "rep movsb\n"
		 "pop %rcx\n"
		 "imul %rax, %rax\n"
		 "call 2f\n"
		 "test $3, %cl\n"
		 "jz 3f\n"
		 "mov %rax, -64(%rsp)\n"
		 "xor %edx, %edx\n"
		 "mov $7, %ebx\n"
		 "div %rbx\n"
		 "jmp 4f\n"
		 "3: xor %ebx, %ebx\n"
		 "div %ebx\n"
		 "4: nop\nnop\nnop\nnop\nnop\nnop\n"
		 "lea 5f(%rip), %rax\n"
		 "jmp *%rax\n"
		 "5: dec %ecx\n"
		 "jnz 1b\n"
		 "out %al, $0xf4\n"
		 "2: push %rbx\n"
		 "pop %rbx\n"
		 "ret\n"
		 ".org work_start + 0x100\n"
		 "addq $2, (%rsp)\n"
		 "iretq\n");

#endif
