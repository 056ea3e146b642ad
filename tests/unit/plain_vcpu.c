// SPDX-License-Identifier: MIT
/*
 * See plain_vcpu.h.
 */
#include "unit/plain_vcpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "vm/cpuid/cpuid.h"

struct vcpu *plain_vcpu(struct vm *vm, u32 id)
{
	void *run = mmap(NULL, VCPU_MMAP_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
			 -1, 0);
	struct kvm_cpuid_entry2 *entries = calloc(CPUID_MAX_ENTRIES, sizeof(*entries));
	struct vcpu *vcpu;

	assert_ptr_not_equal(run, MAP_FAILED);
	assert_non_null(entries);
	assert_int_equal(vcpu_create(vm, id, run, &vcpu), 0);
	assert_int_equal(vcpu_set_cpuid(vcpu, entries,
					cpuid_supported(vm->model, entries, CPUID_MAX_ENTRIES)),
			 0);
	return vcpu;
}
