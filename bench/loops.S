/* SPDX-License-Identifier: MIT */
/*
 * The loops that are measured, each with its instructions a round. RDI: rounds; RSI: LOOP_MEMORY bytes. They run
 * natively too, so they keep to the registers that a C function may destroy.
 */
#include "bench/loops.h"

.macro LOOP name, text, per_round
	.pushsection .rodata.str1.1, "aMS", @progbits, 1
.Ltext\@:	.asciz "\text"
	.popsection
	.pushsection .data.rel.ro.loops, "aw", @progbits
	.quad .Ltext\@, \name, \name\()_end, \per_round
	.popsection
	.balign 64
\name:
.endm

	.pushsection .data.rel.ro.loops, "aw", @progbits
	.balign 8
	.globl loops
	.hidden loops
loops:
	.popsection

	.text

/* Arithmetic with a dependency chain: xorshift and a sum. */
LOOP name=loop_integer, text="integer", per_round=12
	mov $88172645463325252, %rax
	xor %r8d, %r8d
	.balign 16
1:	mov %rax, %rdx
	shl $13, %rdx
	xor %rdx, %rax
	mov %rax, %rdx
	shr $7, %rdx
	xor %rdx, %rax
	mov %rax, %rdx
	shl $17, %rdx
	xor %rdx, %rax
	add %rax, %r8
	dec %rdi
	jnz 1b
	ret
loop_integer_end:

/* Loads and stores that walk through 16 KB. */
LOOP name=loop_memory, text="memory", per_round=9
	xor %ecx, %ecx
	.balign 16
1:	mov (%rsi, %rcx), %rax
	add 8(%rsi, %rcx), %rax
	inc %rax
	mov %rax, 16(%rsi, %rcx)
	add %rax, 24(%rsi, %rcx)
	add $40, %ecx
	and $0x3ff8, %ecx
	dec %rdi
	jnz 1b
	ret
loop_memory_end:

/* A jump through a table to one of eight places, by a simple generator. */
LOOP name=loop_indirect, text="indirect branches", per_round=11
	lea 9f(%rip), %r9
	mov $12345, %eax
	xor %r8d, %r8d
	.balign 16
1:	imul $1103515245, %eax, %eax
	add $12345, %eax
	mov %eax, %edx
	shr $28, %edx
	and $7, %edx
	movslq (%r9, %rdx, 4), %rcx
	add %r9, %rcx
	jmp *%rcx
.macro TARGET n
20\n:	add $\n, %r8d
	dec %rdi
	jnz 1b
	ret
.endm
	TARGET 0
	TARGET 1
	TARGET 2
	TARGET 3
	TARGET 4
	TARGET 5
	TARGET 6
	TARGET 7
	.balign 4
9:	.long 200b - 9b, 201b - 9b, 202b - 9b, 203b - 9b, 204b - 9b, 205b - 9b, 206b - 9b, 207b - 9b
loop_indirect_end:

/* Single precision multiply and add, from and to memory. */
LOOP name=loop_sse, text="SSE", per_round=9
	xor %ecx, %ecx
	xorps %xmm2, %xmm2
	.balign 16
1:	movups (%rsi, %rcx), %xmm0
	movups 16(%rsi, %rcx), %xmm1
	mulps %xmm0, %xmm1
	addps %xmm1, %xmm2
	movups %xmm2, 32(%rsi, %rcx)
	add $48, %ecx
	and $0x3ff0, %ecx
	dec %rdi
	jnz 1b
	ret
loop_sse_end:

	.pushsection .data.rel.ro.loops, "aw", @progbits
	.globl loops_end
	.hidden loops_end
loops_end:
	.popsection

	.section .note.GNU-stack, "", @progbits
