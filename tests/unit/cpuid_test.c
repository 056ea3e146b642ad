// SPDX-License-Identifier: MIT
/*
 * CPUID: the list that each model offers, what a vCPU makes of a list, and how a guest reads it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <asm/kvm_para.h>
#include <cpuid.h>
#include <errno.h>

#include "vm/cpuid/cpuid.h"
#include "vm/pmu/config.h"
#include "vm/vm.h"

struct fixture {
	struct vm vm;
	struct vcpu vcpu;
	struct cpu cpu;
	struct kvm_cpuid_entry2 list[CPUID_MAX_ENTRIES];
};

/* A vCPU of a model, with all that the model offers. */
static struct fixture *make(const char *model)
{
	struct fixture *f = aligned_alloc(_Alignof(struct fixture), sizeof(*f));

	memset(f, 0, sizeof(*f));
	f->vm.model = model_find(model);
	f->vcpu.vm = &f->vm;
	f->vcpu.cpu = &f->cpu;
	f->vcpu.lapic.base = LAPIC_DEFAULT_BASE | APIC_BASE_ENABLE;
	f->cpu.xcr0 = XCR0_X87;
	vcpu_pmu_init(&f->vcpu);
	f->vcpu.cpuid = f->list;
	f->vcpu.ncpuid = cpuid_supported(f->vm.model, f->list, CPUID_MAX_ENTRIES);
	assert_in_range(f->vcpu.ncpuid, 1, CPUID_MAX_ENTRIES);
	assert_int_equal(cpuid_apply(&f->vcpu), 0);
	return f;
}

static struct kvm_cpuid_entry2 *entry(struct fixture *f, u32 leaf, u32 subleaf)
{
	for (u32 i = 0; i < f->vcpu.ncpuid; i++)
		if (f->list[i].function == leaf && f->list[i].index == subleaf)
			return &f->list[i];
	return NULL;
}

static void every_model_is_found_by_its_name(void **state)
{
	u32 i = 0;

	(void)state;
	for (; model_at(i); i++) {
		assert_ptr_equal(model_find(model_at(i)->name), model_at(i));
		assert_int_equal(model_at(i)->set, BIT(i));
		assert_true(strlen(model_at(i)->brand) < 48);
	}
	assert_int_equal(i, 5);
	assert_null(model_find("pentium"));
	assert_null(cpuid_model("pentium"));
	assert_non_null(cpuid_model(NULL));
	assert_non_null(cpuid_model(""));
}

static void signatures_have_display_family_and_model(void **state)
{
	(void)state;
	for (u32 i = 0; model_at(i); i++) {
		const struct model *m = model_at(i);
		u32 signature = model_signature(m->family, m->model, m->stepping);

		assert_int_equal(model_family_of(signature), m->family);
		assert_int_equal(model_model_of(signature), m->model);
		assert_int_equal(signature & 0xf, m->stepping);
	}
	assert_int_equal(model_signature(6, 0x6a, 6), 0x606a6);
	assert_int_equal(model_signature(25, 0x11, 1), 0xa10f11);
}

static void a_list_names_no_leaf_twice_and_has_all_up_to_its_limits(void **state)
{
	(void)state;
	for (u32 m = 0; model_at(m); m++) {
		struct fixture *f = make(model_at(m)->name);

		for (u32 leaf = 0; leaf <= model_at(m)->max_basic_leaf; leaf++)
			assert_non_null(entry(f, leaf, 0));
		for (u32 i = 0; i < f->vcpu.ncpuid; i++)
			for (u32 j = 0; j < i; j++)
				assert_false(f->list[i].function == f->list[j].function &&
					     f->list[i].index == f->list[j].index);
		assert_int_equal(entry(f, 0x80000000, 0)->eax, model_at(m)->max_extended_leaf);
		assert_int_equal(entry(f, 0x40000000, 0)->eax, KVM_CPUID_FEATURES);
		free(f);
	}
}

