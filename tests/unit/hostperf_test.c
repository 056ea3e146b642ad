// SPDX-License-Identifier: MIT
/*
 * The host's perf core on a physical PMU: who gets a counter, who waits, who fails, and what a
 * guest makes of it in either mode.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "unit/pmu_machine.h"

#define BOTH	     (EVENTSEL_OS | EVENTSEL_USR)
#define INSTRUCTIONS (0xc0 | BOTH)
#define BRANCHES     (0xc4 | BOTH)
#define CYCLES	     (0x3c | BOTH)
#define AMD_BRANCHES (0xc2 | BOTH)
#define REF_CYCLES   (0x300 | BOTH)
#define LOADS	     (0x81d0 | BOTH)

#define GLOBAL_CTL 0xc0000301

#define IBS_OP_CONTROL 0xc0011033
#define IBS_OP_RIP_MSR 0xc0011034

static struct pmu_machine m;
static struct host_event event[HOST_EVENTS];

static int on_genoa(void **state)
{
	(void)state;
	memset(event, 0, sizeof(event));
	pmu_machine_create_event(&m, MODEL_GENOA);
	m.apart = true;
	return 0;
}

static int on_icelake(void **state)
{
	(void)state;
	memset(event, 0, sizeof(event));
	pmu_machine_create_event(&m, MODEL_ICELAKE);
	m.apart = true;
	return 0;
}

static int on_mediated_genoa(void **state)
{
	(void)state;
	memset(event, 0, sizeof(event));
	pmu_machine_create(&m, MODEL_GENOA);
	m.apart = true;
	return 0;
}

static void add(u32 first, u32 n, u64 select, u32 flags)
{
	for (u32 i = first; i < first + n; i++) {
		event[i].select = select;
		event[i].flags = flags;
		assert_true(hostperf_add(&m.host, &event[i]));
	}
	hostperf_schedule(&m.host);
}

static u32 in_state(enum host_event_state state, u32 first, u32 n)
{
	u32 found = 0;

	for (u32 i = first; i < first + n; i++)
		found += event[i].state == state;
	return found;
}

/* The guest counts instructions and branches on two counters. */
static void guest_counts(void)
{
	guest_wrmsr(&m, PERF_CTL, COUNTING | INSTRUCTIONS);
	guest_wrmsr(&m, PERF_CTL + 2, COUNTING | AMD_BRANCHES);
	guest_wrmsr(&m, GLOBAL_CTL, 3);
}

static void guest_runs(void)
{
	pmu_enter(&m.pmu);
	m.tally.instructions[RETIRE_USR] += 1000;
	m.tally.branches[RETIRE_USR] += 200;
	pmu_leave(&m.pmu);
}

/* --- placing --- */

static void pinned_events_have_a_counter_each(void **state)
{
	(void)state;
	add(0, 6, INSTRUCTIONS, HOST_PINNED);
	assert_int_equal(in_state(HOST_COUNTING, 0, 6), 6);
	for (u32 i = 0; i < 6; i++)
		for (u32 j = 0; j < i; j++)
			assert_int_not_equal(event[i].counter, event[j].counter);
}

static void a_pinned_event_without_a_counter_is_in_error(void **state)
{
	(void)state;
	add(0, 7, INSTRUCTIONS, HOST_PINNED);
	assert_int_equal(in_state(HOST_COUNTING, 0, 7), 6);
	assert_int_equal(event[6].state, HOST_ERROR);
	hostperf_remove(&m.host, &event[0]);
	hostperf_schedule(&m.host);
	assert_int_equal(event[6].state, HOST_ERROR); /* until it is added again */
	hostperf_remove(&m.host, &event[6]);
	add(6, 1, INSTRUCTIONS, HOST_PINNED);
	assert_int_equal(event[6].state, HOST_COUNTING);
}

