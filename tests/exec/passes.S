/* SPDX-License-Identifier: MIT */
/*
 * A static program with some of everything that is counted exactly (tests/exec/passes): loads, stores,
 * both, branches of all kinds, taken and not. It writes a line and ends with exit code 3.
 */
	.globl	_start
	.text
_start:
	mov	$1000, %ebx
	lea	words(%rip), %rsi
1:	mov	(%rsi), %eax		/* a load */
	mov	%eax, 8(%rsi)		/* a store */
	incl	(%rsi)			/* both */
	test	$3, %bl
	jnz	2f			/* taken in three of four rounds */
	call	once			/* direct */
2:	lea	once(%rip), %rdx
	call	*%rdx			/* indirect */
	lea	3f(%rip), %rdx
	jmp	*%rdx
3:	dec	%ebx
	jnz	1b

	mov	$1, %eax		/* write */
	mov	$1, %edi
	lea	text(%rip), %rsi
	mov	$5, %edx
	syscall
	mov	$60, %eax		/* exit */
	mov	$3, %edi
	syscall
once:
	ret

	.section .rodata
text:	.ascii	"done\n"
	.data
words:	.quad	0, 0
	.section .note.GNU-stack, "", @progbits
