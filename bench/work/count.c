// SPDX-License-Identifier: MIT
/*
 * The cycles of a number of units, for bench/truth: in this process, after a unit that brings code
 * and data in. In guests they are counted (bench/work/cycles.h), from that unit on: the model begins to
 * look when counting begins.
 */
#include "bench/work/cycles.h"

#include <stdio.h>

#include "bench/work/work.h"

/* A round of units. Says cycles, instructions and the clock of a round. */
static void one_round(const struct workload *w, const struct cycles *c, unsigned units)
{
	double before = cycles_clock(), after;
	struct cycles_reading from = cycles_read(c), to;

	for (unsigned i = 0; i < units; i++)
		w->unit();
	to = cycles_read(c);
	after = cycles_clock();
	printf("work: %s counted %u %.0f %llu %.4f %.4f\n", w->name, units,
	       cycles_between(c, &from, &to, (before + after) / 2),
	       (unsigned long long)(to.instructions - from.instructions), before, after);
}

void count(const struct workload *w, unsigned units, unsigned rounds)
{
	struct cycles c = cycles_open();
	double before[2], after[2];

	if (w->setup)
		w->setup();
	w->unit();
	cycles_seconds(before);
	for (unsigned i = 0; i < rounds; i++)
		one_round(w, &c, units);
	cycles_seconds(after);
	printf("work: %s seconds %.3f %.3f\n", w->name, after[0] - before[0], after[1] - before[1]);
}