static void ranks_decide_whoever_came_first(void **state)
{
	(void)state;
	add(0, 2, INSTRUCTIONS, HOST_TASK);
	add(2, 2, INSTRUCTIONS, 0);
	add(4, 3, INSTRUCTIONS, HOST_PINNED | HOST_TASK);
	add(7, 2, INSTRUCTIONS, HOST_PINNED);
	assert_int_equal(in_state(HOST_COUNTING, 4, 5), 5);
	assert_int_equal(in_state(HOST_COUNTING, 2, 2), 1);
	assert_int_equal(in_state(HOST_WAITING, 0, 2), 2);
}

static void events_move_so_that_constraints_are_met(void **state)
{
	(void)state;
	add(0, 4, BRANCHES, HOST_PINNED); /* any of eight */
	add(4, 4, LOADS, HOST_PINNED);	  /* the first four only */
	assert_int_equal(in_state(HOST_COUNTING, 0, 8), 8);
	for (u32 i = 4; i < 8; i++)
		assert_true(event[i].counter < 4);
}

static void fixed_counters_serve_their_events_first(void **state)
{
	(void)state;
	add(0, 9, INSTRUCTIONS, HOST_PINNED); /* eight general ones and the fixed one */
	assert_int_equal(in_state(HOST_COUNTING, 0, 9), 9);
	add(9, 2, REF_CYCLES, HOST_PINNED); /* there is one place for it */
	assert_int_equal(in_state(HOST_COUNTING, 9, 2), 1);
	assert_int_equal(in_state(HOST_ERROR, 9, 2), 1);
}

/* Fixed counters have no bits for them. */
static void transactions_are_counted_by_general_counters(void **state)
{
	(void)state;
	add(0, 1, INSTRUCTIONS | EVENTSEL_IN_TX, HOST_PINNED);
	add(1, 1, CYCLES | EVENTSEL_IN_TXCP, HOST_PINNED);
	assert_int_equal(in_state(HOST_COUNTING, 0, 2), 2);
	assert_true(event[0].counter < PMU_FIXED_BASE);
	assert_true(event[1].counter < PMU_FIXED_BASE);
	guest_runs();
	assert_int_equal(hostperf_read(&m.host, &event[0]), 0); /* there are none */
}

static void a_group_counts_as_a_whole_or_not_at_all(void **state)
{
	(void)state;
	add(0, 4, INSTRUCTIONS, HOST_PINNED);
	for (u32 i = 4; i < 7; i++)
		event[i].group = 1;
	add(4, 3, INSTRUCTIONS, 0);
	assert_int_equal(in_state(HOST_WAITING, 4, 3), 3);
	hostperf_remove(&m.host, &event[0]);
	hostperf_schedule(&m.host);
	assert_int_equal(in_state(HOST_COUNTING, 4, 3), 3);
}

static void a_group_in_error_is_tried_again_with_what_joins_it(void **state)
{
	(void)state;
	for (u32 i = 4; i < 8; i++)
		event[i].group = 1;
	add(0, 4, INSTRUCTIONS, HOST_PINNED);
	add(4, 3, INSTRUCTIONS, HOST_PINNED);
	assert_int_equal(in_state(HOST_ERROR, 4, 3), 3);
	add(7, 1, INSTRUCTIONS, HOST_PINNED);
	assert_int_equal(in_state(HOST_ERROR, 4, 4), 4);
	hostperf_remove(&m.host, &event[7]);
	hostperf_remove(&m.host, &event[0]);
	hostperf_remove(&m.host, &event[1]);
	add(7, 1, INSTRUCTIONS, HOST_PINNED);
	assert_int_equal(in_state(HOST_COUNTING, 4, 4), 4);
}

static void flexible_events_share_by_turns_and_times_tell(void **state)
{
	u64 now = 0;

	(void)state;
	add(0, 12, INSTRUCTIONS, HOST_EXCLUDE_HOST);
	assert_true(hostperf_multiplexes(&m.host));
	for (u32 turn = 0; turn < 12; turn++) {
		m.tally.instructions[RETIRE_USR] += 100;
		hostperf_advance(&m.host, now += 10);
		hostperf_rotate(&m.host);
	}
	for (u32 i = 0; i < 12; i++) {
		assert_int_equal(event[i].enabled, 120);
		assert_int_equal(event[i].running, 60);
		assert_int_equal(hostperf_read(&m.host, &event[i]), 600);
	}
}

