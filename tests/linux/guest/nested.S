# SPDX-License-Identifier: MIT
# Calls four deep, with all the time spent in the innermost function: for tests/linux/precise.
	.globl _start
	.text
_start:	mov $ROUNDS, %ebp
again:	call one
	dec %ebp
	jnz again
	mov $60, %eax
	xor %edi, %edi
	syscall
one:	call two
	ret
two:	call three
	ret
three:	mov $200, %ecx
spin:	dec %ecx
	jnz spin
	ret
