# SPDX-License-Identifier: MIT
# A loop with two loads: one of a line that it has just used, and one of a line that no cache but the last has kept. These
# are every other line, each on another page, so that no prefetcher brings one. For tests/linux/precise.
	.globl _start, array
	.bss
	.balign 4096
array:	.skip 8388608
	.text
_start:	lea array(%rip), %rbx
	mov $8388608, %ecx
fill:	sub $4096, %ecx			# until then all pages are the same one
	mov %rcx, (%rbx,%rcx)
	jnz fill
	mov $ROUNDS, %ebp
again:
fast:	mov (%rsp), %rdx
slow:	mov (%rbx,%rcx), %rax
	add $4224, %ecx
	and $0x7fffff, %ecx
	dec %ebp
	jnz again
	mov $60, %eax
	xor %edi, %edi
	syscall
