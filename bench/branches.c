// SPDX-License-Identifier: MIT
/*
 * Mispredicted branches of small programs, per 1000 turns of each:
 *
 *	branches [-r REPETITIONS] [-t]
 *
 * prints NAME,MISPREDICTED. Where branch-misses can be counted (in a guest), they are counted. Elsewhere, and with -t, time
 * tells: a program is run again with its branches made predictable, and the difference, over the penalty of a
 * misprediction, is what was mispredicted. The penalty is that of a branch on random bits, of which half are
 * mispredicted, or of an indirect jump to random targets. Times are the best of many. bench/truth compares the two.
 */
#include <linux/perf_event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <x86intrin.h>

#include "base/types.h"

#define TURNS	   10000u /* less than a time slice: the best of many had the core for itself */
#define FEW_TURNS  1000u  /* of those that take longer */
#define TABLE	   (1u << 20) /* elements */
#define NTARGETS   16u
#define DEPTH_MAX  64u
#define WARM_TURNS 300000u

static int counter = -1;
static unsigned repetitions = 200;
static u8 bits[TABLE];
static u16 trips[TABLE];
static const void *targets[TABLE];

static u64 next_random(void)
{
	static u64 state = 88172645463325252ull;

	state ^= state << 13;
	state ^= state >> 7;
	return state ^= state << 17;
}

/* --- programs: each makes `turns` turns and begins where the one before it ended --- */

#define BODY __attribute__((noinline, noclone)) /* one copy: the predictor goes by addresses */

struct program {
	u32 period;	/* of its table */
	u32 fillers;	/* taken jumps between two branches, or the depth of calls */
	bool other_too; /* the second branch follows the table as well */
};

/* A branch as the table says. */
static BODY void flip(const struct program *p, u64 turns)
{
	static u64 i;

	i %= p->period;
	asm volatile("1: movzbl (%[bits],%[i]), %%eax\n"
		     "inc %[i]\n"
		     "cmp %[period], %[i]\n"
		     "cmove %[zero], %[i]\n"
		     "test %%eax, %%eax\n"
		     "jz 2f\n"
		     "nop\n"
		     "2: dec %[turns]\n"
		     "jnz 1b\n"
		     : [i] "+&r"(i), [turns] "+&r"(turns)
		     : [bits] "r"(bits), [period] "r"((u64)p->period), [zero] "r"(0ull)
		     : "rax", "cc", "memory");
}

/* A loop of as many turns as the table says. */
static BODY void loop(const struct program *p, u64 turns)
{
	static u64 i;

	i %= p->period;
	asm volatile("1: movzwl (%[trips],%[i],2), %%eax\n"
		     "inc %[i]\n"
		     "cmp %[period], %[i]\n"
		     "cmove %[zero], %[i]\n"
		     ".balign 32\n"
		     "2: dec %%eax\n"
		     "jnz 2b\n"
		     "dec %[turns]\n"
		     "jnz 1b\n"
		     : [i] "+&r"(i), [turns] "+&r"(turns)
		     : [trips] "r"(trips), [period] "r"((u64)p->period), [zero] "r"(0ull)
		     : "rax", "cc", "memory");
}

/* Two branches of one outcome, with taken jumps between them. */
static BODY void correlate(const struct program *p, u64 turns)
{
	static u64 i;
	u64 mask = p->other_too ? ~0ull : 0, left = 0;

	i %= p->period;
	asm volatile("1: movzbl (%[bits],%[i]), %%eax\n"
		     "inc %[i]\n"
		     "cmp %[period], %[i]\n"
		     "cmove %[zero], %[i]\n"
		     "test %%eax, %%eax\n"
		     "jz 2f\n"
		     "nop\n"
		     "2: mov %[fillers], %[left]\n"
		     ".balign 32\n"
		     "3: dec %[left]\n"
		     "jnz 3b\n"
		     "and %[mask], %%rax\n"
		     "jz 4f\n"
		     "nop\n"
		     "4: dec %[turns]\n"
		     "jnz 1b\n"
		     : [i] "+&r"(i), [turns] "+&r"(turns), [left] "+&r"(left)
		     : [bits] "r"(bits), [period] "r"((u64)p->period), [zero] "r"(0ull),
		       [fillers] "r"((u64)p->fillers), [mask] "r"(mask)
		     : "rax", "cc", "memory");
}

extern const u8 jump_targets[] __attribute__((visibility("hidden")));
extern const u8 odd_targets[] __attribute__((visibility("hidden")));
extern const u8 call_chain[] __attribute__((visibility("hidden")));

