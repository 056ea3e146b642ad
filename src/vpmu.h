/* SPDX-License-Identifier: MIT */
/*
 * The PMU of vpmu for any hypervisor: link libvpmu.a (pkg-config vpmu) and include this.
 *
 * An owner has, for each vCPU,
 *
 *      struct retire_tally   what its processor counted: it adds to this and nothing else
 *      struct hwpmu          the physical PMU, which evaluates counters from the tallies
 *      struct pmu            the virtual PMU, which the guest's MSR accesses and RDPMC go to
 *
 * and connects them with hostperf_mediated. It supplies what hwpmu/port.h names, and must_failed()
 * of base/must.h. Nothing else is needed: no libc but memcpy and memset, no allocation, no floating
 * point, no global state. examples/toy is a hypervisor of this kind; examples/machine, with user
 * mode and an interrupt controller, explains step by step what an owner does.
 */
#ifndef VPMU_H
#define VPMU_H

#include "base/must.h"
#include "base/version.h"
#include "hwpmu/port.h"
#include "hwpmu/retire.h"
#include "hwpmu/hwpmu.h"
#include "pmu/pmu.h"
#include "pmu/filter.h"
#include "pmu/backend.h"
#include "hostperf/hostperf.h"
#include "x86/pmu_models.h"
#include "x86/events.h"

#endif
