// SPDX-License-Identifier: MIT
/*
 * MSRs, their lists and the filter, and the clocks behind some of them, on a real VM that never
 * runs.
 */
#include <errno.h>
#include <linux/kvm_para.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "unit/plain_vcpu.h"
#include "vm/cpuid/cpuid.h"
#include "vm/irq/apic.h"
#include "vm/msr/priv.h"
#include "vm/pv.h"

#define TSC	       0x10
#define TSC_ADJUST     0x3b
#define PLATFORM_INFO  0xce
#define ARCH_CAPS      0x10a
#define PERF_CAPS      0x345
#define HWCR	       0xc0010015
#define DE_CFG	       0xc0011029
#define LSTAR	       0xc0000082
#define SYSENTER_EIP   0x176
#define TSC_AUX	       0xc0000103
#define NO_SUCH_MSR    0x474f4f00
#define A_SECOND(vcpu) ((u64)(vcpu)->clock.khz * 1000)

struct machine {
	struct vm *vm;
	struct vcpu *vcpu;
};

static int make(void **state, const char *model)
{
	struct machine *m = calloc(1, sizeof(*m));

	m->vm = vm_create(model_find(model));
	assert_non_null(m->vm);
	assert_int_equal(vm_create_irqchip(m->vm), 0);
	m->vcpu = plain_vcpu(m->vm, 0);
	*state = m;
	return 0;
}

static int intel(void **state)
{
	return make(state, "icelake");
}

static int amd(void **state)
{
	return make(state, "milan");
}

static int gone(void **state)
{
	struct machine *m = *state;

	vm_put(m->vm);
	free(m);
	return 0;
}

static enum msr_result guest_write(struct vcpu *vcpu, u32 index, u64 value)
{
	return msr_write(vcpu, index, false, value);
}

static enum msr_result host_write(struct vcpu *vcpu, u32 index, u64 value)
{
	return msr_write(vcpu, index, true, value);
}

static u64 host_read(struct vcpu *vcpu, u32 index)
{
	u64 value;

	assert_int_equal(msr_read(vcpu, index, true, &value), MSR_OK);
	return value;
}

static enum msr_result guest_read(struct vcpu *vcpu, u32 index)
{
	u64 value;

	return msr_read(vcpu, index, false, &value);
}

static void rows_are_sorted_and_do_not_overlap(void **state)
{
	(void)state;
	for (u32 i = 0; i < msr_nrows; i++) {
		assert_true(msr_rows[i].first <= msr_rows[i].last);
		assert_true(i == 0 || msr_rows[i - 1].last < msr_rows[i].first);
		assert_ptr_equal(msr_find(msr_rows[i].first), &msr_rows[i]);
		assert_ptr_equal(msr_find(msr_rows[i].last), &msr_rows[i]);
	}
	assert_null(msr_find(NO_SUCH_MSR));
}

static void a_register_of_the_pmu_is_in_one_table_once(void **state)
{
	(void)state;
	for (u32 r = 0; r < pmu_nrows; r++)
		for (u32 i = 0; i < pmu_rows[r].most; i++) {
			u32 index = pmu_row_index(&pmu_rows[r], i);
			struct pmu_reg reg = pmu_reg_find(index);

			assert_ptr_equal(reg.row, &pmu_rows[r]);
			assert_int_equal(reg.i, i);
			assert_null(msr_find(index));
		}
}

/* What KVM_GET_MSRS of the whole list gives, KVM_SET_MSRS takes: migration depends on it. */
static void every_listed_msr_can_be_saved_and_restored(void **state)
{
	struct machine *m = *state;
	u32 list[256], n = msr_list(m->vm->model, list, ARRAY_SIZE(list));

	assert_in_range(n, 30, ARRAY_SIZE(list));
	for (u32 i = 0; i < n; i++)
		assert_int_equal(host_write(m->vcpu, list[i], host_read(m->vcpu, list[i])), MSR_OK);
	assert_int_equal(msr_list(m->vm->model, NULL, 0), n);
}

