/* SPDX-License-Identifier: MIT */
/*
 * What the physical PMU needs of its owner: of the core that it belongs to, as a struct
 * hwpmu_store, and one function of the code that links it (vm/pmu/port.c; an embedder's own file).
 * Called on the thread that called the PMU, and may not call it back.
 *
 * Besides these an owner supplies must_failed() (base/must.h), and memcpy and memset if its
 * compiler asks for them.
 */
#ifndef HWPMU_PORT_H
#define HWPMU_PORT_H

#include "base/types.h"

struct hwpmu;
struct ibs_sample;
struct pebs_sample;

/*
 * What PEBS and IBS need of the core (engine/runtime/pmu.c): guest memory by linear addresses at
 * supervisor privilege, which must not fault (false: nothing was read or written), and the
 * instruction that retired last. `cfg` says what of it is wanted, as MSR_PEBS_DATA_CFG; branches
 * are not.
 */
struct hwpmu_store {
	bool (*read)(void *owner, u64 linear, void *to, u32 size);
	bool (*write)(void *owner, u64 linear, const void *from, u32 size);
	void (*sample)(void *owner, u64 cfg, struct pebs_sample *sample);
	void (*ibs)(void *owner, struct ibs_sample *sample);
};

/*
 * A counter was set to an event that the model does not have: it counts nothing. Told once for
 * each event, as long as there are not many, by the hwpmu_retire() that follows. `event` and
 * `umask` as in the event select.
 */
void hwpmu_port_unknown_event(const struct hwpmu *pmu, u32 event, u32 umask);

#endif
