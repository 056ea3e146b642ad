// SPDX-License-Identifier: MIT
/*
 * KVM_ENABLE_CAP on a VM and on a vCPU: a row names a capability and the function that checks its
 * argument and changes vm->set, with vm->lock held. kvm/cap.def tells the program which there are.
 * Any thread.
 */
#include <errno.h>

#include "vm/irq/irqchip.h"
#include "vm/pmu/config.h"
#include "vm/vm.h"

static int disable_quirks(struct vm *vm, u64 arg)
{
	vm->set.disabled_quirks = arg & VM_QUIRKS; /* KVM 6.12: not in addition to earlier ones */
	return 0;
}

static int disable_quirks2(struct vm *vm, u64 arg)
{
	return arg & ~(u64)VM_QUIRKS ? -EINVAL : disable_quirks(vm, arg);
}

static int split_irqchip(struct vm *vm, u64 pins)
{
	if (pins > VM_MAX_ROUTES)
		return -EINVAL;
	if (vm_has_lapic(vm) || vm->created_vcpus)
		return -EEXIST;
	vm->set.reserved_ioapic_pins = pins;
	return irqchip_create(vm, true);
}

static int x2apic_api(struct vm *vm, u64 flags)
{
	if (flags & ~(u64)(KVM_X2APIC_API_USE_32BIT_IDS | KVM_X2APIC_API_DISABLE_BROADCAST_QUIRK))
		return -EINVAL;
	vm->set.x2apic_api |= flags;
	for (u32 i = 0; i < vm->nvcpus; i++) {
		vm->vcpus[i]->lapic.ids32 = vm->set.x2apic_api & KVM_X2APIC_API_USE_32BIT_IDS;
		vm->vcpus[i]->lapic.strict_broadcast =
			vm->set.x2apic_api & KVM_X2APIC_API_DISABLE_BROADCAST_QUIRK;
	}
	return 0;
}

static int disable_exits(struct vm *vm, u64 exits)
{
	u64 known = KVM_X86_DISABLE_EXITS_MWAIT | KVM_X86_DISABLE_EXITS_HLT |
		    KVM_X86_DISABLE_EXITS_PAUSE | KVM_X86_DISABLE_EXITS_CSTATE;

	if (exits & ~known)
		return -EINVAL;
	vm->set.disabled_exits |= exits;
	return 0;
}

static int platform_info(struct vm *vm, u64 readable)
{
	vm->set.platform_info_hidden = !readable;
	return 0;
}

static int exception_payload(struct vm *vm, u64 on)
{
	vm->set.exception_payload = on;
	return 0;
}

static int triple_fault_event(struct vm *vm, u64 on)
{
	vm->set.triple_fault_event = on;
	return 0;
}

static int user_space_msr(struct vm *vm, u64 reasons)
{
	u64 known = KVM_MSR_EXIT_REASON_INVAL | KVM_MSR_EXIT_REASON_UNKNOWN |
		    KVM_MSR_EXIT_REASON_FILTER;

	if (reasons & ~known)
		return -EINVAL;
	vm->set.user_msr_exits = reasons;
	return 0;
}

static int exit_hypercall(struct vm *vm, u64 calls)
{
	if (calls & ~BIT(12)) /* KVM_HC_MAP_GPA_RANGE is the only one that may exit */
		return -EINVAL;
	vm->set.hypercall_exits = calls;
	return 0;
}

static int exit_on_emulation_failure(struct vm *vm, u64 on)
{
	if (on & ~1ull)
		return -EINVAL;
	vm->set.exit_on_emulation_error = on;
	return 0;
}

static int max_vcpu_id(struct vm *vm, u64 ids)
{
	if (ids > VM_MAX_VCPU_IDS || vm->set.bsp_id > ids)
		return -EINVAL;
	if (vm->set.max_vcpu_ids && vm->set.max_vcpu_ids != ids)
		return -EINVAL;
	vm->set.max_vcpu_ids = ids;
	return 0;
}

