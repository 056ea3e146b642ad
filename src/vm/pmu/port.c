// SPDX-License-Identifier: MIT
/*
 * What the physical PMU needs of the hypervisor (hwpmu/port.h). vCPU thread, outside the engine.
 */
#include "hwpmu/port.h"

#include "base/log.h"

void hwpmu_port_unknown_event(const struct hwpmu *pmu, u32 event, u32 umask)
{
	(void)pmu;
	log_warn("event 0x%03x, unit mask 0x%02x: not an event of this model, it counts nothing",
		 event, umask);
}
