/* SPDX-License-Identifier: MIT */
/*
 * The physical PMU by its registers: what RDMSR, WRMSR and RDPMC of the processor do where the
 * hypervisor does not intercept them. After a write the engine has to look again where counters
 * overflow (hwpmu_trips()). Freestanding, general registers only, and tells the owner nothing
 * (port.h) on the way. Owned by the vCPU thread.
 */
#ifndef HWPMU_MSR_H
#define HWPMU_MSR_H

#include "base/types.h"
#include "hwpmu/retire.h"
#include "x86/pmu_msrs.h"

struct hwpmu;

enum hwpmu_access {
	HWPMU_DONE,
	HWPMU_FAULT, /* #GP(0): no such register, or a reserved bit */
};

/* By the decoded register, and by its index. */
enum hwpmu_access hwpmu_read_reg(const struct hwpmu *pmu, struct pmu_reg reg, u64 *value);
enum hwpmu_access hwpmu_write_reg(struct hwpmu *pmu, struct pmu_reg reg, u64 value);
enum hwpmu_access hwpmu_rdmsr(const struct hwpmu *pmu, u32 index, u64 *value);
enum hwpmu_access hwpmu_wrmsr(struct hwpmu *pmu, u32 index, u64 value);
/* CPL and CR4.PCE have been looked at. */
enum hwpmu_access hwpmu_rdpmc(const struct hwpmu *pmu, u32 ecx, u64 *value);

#endif
