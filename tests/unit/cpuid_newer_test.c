// SPDX-License-Identifier: MIT
/*
 * CPUID for programs that are older than the model (vm/cpuid/older_program.c): which leaves they
 * are given, and which lists are left as they are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "vm/cpuid/cpuid.h"
#include "vm/vm.h"

/* The list of a model as an old program would pass it on: without some leaves, or with zeros in
 * them. */
static struct kvm_cpuid_entry2 *old_list(const struct vm *vm, bool zeros, u32 *n)
{
	struct kvm_cpuid_entry2 *list = calloc(CPUID_MAX_ENTRIES, sizeof(*list));
	u32 all = cpuid_supported(vm->model, list, CPUID_MAX_ENTRIES);

	*n = 0;
	for (u32 i = 0; i < all; i++) {
		struct kvm_cpuid_entry2 e = list[i];
		bool newer = (e.function == 7 && e.index == 2) || e.function == 0x80000007 ||
			     e.function > 0x80000020;

		if (newer && !zeros)
			continue;
		if (newer)
			e.eax = e.ebx = e.ecx = e.edx = 0;
		if (e.function == 7 && !e.index)
			e.eax = 0;
		if (e.function == 0x80000000 && !zeros && vm->model->set == MODEL_GENOA)
			e.eax = 0x80000020; /* milan has nothing in the last one */
		list[(*n)++] = e;
	}
	return list;
}

static struct kvm_cpuid_entry2 *find_entry(struct kvm_cpuid_entry2 *list, u32 n, u32 leaf,
					   u32 subleaf)
{
	for (u32 i = 0; i < n; i++)
		if (list[i].function == leaf && list[i].index == subleaf)
			return &list[i];
	return NULL;
}

static void an_old_program_gets_the_leaves_that_it_does_not_know(void **state)
{
	(void)state;
	for (u32 m = 0; model_at(m); m++)
		for (u32 zeros = 0; zeros < 2; zeros++) {
			struct vm vm = { .model = model_at(m) };
			u32 n, all;
			struct kvm_cpuid_entry2 *list = old_list(&vm, zeros, &n),
						own[CPUID_MAX_ENTRIES];

			assert_int_equal(cpuid_fill_newer(&vm, &list, &n), 1);
			all = cpuid_supported(vm.model, own, CPUID_MAX_ENTRIES);
			for (u32 i = 0; i < all; i++) {
				struct kvm_cpuid_entry2 *e =
					find_entry(list, n, own[i].function, own[i].index);

				if (e)
					assert_memory_equal(e, &own[i], sizeof(*e));
				else
					assert_int_equal(own[i].eax | own[i].ebx | own[i].ecx |
								 own[i].edx,
							 0);
			}
			free(list);
		}
}

static void a_list_of_another_processor_is_left_alone(void **state)
{
	struct vm vm = { .model = model_find("genoa") }, other = { .model = model_find("milan") };
	u32 n, before;
	struct kvm_cpuid_entry2 *list = old_list(&other, false, &n);

	(void)state;
	before = n;
	assert_int_equal(cpuid_fill_newer(&vm, &list, &n), 0);
	assert_int_equal(n, before);
	free(list);
	list = old_list(&vm, false, &n);
	vm.set.strict_cpuid = true;
	before = n;
	assert_int_equal(cpuid_fill_newer(&vm, &list, &n), 0);
	assert_int_equal(n, before);
	free(list);
}

static void a_guest_without_counters_gets_no_perfmon_v2(void **state)
{
	struct vm vm = { .model = model_find("genoa") };
	u32 n;
	struct kvm_cpuid_entry2 *list = old_list(&vm, false, &n);

	(void)state;
	vm.set.pmu_disabled = true;
	assert_int_equal(cpuid_fill_newer(&vm, &list, &n), 1);
	assert_non_null(find_entry(list, n, 0x80000021, 0));
	assert_null(find_entry(list, n, 0x80000022, 0));
	free(list);
}

/* QEMU 10 knows PerfMonV2 and its counters in this leaf, and nothing of branch records. */
static void a_leaf_that_a_program_knows_in_part_is_completed(void **state)
{
	struct vm vm = { .model = model_find("genoa") };
	struct kvm_cpuid_entry2 *list = calloc(CPUID_MAX_ENTRIES, sizeof(*list)), own, *e;
	u32 n = cpuid_supported(vm.model, list, CPUID_MAX_ENTRIES);

	(void)state;
	e = find_entry(list, n, 0x80000022, 0);
	own = *e;
	e->eax &= 1;
	e->ebx &= 0xf;
	assert_int_equal(cpuid_fill_newer(&vm, &list, &n), 1);
	assert_memory_equal(find_entry(list, n, 0x80000022, 0), &own, sizeof(own));

	/* Any other value is the program's choice. */
	e = find_entry(list, n, 0x80000022, 0);
	e->eax &= 1;
	e->ebx = 4;
	assert_int_equal(cpuid_fill_newer(&vm, &list, &n), 0);
	assert_int_equal(find_entry(list, n, 0x80000022, 0)->ebx, 4);
	assert_int_equal(find_entry(list, n, 0x80000022, 0)->eax, 1);
	free(list);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_old_program_gets_the_leaves_that_it_does_not_know),
		cmocka_unit_test(a_list_of_another_processor_is_left_alone),
		cmocka_unit_test(a_guest_without_counters_gets_no_perfmon_v2),
		cmocka_unit_test(a_leaf_that_a_program_knows_in_part_is_completed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
