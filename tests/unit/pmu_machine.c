// SPDX-License-Identifier: MIT
/*
 * The vCPU of pmu_machine.h.
 */
#include "unit/pmu_machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/must.h"
#include "hostperf/hostperf.h"

struct pmu_guest pmu_machine_guest(enum model_set model)
{
	u32 a[4], leaf_22[4];

	pmu_cpuid(pmu_model_of(model), 0xa, a);
	pmu_cpuid(pmu_model_of(model), 0x80000022, leaf_22);
	return (struct pmu_guest){
		.leaf_a_eax = a[0],
		.leaf_a_ecx = a[2],
		.leaf_a_edx = a[3],
		.pdcm = true,
		.core_ext = true,
		.leaf_22_eax = leaf_22[0],
		.leaf_22_ebx = leaf_22[1],
		.arch_lbr = true,
		.ds = true,
		.ibs = true,
	};
}

static void create(struct pmu_machine *m, enum model_set model)
{
	memset(m, 0, sizeof(*m));
	hwpmu_init(&m->hw, pmu_model_of(model), &m->tally);
	m->hw.host = &m->host_tally;
	hwpmu_attach_branches(&m->hw, &m->branches);
	hostperf_init(&m->host, &m->hw);
	m->events.host = &m->host;
}

void pmu_machine_create(struct pmu_machine *m, enum model_set model)
{
	struct pmu_guest guest = pmu_machine_guest(model);

	create(m, model);
	m->host.yielded = true;
	pmu_init(&m->pmu, pmu_model_of(model), &hostperf_mediated, &m->hw);
	pmu_configure(&m->pmu, &guest);
}

void pmu_machine_create_event(struct pmu_machine *m, enum model_set model)
{
	struct pmu_guest guest = pmu_machine_guest(model);

	create(m, model);
	pmu_init(&m->pmu, pmu_model_of(model), &hostperf_event, &m->events);
	pmu_configure(&m->pmu, &guest);
}

static void (*chosen)(struct pmu_machine *m, enum model_set model);

void pmu_machine_create_either(struct pmu_machine *m, enum model_set model)
{
	chosen(m, model);
}

int pmu_machine_test(const struct CMUnitTest *tests, size_t n)
{
	chosen = pmu_machine_create;
	if (_cmocka_run_group_tests("mediated", tests, n, NULL, NULL))
		return 1;
	chosen = pmu_machine_create_event;
	return _cmocka_run_group_tests("event", tests, n, NULL, NULL);
}

u32 pmu_machine_run(struct pmu_machine *m, u64 instructions)
{
	u32 pmis = 0;

	while (instructions) {
		u64 n;

		pmu_enter(&m->pmu);
		n = hwpmu_horizon(&m->hw, RETIRE_USR, ~(retire_wanted)0);
		must(n);
		n = n < instructions ? n : instructions;
		m->tally.instructions[RETIRE_USR] += n;
		instructions -= n;
		pmu_leave(&m->pmu);
		pmis += pmu_take_requests(&m->pmu) & PMU_REQUEST_PMI;
	}
	return pmis;
}

enum pmu_result guest_wrmsr(struct pmu_machine *m, u32 index, u64 value)
{
	enum pmu_result result = pmu_wrmsr(&m->pmu, index, false, value);

	if (result == PMU_OK && !m->apart)
		m->tally.instructions[RETIRE_OS]++;
	pmu_enter(&m->pmu);
	return result;
}

enum pmu_result host_wrmsr(struct pmu_machine *m, u32 index, u64 value)
{
	return pmu_wrmsr(&m->pmu, index, true, value);
}

u64 host_rdmsr(struct pmu_machine *m, u32 index)
{
	u64 value;

	must(pmu_rdmsr(&m->pmu, index, true, &value) == PMU_OK);
	return value;
}
