/* SPDX-License-Identifier: MIT */
/*
 * The guest of api_restore_test.c. Its kernel programs the PMU and the local APIC from tables, has NMIs logged, and
 * serves a system call that talks to devices; its program, at CPL 3, loads, stores, branches in every way, computes
 * with vectors and divides. What either does is a function of the tables alone.
 */
#include "guest/image.h"
#include "guest/restore.h"

	.section .rodata
	.globl restore_start, restore_end, restore_nmi, restore_syscall, restore_finish
	.balign 16
restore_start:
	mov $RESTORE_SETUP, %esi
	call write_msrs
	push $IMAGE_UDS
	push $IMAGE_USER_STACK
	push $2 /* RFLAGS: no interrupts but NMIs */
	push $IMAGE_UCS
	lea program(%rip), %rax
	push %rax
	iretq

/* struct { u64 msr, value; } at RSI. */
write_msrs:
	mov (%rsi), %ecx
	jrcxz 1f
	mov 8(%rsi), %eax
	mov 12(%rsi), %edx
	wrmsr
	add $16, %rsi
	jmp write_msrs
1:	ret

#define SAVED 48 /* bytes that the handler pushes */

restore_nmi:
	push %rax
	push %rcx
	push %rdx
	push %rbx
	push %rsi
	push %rdi
	mov RESTORE_LOG_AT, %rdi
	mov SAVED(%rsp), %rax
	stosq
	mov $RESTORE_READ, %esi
1:	mov (%rsi), %ecx
	jrcxz 2f
	rdmsr
	stosl
	mov %edx, %eax
	stosl
	add $4, %rsi
	jmp 1b
2:	cmp RESTORE_LOG_END, %rdi
	jbe 3f
	incq RESTORE_DROPPED
	jmp 4f
3:	mov %rdi, RESTORE_LOG_AT
4:	mov $RESTORE_RELOAD, %esi
5:	mov (%rsi), %ecx
	jrcxz 7f
	rdmsr
	bt $15, %edx /* of a counter that overflowed bit 47 is clear */
	jc 6f
	sub 4(%rsi), %eax
	sbb $0, %edx
	movzwl %dx, %edx
	wrmsr
6:	add $8, %rsi
	jmp 5b
7:	mov $RESTORE_RESTART, %esi
8:	mov (%rsi), %ecx
	jrcxz 10f
	rdmsr
	shl $32, %rdx
	or %rdx, %rax
	test %rax, 8(%rsi)
	jz 9f
	and 16(%rsi), %rax
	or 24(%rsi), %rax
	mov %rax, %rdx
	shr $32, %rdx
	wrmsr
9:	add $32, %rsi
	jmp 8b
10:	mov RESTORE_DS + 0x28, %rax /* the index; then the threshold */
	cmp RESTORE_DS + 0x38, %rax
	jb 11f
	mov RESTORE_PEBS_STEP, %rax
	add %rax, RESTORE_DS + 0x38
11:	mov $RESTORE_ACK, %esi
	call write_msrs
	pop %rdi
	pop %rsi
	pop %rbx
	pop %rdx
	pop %rcx
	pop %rax
	iretq

/* On the program's stack. A port, the same by a string instruction, memory of a device, both interrupt shadows. */
restore_syscall:
	mov %rcx, %r13
	in $RESTORE_DEVICE, %al
	movzbl %al, %eax
	add %rax, %r14
	mov $RESTORE_DEVICE, %edx
	mov $3, %ecx
	mov $RESTORE_BUFFER, %edi
	rep insb
	mov RESTORE_BUFFER, %eax
	add %rax, %r14
	mov IMAGE_MMIO, %eax
	add %rax, %r14
	sti
	nop
	cli
	mov %ss, %eax
	mov %eax, %ss
	nop
	mov %r13, %rcx
	sysretq

restore_finish:
	mov $0, %al
	out %al, $IMAGE_DONE_PORT

/* --- CPL 3 --- */

program:
	mov RESTORE_ROUNDS, %r8d
	xor %ebx, %ebx
	xor %r14d, %r14d
	mov $1, %r12d
	pxor %xmm1, %xmm1
round:	imul $1664525, %r12d, %r12d
	add $1013904223, %r12d
	mov %r12d, %eax
	shr $24, %eax
	mov RESTORE_TABLE(, %rax, 4), %ecx
	add %ecx, %ebx
	test $0x10000, %r12d
	jz 1f
	call odd
	jmp 2f
1:	call even
2:	lea target_a(%rip), %rdx
	lea target_b(%rip), %rsi
	test $0x200000, %r12d
	cmovz %rsi, %rdx
	jmp *%rdx
target_a:
	add $3, %ebx
target_b:
	xor %r8d, %ebx
	mov %ebx, RESTORE_STORES(, %rax, 4)
	cvtsi2sd %ebx, %xmm0
	addsd %xmm0, %xmm1
	test $63, %r8d
	jnz 3f
	mov $RESTORE_TABLE, %esi
	mov $RESTORE_COPY, %edi
	mov $40, %ecx
	rep movsb
	mov %ebx, %eax
	xor %edx, %edx
	mov $17, %ecx
	div %ecx
	add %edx, %ebx
3:	test $255, %r8d
	jnz 4f
	syscall
4:	dec %r8d
	jnz round
	add %r14, %rbx
	mov %rbx, RESTORE_SUM
	movsd %xmm1, RESTORE_SUM + 8
	int $RESTORE_END_GATE

odd:	push %rbx
	call even
	pop %rdx
	add %edx, %ebx
	ret

even:	ror $3, %ebx
	ret
restore_end:
	.section .note.GNU-stack, "", @progbits
