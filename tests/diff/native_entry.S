/* SPDX-License-Identifier: MIT */
/*
 * Into the sandbox and back on the native CPU. The way in is a return from a signal that never came: the
 * kernel loads every register from a frame that native.c has filled in. The way out is the signal that the
 * terminator or a fault raises.
 */
	.text

/* native_enter(frame, fs_base, gs_base, selectors): returns when a signal has been captured. */
	.globl native_enter
	.hidden native_enter
	.type native_enter, @function
native_enter:
	push	%rbx
	push	%rbp
	push	%r12
	push	%r13
	push	%r14
	push	%r15
	mov	%rsp, native_host_rsp(%rip)
	mov	6(%rcx), %ds
	mov	0(%rcx), %es
	rdfsbase %rax
	mov	%rax, native_host_fs(%rip)
	movb	$1, native_active(%rip)
	mov	8(%rcx), %fs
	mov	10(%rcx), %gs
	wrfsbase %rsi
	wrgsbase %rdx
	mov	%rdi, %rsp
	mov	$15, %eax	/* rt_sigreturn */
	syscall
	ud2
	.size native_enter, . - native_enter

/* The signal handler. Nothing of the guest's may leak into C or the next run: flags, the FS base and its selector. */
	.globl program_cpuid_signal
	.hidden program_cpuid_signal
	.type program_cpuid_signal, @function
program_cpuid_signal:
	pushfq
	andl	$~0x244000, (%rsp)	/* AC, ID, NT */
	popfq
	cmpb	$0, native_active(%rip)
	je	native_foreign_signal
	movb	$0, native_active(%rip)
	rdfsbase %rax
	mov	%rax, native_fs_base(%rip)
	rdgsbase %rax
	mov	%rax, native_gs_base(%rip)
	mov	%es, %eax
	mov	%ax, native_sel+0(%rip)
	mov	%ds, %eax
	mov	%ax, native_sel+6(%rip)
	mov	%gs, %eax
	mov	%ax, native_sel+10(%rip)
	mov	%fs, %eax
	mov	%ax, native_sel+8(%rip)
	xor	%eax, %eax
	mov	%eax, %fs
	mov	%eax, %gs
	mov	native_host_fs(%rip), %rax
	wrfsbase %rax
	sub	$8, %rsp
	call	native_capture
	mov	native_host_rsp(%rip), %rsp
	pop	%r15
	pop	%r14
	pop	%r13
	pop	%r12
	pop	%rbp
	pop	%rbx
	ret
	.size program_cpuid_signal, . - program_cpuid_signal

	.bss
	.balign	8
native_host_rsp:
	.zero	8
native_host_fs:
	.zero	8
	.globl	native_fs_base, native_gs_base, native_sel, native_active
	.hidden	native_fs_base, native_gs_base, native_sel, native_active
native_fs_base:
	.zero	8
native_gs_base:
	.zero	8
native_sel:		/* in the order of enum seg */
	.zero	16
native_active:
	.zero	1

	.section .note.GNU-stack, "", @progbits
