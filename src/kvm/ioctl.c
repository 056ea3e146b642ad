// SPDX-License-Identifier: MIT
/*
 * From an ioctl to its handler: looks the request up in ioctl.def, copies the argument, takes the
 * vCPU's lock, calls. Any thread.
 */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "base/guarded.h"
#include "base/log.h"
#include "kvm/priv.h"

enum copy { COPY_ZERO, COPY_VALUE, COPY_IN, COPY_OUT, COPY_INOUT, COPY_PTR };

struct row {
	u32 request;
	enum copy copy;
	long (*handler)(struct kvm_call *call);
};

#define IOCTL(kind, request, copy, handler)                                  \
	_Static_assert((COPY_##copy != COPY_IN && COPY_##copy != COPY_OUT && \
			COPY_##copy != COPY_INOUT) ||                        \
			       _IOC_SIZE(request) <= KVM_ARG_MAX,            \
		       "fits the buffer");
#include "kvm/ioctl.def"
#undef IOCTL

#define KEY(kind, request) ((u64)(kind) << 32 | (u32)(request))

/* Compilers make a switch a binary search; a request that is there twice does not compile. */
static const struct row *find(enum kvm_file_kind kind, u32 request)
{
	switch (KEY(kind, request)) {
#define IOCTL(kind, request, copy, handler)                                             \
	case KEY(KVM_FILE_##kind, request): {                                           \
		static const struct row row = { (u32)(request), COPY_##copy, handler }; \
		return &row;                                                            \
	}
#include "kvm/ioctl.def"
#undef IOCTL
	default:
		return NULL;
	}
}

/* What KVM says to a request that a file of this kind does not have. */
static long unknown(enum kvm_file_kind kind)
{
	switch (kind) {
	case KVM_FILE_SYSTEM:
	case KVM_FILE_VCPU:
		return -EINVAL;
	default:
		return -ENOTTY;
	}
}

static long call_with_copy(const struct row *row, struct kvm_call *call)
{
	u8 buffer[KVM_ARG_MAX] __attribute__((aligned(64)));
	size_t size = _IOC_SIZE(row->request);
	void *user = user_ptr(call->arg);
	bool in = row->copy == COPY_IN || row->copy == COPY_INOUT;
	bool out = row->copy == COPY_OUT || row->copy == COPY_INOUT;
	long r;

	if (row->copy == COPY_ZERO && call->arg)
		return -EINVAL;
	if (!in && !out)
		return row->handler(call);
	if (in && !guarded_read(buffer, user, size))
		return -EFAULT;
	if (!in)
		memset(buffer, 0, size);
	call->data = buffer;
	r = row->handler(call);
	if (r >= 0 && out && !guarded_write(user, buffer, size))
		return -EFAULT;
	return r;
}

static long call_vcpu(const struct row *row, struct kvm_call *call)
{
	struct vcpu *vcpu = call->vcpu;
	long r;

	pthread_mutex_lock(&vcpu->lock);
	if (row->request == KVM_RUN) {
		r = call_with_copy(row, call);
	} else {
		vcpu_section_begin(vcpu);
		r = call_with_copy(row, call);
		vcpu_section_end(vcpu);
	}
	pthread_mutex_unlock(&vcpu->lock);
	return r;
}

long kvm_ioctl(struct kvm_file *file, u32 request, unsigned long arg, struct kvm_newfd *newfd)
{
	struct kvm_call call = {
		.file = file,
		.model = file->model,
		.vm = file->vm,
		.vcpu = file->vcpu,
		.request = request,
		.arg = arg,
		.newfd = newfd,
	};
	const struct row *row;

	*newfd = (struct kvm_newfd){ -1, NULL };
	if (kvm_readable(file))
		return -ENOTTY;
	if (file->vm && kvm_file_foreign(file))
		return -EIO; /* KVM: a VM belongs to the address space that made it */
	/*
	 * A handler of a fault, or one that the border could not postpone, in the middle of KVM_RUN;
	 * or it has left that by siglongjmp(). The vCPU's state is in registers, and its memory slots
	 * are in use.
	 */
	if (file->vm && vcpu_current())
		return -EBUSY;
	row = find(file->kind, request);
	if (!row) {
		log_info("ioctl %#x is not known for this kind of descriptor", request);
		return unknown(file->kind);
	}
	if (file->vm)
		shared_outside(&file->vm->code); /* the program has had its turn */
	return file->kind == KVM_FILE_VCPU ? call_vcpu(row, &call) : call_with_copy(row, &call);
}
