// SPDX-License-Identifier: MIT
/*
 * Loops whose every instruction and branch is known: the shares of functions and of branches can be
 * computed. A turn of the outer loop is hot(60), then warm(40), each with a loop of ten instructions
 * of which one is a branch. The argument is how many thousand turns.
 *
 *	hot   60 turns of 10 instructions, 59 of its branches taken, and 3 instructions around them
 *	warm  40 turns of 10 instructions, 39 taken, and 3 around them
 */
#include <stdlib.h>

#define LOOP(name, turns) \
	__asm__(".globl " #name "; .type " #name ", @function\n" #name ":\n" \
		"mov $" #turns ", %ecx\n" \
		"1: nop; nop; nop; nop; add $1, %rax; nop; nop; nop; dec %ecx; jnz 1b\n" \
		"nop; ret\n.size " #name ", . - " #name "\n")

LOOP(hot, 60);
LOOP(warm, 40);
void hot(void);
void warm(void);

int main(int argc, char **argv)
{
	long turns = (argc > 1 ? atol(argv[1]) : 100) * 1000;

	while (turns--) {
		hot();
		warm();
	}
	return 0;
}
