/* SPDX-License-Identifier: MIT */
/*
 * What the physical PMU needs of its owner: implemented once by the code that links it
 * (vm/pmu/port.c; an embedder's own file). Called on the thread that called the PMU, and may not
 * call it back.
 *
 * Besides these an owner supplies must_failed() (base/must.h), and memcpy and memset if its
 * compiler asks for them.
 */
#ifndef HWPMU_PORT_H
#define HWPMU_PORT_H

#include "base/types.h"

struct hwpmu;

/*
 * A counter was set to an event that the model does not have: it counts nothing. Told once for
 * each event, as long as there are not many, by the hwpmu_retire() that follows. `event` and
 * `umask` as in the event select.
 */
void hwpmu_port_unknown_event(const struct hwpmu *pmu, u32 event, u32 umask);

#endif