static void exclusion_chooses_the_world(void **state)
{
	(void)state;
	add(0, 1, INSTRUCTIONS, HOST_EXCLUDE_HOST);
	add(1, 1, INSTRUCTIONS, HOST_EXCLUDE_GUEST);
	add(2, 1, INSTRUCTIONS, 0);
	m.tally.instructions[RETIRE_OS] += 5;
	m.host_tally.instructions[RETIRE_OS] += 70;
	assert_int_equal(hostperf_read(&m.host, &event[0]), 5);
	assert_int_equal(hostperf_read(&m.host, &event[1]), 70);
	assert_int_equal(hostperf_read(&m.host, &event[2]), 75);
}

/* --- guests --- */

static void event_mode_starves_on_full_host(void **state)
{
	(void)state;
	add(0, 5, AMD_BRANCHES, HOST_PINNED);
	guest_counts();
	guest_runs();
	assert_int_equal(host_rdmsr(&m, PERF_CTR), 1000);
	assert_int_equal(host_rdmsr(&m, PERF_CTR + 2), 0);
	assert_int_equal(hostperf_starved(&m.events), BIT(1));
	assert_int_equal(in_state(HOST_COUNTING, 0, 5), 5);
}

static void a_host_event_that_comes_later_stops_a_guest_counter(void **state)
{
	(void)state;
	guest_counts();
	guest_runs();
	add(0, 6, AMD_BRANCHES, HOST_PINNED);
	guest_runs();
	assert_int_equal(hostperf_starved(&m.events), 3);
	assert_int_equal(host_rdmsr(&m, PERF_CTR), 1000); /* frozen, as in KVM */
	for (u32 i = 0; i < 6; i++)
		hostperf_remove(&m.host, &event[i]);
	guest_counts(); /* the same once more is no news */
	guest_runs();
	assert_int_equal(host_rdmsr(&m, PERF_CTR), 1000);
	guest_wrmsr(&m, GLOBAL_CTL, 0);
	guest_wrmsr(&m, GLOBAL_CTL, 3);
	guest_runs();
	assert_int_equal(hostperf_starved(&m.events), 0);
	assert_int_equal(host_rdmsr(&m, PERF_CTR), 2000);
}

static void flexible_host_events_do_not_disturb_a_guest(void **state)
{
	(void)state;
	add(0, 8, AMD_BRANCHES, 0);
	guest_counts();
	for (u32 i = 0; i < 10; i++) {
		guest_runs();
		hostperf_rotate(&m.host);
	}
	assert_int_equal(host_rdmsr(&m, PERF_CTR), 10000);
	assert_int_equal(host_rdmsr(&m, PERF_CTR + 2), 2000);
}

static void guest_interrupts_are_exact_on_any_physical_counter(void **state)
{
	(void)state;
	add(0, 3, AMD_BRANCHES, HOST_PINNED);
	guest_wrmsr(&m, PERF_CTL, COUNTING | INSTRUCTIONS | EVENTSEL_INT);
	assert_int_not_equal(m.events.event[0].counter, 0);
	for (u32 i = 0; i < 5; i++) {
		guest_wrmsr(&m, PERF_CTR, -1000);
		assert_int_equal(pmu_machine_run(&m, 999), 0);
		assert_int_equal(pmu_machine_run(&m, 1), 1);
	}
}

/* A turn of a mediated guest on a host with events of its own. */
static void mediated_turn(u64 host_instructions)
{
	pmu_put(&m.pmu);
	hostperf_resume(&m.host);
	m.host_tally.instructions[RETIRE_OS] += host_instructions;
	hostperf_yield(&m.host);
	guest_runs();
}

