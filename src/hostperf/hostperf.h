/* SPDX-License-Identifier: MIT */
/*
 * The host's side of performance monitoring: who owns the physical counters, and when.
 */
#ifndef HOSTPERF_HOSTPERF_H
#define HOSTPERF_HOSTPERF_H

#include "pmu/backend.h"

/*
 * Mediated: the guest owns the physical PMU, counter by counter. Its world is a struct hwpmu of the
 * same model. Freestanding.
 */
extern const struct pmu_backend hostperf_mediated;

#endif
