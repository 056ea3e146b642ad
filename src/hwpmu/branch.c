// SPDX-License-Identifier: MIT
/*
 * Recording a branch (SDM 3B 17.4, 17.11, 18.1.2): the filter, the ring, the call stack. vCPU
 * thread, with guest vector state live.
 */
#include "hwpmu/branch.h"

static u64 both(const u64 tally[2])
{
	return tally[RETIRE_OS] + tally[RETIRE_USR];
}

static u64 visible_from(const struct branch_ring *ring, const struct branch *branch)
{
	return ring->hides_from && !ring->kinds[branch->before] ? ~0ull : branch->from;
}

static void push(struct branch_ring *ring, const struct retire_tally *tally,
		 const struct branch *branch)
{
	u64 cycles = both(tally->cycles);

	ring->top = (ring->top + 1) & ring->mask;
	ring->entry[ring->top] = (struct branch_entry){
		.from = visible_from(ring, branch),
		.to = branch->to,
		.cycles = cycles,
		.since = ring->cycles,
		.kind = branch->kind + 1,
		.missed = ring->missed,
	};
	ring->cycles = cycles;
}

static void pop(struct branch_ring *ring)
{
	ring->entry[ring->top] = (struct branch_entry){ 0 };
	ring->top = (ring->top - 1) & ring->mask;
}

/* SDM 3B 17.11.1: a call of the next instruction only finds out where it is; nothing returns from
 * it. */
static bool is_no_call(const struct branch_ring *ring, const struct branch *branch)
{
	return ring->call_stack && branch->kind == BRANCH_REL_CALL && branch->to == branch->next;
}

void branch_record(struct branch_ring *ring, const struct retire_tally *tally,
		   const struct branch *branch)
{
	if (!(ring->kinds[branch->after] >> branch->kind & 1) || is_no_call(ring, branch))
		return;
	if (ring->call_stack && branch->kind == BRANCH_RET)
		pop(ring);
	else
		push(ring, tally, branch);
}
