// SPDX-License-Identifier: MIT
/*
 * The causes of penalties: adds ticks that were charged to the classes of their cause.
 *
 * The time of a misprediction has parts, in this order: the wrong path is issued until the branch
 * is resolved; the allocator recovers; instructions of the right path arrive. Of what was charged,
 * which is the end of that time, the last part is taken first. A branch that waits for a load which
 * missed is resolved late. The wrong path is then issued until the reorder buffer is full of it;
 * what is left is the load's.
 *
 * AMD has no event for the recovery: its slots are those of the wrong path, since what was
 * dispatched and did not retire is all that its metrics know of bad speculation.
 *
 * vCPU thread; general registers only.
 */
#include "timing/cause.h"

#define TICKS(cycles) ((u64)(cycles) * TICKS_PER_CYCLE)

/* So many tenths of a misprediction are the arrival of the right path. */
#define RESTEER_TENTHS 4

#define B(class) RETIRE_BIT(RETIRE_##class)

enum cause {
#define CAUSE(name, classes) CAUSE_##name,
#include "timing/causes.def"
#undef CAUSE
};

static const retire_wanted classes_of[] = {
#define CAUSE(name, classes) classes,
#include "timing/causes.def"
#undef CAUSE
};

/* The cause is a constant: only the additions are left of it. */
static inline __attribute__((always_inline)) void blame(struct timing *t, u64 ticks,
							enum cause cause)
{
#define RETIRE(field, NAME, most)                          \
	if (classes_of[cause] & RETIRE_BIT(RETIRE_##NAME)) \
		t->count[RETIRE_##NAME] += ticks;
#include "hwpmu/retire.def"
#undef RETIRE
}

/* Takes the part off *ticks. */
static inline __attribute__((always_inline)) void blame_part(struct timing *t, u64 *ticks, u64 most,
							     enum cause cause)
{
	u64 part = *ticks < most ? *ticks : most;

	blame(t, part, cause);
	*ticks -= part;
}

void cause_load(struct timing *t, u64 ticks, u8 level)
{
	switch (level) {
	case OBSERVED_L1:
		blame(t, ticks, CAUSE_LOAD_L1);
		break;
	case OBSERVED_L2:
		blame(t, ticks, CAUSE_LOAD_L2);
		break;
	case OBSERVED_LLC:
		blame(t, ticks, CAUSE_LOAD_LLC);
		break;
	default:
		blame(t, ticks, CAUSE_LOAD_MEMORY);
	}
}

void cause_store(struct timing *t, u64 ticks)
{
	blame(t, ticks, CAUSE_STORE);
}

void cause_string(struct timing *t, u64 ticks)
{
	blame(t, ticks, CAUSE_STRING);
}

void cause_fetch(struct timing *t, u64 ticks, u64 ahead)
{
	blame_part(t, &ticks, ahead, CAUSE_FETCH_BANDWIDTH);
	blame(t, ticks, CAUSE_FETCH_LATENCY);
}

void cause_branch(struct timing *t, u64 ticks, u8 level)
{
	const struct penalty_params *costs = t->costs;
	u64 resteer = TICKS(costs->refill + costs->resolve) * RESTEER_TENTHS / 10;
	u64 refill = TICKS(costs->refill);

	if (!ticks)
		return;
	t->count[RETIRE_CLEARS]++;
	blame_part(t, &ticks, resteer, CAUSE_RESTEER);
	if (!(costs->set & MODELS_AMD) && refill > resteer)
		blame_part(t, &ticks, refill - resteer, CAUSE_RECOVERY);
	if (level)
		blame_part(t, &ticks, (u64)costs->reorder * costs->insn, CAUSE_WRONG_PATH);
	else
		blame_part(t, &ticks, ticks, CAUSE_WRONG_PATH);
	cause_load(t, ticks, level);
}
