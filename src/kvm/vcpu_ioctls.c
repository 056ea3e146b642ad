// SPDX-License-Identifier: MIT
/*
 * ioctls of a vCPU: each copies what ioctl.c has not, checks it and calls vm/. Any thread; the
 * vCPU's lock is held, and but for KVM_RUN a section is open (vm/vm.h).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/guarded.h"
#include "kvm/msr_list.h"
#include "kvm/priv.h"
#include "vm/cpuid/cpuid.h"
#include "vm/irq/apic.h"
#include "vm/irq/irqchip.h"
#include "vm/refused_state.h"

long ioctl_run(struct kvm_call *call)
{
	return vcpu_run(call->vcpu);
}

/* The registers: each a struct in, or a struct out. */
#define GET(name)                                        \
	long ioctl_get_##name(struct kvm_call *call)     \
	{                                                \
		vcpu_get_##name(call->vcpu, call->data); \
		return 0;                                \
	}
#define SET(name)                                               \
	long ioctl_set_##name(struct kvm_call *call)            \
	{                                                       \
		return vcpu_set_##name(call->vcpu, call->data); \
	}

GET(regs)
GET(sregs)
SET(sregs)
GET(sregs2)
SET(sregs2)
GET(fpu)
GET(xsave)
SET(xsave)
GET(xcrs)
SET(xcrs)
GET(debugregs)
SET(debugregs)
SET(mp_state)
SET(guest_debug)

long ioctl_set_regs(struct kvm_call *call)
{
	vcpu_set_regs(call->vcpu, call->data);
	return 0;
}

long ioctl_set_fpu(struct kvm_call *call)
{
	vcpu_set_fpu(call->vcpu, call->data);
	return 0;
}

long ioctl_get_vcpu_events(struct kvm_call *call)
{
	vcpu_get_events(call->vcpu, call->data);
	return 0;
}

long ioctl_set_vcpu_events(struct kvm_call *call)
{
	return vcpu_set_events(call->vcpu, call->data);
}

long ioctl_get_mp_state(struct kvm_call *call)
{
	return vcpu_get_mp_state(call->vcpu, call->data);
}

long ioctl_translate(struct kvm_call *call)
{
	vcpu_translate(call->vcpu, call->data);
	return 0;
}

/* The kernel's signal set is 8 bytes, the first ones of libc's. */
long ioctl_set_signal_mask(struct kvm_call *call)
{
	const struct kvm_signal_mask *user = user_ptr(call->arg);
	struct vcpu *vcpu = call->vcpu;
	struct kvm_signal_mask head;
	u64 kernel_set;

	if (!user) {
		vcpu->sigmask_active = false;
		return 0;
	}
	if (!guarded_read(&head, user, sizeof(head)))
		return -EFAULT;
	if (head.len != sizeof(kernel_set))
		return -EINVAL;
	if (!guarded_read(&kernel_set, user->sigset, sizeof(kernel_set)))
		return -EFAULT;
	sigemptyset(&vcpu->sigmask);
	memcpy(&vcpu->sigmask, &kernel_set, sizeof(kernel_set));
	vcpu->sigmask_active = true;
	return 0;
}

long ioctl_get_vcpu_stats_fd(struct kvm_call *call)
{
	return kvm_new_file(call, KVM_FILE_VCPU_STATS, call->vm, call->vcpu);
}

long ioctl_get_lapic(struct kvm_call *call)
{
	struct vcpu *vcpu = call->vcpu;

	if (!vcpu->has_lapic)
		return -EINVAL;
	lapic_get_state(&vcpu->lapic, apic_now(vcpu), call->data);
	return 0;
}

long ioctl_set_lapic(struct kvm_call *call)
{
	struct vcpu *vcpu = call->vcpu;
	struct kvm_lapic_state state;
	int r;

	if (!vcpu->has_lapic)
		return -EINVAL;
	if (!guarded_read(&state, user_ptr(call->arg), sizeof(state)))
		return -EFAULT;
	r = lapic_set_state(&vcpu->lapic, apic_now(vcpu), &state);
	if (!r)
		rtc_eoi_restore(vcpu);
	return r;
}

/* The page through which 32-bit Windows patched by its hypervisor sees the TPR: accepted, never
 * needed. */
long ioctl_set_vapic_addr(struct kvm_call *call)
{
	struct kvm_vapic_addr va;

	if (!call->vcpu->has_lapic)
		return -EINVAL;
	return guarded_read(&va, user_ptr(call->arg), sizeof(va)) ? 0 : -EFAULT;
}

long ioctl_tpr_access_reporting(struct kvm_call *call)
{
	const struct kvm_tpr_access_ctl *tac = call->data;

	return tac->flags ? -EINVAL : 0;
}

long ioctl_interrupt(struct kvm_call *call)
{
	const struct kvm_interrupt *irq = call->data;

	return vcpu_interrupt(call->vcpu, irq->irq);
}

long ioctl_nmi(struct kvm_call *call)
{
	vcpu_nmi(call->vcpu);
	return 0;
}

long ioctl_smi(struct kvm_call *call)
{
	(void)call;
	return -ENOTTY; /* KVM built without SMM */
}

