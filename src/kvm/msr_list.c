// SPDX-License-Identifier: MIT
/*
 * Lists of MSRs: copied in, done one by one until one fails, copied back (KVM: msr_io). Any thread,
 * with the vCPU's lock if there is one.
 */
#include "kvm/msr_list.h"

#include <errno.h>
#include <stdlib.h>

#include "base/guarded.h"

#define MAX_IO_MSRS 256

long kvm_msr_list(struct kvm_call *call,
		  int (*one)(struct vcpu *vcpu, const struct model *model, u32 index, u64 *data),
		  bool write_back)
{
	struct kvm_msrs *user = user_ptr(call->arg), head;
	struct kvm_msr_entry *entries;
	size_t size;
	u32 done = 0;
	long r;

	if (!guarded_read(&head, user, sizeof(head)))
		return -EFAULT;
	if (head.nmsrs >= MAX_IO_MSRS)
		return -E2BIG;
	size = head.nmsrs * sizeof(*entries);
	r = kvm_copy_in(user->entries, size, (void **)&entries);
	if (r)
		return r;
	while (done < head.nmsrs) {
		u64 data = entries[done].data;

		if (one(call->vcpu, call->model, entries[done].index, &data))
			break;
		entries[done++].data = data;
	}
	r = done;
	if (write_back && !guarded_write(user->entries, entries, size))
		r = -EFAULT;
	free(entries);
	return r;
}