static int apic_bus_cycles(struct vm *vm, u64 ns)
{
	u64 product;

	/* The longest timer period must fit 64 bits: a 32-bit count, divided by 128. */
	if (!ns || __builtin_mul_overflow(0xffffffffull * 128, ns, &product))
		return -EINVAL;
	if (!vm_has_lapic(vm))
		return -ENXIO;
	if (vm->created_vcpus)
		return -EINVAL;
	vm->set.apic_bus_cycle_ns = ns;
	return 0;
}

static int manual_dirty_log(struct vm *vm, u64 options)
{
	u64 allowed = KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE;

	if (options & KVM_DIRTY_LOG_MANUAL_PROTECT_ENABLE)
		allowed |= KVM_DIRTY_LOG_INITIALLY_SET;
	if (options & ~allowed)
		return -EINVAL;
	vm->set.manual_dirty_log = options;
	return 0;
}

/* KVM: for vCPUs to come only, and not where there is no PMU (enable_pmu=0). */
static int pmu_capability(struct vm *vm, u64 flags)
{
	if (pmu_config_off() || (flags & ~(u64)KVM_PMU_CAP_DISABLE) || vm->created_vcpus)
		return -EINVAL;
	vm->set.pmu_disabled = flags & KVM_PMU_CAP_DISABLE;
	return 0;
}

static int halt_poll(struct vm *vm, u64 ns)
{
	if (ns >> 32)
		return -EINVAL;
	vm->set.halt_poll_ns = ns;
	return 0;
}

static const struct {
	u32 cap;
	int (*enable)(struct vm *vm, u64 arg); /* with vm->lock held */
} rows[] = {
	{ KVM_CAP_DISABLE_QUIRKS, disable_quirks },
	{ KVM_CAP_DISABLE_QUIRKS2, disable_quirks2 },
	{ KVM_CAP_SPLIT_IRQCHIP, split_irqchip },
	{ KVM_CAP_X2APIC_API, x2apic_api },
	{ KVM_CAP_X86_DISABLE_EXITS, disable_exits },
	{ KVM_CAP_MSR_PLATFORM_INFO, platform_info },
	{ KVM_CAP_EXCEPTION_PAYLOAD, exception_payload },
	{ KVM_CAP_X86_TRIPLE_FAULT_EVENT, triple_fault_event },
	{ KVM_CAP_X86_USER_SPACE_MSR, user_space_msr },
	{ KVM_CAP_EXIT_HYPERCALL, exit_hypercall },
	{ KVM_CAP_EXIT_ON_EMULATION_FAILURE, exit_on_emulation_failure },
	{ KVM_CAP_MAX_VCPU_ID, max_vcpu_id },
	{ KVM_CAP_X86_APIC_BUS_CYCLES_NS, apic_bus_cycles },
	{ KVM_CAP_MANUAL_DIRTY_LOG_PROTECT2, manual_dirty_log },
	{ KVM_CAP_PMU_CAPABILITY, pmu_capability },
	{ KVM_CAP_HALT_POLL, halt_poll },
};

int vm_enable_cap(struct vm *vm, const struct kvm_enable_cap *cap)
{
	int r = -EINVAL;

	if (cap->flags)
		return -EINVAL;
	pthread_mutex_lock(&vm->lock);
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++)
		if (rows[i].cap == cap->cap)
			r = rows[i].enable(vm, cap->args[0]);
	pthread_mutex_unlock(&vm->lock);
	return r;
}

int vcpu_enable_cap(struct vcpu *vcpu, const struct kvm_enable_cap *cap)
{
	if (cap->flags || cap->cap != KVM_CAP_ENFORCE_PV_FEATURE_CPUID)
		return -EINVAL;
	vcpu->enforce_pv_cpuid = cap->args[0];
	return 0;
}
