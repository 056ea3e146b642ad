/* SPDX-License-Identifier: MIT */
/*
 * What the benchmark measures: four loops of known length, and around them a tiny machine that runs
 * them in long mode. One flat blob, position-independent, so that the very same bytes run natively
 * (called), on vpmu and on QEMU's TCG (booted). A loop gets its iterations in RDI and 64 KB of
 * memory in RSI and may destroy every register but RBX, RBP, RSP and R12 to R15.
 *
 * The blob is loaded at BLOB_ADDRESS, right behind the page tables that image.h makes. Booting is
 * multiboot's way (32-bit, paging off) at `boot`; a hypervisor that loads long-mode state itself
 * starts at `main`, which runs each row of the plan and writes the row's number to COM1 before and
 * 128 plus the number after it.
 */
#ifndef BENCH_LOOPS_H
#define BENCH_LOOPS_H

#include "base/types.h"

#define IMAGE_ADDRESS 0x100000
#define BLOB_OFFSET \
	0x4000 /* behind PML4, PDPT and PD, the first of which the multiboot header precedes */
#define BLOB_ADDRESS  (IMAGE_ADDRESS + BLOB_OFFSET)
#define DATA_ADDRESS  0x200000
#define DATA_SIZE     0x10000
#define STACK_ADDRESS 0x300000
#define MARKER_PORT   0x3f8 /* COM1 */
#define EXIT_PORT     0xf4  /* isa-debug-exit */

#define NLOOPS 4

struct loop {
	const char *name;
	u32 instructions; /* of one iteration */
	u32 iterations;	  /* natively a few tenths of a second */
};

static const struct loop loops[NLOOPS] = {
	{ "integer", 9, 60000000 },
	{ "memory", 8, 60000000 },
	{ "indirect", 11, 20000000 },
	{ "sse", 10, 60000000 },
};

extern const u8 blob_start[], blob_boot[], blob_main[], blob_end[];
extern u8 blob_plan[]; /* NLOOPS iteration counts, 8 bytes each */
extern void loop_integer(u64 iterations, void *data), loop_memory(u64 iterations, void *data);
extern void loop_indirect(u64 iterations, void *data), loop_sse(u64 iterations, void *data);