static void feature_msrs_belong_to_the_vendor(void **state)
{
	const struct model *intel = model_find("icelake"), *amd = model_find("milan");
	u32 list[16];
	u64 value;

	(void)state;
	assert_int_equal(msr_feature_list(intel, list, ARRAY_SIZE(list)), 3);
	assert_int_equal(msr_feature_list(amd, list, ARRAY_SIZE(list)), 4);
	assert_int_equal(list[3], DE_CFG);
	for (u32 i = 0; i < 4; i++)
		assert_int_equal(msr_feature_read(amd, list[i], &value), MSR_OK);
	assert_int_equal(msr_feature_read(intel, DE_CFG, &value), MSR_UNKNOWN);
	assert_int_equal(msr_feature_read(intel, PERF_CAPS, &value), MSR_OK);
	assert_int_equal(value, pmu_supported_capabilities(pmu_model_of(intel->set)));
	assert_int_equal(msr_feature_read(amd, PERF_CAPS, &value), MSR_OK);
	assert_int_equal(value, 0);
	assert_int_equal(msr_feature_read(intel, 0x480, &value), MSR_UNKNOWN); /* VMX_BASIC */
}

static void feature_msrs_freeze_when_the_vcpu_has_run(void **state)
{
	struct machine *m = *state;

	assert_int_equal(host_write(m->vcpu, ARCH_CAPS, 1), MSR_OK);
	m->vcpu->ever_ran = true;
	assert_int_equal(host_write(m->vcpu, ARCH_CAPS, 0), MSR_FAULT);
	assert_int_equal(host_write(m->vcpu, ARCH_CAPS, 1), MSR_OK);
	assert_int_equal(guest_write(m->vcpu, ARCH_CAPS, 1), MSR_FAULT);
	assert_int_equal(host_write(m->vcpu, 0x8b, 77), MSR_OK); /* microcode may be updated */
	assert_int_equal(guest_write(m->vcpu, 0x8b, 0), MSR_OK);
	assert_int_equal(host_read(m->vcpu, 0x8b), 77);
}

/* A list as QEMU has it that knows nothing of 0x80000007, and with another address width. */
static void a_refused_cpuid_changes_no_msr(void **state)
{
	struct machine *m = *state;
	struct kvm_cpuid_entry2 *entries = calloc(CPUID_MAX_ENTRIES, sizeof(*entries));
	u32 n = cpuid_supported(m->vm->model, entries, CPUID_MAX_ENTRIES);

	for (u32 i = 0; i < n; i++) {
		if (entries[i].function == 0x80000007)
			entries[i].edx = 0;
		if (entries[i].function == 0x80000008)
			entries[i].eax ^= 1;
	}
	assert_int_equal(host_read(m->vcpu, HWCR), 0);
	m->vcpu->ever_ran = true;
	assert_int_equal(vcpu_set_cpuid(m->vcpu, entries, n), -EINVAL);
	assert_int_equal(host_read(m->vcpu, HWCR), 0);
	assert_false(m->vcpu->cpuid_filled);
}

static void an_unknown_msr_is_told_from_a_bad_value(void **state)
{
	struct machine *m = *state;

	assert_int_equal(guest_read(m->vcpu, NO_SUCH_MSR), MSR_UNKNOWN);
	assert_int_equal(guest_write(m->vcpu, NO_SUCH_MSR, 0), MSR_UNKNOWN);
	assert_int_equal(host_write(m->vcpu, NO_SUCH_MSR, 0), MSR_UNKNOWN);
	assert_int_equal(guest_write(m->vcpu, LSTAR, BIT(63)), MSR_FAULT);
	assert_int_equal(guest_write(m->vcpu, LSTAR, ~0ull << 47), MSR_OK);
	assert_int_equal(msr_exit_reason(MSR_UNKNOWN), KVM_MSR_EXIT_REASON_UNKNOWN);
	assert_int_equal(msr_exit_reason(MSR_FAULT), KVM_MSR_EXIT_REASON_INVAL);
	assert_int_equal(msr_exit_reason(MSR_FILTERED), KVM_MSR_EXIT_REASON_FILTER);
}

