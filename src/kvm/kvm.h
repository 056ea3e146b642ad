/* SPDX-License-Identifier: MIT */
/*
 * The KVM API as functions: what the border with libc (preload/) needs to know of everything below
 * it.
 *
 * A struct kvm_file is what an open file of the kernel's KVM is: the system (/dev/kvm), a VM, a
 * vCPU or a statistics file. It is reference-counted: the fd table holds references for each
 * descriptor, and every call in flight has one of them, so that a close() in another thread
 * never pulls a file away under an ioctl(). A vCPU's or a statistics file keeps its VM alive, as in
 * the kernel.
 *
 * All functions may be called from any thread. Failures are -errno; errno itself says nothing.
 */
#ifndef KVM_KVM_H
#define KVM_KVM_H

#include <signal.h>

#include "base/types.h"

struct kvm_file;

/* A descriptor that an ioctl made. The fd (a memfd, close-on-exec) is already open; the caller
 * files it. */
struct kvm_newfd {
	int fd;		       /* -1: none was made */
	struct kvm_file *file; /* the caller's reference */
};

/* An open of /dev/kvm; the descriptor itself is the caller's to make. NULL: out of memory, or
 * VPMU_CPU names no model. */
struct kvm_file *kvm_open(void);

/* Takes or gives back n references; with the last one the file goes. */
void kvm_get(struct kvm_file *file, u64 n);
void kvm_put(struct kvm_file *file, u64 n);

/*
 * One ioctl. `request` is the lower 32 bits of what the program passed. Returns what ioctl()
 * returns, or -errno. *newfd is always written. When it holds an fd, the result is that fd; a
 * caller that cannot file it closes both.
 */
long kvm_ioctl(struct kvm_file *file, u32 request, unsigned long arg, struct kvm_newfd *newfd);

/* Statistics files answer read() and pread(); kvm_readable() tells whether this is one. */
bool kvm_readable(const struct kvm_file *file);
long kvm_read(struct kvm_file *file, void *buf, size_t n, u64 offset);

/*
 * For the control socket. The number of the VM that this is the own file of, in order of creation
 * from 1, or 0; what a line of text asks of it (vm/control/control.h); and the end of a session.
 */
u32 kvm_vm_number(const struct kvm_file *file);
size_t kvm_control(struct kvm_file *file, u32 session, char *line, char *out, size_t size);
void kvm_control_end(struct kvm_file *file, u32 session);

/*
 * For the process's SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGTRAP handlers: true if the signal was
 * caused by guest code or by a guarded access to the program's memory, or asks for a sample, and
 * has been dealt with. Async-signal-safe.
 */
bool kvm_signal(int sig, siginfo_t *info, void *ucontext);

/*
 * A signal of the program's own has come to this thread: a KVM_RUN in progress, or the next one,
 * returns -EINTR as soon as it can. And: what came before now does not count. Async-signal-safe.
 */
void kvm_interrupt(void);
void kvm_interrupt_forget(void);

#endif
