/* SPDX-License-Identifier: MIT */
/*
 * Inside kvm/: an open file, and one call on its way from the table (ioctl.def) to its handler.
 * Handlers copy, check what the table cannot, and call vm/; they have no behaviour of their own.
 */
#ifndef KVM_PRIV_H
#define KVM_PRIV_H

#include "kvm/kvm.h"
#include "vm/vm.h"

enum kvm_file_kind {
	KVM_FILE_SYSTEM,
	KVM_FILE_VM,
	KVM_FILE_VCPU,
	KVM_FILE_VM_STATS,
	KVM_FILE_VCPU_STATS
};

struct kvm_file {
	enum kvm_file_kind kind;
	u64 refs;
	u32 process; /* that opened it: see kvm_file_foreign() */
	const struct model *model;
	struct vm *vm;	   /* holds a reference; NULL for the system */
	struct vcpu *vcpu; /* lives as long as its VM */
};

/* The largest fixed-size argument: struct kvm_xsave. */
#define KVM_ARG_MAX 4096

struct kvm_call {
	struct kvm_file *file;
	const struct model *model;
	struct vm *vm;
	struct vcpu *vcpu;
	u32 request;
	unsigned long arg; /* as passed */
	void *data;	   /* the argument's struct, where the table says that it is copied */
	struct kvm_newfd *newfd;
};

/* The program's memory. */
static inline void *user_ptr(u64 address)
{
	return (void *)(uintptr_t)address;
}

/* A copy of n bytes of the program's memory, to be freed. 0, -ENOMEM or -EFAULT. n may be 0. */
int kvm_copy_in(const void *user, size_t n, void **out);

/* file.c: a file of this kind with a reference on the VM (if any), and its descriptor in *newfd.
 * The fd or -errno. */
long kvm_new_file(struct kvm_call *call, enum kvm_file_kind kind, struct vm *vm, struct vcpu *vcpu);
struct kvm_file *kvm_file_alloc(enum kvm_file_kind kind, const struct model *model);
/* Opened before the fork() that made this process. */
bool kvm_file_foreign(const struct kvm_file *file);
int kvm_new_fd(enum kvm_file_kind kind); /* a memfd, or -errno */

#define IOCTL(kind, request, copy, handler) long handler(struct kvm_call *call);
#include "kvm/ioctl.def"
#undef IOCTL

int kvm_capability(const struct vm *vm, unsigned long cap); /* cap.c; vm is NULL on the system fd */

#endif
