/* SPDX-License-Identifier: MIT */
/*
 * Counting beside the guest's counters (hwpmu/shadow.h), for `vpmu exec --passes`: VPMU_SHADOW
 * names a descriptor (base/inherited.h), of a file as long as a struct hwpmu_shadow.
 */
#ifndef VM_PMU_SHADOW_H
#define VM_PMU_SHADOW_H

struct vm;

void shadow_environment(struct vm *vm); /* sets vm->shadow; before the VM has vCPUs */
void shadow_destroy(struct vm *vm);

#endif
