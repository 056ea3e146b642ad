/* SPDX-License-Identifier: MIT */
/*
 * A firmware for qemu-system-x86_64 that does nothing but run one loop in 64-bit mode: 64 KB that the machine maps below
 * 1 MB and below 4 GB. It writes 'S' to the debug console before the loop and 'E' behind it. The program that
 * writes the file fills in rom_rounds and copies the loop to rom_loop.
 */
#include "bench/loops.h"

#define ROM(label) (label - rom_start + 0xf0000)
#define PAGES 0x10000 /* page tables: PML4, PDPT, PD */
#define STACK 0x80000
#define MEMORY 0x100000
#define DEBUG_PORT 0x402

	.section .rodata
	.balign 16
	.globl rom_start, rom_rounds, rom_loop, rom_end
	.hidden rom_start, rom_rounds, rom_loop, rom_end
rom_start:

	.code16
rom_real:
	cli
	mov $0xf000, %ax
	mov %ax, %ds
	lgdtl (rom_gdtr - rom_start)
	mov %cr0, %eax
	or $1, %eax
	mov %eax, %cr0
	ljmpl $8, $ROM(rom_protected)

	.code32
rom_protected:
	mov $16, %eax
	mov %eax, %ds
	mov %eax, %es
	mov %eax, %ss
	movl $(PAGES + 0x1003), PAGES
	movl $(PAGES + 0x2003), PAGES + 0x1000
	movl $0x83, PAGES + 0x2000 /* the first 2 MB, one page */
	mov $PAGES, %eax
	mov %eax, %cr3
	mov %cr4, %eax
	or $0x620, %eax /* PAE, OSFXSR, OSXMMEXCPT */
	mov %eax, %cr4
	mov $0xc0000080, %ecx
	rdmsr
	or $0x100, %eax
	wrmsr
	mov %cr0, %eax
	and $~4, %eax /* no EM */
	or $0x80000003, %eax
	mov %eax, %cr0
	ljmpl $24, $ROM(rom_long)

	.code64
rom_long:
	mov $STACK, %esp
	cld
	lea rom_loop(%rip), %rsi /* TCG is slow on code in ROM: run it from memory */
	mov $0x20000, %edi
	mov $(rom_end - rom_loop), %ecx
	rep movsb
	mov $DEBUG_PORT, %edx
	mov $'S', %al
	out %al, %dx
	mov rom_rounds(%rip), %rdi
	mov $MEMORY, %esi
	mov $0x20000, %eax
	call *%rax
	mov $DEBUG_PORT, %edx
	mov $'E', %al
	out %al, %dx
1:	hlt
	jmp 1b

	.balign 8
rom_gdt:
	.quad 0, 0x00cf9b000000ffff, 0x00cf93000000ffff, 0x00af9b000000ffff
rom_gdtr:
	.word 31
	.long ROM(rom_gdt)
	.balign 8
rom_rounds:
	.quad 0
rom_loop:
	.skip 0x400
rom_end:

	.org rom_start + 0xfff0
	.code16
	.byte 0xea /* ljmp $0xf000, $0 */
	.word rom_real - rom_start, 0xf000
	.org rom_start + 0x10000

	.section .note.GNU-stack, "", @progbits
