/* SPDX-License-Identifier: MIT */
/*
 * vCPUs for tests of the hypervisor that run no guest.
 */
#ifndef UNIT_PLAIN_VCPU_H
#define UNIT_PLAIN_VCPU_H

#include "vm/vm.h"

/* With all of the CPUID that its VM's model has. It ends with the VM. */
struct vcpu *plain_vcpu(struct vm *vm, u32 id);

#endif
