/* SPDX-License-Identifier: MIT */
/*
 * A static program with one RDTSC in user code, whose value is in no register soon after that, or,
 * with QUIET, with none: tests/exec/diverge. (The C library's loader executes one, too.)
 */
	.globl	_start
	.text
_start:
	mov	$1000000, %ecx
1:	dec	%ecx
	jnz	1b
chance:
#ifndef QUIET
	rdtsc
#endif
	mov	%eax, value(%rip)
	xor	%eax, %eax
	xor	%edx, %edx
	mov	$1000000, %ecx
1:	dec	%ecx
	jnz	1b
	mov	$60, %eax
	xor	%edi, %edi
	syscall
	.lcomm	value, 8
