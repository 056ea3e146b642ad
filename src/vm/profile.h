/* SPDX-License-Identifier: MIT */
/*
 * The exact profile of a VM (base/profile.h), for `vpmu check`: VPMU_PROFILE names a
 * descriptor (base/inherited.h), of a file as long as a struct profile. VMs on virtual time only,
 * of which one vCPU at a time writes it.
 */
#ifndef VM_PROFILE_H
#define VM_PROFILE_H

struct vm;

void profile_environment(struct vm *vm); /* sets vm->profile; before the VM has vCPUs */
void profile_destroy(struct vm *vm);

#endif