static void a_short_list_is_counted_but_not_written(void **state)
{
	struct kvm_cpuid_entry2 two[3] = { [2] = { .function = 0xabcd } };
	const struct model *model = model_find("milan");

	(void)state;
	assert_int_equal(cpuid_supported(model, two, 2), cpuid_supported(model, NULL, 0));
	assert_int_equal(two[1].function, 1);
	assert_int_equal(two[2].function, 0xabcd);
	assert_int_equal(cpuid_emulated(model, two, 2), 3);
}

enum source { HOST, BASE, SOFT, NATIVE }; /* HOST and BASE: only if the host has it */

static const struct {
	const char *name;
	u32 leaf, subleaf;
	enum cpuid_reg reg;
	u32 mask;
	enum source source;
} rows[] = {
#define CPUID_BIT(name, leaf, subleaf, reg, bit, models, source) \
	{ #name, leaf, subleaf, CPUID_##reg, 1u << bit, source },
#include "x86/cpuid_bits.def"
#undef CPUID_BIT
};

static bool host_has(u32 row)
{
	u32 r[4] = { 0 };

	__get_cpuid_count(rows[row].leaf, rows[row].subleaf, &r[CPUID_EAX], &r[CPUID_EBX],
			  &r[CPUID_ECX], &r[CPUID_EDX]);
	return r[rows[row].reg] & rows[row].mask;
}

static bool offers(struct fixture *f, u32 row)
{
	const struct kvm_cpuid_entry2 *e = entry(f, rows[row].leaf, rows[row].subleaf);

	return e && (const u32[]){ e->eax, e->ebx, e->ecx, e->edx }[rows[row].reg] & rows[row].mask;
}

static void nothing_is_offered_that_the_host_lacks(void **state)
{
	(void)state;
	for (u32 m = 0; model_at(m); m++) {
		struct fixture *f = make(model_at(m)->name);

		for (u32 i = 0; i < ARRAY_SIZE(rows); i++)
			if (rows[i].source != SOFT && offers(f, i) && !host_has(i))
				fail_msg("%s: %s", model_at(m)->name, rows[i].name);
		assert_int_equal(entry(f, 7, 0)->ebx & bit_RTM, 0);
		assert_int_equal(entry(f, 7, 0)->ecx & bit_SHSTK, 0);
		assert_int_equal(entry(f, 0xd, 0)->eax & ~cpuid_xcr0_possible(), 0);
		assert_int_equal(entry(f, 1, 0)->ecx & BIT(5), 0);	    /* VMX */
		assert_int_equal(entry(f, 0x80000001, 0)->ecx & BIT(2), 0); /* SVM */
		free(f);
	}
}

static void a_vcpu_gets_the_features_of_its_list(void **state)
{
	struct fixture *f = make("icelake");

	(void)state;
	assert_true(cpu_has(&f->cpu, FEAT_SMEP));
	assert_false(cpu_has(&f->cpu, FEAT_SSE4A));
	assert_false(cpu_has(&f->cpu, FEAT_VMX));
	assert_false(f->cpu.is_amd);
	assert_int_equal(f->cpu.phys_bits, 46);
	assert_true(f->cpu.cr4_allowed & CR4_SMEP);
	assert_true(f->cpu.efer_allowed & EFER_NX);
	entry(f, 7, 0)->ebx &= ~BIT(7);
	entry(f, 0x80000001, 0)->edx &= ~BIT(20);
	entry(f, 1, 0)->ecx |= BIT(5); /* the program may promise VMX; we do not have it */
	assert_int_equal(cpuid_apply(&f->vcpu), 0);
	assert_false(cpu_has(&f->cpu, FEAT_SMEP));
	assert_false(cpu_has(&f->cpu, FEAT_VMX));
	assert_false(f->cpu.cr4_allowed & CR4_SMEP);
	assert_false(f->cpu.efer_allowed & EFER_NX);
	assert_true(f->cpu.cr4_allowed & CR4_VME);
	free(f);
}

static void before_set_cpuid_all_that_the_model_offers_is_allowed(void **state)
{
	struct fixture *f = make("milan");

	(void)state;
	f->vcpu.cpuid = NULL;
	f->vcpu.ncpuid = 0;
	assert_int_equal(cpuid_apply(&f->vcpu), 0);
	assert_true(f->cpu.cr4_allowed & CR4_SMAP);
	assert_true(f->cpu.cr4_allowed & CR4_UMIP);
	assert_true(f->cpu.is_amd);
	assert_int_equal(f->cpu.phys_bits, 48);
	assert_int_equal(f->cpu.port.foreign_rules, vendor_exceptions(f->vm.model));
	f->vm.model = model_find("skylake");
	assert_int_equal(cpuid_apply(&f->vcpu), 0);
	assert_int_equal(f->cpu.port.foreign_rules, 0);
	assert_false(f->cpu.cr4_allowed & CR4_UMIP);
	free(f);
}

static void an_impossible_address_width_is_refused(void **state)
{
	struct fixture *f = make("genoa");

	(void)state;
	assert_true(f->cpu.is_amd);
	entry(f, 0x80000008, 0)->eax = 52 | 50 << 8;
	assert_int_equal(cpuid_apply(&f->vcpu), -EINVAL);
	free(f);
}

static void the_guest_sees_its_own_state_in_cpuid(void **state)
{
	struct fixture *f = make("icelake");
	u32 r[4];

	(void)state;
	cpuid_query(&f->vcpu, 1, 0, r);
	assert_false(r[CPUID_ECX] & bit_OSXSAVE);
	assert_true(r[CPUID_EDX] & BIT(9));
	f->cpu.cr4 |= CR4_OSXSAVE;
	f->vcpu.lapic.base &= ~APIC_BASE_ENABLE;
	cpuid_query(&f->vcpu, 1, 0, r);
	assert_true(r[CPUID_ECX] & bit_OSXSAVE);
	assert_false(r[CPUID_EDX] & BIT(9));
	cpuid_query(&f->vcpu, 0xd, 0, r);
	assert_int_equal(r[CPUID_EBX], 576);
	f->cpu.xcr0 = XCR0_X87 | XCR0_SSE | XCR0_AVX;
	cpuid_query(&f->vcpu, 0xd, 0, r);
	assert_int_equal(r[CPUID_EBX], 832);
	cpuid_query(&f->vcpu, 7, 0, r);
	assert_false(r[CPUID_ECX] & bit_OSPKE);
	f->cpu.cr4 |= CR4_PKE;
	cpuid_query(&f->vcpu, 7, 0, r);
	assert_true(r[CPUID_ECX] & bit_OSPKE);
	free(f);
}

static bool host_has_avx512(void)
{
	if (cpuid_xcr0_possible() & XCR0_AVX512)
		return true;
	print_message("the host has no AVX-512\n");
	return false;
}

#define AVX512_SKYLAKE (bit_AVX512F | bit_AVX512DQ | bit_AVX512CD | bit_AVX512BW | bit_AVX512VL)
#define AVX512_ICELAKE (bit_AVX512VBMI | bit_AVX512VBMI2 | bit_AVX512VNNI | bit_AVX512BITALG)

static void each_model_has_the_avx512_of_its_generation(void **state)
{
	u32 eax, ebx, ecx, edx;

	(void)state;
	__cpuid_count(7, 0, eax, ebx, ecx, edx);
	for (u32 m = 0; model_at(m); m++) {
		struct fixture *f = make(model_at(m)->name);
		bool some = cpuid_xcr0_possible() & XCR0_AVX512 && model_at(m)->set != MODEL_MILAN;
		bool more = some && model_at(m)->set != MODEL_SKYLAKE;

		assert_int_equal(entry(f, 7, 0)->ebx & AVX512_SKYLAKE, some ? AVX512_SKYLAKE : 0);
		assert_int_equal(entry(f, 7, 0)->ecx & AVX512_ICELAKE,
				 more ? ecx & AVX512_ICELAKE : 0);
		assert_int_equal(entry(f, 7, 0)->edx & BIT(23), 0); /* AVX512_FP16 */
		assert_int_equal(!!(f->cpu.xcr0_allowed & XCR0_AVX512), some);
		free(f);
	}
	(void)eax, (void)ebx, (void)edx;
}

static void assert_component(struct fixture *f, u32 component, u32 size, u32 offset)
{
	assert_int_equal(entry(f, 0xd, component)->eax, size);
	assert_int_equal(entry(f, 0xd, component)->ebx, offset);
	assert_int_equal(entry(f, 0xd, component)->ecx | entry(f, 0xd, component)->edx, 0);
	assert_int_equal(f->cpu.xstate.at[component], offset);
}

static void the_xsave_area_is_that_of_the_models_vendor(void **state)
{
	u32 pkru = cpuid_xcr0_possible() & XCR0_PKRU ? 8 : 0;
	struct fixture *f;

	(void)state;
	if (!host_has_avx512())
		skip();
	f = make("sapphirerapids");
	assert_int_equal(entry(f, 0xd, 0)->ecx, 2688 + pkru);
	assert_component(f, 5, 64, 1088);
	assert_component(f, 6, 512, 1152);
	assert_component(f, 7, 1024, 1664);
	assert_null(entry(f, 0xd, 3));
	free(f);
	f = make("genoa");
	assert_int_equal(entry(f, 0xd, 0)->ecx, 2432 + pkru);
	assert_component(f, 5, 64, 832);
	assert_component(f, 6, 512, 896);
	assert_component(f, 7, 1024, 1408);
	free(f);
}

static void the_xsave_areas_sizes_follow_xcr0(void **state)
{
	struct fixture *f;

	(void)state;
	if (!host_has_avx512())
		skip();
	f = make("skylake");
	f->cpu.xcr0 = XCR0_X87 | XCR0_SSE | XCR0_AVX | XCR0_AVX512;
	cpuid_refresh(&f->vcpu);
	assert_int_equal(entry(f, 0xd, 0)->ebx, 2688);
	assert_int_equal(entry(f, 0xd, 1)->ebx, 2432);
	f->cpu.xcr0 = XCR0_X87;
	cpuid_refresh(&f->vcpu);
	assert_int_equal(entry(f, 0xd, 0)->ebx, 576);
	assert_int_equal(entry(f, 0xd, 1)->ebx, 576);
	free(f);
}

/* QEMU lists the offsets of the host's own processor for any model. */
static void a_list_may_have_the_other_vendors_layout(void **state)
{
	static const u32 bad[] = {
		4000, 512, 1152, 0, 0x10680, ~0u
	}; /* beyond, before, on another */
	struct fixture *f;

	(void)state;
	if (!host_has_avx512())
		skip();
	f = make("genoa");
	entry(f, 0xd, 5)->ebx = 1088;
	entry(f, 0xd, 6)->ebx = 1152;
	entry(f, 0xd, 7)->ebx = 1664;
	assert_int_equal(cpuid_apply(&f->vcpu), 0);
	assert_component(f, 5, 64, 1088);
	assert_component(f, 7, 1024, 1664);
	for (u32 i = 0; i < ARRAY_SIZE(bad); i++) { /* that of the vendor then */
		entry(f, 0xd, 7)->ebx = bad[i];
		assert_int_equal(cpuid_apply(&f->vcpu), 0);
		assert_int_equal(f->cpu.xstate.at[7], 1408);
	}
	entry(f, 0xd, 0)->eax &= ~XCR0_AVX512;
	assert_int_equal(cpuid_apply(&f->vcpu), 0);
	assert_int_equal(f->cpu.xcr0_allowed & XCR0_AVX512, 0);
	assert_int_equal(f->cpu.xstate.at[7], 0);
	free(f);
}

static void mwait_follows_misc_enable_only_without_the_quirk(void **state)
{
	struct fixture *f = make("icelake");
	u32 r[4];

	(void)state;
	f->vcpu.msrs.misc_enable = BIT(18);
	cpuid_query(&f->vcpu, 1, 0, r);
	assert_false(r[CPUID_ECX] & BIT(3));
	f->vm.set.disabled_quirks = KVM_X86_QUIRK_MISC_ENABLE_NO_MWAIT;
	cpuid_query(&f->vcpu, 1, 0, r);
	assert_true(r[CPUID_ECX] & BIT(3));
	free(f);
}

static void unhalt_is_not_promised_when_hlt_does_not_exit(void **state)
{
	struct fixture *f = make("milan");

	(void)state;
	assert_true(entry(f, 0x40000001, 0)->eax & 1u << KVM_FEATURE_PV_UNHALT);
	f->vm.set.disabled_exits = KVM_X86_DISABLE_EXITS_HLT;
	cpuid_refresh(&f->vcpu);
	assert_false(entry(f, 0x40000001, 0)->eax & 1u << KVM_FEATURE_PV_UNHALT);
	free(f);
}

static void intel_answers_beyond_the_limit_with_the_last_basic_leaf(void **state)
{
	struct fixture *f = make("skylake");
	u32 r[4];

	(void)state;
	*entry(f, 0x16, 0) = (struct kvm_cpuid_entry2){ .function = 0x16, .eax = 0x123 };
	cpuid_query(&f->vcpu, 0x17, 0, r);
	assert_int_equal(r[CPUID_EAX], 0x123);
	cpuid_query(&f->vcpu, 0x80000009, 5, r);
	assert_int_equal(r[CPUID_EAX], 0x123);
	cpuid_query(&f->vcpu, 0x40000002, 0, r);
	assert_int_equal(r[CPUID_EAX], 0x123);
	cpuid_query(&f->vcpu, 0x4, 99, r); /* within the limit, but no such subleaf */
	assert_int_equal(r[CPUID_EAX], 0);
	free(f);
}

static void amd_answers_beyond_the_limit_with_zeros(void **state)
{
	static const u32 leaves[] = { 0x11, 0x3fffffff, 0x40000002, 0x80000023, 0xffffffff };
	struct fixture *f = make("milan");
	u32 r[4];

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(leaves); i++) {
		cpuid_query(&f->vcpu, leaves[i], 0, r);
		assert_int_equal(r[0] | r[1] | r[2] | r[3], 0);
	}
	free(f);
}

