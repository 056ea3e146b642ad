# SPDX-License-Identifier: MIT
# A loop of ten instructions, of which the fifth takes three cycles by the timing model, that loads from and stores to an array: for
# tests/linux/precise. Every instruction has a label.
	.globl _start, array
	.bss
	.balign 4096
array:	.skip 65536
	.text
_start:	mov $ROUNDS, %ebp
	lea array(%rip), %rbx
	xor %ecx, %ecx
i0:	mov (%rbx,%rcx), %rax
i1:	add $64, %ecx
i2:	and $0xffff, %ecx
i3:	mov %rax, (%rbx,%rcx)
i4:	imul %rax, %rdx
i5:	nop
i6:	nop
i7:	nop
i8:	dec %ebp
i9:	jnz i0
end:	mov $60, %eax
	xor %edi, %edi
	syscall