long ioctl_set_cpuid2(struct kvm_call *call)
{
	const struct kvm_cpuid2 *user = user_ptr(call->arg);
	struct kvm_cpuid2 head;
	void *entries;
	long r;

	if (!guarded_read(&head, user, sizeof(head)))
		return -EFAULT;
	if (head.nent > CPUID_MAX_ENTRIES)
		return -E2BIG;
	r = kvm_copy_in(user->entries, head.nent * sizeof(user->entries[0]), &entries);
	return r ? r : vcpu_set_cpuid(call->vcpu, entries, head.nent);
}

/* The older form has no subleaves. */
long ioctl_set_cpuid(struct kvm_call *call)
{
	const struct kvm_cpuid *user = user_ptr(call->arg);
	struct kvm_cpuid_entry2 *entries;
	struct kvm_cpuid_entry *old;
	struct kvm_cpuid head;
	long r;

	if (!guarded_read(&head, user, sizeof(head)))
		return -EFAULT;
	if (head.nent > CPUID_MAX_ENTRIES)
		return -E2BIG;
	r = kvm_copy_in(user->entries, head.nent * sizeof(*old), (void **)&old);
	if (r)
		return r;
	entries = calloc(head.nent + 1, sizeof(*entries));
	for (u32 i = 0; entries && i < head.nent; i++) {
		entries[i].function = old[i].function;
		entries[i].eax = old[i].eax;
		entries[i].ebx = old[i].ebx;
		entries[i].ecx = old[i].ecx;
		entries[i].edx = old[i].edx;
	}
	free(old);
	return entries ? vcpu_set_cpuid(call->vcpu, entries, head.nent) : -ENOMEM;
}

long ioctl_get_cpuid2(struct kvm_call *call)
{
	struct kvm_cpuid2 *user = user_ptr(call->arg), head;
	struct vcpu *vcpu = call->vcpu;

	if (!guarded_read(&head, user, sizeof(head)))
		return -EFAULT;
	if (head.nent < vcpu->ncpuid)
		return -E2BIG;
	cpuid_refresh(vcpu);
	head.nent = vcpu->ncpuid;
	if (!guarded_write(user->entries, vcpu->cpuid, vcpu->ncpuid * sizeof(vcpu->cpuid[0])) ||
	    !guarded_write(user, &head, sizeof(head)))
		return -EFAULT;
	return 0;
}

static int get_msr(struct vcpu *vcpu, const struct model *model, u32 index, u64 *data)
{
	(void)model;
	return msr_read(vcpu, index, true, data) == MSR_OK ? 0 : -EINVAL;
}

static int set_msr(struct vcpu *vcpu, const struct model *model, u32 index, u64 *data)
{
	char name[16];

	(void)model;
	if (msr_write(vcpu, index, true, *data) == MSR_OK)
		return 0;
	snprintf(name, sizeof(name), "MSR %#x", index);
	return vcpu_refuse(vcpu, name, *data);
}

long ioctl_get_msrs(struct kvm_call *call)
{
	return kvm_msr_list(call, get_msr, true);
}

long ioctl_set_msrs(struct kvm_call *call)
{
	return kvm_msr_list(call, set_msr, false);
}

long ioctl_setup_mce(struct kvm_call *call)
{
	return msr_setup_mce(call->vcpu, *(const u64 *)call->data);
}

long ioctl_set_mce(struct kvm_call *call)
{
	return msr_inject_mce(call->vcpu, call->data);
}

long ioctl_get_tsc_khz(struct kvm_call *call)
{
	return call->vcpu->clock.khz;
}

long ioctl_set_tsc_khz(struct kvm_call *call)
{
	return vcpu_clock_set_khz(call->vcpu, call->arg);
}

long ioctl_kvmclock_ctrl(struct kvm_call *call)
{
	return vcpu_clock_guest_stopped(call->vcpu);
}

long ioctl_enable_vcpu_cap(struct kvm_call *call)
{
	return vcpu_enable_cap(call->vcpu, call->data);
}

/* The one attribute of a vCPU: its TSC offset. */
long ioctl_has_vcpu_attr(struct kvm_call *call)
{
	const struct kvm_device_attr *attr = call->data;

	return attr->group == KVM_VCPU_TSC_CTRL && attr->attr == KVM_VCPU_TSC_OFFSET ? 0 : -ENXIO;
}

long ioctl_get_vcpu_attr(struct kvm_call *call)
{
	const struct kvm_device_attr *attr = call->data;
	u64 offset = vcpu_tsc_offset(call->vcpu);
	long r = ioctl_has_vcpu_attr(call);

	if (r)
		return r;
	return guarded_write(user_ptr(attr->addr), &offset, sizeof(offset)) ? 0 : -EFAULT;
}

long ioctl_set_vcpu_attr(struct kvm_call *call)
{
	const struct kvm_device_attr *attr = call->data;
	long r = ioctl_has_vcpu_attr(call);
	u64 offset;

	if (r)
		return r;
	if (!guarded_read(&offset, user_ptr(attr->addr), sizeof(offset)))
		return -EFAULT;
	vcpu_tsc_offset_write(call->vcpu, offset);
	return 0;
}
