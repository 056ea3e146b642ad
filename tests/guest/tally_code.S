/* SPDX-License-Identifier: MIT */
/*
 * Workloads whose counts are known: one block each, with its budget in the line that begins it and the count of each
 * line beside it as "executions" or "executions, b" for a branch. tally_test.c runs them.
 *
 * The OUT of DONE is not counted: the test looks while it exits. An instruction that faults is counted when its retry
 * retires; a REP instruction counts once however many iterations; SYSCALL, INT and the like count for the privilege
 * they were executed at.
 */
#include "guest/image.h"
#include "guest/tally.h"

/*
 * A record of struct tally_workload: code, budgets, what RBX holds at the end, and the vector whose gate leads to the
 * label `handler` of the block (NO_GATE: there is none).
 */
.macro WORKLOAD name, os, os_branches, usr=0, usr_branches=0, rbx=0, vector=NO_GATE
	.pushsection .rodata.str1.1, "aMS", @progbits, 1
.Lname\@:	.asciz "\name"
	.popsection
	.pushsection .data.rel.ro.tally, "aw", @progbits
	.balign 8
	.quad .Lname\@, \name\()_start, \name\()_end
	.quad \os, \os_branches, \usr, \usr_branches
	.quad \rbx
	.quad \vector
	.ifne \vector - NO_GATE
	.quad \name\()_handler - \name\()_start
	.else
	.quad 0
	.endif
	.popsection
	.balign 16
\name\()_start:
.endm

.macro END name
\name\()_end:
.endm

.macro DONE
	out %al, $IMAGE_DONE_PORT
.endm

	.pushsection .data.rel.ro.tally, "aw", @progbits
	.balign 8
	.globl tally_workloads
	.hidden tally_workloads
tally_workloads:
	.popsection

	.section .rodata
	.code64

/* No branch, every kind of operand; longer than a block is likely to be. */
WORKLOAD name=straight, os="1 + 200 * 5 + 1", os_branches=0, rbx=600
	xor %ebx, %ebx			/* 1 */
.rept 200				/* 200 times: */
	inc %rbx			/* 1 */
	lea 2(%rbx), %rbx		/* 1 */
	mov %rbx, IMAGE_DATA		/* 1 */
	addl $0, IMAGE_DATA		/* 1 */
	mov IMAGE_DATA, %rbx		/* 1 */
.endr
	nop				/* 1 */
	DONE
END straight

WORKLOAD name=loop, os="2 + 2 * 100000", os_branches=100000, rbx=0
	mov $100000, %ebx		/* 1 */
	nop				/* 1 */
1:	dec %ebx			/* 100000 */
	jnz 1b				/* 100000, b */
	DONE
END loop

/* Branches taken and not taken, in both directions. */
WORKLOAD name=conditional, os="2 + 4 * 1000 + 500", os_branches="2 * 1000", rbx=500
	mov $1000, %ecx			/* 1 */
	xor %ebx, %ebx			/* 1 */
1:	test $1, %cl			/* 1000 */
	jz 2f				/* 1000, b: taken 500 times */
	inc %ebx			/* 500 */
2:	dec %ecx			/* 1000 */
	jnz 1b				/* 1000, b: taken 999 times */
	DONE
END conditional

/* LOOP and JrCXZ are branches; CMOV and SETcc are none. */
WORKLOAD name=counted_loops, os="2 + 4 * 50 + 1 + 1 + 1", os_branches="50 + 1 + 1", rbx=50
	mov $50, %ecx			/* 1 */
	xor %ebx, %ebx			/* 1 */
1:	test %ecx, %ecx			/* 50 */
	setnz %al			/* 50 */
	inc %ebx			/* 50 */
	loop 1b				/* 50, b */
	jrcxz 2f			/* 1, b: taken */
	ud2
2:	inc %ecx			/* 1 */
	jrcxz 1b			/* 1, b: not taken */
	DONE
END counted_loops

WORKLOAD name=calls, os="2 + 7 * 500 + 1", os_branches="3 * 500 + 1", rbx=500
	mov $500, %ecx			/* 1 */
	xor %ebx, %ebx			/* 1 */
1:	call 3f				/* 500, b */
	dec %ecx			/* 500 */
	jnz 1b				/* 500, b */
	jmp 4f				/* 1, b */
3:	push %rcx			/* 500 */
	inc %ebx			/* 500 */
	pop %rcx			/* 500 */
	ret				/* 500, b */
4:	DONE
END calls

/* Jumps, calls and returns through registers and memory, to changing targets. */
WORKLOAD name=indirect, os="3 + 14 * 300", os_branches="4 * 300 + 150", rbx=600
	mov $300, %r8d			/* 1 */
	xor %ebx, %ebx			/* 1 */
	lea 9f(%rip), %rdi		/* 1 */
1:	mov %r8d, %eax			/* 300 */
	and $1, %eax			/* 300 */
	movslq (%rdi, %rax, 4), %rsi	/* 300 */
	add %rdi, %rsi			/* 300 */
	jmp *%rsi			/* 300, b */
