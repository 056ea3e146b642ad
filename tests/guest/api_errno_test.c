// SPDX-License-Identifier: MIT
/*
 * The errno that KVM gives for arguments it refuses: a row each, read off Linux 6.12's
 * virt/kvm/kvm_main.c and arch/x86/kvm. Run by `vpmu kvm`.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <cmocka.h>

#include "guest/kvm_guest.h"

#define USER_SLOTS 32764
#define SLOT_LIMIT 32767

enum kind { SYSTEM, VM, VCPU, NKINDS };

struct row {
	const char *what;
	enum kind kind;
	u32 request;
	int expected; /* errno */
	void *arg;
};

#define ARG(type, ...) (&(type){ __VA_ARGS__ })
#define NUMBER(n)      ((void *)(long)(n))
#define REGION(...)    ARG(struct kvm_userspace_memory_region, __VA_ARGS__)

/* Slot 0 is the guest's memory, 4 MB at 0. */
static const struct row rows[] = {
	{ "an argument where there is none", SYSTEM, KVM_GET_API_VERSION, EINVAL, NUMBER(1) },
	{ "an argument where there is none", SYSTEM, KVM_GET_VCPU_MMAP_SIZE, EINVAL, NUMBER(1) },
	{ "a type of VM that does not exist", SYSTEM, KVM_CREATE_VM, EINVAL, NUMBER(99) },
	{ "a list without room", SYSTEM, KVM_GET_MSR_INDEX_LIST, E2BIG,
	  ARG(struct kvm_msr_list, 0) },
	{ "a list without room", SYSTEM, KVM_GET_MSR_FEATURE_INDEX_LIST, E2BIG,
	  ARG(struct kvm_msr_list, 0) },
	{ "a list without room", SYSTEM, KVM_GET_SUPPORTED_CPUID, E2BIG,
	  ARG(struct kvm_cpuid2, 0) },
	{ "too many MSRs", SYSTEM, KVM_GET_MSRS, E2BIG, ARG(struct kvm_msrs, .nmsrs = 256) },
	{ "a VM's request", SYSTEM, KVM_CREATE_IRQCHIP, EINVAL, NULL },
	{ "a vCPU's request", SYSTEM, KVM_RUN, EINVAL, NULL },
	{ "nobody's request", SYSTEM, _IO(KVMIO, 0xff), EINVAL, NULL },

	{ "part of a page", VM, KVM_SET_USER_MEMORY_REGION, EINVAL,
	  REGION(.slot = 1, .memory_size = 100) },
	{ "an address within a page", VM, KVM_SET_USER_MEMORY_REGION, EINVAL,
	  REGION(.slot = 1, .guest_phys_addr = 0x40000100, .memory_size = 4096) },
	{ "memory within a page", VM, KVM_SET_USER_MEMORY_REGION, EINVAL,
	  REGION(.slot = 1, .guest_phys_addr = 0x40000000, .memory_size = 4096,
		 .userspace_addr = 0x1001) },
	{ "memory above user space", VM, KVM_SET_USER_MEMORY_REGION, EINVAL,
	  REGION(.slot = 1, .guest_phys_addr = 0x40000000, .memory_size = 4096,
		 .userspace_addr = 0xffff800000000000) },
	{ "an unknown flag", VM, KVM_SET_USER_MEMORY_REGION, EINVAL,
	  REGION(.slot = 1, .flags = 0x80, .memory_size = 4096) },
	{ "a slot number beyond all", VM, KVM_SET_USER_MEMORY_REGION, EINVAL,
	  REGION(.slot = SLOT_LIMIT, .guest_phys_addr = 0x40000000, .memory_size = 4096) },
	{ "an address space beyond all", VM, KVM_SET_USER_MEMORY_REGION, EINVAL,
	  REGION(.slot = 7 << 16, .guest_phys_addr = 0x40000000, .memory_size = 4096) },
	{ "a region that wraps", VM, KVM_SET_USER_MEMORY_REGION, EINVAL,
	  REGION(.slot = 1, .guest_phys_addr = 0xfffffffffffff000, .memory_size = 8192) },
	{ "a region beyond 52 bits", VM, KVM_SET_USER_MEMORY_REGION, EINVAL,
	  REGION(.slot = 1, .guest_phys_addr = 0xffffffffff000, .memory_size = 8192,
		 .userspace_addr = 0x10000) },
	{ "a region in another's place", VM, KVM_SET_USER_MEMORY_REGION, EEXIST,
	  REGION(.slot = 1, .guest_phys_addr = 0x1000, .memory_size = 4096,
		 .userspace_addr = 0x10000) },
	{ "another size for a slot", VM, KVM_SET_USER_MEMORY_REGION, EINVAL,
	  REGION(.slot = 0, .memory_size = 4096, .userspace_addr = 0x10000) },
	{ "deletion of a slot that is not there", VM, KVM_SET_USER_MEMORY_REGION, EINVAL,
	  REGION(.slot = 5) },
	{ "the log of a slot without one", VM, KVM_GET_DIRTY_LOG, ENOENT,
	  ARG(struct kvm_dirty_log, .slot = 0) },
	{ "the log of a slot that is not there", VM, KVM_GET_DIRTY_LOG, ENOENT,
	  ARG(struct kvm_dirty_log, .slot = 3) },
	{ "the log of a slot beyond all", VM, KVM_GET_DIRTY_LOG, EINVAL,
	  ARG(struct kvm_dirty_log, .slot = USER_SLOTS) },
	{ "a vCPU twice", VM, KVM_CREATE_VCPU, EEXIST, NUMBER(0) },
	{ "a vCPU beyond all", VM, KVM_CREATE_VCPU, EINVAL, NUMBER(1 << 20) },
	{ "an irqchip behind the vCPU", VM, KVM_CREATE_IRQCHIP, EINVAL, NULL },
	{ "a timer without an irqchip", VM, KVM_CREATE_PIT2, ENOENT,
	  ARG(struct kvm_pit_config, 0) },
	{ "state of no irqchip", VM, KVM_GET_IRQCHIP, ENXIO, ARG(struct kvm_irqchip, 0) },
	{ "a line of no irqchip", VM, KVM_IRQ_LINE, ENXIO, ARG(struct kvm_irq_level, .level = 0) },
	{ "state of no timer", VM, KVM_GET_PIT2, ENXIO, ARG(struct kvm_pit_state2, .flags = 0) },
	{ "a TSS at the end of memory", VM, KVM_SET_TSS_ADDR, EINVAL, NUMBER(0xfffffffffffff000) },
	{ "an unknown capability", VM, KVM_ENABLE_CAP, EINVAL,
	  ARG(struct kvm_enable_cap, .cap = 9999) },
	{ "a capability's unknown flag", VM, KVM_ENABLE_CAP, EINVAL,
	  ARG(struct kvm_enable_cap, .cap = KVM_CAP_DISABLE_QUIRKS2, .flags = 1) },
	{ "too many routes", VM, KVM_SET_GSI_ROUTING, EINVAL,
	  ARG(struct kvm_irq_routing, .nr = 5000) },
	{ "routes with a flag", VM, KVM_SET_GSI_ROUTING, EINVAL,
	  ARG(struct kvm_irq_routing, .flags = 1) },
	{ "a clock with an unknown flag", VM, KVM_SET_CLOCK, EINVAL,
	  ARG(struct kvm_clock_data, .flags = 0x80) },
	{ "a filter with an unknown flag", VM, KVM_X86_SET_MSR_FILTER, EINVAL,
	  ARG(struct kvm_msr_filter, .flags = 0x80) },
	{ "a filter that denies everything", VM, KVM_X86_SET_MSR_FILTER, EINVAL,
	  ARG(struct kvm_msr_filter, .flags = KVM_MSR_FILTER_DEFAULT_DENY) },
	{ "an event of three bytes", VM, KVM_IOEVENTFD, EINVAL,
	  ARG(struct kvm_ioeventfd, .len = 3, .fd = -1) },
	{ "the system's request", VM, KVM_CREATE_VM, ENOTTY, NULL },
	{ "a vCPU's request", VM, KVM_RUN, ENOTTY, NULL },
	{ "nobody's request", VM, _IO(KVMIO, 0xff), ENOTTY, NULL },

	{ "an argument where there is none", VCPU, KVM_RUN, EINVAL, NUMBER(1) },
	{ "too many entries", VCPU, KVM_SET_CPUID2, E2BIG, ARG(struct kvm_cpuid2, .nent = 257) },
	{ "a list without room", VCPU, KVM_GET_CPUID2, E2BIG, ARG(struct kvm_cpuid2, .nent = 0) },
	{ "too many MSRs", VCPU, KVM_GET_MSRS, E2BIG, ARG(struct kvm_msrs, .nmsrs = 256) },
	{ "too many MSRs", VCPU, KVM_SET_MSRS, E2BIG, ARG(struct kvm_msrs, .nmsrs = 256) },
	{ "a mask of another size", VCPU, KVM_SET_SIGNAL_MASK, EINVAL,
	  ARG(struct kvm_signal_mask, .len = 7) },
	{ "an unknown state", VCPU, KVM_SET_MP_STATE, EINVAL, ARG(struct kvm_mp_state, 99) },
	{ "debug registers with a flag", VCPU, KVM_SET_DEBUGREGS, EINVAL,
	  ARG(struct kvm_debugregs, .flags = 1) },
	{ "debug registers beyond 32 bits", VCPU, KVM_SET_DEBUGREGS, EINVAL,
	  ARG(struct kvm_debugregs, .dr6 = 1ull << 40) },
	{ "too many XCRs", VCPU, KVM_SET_XCRS, EINVAL, ARG(struct kvm_xcrs, .nr_xcrs = 17) },
	{ "XCRs with a flag", VCPU, KVM_SET_XCRS, EINVAL, ARG(struct kvm_xcrs, .flags = 1) },
	{ "an XCR0 without x87", VCPU, KVM_SET_XCRS, EINVAL,
	  ARG(struct kvm_xcrs, .nr_xcrs = 1, .xcrs = { { .value = 2 } }) },
	{ "events with an unknown flag", VCPU, KVM_SET_VCPU_EVENTS, EINVAL,
	  ARG(struct kvm_vcpu_events, .flags = 0x8000) },
	{ "an exception beyond 31", VCPU, KVM_SET_VCPU_EVENTS, EINVAL,
	  ARG(struct kvm_vcpu_events, .exception = { .injected = 1, .nr = 32 }) },
	{ "a vector beyond 255", VCPU, KVM_INTERRUPT, EINVAL, ARG(struct kvm_interrupt, 256) },
	{ "state of no local APIC", VCPU, KVM_GET_LAPIC, EINVAL,
	  ARG(struct kvm_lapic_state, { 0 }) },
	{ "state of no local APIC", VCPU, KVM_SET_LAPIC, EINVAL,
	  ARG(struct kvm_lapic_state, { 0 }) },
	{ "a capability of nobody", VCPU, KVM_ENABLE_CAP, EINVAL,
	  ARG(struct kvm_enable_cap, .cap = 9999) },
	{ "the system's request", VCPU, KVM_CREATE_VM, EINVAL, NULL },
	{ "a VM's request", VCPU, KVM_CREATE_VCPU, EINVAL, NULL },
	{ "nobody's request", VCPU, _IO(KVMIO, 0xff), EINVAL, NULL },
};

