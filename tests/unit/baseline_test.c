// SPDX-License-Identifier: MIT
/*
 * --baseline: what models offer is the same on every host with AVX2, of either vendor. The hashes
 * are of the whole lists as they were on Emerald Rapids; a list that differs is printed, to be
 * compared with that of a host where the test passes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "vm/cpuid/cpuid.h"
#include "x86/features.h"

static const struct {
	const char *model;
	u64 hash;
} lists[] = {
	{ "skylake", 0x70a33a2da47adfc2ull },	     { "icelake", 0x67f73723f8a68ca9ull },
	{ "sapphirerapids", 0x24e120a0fdc0773aull }, { "milan", 0xb2d0b1b68dce799bull },
	{ "genoa", 0xfa90d3222858b90ull },
};

/* FNV-1a of leaf, subleaf and registers. */
static u64 hash_of(const struct kvm_cpuid_entry2 *list, u32 n)
{
	u64 hash = 14695981039346656037ull;

	for (u32 i = 0; i < n; i++) {
		const struct kvm_cpuid_entry2 *e = &list[i];
		const u32 words[] = { e->function, e->index, e->eax, e->ebx, e->ecx, e->edx };

		for (u32 j = 0; j < sizeof(words); j++)
			hash = (hash ^ ((const u8 *)words)[j]) * 1099511628211ull;
	}
	return hash;
}

static void print_list(const struct kvm_cpuid_entry2 *list, u32 n)
{
	for (u32 i = 0; i < n; i++)
		print_message("%08x.%x: %08x %08x %08x %08x\n", list[i].function, list[i].index,
			      list[i].eax, list[i].ebx, list[i].ecx, list[i].edx);
}

static void every_host_offers_the_same(void **state)
{
	struct kvm_cpuid_entry2 list[CPUID_MAX_ENTRIES];

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(lists); i++) {
		u32 n = cpuid_supported(model_find(lists[i].model), list, CPUID_MAX_ENTRIES);

		if (hash_of(list, n) == lists[i].hash)
			continue;
		print_list(list, n);
		fail_msg("%s: the list's hash is %#llx", lists[i].model,
			 (unsigned long long)hash_of(list, n));
	}
}

static void avx2_is_offered_and_newer_features_are_not(void **state)
{
	(void)state;
	assert_null(cpuid_baseline_lacks());
	for (u32 i = 0; i < ARRAY_SIZE(lists); i++) {
		const struct model *model = model_find(lists[i].model);

		assert_true(cpuid_offered(model, 7, 0, CPUID_EBX, 5));
		assert_true(cpuid_offered(model, 7, 0, CPUID_EBX, 8));	 /* BMI2 */
		assert_false(cpuid_offered(model, 7, 0, CPUID_EBX, 16)); /* AVX512F */
		assert_false(cpuid_offered(model, 7, 0, CPUID_EBX, 19)); /* ADX */
		assert_false(cpuid_offered(model, 7, 0, CPUID_ECX, 3));	 /* PKU */
		assert_true(cpuid_is_foreign(model)); /* the program sees that, too */
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_host_offers_the_same),
		cmocka_unit_test(avx2_is_offered_and_newer_features_are_not),
	};

	setenv("VPMU_BASELINE", "1", 1); /* read when the host's features are */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
