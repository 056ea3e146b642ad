/* SPDX-License-Identifier: MIT */
/*
 * A static program whose counts follow from its CPUID and from what its instructions compute: with
 * --baseline they are the same on every host (tests/exec/deterministic). For each of the leaves below
 * it loops as often as bits are set, then over sums in vectors, with BMI, and over strings.
 */
	.globl	_start
	.text
_start:
	lea	leaves(%rip), %r12
1:	mov	(%r12), %eax
	mov	4(%r12), %ecx
	cpuid
	and	8(%r12), %eax
	and	12(%r12), %ebx
	and	16(%r12), %ecx
	and	20(%r12), %edx
	popcnt	%eax, %eax
	popcnt	%ebx, %ebx
	popcnt	%ecx, %ecx
	popcnt	%edx, %edx
	add	%ebx, %eax
	add	%ecx, %eax
	lea	1(%rax, %rdx), %eax
2:	dec	%eax
	jnz	2b
	add	$24, %r12
	lea	end_of_leaves(%rip), %rax
	cmp	%rax, %r12
	jb	1b

	mov	$1000, %ecx
	vpcmpeqd %ymm0, %ymm0, %ymm0
	vpxor	%ymm1, %ymm1, %ymm1
3:	vpaddd	%ymm0, %ymm1, %ymm1
	pdep	%rcx, %rcx, %rax
	lzcnt	%rax, %rax
	add	%eax, %ebx
	dec	%ecx
	jnz	3b
	vmovd	%xmm1, %eax
	andn	%eax, %ebx, %ebx
	and	$0xff, %ebx
4:	dec	%ebx
	jns	4b

	mov	$5000, %ecx
	lea	bytes(%rip), %rdi
	mov	$7, %eax
	rep stosb
	mov	$60, %eax
	xor	%edi, %edi
	syscall

	.section .rodata
leaves:	/* leaf, subleaf, bits of EAX to EDX: feature words that all supported versions of QEMU pass on */
	.long	0x1, 0, 0, 0, ~0, ~0
	.long	0x7, 0, 0, ~0, ~0, 0
	.long	0xd, 1, ~0, 0, 0, 0
	.long	0x80000001, 0, 0, 0, ~0, ~0
end_of_leaves:
	.bss
bytes:	.skip	8192