2:	add $2, %ebx			/* 150 */
	jmp 4f				/* 150, b */
3:	add $2, %ebx			/* 150 */
	nop				/* 150 */
4:	lea 5f(%rip), %rsi		/* 300 */
	push %rsi			/* 300 */
	call *(%rsp)			/* 300, b */
	pop %rsi			/* 300 */
	dec %r8d			/* 300 */
	jnz 1b				/* 300, b */
	DONE
5:	ret				/* 300, b */
	.balign 4
9:	.long 2b - 9b, 3b - 9b
END indirect

/* REP counts once: with many iterations, with none, and when it ends early. */
WORKLOAD name=strings, os=21, os_branches=0, rbx=1000
	cld				/* 1 */
	xor %ebx, %ebx			/* 1 */
	mov $IMAGE_DATA, %edi		/* 1 */
	mov $5000, %ecx			/* 1 */
	mov $0x5a, %eax			/* 1 */
	rep stosb			/* 1: 5000 iterations */
	mov $IMAGE_DATA, %esi		/* 1 */
	mov $IMAGE_DATA + 0x8000, %edi	/* 1 */
	mov $1250, %ecx			/* 1 */
	rep movsl			/* 1: 1250 iterations */
	rep movsq			/* 1: none */
	mov $IMAGE_DATA, %esi		/* 1 */
	mov $IMAGE_DATA + 0x8000, %edi	/* 1 */
	mov $5000, %ecx			/* 1 */
	repe cmpsb			/* 1: 5000 iterations, all equal */
	setz %bl			/* 1 */
	mov $IMAGE_DATA + 0x8000, %edi	/* 1 */
	mov $6000, %ecx			/* 1 */
	repe scasb			/* 1: ends in the 5001st iteration */
	add %ecx, %ebx			/* 1: 1 + 999 */
	nop				/* 1 */
	DONE
END strings

#define HOLE_PTE (IMAGE_PT + (IMAGE_HOLE >> 12) * 8)

/* #PF on a load and on a read-modify-write in the middle of a block, each handled and retried. */
WORKLOAD name=page_faults, os="2 + 9 * 100 + 2 * 3 * 100 + 1", os_branches="3 * 100", rbx=300, vector=14
	mov $100, %ecx			/* 1 */
	xor %ebx, %ebx			/* 1 */
1:	andq $~1, HOLE_PTE		/* 100 */
	invlpg IMAGE_HOLE		/* 100 */
	inc %ebx			/* 100 */
	mov IMAGE_HOLE + 8, %eax	/* 100, after a fault */
	andq $~1, HOLE_PTE		/* 100 */
	invlpg IMAGE_HOLE		/* 100 */
	addl $2, IMAGE_HOLE		/* 100, after a fault */
	dec %ecx			/* 100 */
	jnz 1b				/* 100, b */
	add IMAGE_HOLE, %ebx		/* 1: the additions happened once each */
	DONE
page_faults_handler:
	add $8, %rsp			/* 200 */
	orq $1, HOLE_PTE		/* 200 */
	iretq				/* 200, b */
END page_faults

/* The same, half-way through a REP. */
WORKLOAD name=string_faults, os="2 + 8 * 20 + 3 * 20", os_branches="2 * 20", rbx=20, vector=14
	mov $20, %r8d			/* 1 */
	xor %ebx, %ebx			/* 1 */
1:	andq $~1, HOLE_PTE		/* 20 */
	invlpg IMAGE_HOLE		/* 20 */
	mov $IMAGE_HOLE - 0x700, %edi	/* 20 */
	mov $0xc00, %ecx		/* 20 */
	rep stosb			/* 20, after a fault */
	inc %ebx			/* 20 */
	dec %r8d			/* 20 */
	jnz 1b				/* 20, b */
	DONE
string_faults_handler:
	add $8, %rsp			/* 20 */
	orq $1, HOLE_PTE		/* 20 */
	iretq				/* 20, b */
END string_faults

/* #DE: the handler steps over the instruction, which never retires. */
WORKLOAD name=divide_errors, os="3 + 4 * 60 + 2 * 60", os_branches="2 * 60", rbx=120, vector=0
	mov $60, %r8d			/* 1 */
	xor %ebx, %ebx			/* 1 */
	xor %ecx, %ecx			/* 1 */
1:	inc %ebx			/* 60 */
	div %ecx			/* never */
	inc %ebx			/* 60 */
	dec %r8d			/* 60 */
	jnz 1b				/* 60, b */
	DONE
divide_errors_handler:
	addq $2, (%rsp)			/* 60 */
	iretq				/* 60, b */
END divide_errors

/* Code that changes the instruction after it. */
WORKLOAD name=self_modifying, os="2 + 5 * 200", os_branches=200, rbx="200 * 201 / 2"
	mov $200, %ecx			/* 1 */
	xor %ebx, %ebx			/* 1 */
