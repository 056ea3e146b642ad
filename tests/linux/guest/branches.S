# SPDX-License-Identifier: MIT
# A loop whose branches are known, for tests/linux/precise: every label is a symbol, and the test has the path. An odd round does
# not take j1.
	.globl _start
	.text
_start:	mov $ROUNDS, %ebp
top:	call leaf			# c1
	lea inner(%rip), %rax
c2:	call *%rax
	test $1, %ebp
j1:	jz even
	nop
even:	jmp hop				# j2
	nop
hop:	lea land(%rip), %rax
j3:	jmp *%rax
	nop
land:	dec %ebp
j4:	jnz top
	mov $60, %eax
	xor %edi, %edi
	syscall
leaf:	nop
ra:	ret
inner:	call leaf			# c3
	nop
rb:	ret
