// SPDX-License-Identifier: MIT
/*
 * ioctls of /dev/kvm itself: versions, lists, feature MSRs, and KVM_CREATE_VM, which gives a VM the
 * settings of the environment (VPMU_*). No lock is held. Any thread.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/guarded.h"
#include "kvm/msr_list.h"
#include "kvm/priv.h"
#include "vm/cpuid/cpuid.h"
#include "vm/pmu/config.h"
#include "vm/pmu/shadow.h"
#include "vm/kept.h"
#include "vm/profile.h"
#include "vm/time/trace.h"

long ioctl_get_api_version(struct kvm_call *call)
{
	(void)call;
	return KVM_API_VERSION;
}

long ioctl_get_vcpu_mmap_size(struct kvm_call *call)
{
	(void)call;
	return VCPU_MMAP_SIZE;
}

long ioctl_check_extension(struct kvm_call *call)
{
	return kvm_capability(NULL, call->arg);
}

long ioctl_create_vm(struct kvm_call *call)
{
	struct vm *vm;
	long r;

	if (call->arg != KVM_X86_DEFAULT_VM)
		return -EINVAL;
	vm = vm_create(call->model);
	if (!vm)
		return -ENOMEM;
	vm->set.strict_cpuid = getenv("VPMU_STRICT_CPUID");
	vm->set.harden = getenv("VPMU_HARDEN");
	vm->set.seeded = getenv("VPMU_SEED");
	vm->set.seed = strtoull(getenv("VPMU_SEED") ?: "0", NULL, 0);
	/* In this order: virtual time overrides accounting, and what follows asks for it. */
	pmu_config_environment(vm);
	vm_time_environment(vm);
	outside_environment(vm);
	written_environment(vm);
	profile_environment(vm);
	kept_environment(vm);
	shadow_environment(vm);
	trace_environment(vm);
	r = kvm_new_file(call, KVM_FILE_VM, vm, NULL);
	vm_put(vm); /* the file has its own reference */
	return r;
}

/* A list whose length the program guesses: if the guess is too small, E2BIG and the
 * right length. */
static long msr_index_list(struct kvm_call *call,
			   u32 (*list)(const struct model *model, u32 *out, u32 max))
{
	struct kvm_msr_list *user = user_ptr(call->arg);
	u32 indices[1024], n = list(call->model, indices, ARRAY_SIZE(indices)), room;

	if (!guarded_read(&room, &user->nmsrs, sizeof(room)) ||
	    !guarded_write(&user->nmsrs, &n, sizeof(n)))
		return -EFAULT;
	if (room < n)
		return -E2BIG;
	return guarded_write(user->indices, indices, n * sizeof(u32)) ? 0 : -EFAULT;
}

long ioctl_get_msr_index_list(struct kvm_call *call)
{
	return msr_index_list(call, msr_list);
}

long ioctl_get_msr_feature_index_list(struct kvm_call *call)
{
	return msr_index_list(call, msr_feature_list);
}

static int feature_msr(struct vcpu *vcpu, const struct model *model, u32 index, u64 *data)
{
	(void)vcpu;
	return msr_feature_read(model, index, data) == MSR_OK ? 0 : -EINVAL;
}

long ioctl_get_feature_msrs(struct kvm_call *call)
{
	return kvm_msr_list(call, feature_msr, true);
}

/* KVM: only KVM_GET_EMULATED_CPUID insists on clean padding. */
static bool padding_clean(const struct kvm_cpuid_entry2 *user, u32 n)
{
	for (u32 i = 0; i < n; i++) {
		u32 pad[3];

		if (!guarded_read(pad, user[i].padding, sizeof(pad)) || pad[0] | pad[1] | pad[2])
			return false;
	}
	return true;
}

static long get_cpuid(struct kvm_call *call,
		      u32 (*list)(const struct model *model, struct kvm_cpuid_entry2 *out, u32 max))
{
	struct kvm_cpuid_entry2 entries[CPUID_MAX_ENTRIES];
	struct kvm_cpuid2 *user = user_ptr(call->arg), head;
	u32 n;

	if (!guarded_read(&head, user, sizeof(head)))
		return -EFAULT;
	if (!head.nent)
		return -E2BIG;
	if (head.nent > CPUID_MAX_ENTRIES)
		head.nent = CPUID_MAX_ENTRIES;
	if (call->request == KVM_GET_EMULATED_CPUID && !padding_clean(user->entries, head.nent))
		return -EINVAL;
	memset(entries, 0, sizeof(entries));
	n = list(call->model, entries, CPUID_MAX_ENTRIES);
	if (n > head.nent)
		return -E2BIG;
	head.nent = n;
	if (!guarded_write(user->entries, entries, n * sizeof(entries[0])) ||
	    !guarded_write(user, &head, sizeof(head)))
		return -EFAULT;
	return 0;
}

static u32 supported(const struct model *model, struct kvm_cpuid_entry2 *out, u32 max)
{
	u32 n = cpuid_supported(model, out, max);

	if (pmu_config_off())
		pmu_config_hide(out, n < max ? n : max);
	return n;
}

long ioctl_get_supported_cpuid(struct kvm_call *call)
{
	return get_cpuid(call, supported);
}

long ioctl_get_emulated_cpuid(struct kvm_call *call)
{
	return get_cpuid(call, cpuid_emulated);
}

long ioctl_get_mce_cap(struct kvm_call *call)
{
	*(u64 *)call->data = msr_mce_supported(call->model->is_amd);
	return 0;
}

long ioctl_has_system_attr(struct kvm_call *call)
{
	const struct kvm_device_attr *attr = call->data;

	return attr->group == 0 && attr->attr == KVM_X86_XCOMP_GUEST_SUPP ? 0 : -ENXIO;
}

long ioctl_get_system_attr(struct kvm_call *call)
{
	const struct kvm_device_attr *attr = call->data;
	u64 value = cpuid_xcr0_offered(call->model);
	long r = ioctl_has_system_attr(call);

	if (r)
		return r;
	return guarded_write(user_ptr(attr->addr), &value, sizeof(value)) ? 0 : -EFAULT;
}