__asm__(".pushsection .text\n"
	".balign 64\n"
	".globl blob_start, blob_boot, blob_main, blob_plan, blob_end\n"
	".globl loop_integer, loop_memory, loop_indirect, loop_sse\n"
	"blob_start:\n"

	"loop_integer:\n"
	"	mov	$1, %eax\n"
	"	mov	$3, %edx\n"
	"	mov	$5, %r9d\n"
	".balign 16\n"
	"1:	add	%rdx, %rax\n"
	"	xor	%rax, %rdx\n"
	"	lea	1(%rax,%rdx,2), %r8\n"
	"	ror	$7, %r8\n"
	"	sub	%r8, %rdx\n"
	"	imul	%r8, %r9\n"
	"	add	%r9, %rax\n"
	"	dec	%rdi\n"
	"	jnz	1b\n"
	"	ret\n"

	"loop_memory:\n"
	"	xor	%ecx, %ecx\n"
	".balign 16\n"
	"1:	mov	(%rsi,%rcx), %rax\n"
	"	add	64(%rsi,%rcx), %rax\n"
	"	mov	%rax, 8(%rsi,%rcx)\n"
	"	addq	$3, 128(%rsi,%rcx)\n"
	"	add	$192, %ecx\n"
	"	and	$0x7fff, %ecx\n"
	"	dec	%rdi\n"
	"	jnz	1b\n"
	"	ret\n"

	"loop_indirect:\n"
	"	lea	3f(%rip), %r8\n"
	"	mov	$1, %eax\n"
	".balign 16\n"
	"1:	imul	$1103515245, %eax, %eax\n"
	"	add	$12345, %eax\n"
	"	mov	%eax, %ecx\n"
	"	shr	$29, %ecx\n"
	"	movslq	(%r8,%rcx,4), %rcx\n"
	"	add	%r8, %rcx\n"
	"	call	*%rcx\n" /* and two more there */
	"	dec	%rdi\n"
	"	jnz	1b\n"
	"	ret\n"
	".macro target\n"
	"	.balign 16\n"
	"	add	$\\@, %rdx\n"
	"	ret\n"
	".endm\n"
	".balign 16\n"
	"2:\n"
	"	.rept 8\n"
	"	target\n"
	"	.endr\n"
	"	.balign 16\n"
	".purgem target\n"
	"3:	.long	2b - 3b, 2b - 3b + 16, 2b - 3b + 32, 2b - 3b + 48\n"
	"	.long	2b - 3b + 64, 2b - 3b + 80, 2b - 3b + 96, 2b - 3b + 112\n"

	"loop_sse:\n"
	"	xor	%ecx, %ecx\n"
	"	mov	$0x3f800000, %eax\n"
	"	movd	%eax, %xmm1\n"
	"	shufps	$0, %xmm1, %xmm1\n"
	"	movaps	%xmm1, %xmm3\n"
	".balign 16\n"
	"1:	movaps	(%rsi,%rcx), %xmm0\n"
	"	mulps	%xmm1, %xmm0\n"
	"	addps	16(%rsi,%rcx), %xmm0\n"
	"	movaps	%xmm0, 32(%rsi,%rcx)\n"
	"	paddd	%xmm3, %xmm2\n"
	"	pxor	%xmm2, %xmm4\n"
	"	add	$48, %ecx\n"
	"	and	$0x3ff0, %ecx\n"
	"	dec	%rdi\n"
	"	jnz	1b\n"
	"	ret\n"

	/* --- the machine --- */

	".balign 8\n"
	"gdt:	.quad	0, 0x00af9b000000ffff, 0x00cf93000000ffff\n"
	"gdtr:	.word	23\n"
	"	.long	0x104000 + gdt - blob_start\n"

	".code32\n"
	"blob_boot:\n"
	"	cli\n"
	"	mov	$0x101000, %eax\n" /* PML4 */
	"	mov	%eax, %cr3\n"
	"	mov	$0x620, %eax\n" /* PAE, OSFXSR, OSXMMEXCPT */
	"	mov	%eax, %cr4\n"
	"	mov	$0xc0000080, %ecx\n" /* EFER */
	"	rdmsr\n"
	"	or	$0x100, %eax\n" /* LME */
	"	wrmsr\n"
	"	mov	$0x80000013, %eax\n" /* PG, ET, MP, PE */
	"	mov	%eax, %cr0\n"
	"	lgdt	0x104000 + gdtr - blob_start\n"
	"	ljmp	$8, $(0x104000 + 1f - blob_start)\n"
	".code64\n"
	"1:	mov	$16, %eax\n"
	"	mov	%eax, %ss\n"
	"	mov	%eax, %ds\n"
	"	mov	%eax, %es\n"

	"blob_main:\n"
	"	mov	$0x300000, %esp\n" /* STACK_ADDRESS */
	"	xor	%ebx, %ebx\n"
	"	lea	blob_plan(%rip), %r12\n"
	"	lea	entries(%rip), %r13\n"
	"1:	mov	$0x3f8, %edx\n" /* MARKER_PORT */
	"	mov	%ebx, %eax\n"
	"	out	%al, %dx\n"
	"	mov	(%r12,%rbx,8), %rdi\n"
	"	mov	$0x200000, %esi\n" /* DATA_ADDRESS */
	"	movslq	(%r13,%rbx,4), %rax\n"
	"	add	%r13, %rax\n"
	"	call	*%rax\n"
	"	mov	$0x3f8, %edx\n"
	"	lea	128(%rbx), %eax\n"
	"	out	%al, %dx\n"
	"	inc	%ebx\n"
	"	cmp	$4, %ebx\n" /* NLOOPS */
	"	jb	1b\n"
	"	mov	$0xf4, %edx\n" /* EXIT_PORT */
	"	xor	%eax, %eax\n"
	"	out	%al, %dx\n"
	"2:	hlt\n"
	"	jmp	2b\n"
	".balign 4\n"
	"entries: .long	loop_integer - entries, loop_memory - entries\n"
	"	.long	loop_indirect - entries, loop_sse - entries\n"
	".balign 8\n"
	"blob_plan: .quad 0, 0, 0, 0\n"
	"blob_end:\n"
	".popsection\n");

#endif