/* Targets of the indirect jump: 16 bytes each, so that all are alike to AMD's history, or 20. */
asm(".balign 64\n"
    "jump_targets:\n"
    ".rept 16\n"
    "nop\n"
    "ret\n"
    ".balign 16\n"
    ".endr\n"
    ".balign 64\n"
    "odd_targets:\n"
    ".rept 16\n"
    "nop\n"
    "ret\n"
    ".skip 18, 0x90\n"
    ".endr\n"
    ".balign 64\n"
    "call_chain:\n" /* functions of 16 bytes that call the next one */
    ".rept 64\n"
    "call 1f\n"
    "nop\n"
    "ret\n"
    ".balign 16\n"
    "1:\n"
    ".endr\n"
    "ret\n");

/* An indirect call to where the table says. */
static BODY void call(const struct program *p, u64 turns)
{
	static u64 i;

	i %= p->period;
	asm volatile("sub $128, %%rsp\n" /* the red zone */
		     "1: mov (%[targets],%[i],8), %%rax\n"
		     "inc %[i]\n"
		     "cmp %[period], %[i]\n"
		     "cmove %[zero], %[i]\n"
		     "call *%%rax\n"
		     "dec %[turns]\n"
		     "jnz 1b\n"
		     "add $128, %%rsp\n"
		     : [i] "+&r"(i), [turns] "+&r"(turns)
		     : [targets] "r"(targets), [period] "r"((u64)p->period), [zero] "r"(0ull)
		     : "rax", "cc", "memory");
}

/* Calls as deep as `fillers` says. */
static BODY void descend(const struct program *p, u64 turns)
{
	const u8 *first = call_chain + 16 * (DEPTH_MAX - p->fillers);

	asm volatile("sub $128, %%rsp\n"
		     "1: call *%[first]\n"
		     "dec %[turns]\n"
		     "jnz 1b\n"
		     "add $128, %%rsp\n"
		     : [turns] "+&r"(turns)
		     : [first] "r"(first)
		     : "cc", "memory");
}

/* --- tables --- */

static void fill_bits(u32 n, u32 percent)
{
	for (u32 i = 0; i < n; i++)
		bits[i] = next_random() % 100 < percent;
}

static void fill_trips(u32 n, u32 low, u32 high)
{
	for (u32 i = 0; i < n; i++)
		trips[i] = low + next_random() % (high - low + 1);
}

static void fill_targets(u32 n, u32 different, bool odd)
{
	const u8 *first = odd ? odd_targets : jump_targets;

	for (u32 i = 0; i < n; i++)
		targets[i] = first + (odd ? 20 : 16) * (next_random() % different);
}

/* --- measuring --- */

typedef void body(const struct program *p, u64 turns);

static u64 counted(void)
{
	u64 value = 0;

	if (read(counter, &value, sizeof(value)) != sizeof(value))
		perror("branches: read"), exit(1);
	return value;
}

/* Mispredictions a turn. */
static double count(body *run, const struct program *p)
{
	u64 before;

	run(p, WARM_TURNS + (p->period < TABLE ? 40 * p->period : 0)); /* by time, the best has seen more */
	before = counted();
	run(p, TURNS);
	return (double)(counted() - before) / TURNS;
}

/* Ticks of the TSC a turn. */
static double ticks(body *run, const struct program *p, u32 turns)
{
	u64 best = ~0ull;

	run(p, 30 * turns);
	for (unsigned i = 0; i < repetitions; i++) {
		u64 begun = __rdtsc(), taken;

		run(p, turns);
		taken = __rdtsc() - begun;
		best = taken < best ? taken : best;
	}
	return (double)best / turns;
}

static double penalty, indirect_penalty, depth_base[2];

static void report(const char *name, u32 parameter, double missed)
{
	printf("%s%u,%.1f\n", name, parameter, 1000 * missed);
	fflush(stdout);
}

/* Ticks of a table of zeros and of one of ones, in the proportion of `percent`. */
static double steady_flips(body *run, struct program p, u32 n)
{
	static u8 kept[TABLE];
	double t[2], ones = 0;

	memcpy(kept, bits, n);
	for (u32 i = 0; i < n; i++)
		ones += bits[i];
	for (u32 value = 0; value < 2; value++) {
		memset(bits, (int)value, n);
		t[value] = ticks(run, &p, TURNS);
	}
	memcpy(bits, kept, n);
	return t[0] + (t[1] - t[0]) * ones / n;
}

static double flips_missed(u32 period, u32 percent)
{
	struct program p = { .period = period };

	fill_bits(period, percent);
	if (counter >= 0)
		return count(flip, &p);
	return (ticks(flip, &p, TURNS) - steady_flips(flip, p, period)) / penalty;
}

static double correlated_missed(u32 fillers)
{
	struct program p = { .period = TABLE, .fillers = fillers, .other_too = true }, one = p;

	one.other_too = false;
	fill_bits(TABLE, 50);
	if (counter >= 0)
		return count(correlate, &p) - count(correlate, &one);
	return (ticks(correlate, &p, FEW_TURNS) - ticks(correlate, &one, FEW_TURNS)) / penalty;
}