static void subleaves_matter_only_where_the_list_says_so(void **state)
{
	struct fixture *f = make("icelake");
	u32 a[4], b[4];

	(void)state;
	cpuid_query(&f->vcpu, 0x1, 0, a);
	cpuid_query(&f->vcpu, 0x1, 77, b);
	assert_memory_equal(a, b, sizeof(a));
	cpuid_query(&f->vcpu, 0x4, 0, a);
	cpuid_query(&f->vcpu, 0x4, 2, b);
	assert_int_equal(a[CPUID_EAX] >> 5 & 7, 1);
	assert_int_equal(b[CPUID_EAX] >> 5 & 7, 2);
	free(f);
}

static void the_program_sees_the_model_but_not_more_than_the_host(void **state)
{
	u32 r[4], eax, ebx, ecx, edx;

	(void)state;
	for (u32 m = 0; model_at(m); m++) {
		cpuid_native(model_at(m), 0, 0, r);
		assert_int_equal(r[CPUID_EBX],
				 model_at(m)->is_amd ? signature_AMD_ebx : signature_INTEL_ebx);
		cpuid_native(model_at(m), 1, 0, r);
		__cpuid(1, eax, ebx, ecx, edx);
		assert_int_equal(r[CPUID_ECX] & bit_OSXSAVE, ecx & bit_OSXSAVE);
		assert_int_equal(r[CPUID_ECX] & ~ecx & (bit_AVX | bit_FMA | bit_AES), 0);
		assert_true(r[CPUID_ECX] & BIT(3)); /* MONITOR */
		cpuid_native(model_at(m), 0xd, 0, r);
		__cpuid_count(0xd, 0, eax, ebx, ecx, edx);
		assert_int_equal(r[CPUID_ECX], ecx);
		cpuid_native(model_at(m), 0x40000000, 0, r);
		assert_int_not_equal(r[CPUID_EBX], 0x4b4d564b);
	}
	(void)eax, (void)ebx, (void)edx;
}

