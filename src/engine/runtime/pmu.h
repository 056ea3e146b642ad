/* SPDX-License-Identifier: MIT */
/*
 * The processor's PMU as the files of the engine see it. cpu->pmu.model NULL: there is none, and
 * the owner sets trips, classes and observation itself.
 */
#ifndef ENGINE_RUNTIME_PMU_H
#define ENGINE_RUNTIME_PMU_H

#include "engine/engine.h"

/* Before a run, and after a write that the PMU's registers took: which classes must be counted,
 * where counters overflow, what must be observed. */
void pmu_arm(struct cpu *cpu);
/*
 * Between two instructions, when a trip is reached and everything retired is in the tallies: takes
 * samples. True: nothing else is to be done, and the next trips are armed. False: exit to the
 * hypervisor with EXIT_PMI.
 */
bool pmu_assist(struct cpu *cpu);

/* pmu_ibs.c: of struct hwpmu_store */
void pmu_sample_ibs(void *owner, struct ibs_sample *sample);

#endif