/* CPUID decides, not CR4.LA57. */
static void addresses_have_the_width_of_the_processor(void **state)
{
	struct machine *m = *state;
	u64 *features = &m->vcpu->cpu->features[FEAT_LA57 / 64], la57 = BIT(FEAT_LA57 % 64);
	u64 address = 0xff000000000000;

	*features &= ~la57;
	assert_int_equal(guest_write(m->vcpu, LSTAR, address), MSR_FAULT);
	assert_int_equal(guest_write(m->vcpu, SYSENTER_EIP, address), MSR_OK);
	assert_int_equal(host_read(m->vcpu, SYSENTER_EIP), 0);
	*features |= la57;
	assert_int_equal(guest_write(m->vcpu, LSTAR, address), MSR_OK);
	assert_int_equal(guest_write(m->vcpu, LSTAR, BIT(56)), MSR_FAULT);
	assert_int_equal(guest_write(m->vcpu, SYSENTER_EIP, address), MSR_OK);
	assert_int_equal(host_read(m->vcpu, SYSENTER_EIP), address);
}

static void the_program_may_zero_what_it_was_told_of(void **state)
{
	struct machine *m = *state;

	m->vcpu->enforce_pv_cpuid = true;
	m->vcpu->ncpuid = 0; /* no KVM features at all */
	for (u32 msr = MSR_KVM_WALL_CLOCK_NEW; msr <= MSR_KVM_ASYNC_PF_ACK; msr++) {
		assert_int_equal(guest_read(m->vcpu, msr), MSR_UNKNOWN);
		assert_int_equal(guest_write(m->vcpu, msr, 0), MSR_UNKNOWN);
		assert_int_equal(host_read(m->vcpu, msr), 0);
		assert_int_equal(host_write(m->vcpu, msr, 0), MSR_OK);
		assert_int_equal(host_write(m->vcpu, msr, 1), MSR_UNKNOWN);
	}
}

static void without_the_quirk_feature_msrs_are_the_programs_to_give(void **state)
{
	struct machine *m = *state;
	u32 list[64], n = msr_feature_list(m->vm->model, list, ARRAY_SIZE(list));
	struct vcpu *bare;

	m->vm->set.disabled_quirks = KVM_X86_QUIRK_STUFF_FEATURE_MSRS;
	bare = plain_vcpu(m->vm, 1);
	assert_in_range(n, 1, ARRAY_SIZE(list));
	for (u32 i = 0; i < n; i++) {
		u64 value;

		assert_int_equal(msr_feature_read(m->vm->model, list[i], &value), MSR_OK);
		assert_int_equal(host_read(bare, list[i]), 0);
		assert_int_equal(host_read(m->vcpu, list[i]), value);
	}
}

static void hwcr_keeps_two_bits_and_ignores_three(void **state)
{
	struct machine *m = *state;
	u64 ignored = BIT(3) | BIT(6) | BIT(8), kept = BIT(18) | BIT(24);

	for (u32 bit = 0; bit < 64; bit++) {
		bool ok = (ignored | kept) >> bit & 1;

		assert_int_equal(host_write(m->vcpu, HWCR, BIT(bit)), ok ? MSR_OK : MSR_FAULT);
		assert_int_equal(host_read(m->vcpu, HWCR), BIT(bit) & kept);
		assert_int_equal(host_write(m->vcpu, HWCR, 0), MSR_OK);
	}
}

static void memory_types_are_checked(void **state)
{
	struct machine *m = *state;

	assert_int_equal(guest_write(m->vcpu, 0x277, 0x0007040600070406), MSR_OK);
	assert_int_equal(guest_write(m->vcpu, 0x277, 0x0207040600070406), MSR_FAULT);
	assert_int_equal(guest_write(m->vcpu, 0x250, 0x0606060606060606), MSR_OK);
	assert_int_equal(guest_write(m->vcpu, 0x250, 0x0706060606060606), MSR_FAULT);
	assert_int_equal(guest_write(m->vcpu, 0x26f, 0x0505050505050505), MSR_OK);
	assert_int_equal(host_read(m->vcpu, 0x26f), 0x0505050505050505);
	assert_int_equal(guest_write(m->vcpu, 0x2ff, 0xc06), MSR_OK);
	assert_int_equal(guest_write(m->vcpu, 0x2ff, 0x1006), MSR_FAULT);
	assert_int_equal(guest_write(m->vcpu, 0x200, 0x80000006), MSR_OK);
	assert_int_equal(guest_write(m->vcpu, 0x201, BIT(63)), MSR_FAULT);
	assert_int_equal(guest_read(m->vcpu, 0x210), MSR_UNKNOWN);
	assert_int_equal(host_read(m->vcpu, 0xfe), 0x508);
	assert_int_equal(guest_write(m->vcpu, 0xfe, 0x508), MSR_UNKNOWN);
}