1:	mov %ecx, 2f + 1(%rip)		/* 200 */
2:	mov $0, %eax			/* 200 */
	add %eax, %ebx			/* 200 */
	dec %ecx			/* 200 */
	jnz 1b				/* 200, b */
	DONE
END self_modifying

/* Code on another page that is INC and JMP by turns. */
WORKLOAD name=self_modifying_call, os="2 + 6 * 100", os_branches="3 * 100 + 50", rbx=50
	mov $100, %ecx			/* 1 */
	xor %ebx, %ebx			/* 1 */
1:	xorw $0xc314, 3f(%rip)		/* 100 */
	call 3f				/* 100, b */
	dec %ecx			/* 100 */
	jnz 1b				/* 100, b */
	DONE
	.org self_modifying_call_start + 4096
3:	inc %ebx			/* 50, and 50 times a JMP (b) to the next */
	ret				/* 100, b */
END self_modifying_call

/* Instructions and operands that cross pages and cache lines. */
WORKLOAD name=crossing, os="4 + 6 * 80", os_branches="1 + 80", rbx="80 * 3"
	mov $80, %r8d			/* 1 */
	xor %ebx, %ebx			/* 1 */
	movq $0, IMAGE_DATA + 0xffd	/* 1 */
	jmp 1f				/* 1, b */
	.org crossing_start + 4093
1:	mov $3, %eax			/* 80: crosses */
	lock add %eax, IMAGE_DATA + 0x3e	/* 80 */
	add %eax, IMAGE_DATA + 0xffd	/* 80 */
	mov IMAGE_DATA + 0xffd, %ebx	/* 80 */
	dec %r8d			/* 80 */
	jnz 1b				/* 80, b */
	DONE
END crossing

/* Round trips between CPL 3 and 0; the last OUT is the user's (IOPL 3). */
WORKLOAD name=syscalls, os="3 + 2 * 20", os_branches="1 + 20", usr="1 + 4 * 20", usr_branches="2 * 20", rbx=20, vector=SYSCALL_GATE
	lea 1f(%rip), %rcx		/* 1 */
	mov $0x3002, %r11d		/* 1 */
	sysretq				/* 1, b */
1:	mov $20, %edx			/* 1 usr */
2:	inc %eax			/* 20 usr */
	syscall				/* 20 usr, b */
	dec %edx			/* 20 usr */
	jnz 2b				/* 20 usr, b */
	DONE
syscalls_handler:
	inc %rbx			/* 20 */
	sysretq				/* 20, b */
END syscalls

WORKLOAD name=interrupts, os="2 + 5 * 30", os_branches="3 * 30", rbx=30, vector=0x40
	mov $30, %ecx			/* 1 */
	xor %ebx, %ebx			/* 1 */
1:	int $0x40			/* 30, b */
	dec %ecx			/* 30 */
	jnz 1b				/* 30, b */
	DONE
interrupts_handler:
	inc %ebx			/* 30 */
	iretq				/* 30, b */
END interrupts

/* What exits in the middle: ports, strings of them, device memory, CPUID. */
WORKLOAD name=exits, os="1 + 12 * 25 + 1", os_branches=25, rbx=0x7e
	mov $25, %r8d			/* 1 */
1:	out %al, $0x80			/* 25 */
	mov $IMAGE_DATA, %esi		/* 25 */
	mov $300, %ecx			/* 25 */
	mov $0x82, %edx			/* 25 */
	rep outsb			/* 25 */
	in $0x81, %al			/* 25 */
	movzbl %al, %r9d		/* 25 */
	mov IMAGE_MMIO, %rdi		/* 25 */
	mov %edi, IMAGE_MMIO + 16	/* 25 */
	cpuid				/* 25 */
	dec %r8d			/* 25 */
	jnz 1b				/* 25, b */
	mov %r9d, %ebx			/* 1 */
	DONE
END exits

/* x87, SSE and AVX leave the counts alone. */
WORKLOAD name=vectors, os="4 + 8 * 70 + 1", os_branches=70, rbx=0
	mov $70, %ebx			/* 1 */
	fninit				/* 1 */
	fldz				/* 1 */
	pxor %xmm1, %xmm1		/* 1 */
1:	fld1				/* 70 */
	faddp				/* 70 */
	movups IMAGE_DATA + 0xff9, %xmm0	/* 70: crosses a page */
	addps %xmm0, %xmm1		/* 70 */
	pushfq				/* 70 */
	popfq				/* 70 */
	dec %ebx			/* 70 */
	jnz 1b				/* 70, b */
	fstpl IMAGE_DATA		/* 1 */
	DONE
END vectors

	.pushsection .data.rel.ro.tally, "aw", @progbits
	.globl tally_workloads_end
	.hidden tally_workloads_end
tally_workloads_end:
	.popsection

	.section .note.GNU-stack, "", @progbits
