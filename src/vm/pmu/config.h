/* SPDX-License-Identifier: MIT */
/*
 * The choices that a user makes about a VM's PMU, by name: from the environment when it is created
 * (`vpmu kvm` sets it), from the control socket while it runs.
 */
#ifndef VM_PMU_CONFIG_H
#define VM_PMU_CONFIG_H

#include "base/types.h"

struct vm;
struct kvm_cpuid_entry2;

/* VPMU_PMU=off: guests have no PMU. */
bool pmu_config_off(void);
/* Takes the PMU out of a list of KVM_GET_SUPPORTED_CPUID. */
void pmu_config_hide(struct kvm_cpuid_entry2 *entries, u32 n);

/* VPMU_PMU, VPMU_ACCOUNTING, VPMU_TIMING, VPMU_LLC, VPMU_LLC_LIFE, VPMU_HOST_VIEW, for a VM that is
 * being created. */
void pmu_config_environment(struct vm *vm);

/*
 * "pmu", "accounting", "host-view" and a value, while the VM runs: vCPUs follow before their next
 * entry. "timing" can only be what it is. NULL: done; else what is wrong, in words.
 */
const char *pmu_config_set(struct vm *vm, const char *key, const char *value);

const char *pmu_config_mode(const struct vm *vm);
const char *pmu_config_accounting(const struct vm *vm);
const char *pmu_config_timing(const struct vm *vm);
u32 pmu_config_last_level(const struct vm *vm); /* Kbytes */

#endif