static void a_mediated_guest_counts_as_if_alone(void **state)
{
	(void)state;
	for (u32 i = 0; i < 6; i++) {
		event[i].select = INSTRUCTIONS;
		event[i].flags = HOST_PINNED | HOST_EXCLUDE_GUEST;
		assert_true(hostperf_add(&m.host, &event[i]));
	}
	guest_counts();
	for (u32 i = 0; i < 10; i++)
		mediated_turn(7);
	assert_int_equal(host_rdmsr(&m, PERF_CTR), 10000);
	assert_int_equal(host_rdmsr(&m, PERF_CTR + 2), 2000);
	/* And the host has lost nothing. */
	for (u32 i = 0; i < 6; i++)
		assert_int_equal(hostperf_read(&m.host, &event[i]), 70);
}

/* Events of the host use counters only: what else the guest has is not touched. */
static void ibs_survives_a_change_of_hands(void **state)
{
	struct pmu_guest guest = pmu_machine_guest(MODEL_GENOA);
	u64 before;

	(void)state;
	guest.ibs = true;
	pmu_configure(&m.pmu, &guest);
	guest_wrmsr(&m, IBS_OP_CONTROL, IBS_OP_EN | 0x1000);
	guest_wrmsr(&m, IBS_OP_RIP_MSR, 0x1234);
	before = host_rdmsr(&m, IBS_OP_CONTROL);
	assert_true(before & IBS_OP_EN);
	mediated_turn(7);
	pmu_set_backend(&m.pmu, &hostperf_event, &m.events);
	hostperf_resume(&m.host);
	guest_runs();
	assert_int_equal(host_rdmsr(&m, IBS_OP_CONTROL) & (IBS_OP_EN | 0xffff),
			 before & (IBS_OP_EN | 0xffff));
	assert_int_equal(host_rdmsr(&m, IBS_OP_RIP_MSR), 0x1234);
	pmu_configure(&m.pmu, &guest);
	assert_int_equal(host_rdmsr(&m, IBS_OP_CONTROL), 0);
}

static void no_count_is_lost_when_the_mode_changes(void **state)
{
	(void)state;
	guest_wrmsr(&m, PERF_CTR, -(10 * 1000 - 500));
	guest_wrmsr(&m, PERF_CTL, COUNTING | INSTRUCTIONS | EVENTSEL_INT);
	for (u32 i = 0; i < 20; i++) {
		if (i % 2)
			pmu_set_backend(&m.pmu, &hostperf_mediated, &m.hw);
		else
			pmu_set_backend(&m.pmu, &hostperf_event, &m.events);
		m.host.yielded = i % 2;
		guest_runs();
		assert_int_equal(host_rdmsr(&m, PERF_CTR),
				 (-(10 * 1000 - 500) + (i + 1) * 1000ull) & WIDTH);
		assert_int_equal(pmu_take_requests(&m.pmu) & PMU_REQUEST_PMI, i == 9);
	}
}

#define GENOA(name)   cmocka_unit_test_setup(name, on_genoa)
#define ICELAKE(name) cmocka_unit_test_setup(name, on_icelake)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		GENOA(pinned_events_have_a_counter_each),
		GENOA(a_pinned_event_without_a_counter_is_in_error),
		GENOA(ranks_decide_whoever_came_first),
		ICELAKE(events_move_so_that_constraints_are_met),
		ICELAKE(fixed_counters_serve_their_events_first),
		ICELAKE(transactions_are_counted_by_general_counters),
		GENOA(a_group_counts_as_a_whole_or_not_at_all),
		GENOA(a_group_in_error_is_tried_again_with_what_joins_it),
		GENOA(flexible_events_share_by_turns_and_times_tell),
		GENOA(exclusion_chooses_the_world),
		GENOA(event_mode_starves_on_full_host),
		GENOA(a_host_event_that_comes_later_stops_a_guest_counter),
		GENOA(flexible_host_events_do_not_disturb_a_guest),
		GENOA(guest_interrupts_are_exact_on_any_physical_counter),
		cmocka_unit_test_setup(a_mediated_guest_counts_as_if_alone, on_mediated_genoa),
		cmocka_unit_test_setup(ibs_survives_a_change_of_hands, on_mediated_genoa),
		cmocka_unit_test_setup(no_count_is_lost_when_the_mode_changes, on_mediated_genoa),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