static void a_vm_without_monitor_is_not_the_model_that_it_is_named_after(void **state)
{
	const struct model *icelake = model_find("icelake");
	u32 leaf1[4] = { [CPUID_EAX] = 0x606a6, [CPUID_ECX] = BIT(3) | BIT(24) };

	(void)state;
	assert_false(cpuid_differs(icelake, false, leaf1));
	assert_true(cpuid_differs(icelake, true, leaf1));
	assert_true(cpuid_differs(model_find("skylake"), false, leaf1));
	leaf1[CPUID_ECX] = BIT(24);
	assert_true(cpuid_differs(icelake, false, leaf1));
}

/* `vpmu kvm --pmu off` */
static void a_list_without_the_pmu_names_nothing_of_it(void **state)
{
	static const enum feature features[] = { FEAT_PDCM,	 FEAT_DS,  FEAT_DTES64,
						 FEAT_ARCH_LBR,	 FEAT_IBS, FEAT_PERFCTR_CORE,
						 FEAT_PERFMON_V2 };
	static const u32 leaves[] = { 0xa, 0x1c, 0x8000001b, 0x80000022 };

	(void)state;
	for (u32 m = 0; model_at(m); m++) {
		struct fixture *f = make(model_at(m)->name);

		pmu_config_hide(f->list, f->vcpu.ncpuid);
		for (u32 i = 0; i < ARRAY_SIZE(leaves); i++) {
			const struct kvm_cpuid_entry2 *e = entry(f, leaves[i], 0);

			if (e && (e->eax || e->ebx || e->ecx || e->edx))
				fail_msg("%s: leaf %#x", model_at(m)->name, leaves[i]);
		}
		assert_int_equal(cpuid_apply(&f->vcpu), 0);
		for (u32 i = 0; i < ARRAY_SIZE(features); i++)
			if (cpu_has(&f->cpu, features[i]))
				fail_msg("%s: %s", model_at(m)->name,
					 feature_rows[features[i]].name);
		free(f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_model_is_found_by_its_name),
		cmocka_unit_test(signatures_have_display_family_and_model),
		cmocka_unit_test(a_list_names_no_leaf_twice_and_has_all_up_to_its_limits),
		cmocka_unit_test(a_short_list_is_counted_but_not_written),
		cmocka_unit_test(nothing_is_offered_that_the_host_lacks),
		cmocka_unit_test(a_vcpu_gets_the_features_of_its_list),
		cmocka_unit_test(before_set_cpuid_all_that_the_model_offers_is_allowed),
		cmocka_unit_test(an_impossible_address_width_is_refused),
		cmocka_unit_test(the_guest_sees_its_own_state_in_cpuid),
		cmocka_unit_test(each_model_has_the_avx512_of_its_generation),
		cmocka_unit_test(the_xsave_area_is_that_of_the_models_vendor),
		cmocka_unit_test(the_xsave_areas_sizes_follow_xcr0),
		cmocka_unit_test(a_list_may_have_the_other_vendors_layout),
		cmocka_unit_test(mwait_follows_misc_enable_only_without_the_quirk),
		cmocka_unit_test(unhalt_is_not_promised_when_hlt_does_not_exit),
		cmocka_unit_test(intel_answers_beyond_the_limit_with_the_last_basic_leaf),
		cmocka_unit_test(amd_answers_beyond_the_limit_with_zeros),
		cmocka_unit_test(subleaves_matter_only_where_the_list_says_so),
		cmocka_unit_test(the_program_sees_the_model_but_not_more_than_the_host),
		cmocka_unit_test(a_vm_without_monitor_is_not_the_model_that_it_is_named_after),
		cmocka_unit_test(a_list_without_the_pmu_names_nothing_of_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
