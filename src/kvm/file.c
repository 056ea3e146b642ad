// SPDX-License-Identifier: MIT
/*
 * Open files of the KVM API: references, descriptors, what a read() of them gives, and which of
 * them a fork() has left to the parent. The descriptors are memfds, so that the kernel itself
 * serves fstat() and mmap() of the program: a vCPU's holds the pages of its struct kvm_run. What
 * kvm.h has for the control socket and for signals is passed on to vm and engine. Any thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/guarded.h"
#include "base/memfile.h"
#include "engine/engine.h"
#include "kvm/priv.h"
#include "vm/control/control.h"
#include "vm/control/sample.h"
#include "vm/cpuid/cpuid.h"

/* Which process this is, counted in forks: cheaper to ask than getpid(). */
static u32 process;

static void count_fork(void)
{
	process++;
	vcpu_sample_forked();
	vcpu_thread_forked();
}

static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, count_fork);
}

bool kvm_file_foreign(const struct kvm_file *file)
{
	return file->process != process;
}

struct kvm_file *kvm_file_alloc(enum kvm_file_kind kind, const struct model *model)
{
	struct kvm_file *file = calloc(1, sizeof(*file));

	if (!file)
		return NULL;
	file->kind = kind;
	file->refs = 1;
	file->model = model;
	file->process = process;
	return file;
}

struct kvm_file *kvm_open(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const struct model *model = cpuid_model(getenv("VPMU_CPU"));

	pthread_once(&once, watch_forks);
	return model ? kvm_file_alloc(KVM_FILE_SYSTEM, model) : NULL;
}

void kvm_get(struct kvm_file *file, u64 n)
{
	__atomic_add_fetch(&file->refs, n, __ATOMIC_RELAXED);
}

void kvm_put(struct kvm_file *file, u64 n)
{
	if (__atomic_sub_fetch(&file->refs, n, __ATOMIC_ACQ_REL))
		return;
	if (file->vm)
		vm_put(file->vm);
	free(file);
}

static const char *fd_name(enum kvm_file_kind kind)
{
	static const char *const names[] = {
		[KVM_FILE_SYSTEM] = "kvm",
		[KVM_FILE_VM] = "kvm-vm",
		[KVM_FILE_VCPU] = "kvm-vcpu",
		[KVM_FILE_VM_STATS] = "kvm-vm-stats",
		[KVM_FILE_VCPU_STATS] = "kvm-vcpu-stats",
	};

	return names[kind];
}

int kvm_new_fd(enum kvm_file_kind kind)
{
	int fd = memfile_create(fd_name(kind), MFD_CLOEXEC | MFD_ALLOW_SEALING);

	return fd < 0 ? -errno : fd;
}

long kvm_new_file(struct kvm_call *call, enum kvm_file_kind kind, struct vm *vm, struct vcpu *vcpu)
{
	struct kvm_file *file = kvm_file_alloc(kind, call->model);
	int fd;

	if (!file)
		return -ENOMEM;
	fd = kvm_new_fd(kind);
	if (fd < 0) {
		free(file);
		return fd;
	}
	vm_get(vm);
	file->vm = vm;
	file->vcpu = vcpu;
	*call->newfd = (struct kvm_newfd){ fd, file };
	return fd;
}

int kvm_copy_in(const void *user, size_t n, void **out)
{
	void *copy = malloc(n ? n : 1);

	if (!copy)
		return -ENOMEM;
	if (n && !guarded_read(copy, user, n)) {
		free(copy);
		return -EFAULT;
	}
	*out = copy;
	return 0;
}

bool kvm_readable(const struct kvm_file *file)
{
	return file->kind == KVM_FILE_VM_STATS || file->kind == KVM_FILE_VCPU_STATS;
}

long kvm_read(struct kvm_file *file, void *buf, size_t n, u64 offset)
{
	switch (file->kind) {
	case KVM_FILE_VM_STATS:
		return vm_stats_read(file->vm, buf, n, offset);
	case KVM_FILE_VCPU_STATS:
		return vcpu_stats_read(file->vcpu, buf, n, offset);
	default:
		return -EINVAL;
	}
}

u32 kvm_vm_number(const struct kvm_file *file)
{
	return file->kind == KVM_FILE_VM && !kvm_file_foreign(file) ? file->vm->serial : 0;
}

size_t kvm_control(struct kvm_file *file, u32 session, char *line, char *out, size_t size)
{
	return control_do(file->vm, session, line, out, size);
}

void kvm_control_end(struct kvm_file *file, u32 session)
{
	control_end(file->vm, session);
}

bool kvm_signal(int sig, siginfo_t *info, void *ucontext)
{
	return vcpu_sample_signal(sig, info, ucontext) || engine_signal(sig, info, ucontext);
}

void kvm_interrupt(void)
{
	vcpu_interrupt_current();
}

void kvm_interrupt_forget(void)
{
	vcpu_interrupt_forget();
}
