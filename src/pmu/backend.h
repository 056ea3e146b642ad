/* SPDX-License-Identifier: MIT */
/*
 * How counting gets done. The virtual PMU has the guest's registers; a backend counts what they
 * say, with physical counters that the guest owns or with events of the host
 * (hostperf/backend_mediated.c, backend_event.c). Counters are named by their bit in GLOBAL_CTRL.
 * Called on the vCPU thread, or with the vCPU's lock held.
 *
 * While a backend counts, it has the newer values; struct pmu has the newer of what was written to
 * it since (pmu->dirty, pmu->stale).
 */
#ifndef PMU_BACKEND_H
#define PMU_BACKEND_H

#include "x86/ibs.h"
#include "x86/lbr.h"
#include "x86/pebs.h"

struct pmu;

struct pmu_backend {
	const char *name;
	/* The model's own physical PMU counts: a guest may write its registers without an exit. */
	bool owns_hardware;

	/*
	 * Before an entry: counts what pmu's registers now say. `controls` and `values` are the
	 * counters whose control, whose value is newer in pmu, with GLOBAL_METRICS the metrics; the
	 * others go on. A counter
	 * overflows when it wraps at the model's width.
	 */
	void (*load)(void *data, struct pmu *pmu, u64 controls, u64 values);
	/* Brings what is not newer in pmu up to date: values, and registers that the guest reached
	 * without an exit. Counting goes on. */
	void (*save)(void *data, struct pmu *pmu);
	/* Stops counting, and forgets what it counted. */
	void (*unload)(void *data);
	/* The counters that overflowed since the last call, whatever their INT bits. */
	u64 (*overflowed)(void *data);

	/*
	 * Branch records, as the model's registers show them. All four or none: without them the
	 * guest has none.
	 */
	void (*record)(void *data, const struct lbr_control *control);
	u64 (*read_record)(const void *data, enum lbr_field field, u32 i);
	void (*write_record)(void *data, enum lbr_field field, u32 i, u64 value);
	void (*clear_records)(void *data);
	/* NULL: the guest has no PEBS. */
	void (*pebs)(void *data, const struct pebs_control *control);
	/* Both or none: without them the guest has no IBS. */
	u64 (*read_ibs)(const void *data, enum ibs_register reg);
	void (*write_ibs)(void *data, enum ibs_register reg, u64 value);
};

/* --- what a backend asks the virtual PMU --- */

/* An event select or the field of FIXED_CTR_CTRL, as the hardware may have it: disabled if the
 * filter denies it. */
u64 pmu_hardware_control(const struct pmu *pmu, u32 counter);
/* As pmu_hardware_control(), if GLOBAL_CTRL enables the counter, too; else 0. */
u64 pmu_counting_control(const struct pmu *pmu, u32 counter);
/* The value to count from: bits that the guest's counter lacks are set, so that both wrap at
 * once. */
u64 pmu_value(const struct pmu *pmu, u32 counter);
void pmu_set_value(struct pmu *pmu, u32 counter, u64 value);
/* Ticks that the backend has counted of the counter's next cycle or slot: state that no register
 * shows. A guest's write of the counter sets 0. */
u32 pmu_part(const struct pmu *pmu, u32 counter);
void pmu_set_part(struct pmu *pmu, u32 counter, u32 part);
/* Does PERF_METRICS count, as far as GLOBAL_CTRL and the filter say? It needs fixed counter 3, too.
 */
bool pmu_metrics_enabled(const struct pmu *pmu);
/* May the guest reach these without an exit? */
bool pmu_passes_selects(const struct pmu *pmu);
bool pmu_passes_fixed_ctrl(const struct pmu *pmu);

#endif