/* Ticks of a turn of a loop that does not end. */
static double long_loop(void)
{
	struct program p = { .period = 1 };

	fill_trips(1, UINT16_MAX, UINT16_MAX);
	return ticks(loop, &p, 4) / UINT16_MAX;
}

/* The exit of a short loop is foreseen, that of a very long one plays no part: from the two follows what a turn takes. */
static double loops_missed(u32 period, u32 low, u32 high)
{
	struct program one = { .period = 1 }, p = { .period = period };
	double mean = 0, turn, enter;

	if (counter >= 0) {
		fill_trips(period, low, high);
		return count(loop, &p);
	}
	turn = long_loop();
	fill_trips(1, 8, 8);
	enter = ticks(loop, &one, FEW_TURNS) - 8 * turn;
	fill_trips(period, low, high);
	for (u32 i = 0; i < period; i++)
		mean += (double)trips[i] / period;
	return (ticks(loop, &p, FEW_TURNS) - enter - turn * mean) / penalty;
}

static double calls_missed(u32 period, u32 different, bool odd)
{
	struct program one = { .period = 1 }, p = { .period = period };
	double steady;

	fill_targets(period, different, odd);
	if (counter >= 0)
		return count(call, &p);
	steady = ticks(call, &one, TURNS);
	return (ticks(call, &p, TURNS) - steady) / indirect_penalty;
}

static double depth_missed(u32 depth)
{
	struct program p = { .fillers = depth };

	if (counter >= 0)
		return count(descend, &p);
	return (ticks(descend, &p, FEW_TURNS) - depth_base[0] - (depth_base[1] - depth_base[0]) / 4 * (depth - 4)) /
	       indirect_penalty;
}

static void calibrate(void)
{
	struct program p = { .period = TABLE };

	penalty = indirect_penalty = 1;
	penalty = flips_missed(TABLE, 50) * 2;
	indirect_penalty = calls_missed(TABLE, NTARGETS, false) * NTARGETS / (NTARGETS - 1);
	for (u32 i = 0; i < 2; i++) {
		p.fillers = 4 << i;
		depth_base[i] = ticks(descend, &p, FEW_TURNS);
	}
	fprintf(stderr, "penalty %.1f ticks, of an indirect call %.1f\n", penalty, indirect_penalty);
}

static void open_counter(void)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_HARDWARE,
					.size = sizeof(attr),
					.config = PERF_COUNT_HW_BRANCH_MISSES,
					.exclude_kernel = 1 };

	counter = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}

static void measure_flips(void)
{
	for (u32 percent = 50; percent < 100; percent += 10)
		report("random ", percent, flips_missed(TABLE, percent));
	report("random ", 99, flips_missed(TABLE, 99));
	for (u32 period = 2; period <= 65536; period *= 2)
		report("period ", period, flips_missed(period, 50));
	report("period ", 1000, flips_missed(1000, 50));
	report("period ", 3000, flips_missed(3000, 50));
}

static void measure_loops(void)
{
	static const u32 turns[] = { 4, 16, 30, 50, 64, 100, 150, 190, 250, 500, 1000 };

	for (u32 i = 0; i < sizeof(turns) / sizeof(*turns); i++)
		report("trip ", turns[i], loops_missed(1, turns[i], turns[i]));
	report("trips 4 to 16, period ", 16, loops_missed(16, 4, 16));
	report("trips 4 to 16, period ", 256, loops_missed(256, 4, 16));
	report("trips 4 to 16, period ", TABLE, loops_missed(TABLE, 4, 16));
}

static void measure_targets(void)
{
	for (u32 period = 2; period <= 16384; period *= 2)
		report("targets, period ", period, calls_missed(period, NTARGETS, false));
	report("targets, period ", TABLE, calls_missed(TABLE, NTARGETS, false));
	report("two targets, period ", TABLE, calls_missed(TABLE, 2, false));
	for (u32 period = 2; period <= 2048; period *= 4)
		report("odd targets, period ", period, calls_missed(period, NTARGETS, true));
}

int main(int argc, char **argv)
{
	static const u32 fillers[] = { 1, 8, 24, 30, 60, 70, 150, 185, 200 };
	static const u32 depths[] = { 4, 12, 16, 18, 20, 24, 32, 48, 64 };
	bool by_time = false;

	for (int option; (option = getopt(argc, argv, "r:t")) != -1;) {
		if (option == 'r')
			repetitions = (unsigned)atoi(optarg);
		by_time |= option == 't';
	}
	if (!by_time)
		open_counter();
	if (counter < 0)
		calibrate();
	measure_flips();
	measure_loops();
	for (u32 i = 0; i < sizeof(fillers) / sizeof(*fillers); i++)
		report("correlated over ", fillers[i], correlated_missed(fillers[i]));
	measure_targets();
	for (u32 i = 0; i < sizeof(depths) / sizeof(*depths); i++)
		report("depth ", depths[i], depth_missed(depths[i]));
	return 0;
}