static void machine_check_banks_follow_mcg_cap(void **state)
{
	struct machine *m = *state;

	assert_int_equal(msr_setup_mce(m->vcpu, 0), -EINVAL);
	assert_int_equal(msr_setup_mce(m->vcpu, 33), -EINVAL);
	assert_int_equal(msr_setup_mce(m->vcpu, BIT(40) | 10), -EINVAL);
	assert_int_equal(msr_setup_mce(m->vcpu, MCG_CTL_P | MCG_SER_P | 10), 0);
	assert_int_equal(host_read(m->vcpu, 0x179), MCG_CTL_P | MCG_SER_P | 10);
	assert_int_equal(host_read(m->vcpu, 0x17b), ~0ull);
	assert_int_equal(host_read(m->vcpu, 0x400 + 4 * 9), ~0ull);
	assert_int_equal(guest_read(m->vcpu, 0x400 + 4 * 10), MSR_FAULT);
	assert_int_equal(guest_write(m->vcpu, 0x400, 5), MSR_FAULT);
	assert_int_equal(guest_write(m->vcpu, 0x401, 5), MSR_FAULT);
	assert_int_equal(host_write(m->vcpu, 0x401, 5), MSR_OK);
	assert_int_equal(guest_write(m->vcpu, 0x401, 0), MSR_OK);
	assert_int_equal(guest_write(m->vcpu, 0x280, 1), MSR_FAULT); /* no CMCI */
	assert_int_equal(m->vcpu->lapic.nlvts, 6);
	assert_int_equal(msr_setup_mce(m->vcpu, MCG_CMCI_P | 10), 0);
	assert_int_equal(guest_write(m->vcpu, 0x280, BIT(30) | 1), MSR_OK);
	assert_int_equal(m->vcpu->lapic.nlvts, 7);
}

static void platform_info_is_the_programs_to_write_and_to_hide(void **state)
{
	struct machine *m = *state;

	assert_int_equal(host_read(m->vcpu, PLATFORM_INFO), BIT(31));
	assert_int_equal(guest_write(m->vcpu, PLATFORM_INFO, 0), MSR_FAULT);
	assert_int_equal(host_write(m->vcpu, PLATFORM_INFO, BIT(31) | 0xff00), MSR_OK);
	assert_int_equal(guest_read(m->vcpu, PLATFORM_INFO), MSR_OK);
	m->vm->set.platform_info_hidden = true;
	assert_int_equal(guest_read(m->vcpu, PLATFORM_INFO), MSR_FAULT);
	assert_int_equal(guest_write(m->vcpu, 0x140, 1), MSR_OK); /* CPUID faulting */
	assert_int_equal(host_write(m->vcpu, PLATFORM_INFO, 0), MSR_FAULT);
}

static void vendors_differ_in_tsc_aux(void **state)
{
	struct machine *m = *state;
	bool is_amd = m->vm->model->is_amd;

	assert_int_equal(guest_write(m->vcpu, TSC_AUX, BIT(32) | 7), is_amd ? MSR_OK : MSR_FAULT);
	assert_int_equal(host_read(m->vcpu, TSC_AUX), is_amd ? 7 : 0);
	assert_int_equal(guest_read(m->vcpu, 0x3a), is_amd ? MSR_UNKNOWN : MSR_OK);
	assert_int_equal(guest_read(m->vcpu, DE_CFG), is_amd ? MSR_OK : MSR_UNKNOWN);
}