GUEST_CODE(nothing, "hlt\n");

static void bad_arguments_get_the_errno_of_kvm(void **state)
{
	struct kvm_guest g;
	u32 failures = 0;

	(void)state;
	kvm_guest_create(&g, nothing_start, (size_t)(nothing_end - nothing_start), 1);
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct row *row = &rows[i];
		const int fd[NKINDS] = { g.kvm, g.vm, g.vcpu[0] };
		int result;

		errno = 0;
		result = ioctl(fd[row->kind], row->request, row->arg);
		if (result == -1 && errno == row->expected)
			continue;
		print_error("request %#x, %s: returned %d, errno %d, expected errno %d\n",
			    row->request, row->what, result, errno, row->expected);
		failures++;
	}
	assert_int_equal(failures, 0);
	kvm_guest_destroy(&g);
}

static void registers_that_no_processor_has_are_refused(void **state)
{
	struct kvm_sregs good, bad;
	struct kvm_guest g;

	(void)state;
	kvm_guest_create(&g, nothing_start, (size_t)(nothing_end - nothing_start), 1);
	KVM_CALL(g.vcpu[0], KVM_GET_SREGS, &good);
	bad = good;
	bad.cr4 |= 1ull << 40;
	assert_int_equal(ioctl(g.vcpu[0], KVM_SET_SREGS, &bad), -1);
	assert_int_equal(errno, EINVAL);
	bad = good;
	bad.cr0 &= ~1ull; /* paging without protection */
	assert_int_equal(ioctl(g.vcpu[0], KVM_SET_SREGS, &bad), -1);
	assert_int_equal(errno, EINVAL);
	KVM_CALL(g.vcpu[0], KVM_GET_SREGS, &bad);
	assert_memory_equal(&good, &bad, sizeof(good));
	kvm_guest_destroy(&g);
}

