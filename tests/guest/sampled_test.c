// SPDX-License-Identifier: MIT
/*
 * When the processor stops at a trip it knows which instruction that was, and what it accessed:
 * what PEBS records and IBS samples are made of. The truth comes from a run of single instructions;
 * then the same code runs with trips of every class.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "guest/trips.h"

static struct step {
	u64 rip;
	struct retire_tally tally; /* after it */
	struct observed_access access;
} steps[MOST];
static u64 nsteps;

static void load(struct machine *m, retire_wanted wanted)
{
	machine_load(m, work_start, (size_t)(work_end - work_start));
	image_gate(m->ram, VEC_DE, IMAGE_CODE + 0x100, 0);
	m->cpu->port.wanted = wanted;
	m->cpu->port.trips.armed = 0;
	m->cpu->port.precise = true;
	machine_cold(m);
}

static int reference(void **state)
{
	struct machine *m;

	machine_set_up(state);
	m = *state;
	load(m, WANT_ALL);
	for (nsteps = 0; nsteps < MOST && machine_run(m, 1) == EXIT_BUDGET; nsteps++)
		steps[nsteps] = (struct step){ .rip = m->cpu->port.last_rip,
					       .tally = m->cpu->port.tally,
					       .access = cpu_priv(m->cpu)->timing.seen.access };
	return nsteps < 500 || nsteps == MOST;
}

static u64 first_at(enum retire_class class, u64 value)
{
	u64 i = 0;

	while (i < nsteps && retire_count(&steps[i].tally, class, RETIRE_OS) < value)
		i++;
	return i;
}

static void arm(struct cpu *cpu, enum retire_class class, u64 at)
{
	cpu->port.trips.at[class][RETIRE_IN_OS] = cpu->port.trips.at[class][RETIRE_IN_USR] =
		RETIRE_NEVER;
	cpu->port.trips.at[class][RETIRE_IN_BOTH] = at;
	cpu->port.trips.armed = RETIRE_BIT(class);
}

static void check_step(const struct machine *m, enum retire_class class, u64 i)
{
	const struct observed_access *seen = &cpu_priv(m->cpu)->timing.seen.access,
				     *want = &steps[i].access;

	if (m->cpu->port.last_rip != steps[i].rip)
		fail_msg("class %d, instruction %lu: at %#lx, not %#lx", class, (unsigned long)i,
			 (unsigned long)m->cpu->port.last_rip, (unsigned long)steps[i].rip);
	if (m->cpu->port.wanted != WANT_ALL)
		return;
	/* A branch that ends a block in full speed has not been looked at alone. */
	if (RETIRE_BIT(class) & (COUNT_BRANCHES | OBSERVED_IN_BRANCHES))
		return;
	if (seen->valid != want->valid)
		fail_msg("class %d, instruction %lu at %#lx: access %d of %#lx, not %d", class,
			 (unsigned long)i, (unsigned long)steps[i].rip, seen->valid,
			 (unsigned long)seen->linear, want->valid);
	if (!want->valid)
		return;
	assert_int_equal(seen->linear, want->linear);
	assert_int_equal(seen->store, want->store);
	assert_int_equal(seen->level, want->level);
	assert_int_equal(seen->latency, want->latency);
}

static u64 check_class(struct machine *m, enum retire_class class, u64 period, retire_wanted wanted)
{
	u64 trips = 0;

	load(m, wanted);
	for (u64 at = period;; at += period, trips++) {
		u64 i = first_at(class, at);

		arm(m->cpu, class, at);
		if (machine_run(m, FOREVER) != EXIT_BUDGET) {
			assert_int_equal(i, nsteps); /* none was missed */
			return trips;
		}
		check_step(m, class, i);
		at = retire_count(&steps[i].tally, class, RETIRE_OS) / period * period;
	}
}

static void the_instruction_of_each_trip_is_known(void **state)
{
	u64 trips = 0;

	for (enum retire_class class = 0; class < NRETIRE; class ++)
		if (class != RETIRE_INTERRUPTS)
			for (u64 period = 1; period <= 7; period += 2)
				trips += check_class(*state, class, period, WANT_ALL);
	assert_true(trips > 5000);
}

/* Blocks are longer then, continue after branches, and none of their instructions is executed
 * alone. */
static void it_is_known_when_nothing_is_modelled(void **state)
{
	u64 trips = 0;

	for (enum retire_class class = 0; class < NRETIRE; class ++)
		if (class != RETIRE_INTERRUPTS &&
		    !(RETIRE_BIT(class) & (OBSERVED_IN_MEMORY | OBSERVED_IN_BRANCHES)))
			for (u64 period = 1; period <= 61; period += 3)
				trips += check_class(*state, class, period, RETIRE_BIT(class));
	assert_true(trips > 5000);
}

/* An ordinary counter overflows, then one that samples: PEBS was enabled in between. */
static void earlier_trips_that_were_not_sampled_play_no_part(void **state)
{
	struct machine *m = *state;

	for (enum retire_class class = 0; class < NRETIRE; class ++) {
		if (!(RETIRE_BIT(class) & OBSERVED_IN_MEMORY))
			continue;
		load(m, WANT_ALL);
		for (u64 at = 1, sampled = 0;; sampled = !sampled) {
			u64 i = first_at(class, at);

			m->cpu->port.precise = sampled;
			arm(m->cpu, class, at);
			if (machine_run(m, FOREVER) != EXIT_BUDGET) {
				assert_int_equal(i, nsteps);
				break;
			}
			if (sampled)
				check_step(m, class, i);
			at = retire_count(&steps[i].tally, class, RETIRE_OS) + 1;
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_instruction_of_each_trip_is_known),
		cmocka_unit_test(it_is_known_when_nothing_is_modelled),
		cmocka_unit_test(earlier_trips_that_were_not_sampled_play_no_part),
	};

	return cmocka_run_group_tests(tests, reference, machine_tear_down);
}