static void x2apic_registers_are_there_in_x2apic_mode_only(void **state)
{
	struct machine *m = *state;
	u64 base = host_read(m->vcpu, 0x1b);

	assert_int_equal(base, LAPIC_DEFAULT_BASE | APIC_BASE_ENABLE | APIC_BASE_BSP);
	assert_int_equal(guest_read(m->vcpu, 0x802), MSR_FAULT);
	assert_int_equal(guest_write(m->vcpu, 0x1b, base | APIC_BASE_X2APIC), MSR_OK);
	assert_int_equal(guest_read(m->vcpu, 0x802), MSR_OK);
	assert_int_equal(guest_write(m->vcpu, 0x1b, base), MSR_FAULT);
	assert_int_equal(guest_write(m->vcpu, 0x80f, 0x1ff), MSR_OK);
	assert_int_equal(guest_write(m->vcpu, 0x83f, 0x55), MSR_OK);
	assert_int_equal(lapic_pending(&m->vcpu->lapic), 0x55);
}

static void xss_takes_zero_only(void **state)
{
	struct machine *m = *state;

	assert_int_equal(host_read(m->vcpu, 0xda0), 0);
	assert_int_equal(host_write(m->vcpu, 0xda0, 0), MSR_OK);
	for (u32 bit = 0; bit < 64; bit++)
		assert_int_equal(host_write(m->vcpu, 0xda0, BIT(bit)), MSR_FAULT);
}

static struct kvm_msr_filter filter_of(u32 flags, u32 base, u32 n, u32 range_flags, u8 *bitmap)
{
	struct kvm_msr_filter user = { .flags = flags };

	user.ranges[3] = (struct kvm_msr_filter_range){
		.flags = range_flags, .nmsrs = n, .base = base, .bitmap = bitmap
	};
	return user;
}

static void a_filter_decides_by_its_first_matching_range(void **state)
{
	struct machine *m = *state;
	u8 bitmap[8] = { 0x02 };
	struct kvm_msr_filter user = filter_of(0, LSTAR - 1, 3, KVM_MSR_FILTER_READ, bitmap);

	assert_int_equal(msr_filter_create(&user, &m->vm->msr_filter), 0);
	memset(bitmap, 0xff, sizeof(bitmap)); /* the filter has its own copy */
	assert_int_equal(guest_read(m->vcpu, LSTAR - 1), MSR_FILTERED);
	assert_int_equal(guest_read(m->vcpu, LSTAR), MSR_OK);
	assert_int_equal(guest_read(m->vcpu, LSTAR + 1), MSR_FILTERED);
	assert_int_equal(guest_read(m->vcpu, LSTAR + 2), MSR_OK);
	assert_int_equal(guest_write(m->vcpu, LSTAR - 1, 0), MSR_OK);
	host_read(m->vcpu, LSTAR - 1);
}

static void a_denying_filter_spares_the_x2apic(void **state)
{
	struct machine *m = *state;
	u8 bitmap[8] = { 0 };
	struct kvm_msr_filter user = filter_of(KVM_MSR_FILTER_DEFAULT_DENY, 0x10, 1,
					       KVM_MSR_FILTER_READ | KVM_MSR_FILTER_WRITE, bitmap);

	assert_int_equal(msr_filter_create(&user, &m->vm->msr_filter), 0);
	assert_int_equal(guest_read(m->vcpu, LSTAR), MSR_FILTERED);
	assert_int_equal(guest_read(m->vcpu, 0x802), MSR_FAULT);
}

static void bad_filters_are_refused(void **state)
{
	struct msr_filter *filter;
	u8 bitmap[8] = { 0 };
	struct kvm_msr_filter user = { .flags = KVM_MSR_FILTER_DEFAULT_DENY };

	(void)state;
	assert_int_equal(msr_filter_create(&user, &filter), -EINVAL); /* would deny everything */
	user = filter_of(2, 0, 1, KVM_MSR_FILTER_READ, bitmap);
	assert_int_equal(msr_filter_create(&user, &filter), -EINVAL);
	user = filter_of(0, 0, 1, 0, bitmap);
	assert_int_equal(msr_filter_create(&user, &filter), -EINVAL);
	user = filter_of(0, 0, 1, 4, bitmap);
	assert_int_equal(msr_filter_create(&user, &filter), -EINVAL);
	user = filter_of(0, 0, 0x600 * 8 + 1, KVM_MSR_FILTER_READ, bitmap);
	assert_int_equal(msr_filter_create(&user, &filter), -EINVAL);
	user = filter_of(0, 0, ~0u, KVM_MSR_FILTER_READ, bitmap);
	assert_int_equal(msr_filter_create(&user, &filter), -EINVAL);
	user = filter_of(0, 0, 0, 0, NULL);
	assert_int_equal(msr_filter_create(&user, &filter), 0);
	assert_null(filter);
}

