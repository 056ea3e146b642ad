# SPDX-License-Identifier: MIT
# A loop of ten instructions, of which the fifth takes far longer than the others, that loads from and stores to an array: for
# tests/linux/precise. Every instruction has a label. After 37 rounds three others follow, so that a period that is a multiple of
# the loop's does not find the same instruction each time.
	.globl _start, array
	.bss
	.balign 4096
array:	.skip 65536
	.text
_start:	mov $(ROUNDS / 37), %edi
	lea array(%rip), %rbx
	xor %ecx, %ecx
	xor %edx, %edx
	mov $7, %esi
outer:	mov $37, %ebp
i0:	mov (%rbx,%rcx), %rax
i1:	add $64, %ecx
i2:	and $0xffff, %ecx
i3:	mov %rax, (%rbx,%rcx)
i4:	div %rsi
i5:	nop
i6:	nop
i7:	nop
i8:	dec %ebp
i9:	jnz i0
	dec %edi
	jnz outer
end:	mov $60, %eax
	xor %edi, %edi
	syscall
