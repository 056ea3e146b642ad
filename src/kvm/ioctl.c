// SPDX-License-Identifier: MIT
/*
 * From an ioctl to its handler: refuses files of another process and requests in the middle of
 * KVM_RUN, looks the request up in ioctl.def, tells the VM that its memory may have been written,
 * takes a vCPU's lock, copies the argument, calls, copies back. Any thread.
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
static long unknown(enum kvm_file_kind kind, u32 request)
{
	log_info("ioctl %#x is not known for this kind of descriptor", request);
	switch (kind) {
	case KVM_FILE_SYSTEM:
	case KVM_FILE_VCPU:
		return -EINVAL;
	default:
		return -ENOTTY;
	}
}

/* 0, or why a file serves no request at all. */
static long refusal(const struct kvm_file *file)
{
	if (kvm_readable(file))
		return -ENOTTY;
	if (file->vm && kvm_file_foreign(file))
		return -EIO; /* KVM: a VM belongs to the address space that made it */
	/*
	 * A signal handler called ioctl() in the middle of KVM_RUN (a fault's, or one that could
	 * not be postponed), or left KVM_RUN by siglongjmp(). The vCPU's state is in registers, and
	 * its memory slots are in use.
	 */
	if (file->vm && vcpu_current())
		return -EBUSY;
	return 0;
}

/* A request of a vCPU has its lock. KVM_RUN opens sections as it needs them: vm/run.c. */
static void lock(const struct row *row, const struct kvm_call *call)
{
	if (call->file->kind != KVM_FILE_VCPU)
		return;
	pthread_mutex_lock(&call->vcpu->lock);
	if (row->request != KVM_RUN)
		vcpu_section_begin(call->vcpu);
}

static void unlock(const struct row *row, const struct kvm_call *call)
{
	if (call->file->kind != KVM_FILE_VCPU)
		return;
	if (row->request != KVM_RUN)
		vcpu_section_end(call->vcpu);
	pthread_mutex_unlock(&call->vcpu->lock);
}

/* The argument, as far as the table says that it is a struct: into `buffer`. */
static long copy_in(const struct row *row, struct kvm_call *call, void *buffer)
{
	size_t size = _IOC_SIZE(row->request);

	if (row->copy == COPY_ZERO && call->arg)
		return -EINVAL;
	if (row->copy != COPY_IN && row->copy != COPY_OUT && row->copy != COPY_INOUT)
		return 0;
	call->data = buffer;
	if (row->copy == COPY_OUT)
		memset(buffer, 0, size);
	else if (!guarded_read(buffer, user_ptr(call->arg), size))
		return -EFAULT;
	return 0;
}

/* And back, where the handler succeeded with `result`. */
static long copy_out(const struct row *row, const struct kvm_call *call, long result)
{
	bool out = row->copy == COPY_OUT || row->copy == COPY_INOUT;

	if (result < 0 || !out)
		return result;
	if (!guarded_write(user_ptr(call->arg), call->data, _IOC_SIZE(row->request)))
		return -EFAULT;
	return result;
}

long kvm_ioctl(struct kvm_file *file, u32 request, unsigned long arg, struct kvm_newfd *newfd)
{
	u8 buffer[KVM_ARG_MAX] __attribute__((aligned(64)));
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
	long r = refusal(file);

	*newfd = (struct kvm_newfd){ -1, NULL };
	if (r)
		return r;
	row = find(file->kind, request);
	if (!row)
		return unknown(file->kind, request);
	if (file->vm)
		shared_outside(&file->vm->code); /* the program may have written guest memory */
	lock(row, &call);
	r = copy_in(row, &call, buffer);
	if (!r)
		r = copy_out(row, &call, row->handler(&call));
	unlock(row, &call);
	return r;
}
