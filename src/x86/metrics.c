// SPDX-License-Identifier: MIT
/*
 * The arithmetic of MSR_PERF_METRICS. Fractions of level 1 are rounded by largest remainder, so
 * that their sum is FFH; those of level 2 are fractions of the field that they are a part of. Runs
 * while guest vector state is live: general registers only.
 */
#include "x86/metrics.h"

#define WHOLE	 0xffu
/* Counts below it can be multiplied with WHOLE. */
#define SAFE_MAX BIT(54)

static u32 byte_of(u64 value, u32 i)
{
	return value >> 8 * i & 0xff;
}

/* The level-1 counts, small enough to multiply them; returns their sum. */
static u64 scaled(const struct metrics *m, u64 out[NMETRICS])
{
	u64 sum = 0;
	u32 shift = 0;

	for (u32 i = 0; i < NMETRICS_L1; i++)
		while (m->ticks[i] >> shift >= SAFE_MAX)
			shift++;
	for (u32 i = 0; i < NMETRICS; i++) {
		out[i] = m->ticks[i] >> shift;
		sum += i < NMETRICS_L1 ? out[i] : 0;
	}
	return sum;
}

/* Where the largest remainder is; the first of equals. */
static u32 largest(const u64 rest[NMETRICS_L1])
{
	u32 at = 0;

	for (u32 i = 1; i < NMETRICS_L1; i++)
		if (rest[i] > rest[at])
			at = i;
	return at;
}

static void round_level1(const u64 *ticks, u64 sum, u32 out[NMETRICS])
{
	u64 rest[NMETRICS_L1];
	u32 left = WHOLE;

	for (u32 i = 0; i < NMETRICS_L1; i++) {
		out[i] = ticks[i] * WHOLE / sum;
		rest[i] = ticks[i] * WHOLE % sum;
		left -= out[i];
	}
	for (; left; left--) {
		u32 i = largest(rest);

		out[i]++;
		rest[i] = 0;
	}
}

static void round_level2(const u64 *ticks, u32 out[NMETRICS])
{
	for (u32 i = 0; i < NMETRICS_L1; i++) {
		u64 all = ticks[i], part = ticks[NMETRICS_L1 + i];

		if (part >= all)
			out[NMETRICS_L1 + i] = all ? out[i] : 0;
		else
			out[NMETRICS_L1 + i] = (part * out[i] + all / 2) / all;
	}
}

u64 metrics_value(const struct metrics *m, u32 fields)
{
	u64 ticks[NMETRICS], sum = scaled(m, ticks), value = 0;
	u32 share[NMETRICS];

	if (!m->counted || !sum)
		return m->written;
	round_level1(ticks, sum, share);
	round_level2(ticks, share);
	for (u32 i = 0; i < fields; i++)
		value |= (u64)share[i] << 8 * i;
	return value;
}

void metrics_write(struct metrics *m, u64 value, u64 slots)
{
	*m = (struct metrics){ .written = value };
	for (u32 i = 0; i < NMETRICS; i++)
		m->ticks[i] = slots / WHOLE * byte_of(value, i) +
			      slots % WHOLE * byte_of(value, i) / WHOLE;
}

void metrics_add(struct metrics *m, const u64 ticks[NMETRICS])
{
	for (u32 i = 0; i < NMETRICS; i++)
		m->ticks[i] += ticks[i];
	for (u32 i = 0; i < NMETRICS_L1; i++)
		m->counted |= ticks[i] != 0;
}
