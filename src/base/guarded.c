// SPDX-License-Identifier: MIT
/*
 * Guarded accesses to the program's memory. They are leaf functions in assembly that keep nothing
 * on the stack, laid out between two labels: whichever of their instructions faults, the way out is
 * the same "return false". Any thread; guarded_fixup() from a signal handler.
 */
#include "base/guarded.h"

__asm__(".pushsection .text\n"
	".p2align 4\n"
	"guarded_begin:\n"

	/* The plain sizes are one load and one store, so that they are single-copy atomic. */
	".globl guarded_read\n"
	".globl guarded_write\n"
	".hidden guarded_read\n"
	".hidden guarded_write\n"
	".type guarded_read, @function\n"
	".type guarded_write, @function\n"
	"guarded_read:\n"
	"guarded_write:\n"
	"	cmpq $8, %rdx\n"
	"	je 8f\n"
	"	cmpq $4, %rdx\n"
	"	je 4f\n"
	"	cmpq $1, %rdx\n"
	"	je 1f\n"
	"	cmpq $2, %rdx\n"
	"	je 2f\n"
	"	movq %rdx, %rcx\n"
	"	testb $7, %dl\n"
	"	jnz 3f\n"
	"	cmpq $256, %rdx\n"
	"	ja 3f\n"
	"	shrq $3, %rcx\n"
	"	jz guarded_succeed\n"
	"6:	movq (%rsi), %rax\n"
	"	movq %rax, (%rdi)\n"
	"	addq $8, %rsi\n"
	"	addq $8, %rdi\n"
	"	decq %rcx\n"
	"	jnz 6b\n"
	"	jmp guarded_succeed\n"
	"3:	rep movsb\n"
	"	jmp guarded_succeed\n"
	"8:	movq (%rsi), %rax\n"
	"	movq %rax, (%rdi)\n"
	"	jmp guarded_succeed\n"
	"4:	movl (%rsi), %eax\n"
	"	movl %eax, (%rdi)\n"
	"	jmp guarded_succeed\n"
	"2:	movzwl (%rsi), %eax\n"
	"	movw %ax, (%rdi)\n"
	"	jmp guarded_succeed\n"
	"1:	movzbl (%rsi), %eax\n"
	"	movb %al, (%rdi)\n"
	"guarded_succeed:\n"
	"	movl $1, %eax\n"
	"	ret\n"
	".size guarded_read, . - guarded_read\n"
	".size guarded_write, . - guarded_write\n"

	/* ptr, expected, desired, done in RDI, RSI, RDX, RCX */
	".globl guarded_cmpxchg64\n"
	".hidden guarded_cmpxchg64\n"
	".type guarded_cmpxchg64, @function\n"
	"guarded_cmpxchg64:\n"
	"	movq (%rsi), %rax\n"
	"	lock cmpxchgq %rdx, (%rdi)\n"
	"	movq %rax, (%rsi)\n"
	"	sete (%rcx)\n"
	"	jmp guarded_succeed\n"
	".size guarded_cmpxchg64, . - guarded_cmpxchg64\n"

	".globl guarded_cmpxchg32\n"
	".hidden guarded_cmpxchg32\n"
	".type guarded_cmpxchg32, @function\n"
	"guarded_cmpxchg32:\n"
	"	movl (%rsi), %eax\n"
	"	lock cmpxchgl %edx, (%rdi)\n"
	"	movl %eax, (%rsi)\n"
	"	sete (%rcx)\n"
	"	jmp guarded_succeed\n"
	".size guarded_cmpxchg32, . - guarded_cmpxchg32\n"

	/* dst, pattern, n in RDI, RSI, RDX */
	".globl guarded_fill\n"
	".hidden guarded_fill\n"
	".type guarded_fill, @function\n"
	"guarded_fill:\n"
	"	movq %rsi, %rax\n"
	"	movq %rdx, %rcx\n"
	"	shrq $3, %rcx\n"
	"	cmpq $16, %rcx\n"
	"	ja 3f\n"
	"	testq %rcx, %rcx\n"
	"	jz 2f\n"
	"4:	movq %rax, (%rdi)\n"
	"	addq $8, %rdi\n"
	"	decq %rcx\n"
	"	jnz 4b\n"
	"	jmp 2f\n"
	"3:	rep stosq\n"
	"2:"
	"	andl $7, %edx\n"
	"	jz guarded_succeed\n"
	"1:	stosb\n"
	"	rorq $8, %rax\n"
	"	decl %edx\n"
	"	jnz 1b\n"
	"	jmp guarded_succeed\n"
	".size guarded_fill, . - guarded_fill\n"

	/* dst, src in RDI, RSI */
	".globl guarded_read_line\n"
	".hidden guarded_read_line\n"
	".type guarded_read_line, @function\n"
	"guarded_read_line:\n"
	".irp at, 0, 16, 32, 48\n"
	"	movq \\at(%rsi), %rax\n"
	"	movq \\at+8(%rsi), %rcx\n"
	"	movq %rax, \\at(%rdi)\n"
	"	movq %rcx, \\at+8(%rdi)\n"
	".endr\n"
	"	jmp guarded_succeed\n"
	".size guarded_read_line, . - guarded_read_line\n"

	/* Two lines of 64 bytes in RDI, RSI */
	".globl guarded_same_line\n"
	".hidden guarded_same_line\n"
	".type guarded_same_line, @function\n"
	"guarded_same_line:\n"
	"	xorl %eax, %eax\n"
	".irp at, 0, 8, 16, 24, 32, 40, 48, 56\n"
	"	movq \\at(%rdi), %rcx\n"
	"	xorq \\at(%rsi), %rcx\n"
	"	orq %rcx, %rax\n"
	".endr\n"
	"	jz guarded_succeed\n"
	"	jmp guarded_fail\n"
	".size guarded_same_line, . - guarded_same_line\n"

	"guarded_end:\n"
	"guarded_fail:\n"
	"	xorl %eax, %eax\n"
	"	ret\n"
	".popsection\n");

extern const u8 guarded_begin[] __attribute__((visibility("hidden")));
extern const u8 guarded_end[] __attribute__((visibility("hidden")));
extern const u8 guarded_fail[] __attribute__((visibility("hidden")));

bool guarded_fixup(u64 *rip)
{
	if (*rip < (u64)guarded_begin || *rip >= (u64)guarded_end)
		return false;
	*rip = (u64)guarded_fail;
	return true;
}
