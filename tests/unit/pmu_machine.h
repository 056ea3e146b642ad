/* SPDX-License-Identifier: MIT */
/*
 * A vCPU as far as its PMU is concerned: tallies that a test adds to, the physical and the virtual
 * PMU. Guest writes are completed as by a hypervisor: done, then counted as one instruction.
 */
#ifndef TESTS_PMU_MACHINE_H
#define TESTS_PMU_MACHINE_H

#include "hostperf/hostperf.h"
#include "hwpmu/hwpmu.h"
#include "pmu/pmu.h"

/* Registers: Intel's, then AMD's. */
#define PMC	    0xc1
#define A_PMC	    0x4c1
#define EVNTSEL	    0x186
#define FIXED_CTR   0x309
#define PERF_CAPS   0x345
#define FIXED_CTRL  0x38d
#define STATUS	    0x38e
#define GLOBAL_CTRL 0x38f
#define OVF_CTRL    0x390
#define K7_EVNTSEL  0xc0010000
#define K7_PMC	    0xc0010004
#define PERF_CTL    0xc0010200
#define PERF_CTR    0xc0010201
#define AMD_STATUS  0xc0000300
#define AMD_CTL	    0xc0000301
#define AMD_CLR	    0xc0000302
#define AMD_SET	    0xc0000303

#define COUNTING (EVENTSEL_EN | EVENTSEL_OS | EVENTSEL_USR)
#define FIXED(i) (PMU_FIXED_BASE + (i))
#define WIDTH	 MASK(47, 0)

struct pmu_machine {
	struct retire_tally tally, host_tally;
	struct branch_ring branches;
	struct hwpmu hw;
	struct hostperf host;
	struct hostperf_guest events;
	struct pmu pmu;
	bool apart; /* guest_wrmsr() does not count itself */
};

struct CMUnitTest;

/* Runs a group of tests with each backend; pmu_machine_create_either() makes machines with it. */
#define pmu_machine_test_both(tests) pmu_machine_test(tests, ARRAY_SIZE(tests))
int pmu_machine_test(const struct CMUnitTest *tests, size_t n);
void pmu_machine_create_either(struct pmu_machine *m, enum model_set model);

/* With what the model's CPUID offers; pdcm and the AMD bits set. */
struct pmu_guest pmu_machine_guest(enum model_set model);
void pmu_machine_create(struct pmu_machine *m, enum model_set model);
/* The same, with events of the host behind the counters. */
void pmu_machine_create_event(struct pmu_machine *m, enum model_set model);

/* Lets the guest retire instructions in user mode, obeying the horizon. The number of PMIs. */
u32 pmu_machine_run(struct pmu_machine *m, u64 instructions);

enum pmu_result guest_wrmsr(struct pmu_machine *m, u32 index, u64 value);
enum pmu_result host_wrmsr(struct pmu_machine *m, u32 index, u64 value);
u64 host_rdmsr(struct pmu_machine *m, u32 index);

#endif