/* KVM with enable_pmu=0: what is off cannot be turned on, nor off. */
static void without_a_pmu_there_is_no_capability_to_enable(void **state)
{
	struct kvm_enable_cap cap = { .cap = KVM_CAP_PMU_CAPABILITY };
	const char *before = getenv("VPMU_PMU");
	int kvm = open("/dev/kvm", O_RDWR), vm;

	(void)state;
	assert_true(kvm >= 0);
	setenv("VPMU_PMU", "off", 1);
	vm = KVM_CALL(kvm, KVM_CREATE_VM, NULL);
	assert_int_equal(ioctl(kvm, KVM_CHECK_EXTENSION, cap.cap), 0);
	assert_int_equal(ioctl(vm, KVM_CHECK_EXTENSION, cap.cap), 0);
	for (cap.args[0] = 0; cap.args[0] <= KVM_PMU_CAP_DISABLE; cap.args[0]++) {
		assert_int_equal(ioctl(vm, KVM_ENABLE_CAP, &cap), -1);
		assert_int_equal(errno, EINVAL);
	}
	close(vm);
	setenv("VPMU_PMU", "mediated", 1);
	vm = KVM_CALL(kvm, KVM_CREATE_VM, NULL);
	assert_int_equal(ioctl(vm, KVM_CHECK_EXTENSION, cap.cap), KVM_PMU_CAP_DISABLE);
	cap.args[0] = 0;
	assert_int_equal(ioctl(vm, KVM_ENABLE_CAP, &cap), 0);
	close(vm);
	close(kvm);
	if (before)
		setenv("VPMU_PMU", before, 1);
	else
		unsetenv("VPMU_PMU");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_arguments_get_the_errno_of_kvm),
		cmocka_unit_test(registers_that_no_processor_has_are_refused),
		cmocka_unit_test(without_a_pmu_there_is_no_capability_to_enable),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