static void near(u64 a, u64 b)
{
	u64 difference = a > b ? a - b : b - a;

	assert_in_range(difference, 0, BIT(38)); /* a minute, on a busy machine */
}

static void the_tsc_starts_at_zero_and_adjust_sees_the_guests_writes(void **state)
{
	struct machine *m = *state;
	u64 step = BIT(42), far = BIT(48);

	near(host_read(m->vcpu, TSC), 0);
	assert_int_equal(guest_write(m->vcpu, TSC, step), MSR_OK);
	near(host_read(m->vcpu, TSC), step);
	near(host_read(m->vcpu, TSC_ADJUST), step);
	assert_int_equal(guest_write(m->vcpu, TSC_ADJUST, 2 * step), MSR_OK);
	near(host_read(m->vcpu, TSC), 2 * step);
	assert_int_equal(host_write(m->vcpu, TSC, far), MSR_OK);
	near(host_read(m->vcpu, TSC), far);
	near(host_read(m->vcpu, TSC_ADJUST), 2 * step);
	assert_int_equal(host_write(m->vcpu, TSC_ADJUST, 123), MSR_OK);
	near(host_read(m->vcpu, TSC), far);
	assert_int_equal(host_read(m->vcpu, TSC_ADJUST), 123);
}

static void tscs_written_within_a_second_are_the_same(void **state)
{
	struct machine *m = *state;
	struct vcpu *other = plain_vcpu(m->vm, 1);

	assert_int_equal(other->cpu->port.tsc_offset, m->vcpu->cpu->port.tsc_offset);
	assert_int_equal(host_write(m->vcpu, TSC, BIT(40)), MSR_OK);
	assert_int_not_equal(other->cpu->port.tsc_offset, m->vcpu->cpu->port.tsc_offset);
	assert_int_equal(host_write(other, TSC, BIT(40) + A_SECOND(other) / 2), MSR_OK);
	assert_int_equal(other->cpu->port.tsc_offset, m->vcpu->cpu->port.tsc_offset);
	assert_int_equal(host_write(other, TSC, BIT(40) + 1000 * A_SECOND(other)), MSR_OK);
	assert_int_not_equal(other->cpu->port.tsc_offset, m->vcpu->cpu->port.tsc_offset);
	assert_int_equal(host_write(other, TSC, 0), MSR_OK); /* as the last one written: itself */
	assert_int_not_equal(other->cpu->port.tsc_offset, m->vcpu->cpu->port.tsc_offset);
}

static void the_clock_is_stable_while_all_tscs_agree(void **state)
{
	struct machine *m = *state;
	struct vcpu *other = plain_vcpu(m->vm, 1);
	struct kvm_clock_data data;

	if (!clock_tsc_stable()) {
		print_message("skipped: the host's TSC is not stable\n");
		skip();
	}
	vm_clock_get(m->vm, &data);
	assert_int_equal(data.flags,
			 KVM_CLOCK_TSC_STABLE | KVM_CLOCK_REALTIME | KVM_CLOCK_HOST_TSC);
	vcpu_tsc_offset_write(other, 4711);
	vm_clock_get(m->vm, &data);
	assert_int_equal(data.flags, 0);
	vcpu_tsc_offset_write(m->vcpu, 4711);
	vm_clock_get(m->vm, &data);
	assert_true(data.flags & KVM_CLOCK_TSC_STABLE);
}

