/* SPDX-License-Identifier: MIT */
/*
 * The debug store of a vCPU's physical PMU, and samples: for the PMU's owner, vm/pmu.c.
 */
#ifndef VM_PMU_STORE_H
#define VM_PMU_STORE_H

#include "vm/pmu.h"

struct cpu;

extern const struct hwpmu_store vcpu_store; /* its owner is the vCPU */

/* Has the processor stop where a counter overflows. */
void vcpu_set_trips(struct vcpu *vcpu);
/* For cpu->assist: a counter that PEBS is enabled for has overflowed. True: go on. */
bool vcpu_assist(struct cpu *cpu, void *owner);

void vcpu_sample_ibs(void *owner, struct ibs_sample *sample); /* pmu_sample.c */

#endif