static void the_clock_can_be_set_and_follows_real_time_when_asked(void **state)
{
	struct machine *m = *state;
	struct kvm_clock_data data = { .flags = BIT(9) };
	u64 tsc;

	assert_int_equal(vm_clock_set(m->vm, &data), -EINVAL);
	data = (struct kvm_clock_data){ .clock = BIT(40) };
	assert_int_equal(vm_clock_set(m->vm, &data), 0);
	vm_clock_get(m->vm, &data);
	assert_in_range(data.clock, BIT(40), BIT(40) + 60000000000ull);
	data = (struct kvm_clock_data){
		.flags = KVM_CLOCK_REALTIME,
		.realtime = clock_real_ns(&tsc) - 180000000000ull,
	};
	assert_int_equal(vm_clock_set(m->vm, &data), 0);
	vm_clock_get(m->vm, &data);
	assert_in_range(data.clock, 180000000000ull, 240000000000ull);
}

static void a_scaled_tsc_runs_at_its_frequency(void **state)
{
	struct machine *m = *state;
	u32 khz = clock_host_khz() / 2;
	u64 host = BIT(40), cycles;

	assert_int_equal(vcpu_clock_set_khz(m->vcpu, 0xffffffff), -EINVAL);
	assert_int_equal(vcpu_clock_set_khz(m->vcpu, khz), 0);
	cycles = vcpu_tsc_at(m->vcpu, 2 * host) - vcpu_tsc_at(m->vcpu, host);
	assert_in_range(cycles, host / 2 - host / 1000000, host / 2 + host / 1000000);
	assert_int_equal(vcpu_clock_set_khz(m->vcpu, clock_host_khz() + 1), 0);
	assert_int_equal(m->vcpu->cpu->port.tsc_scale, TSC_SCALE_ONE);
}

static void a_scale_turns_cycles_into_nanoseconds(void **state)
{
	static const u64 hz[] = {
		1000000, 999999999, 1000000000, 2000000001, 2445000000, 5800000000
	};

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(hz); i++) {
		u64 ns = clock_scale_apply(clock_scale_of(hz[i]), 1000 * hz[i]);

		assert_in_range(ns, 1000000000000ull - 1000, 1000000000000ull);
	}
}

#define BOTH(test)                                          \
	cmocka_unit_test_setup_teardown(test, intel, gone), \
		cmocka_unit_test_setup_teardown(test, amd, gone)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_are_sorted_and_do_not_overlap),
		cmocka_unit_test(a_register_of_the_pmu_is_in_one_table_once),
		BOTH(every_listed_msr_can_be_saved_and_restored),
		cmocka_unit_test(feature_msrs_belong_to_the_vendor),
		BOTH(feature_msrs_freeze_when_the_vcpu_has_run),
		BOTH(without_the_quirk_feature_msrs_are_the_programs_to_give),
		BOTH(an_unknown_msr_is_told_from_a_bad_value),
		cmocka_unit_test_setup_teardown(a_refused_cpuid_changes_no_msr, amd, gone),
		cmocka_unit_test_setup_teardown(addresses_have_the_width_of_the_processor, intel,
						gone),
		BOTH(the_program_may_zero_what_it_was_told_of),
		BOTH(hwcr_keeps_two_bits_and_ignores_three),
		BOTH(memory_types_are_checked),
		cmocka_unit_test_setup_teardown(machine_check_banks_follow_mcg_cap, intel, gone),
		BOTH(platform_info_is_the_programs_to_write_and_to_hide),
		BOTH(vendors_differ_in_tsc_aux),
		BOTH(x2apic_registers_are_there_in_x2apic_mode_only),
		BOTH(xss_takes_zero_only),
		BOTH(a_filter_decides_by_its_first_matching_range),
		BOTH(a_denying_filter_spares_the_x2apic),
		cmocka_unit_test(bad_filters_are_refused),
		BOTH(the_tsc_starts_at_zero_and_adjust_sees_the_guests_writes),
		BOTH(tscs_written_within_a_second_are_the_same),
		BOTH(the_clock_is_stable_while_all_tscs_agree),
		BOTH(the_clock_can_be_set_and_follows_real_time_when_asked),
		BOTH(a_scaled_tsc_runs_at_its_frequency),
		cmocka_unit_test(a_scale_turns_cycles_into_nanoseconds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
