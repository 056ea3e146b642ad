// SPDX-License-Identifier: MIT
/*
 * Counting. vCPU thread; general registers only.
 */
#include "engine/count.h"

#define BRANCH_MASK (BIT(COUNT_SHIFT) - 1)

static void start_slice(struct cpu *cpu)
{
	struct engine *eng = cpu->engine;

	eng->slice = eng->budget < SLICE_MAX ? eng->budget : SLICE_MAX;
	eng->budget -= eng->slice;
	cpu->spill[SPILL_R14] = -((eng->slice + 1) << COUNT_SHIFT);
}

static u64 slice_left(const struct cpu *cpu)
{
	return -((s64)cpu->spill[SPILL_R14] >> COUNT_SHIFT) - 1;
}

void count_flush(struct cpu *cpu, enum retire_privilege privilege)
{
	struct engine *eng = cpu->engine;
	u64 left = slice_left(cpu);

	cpu->tally.instructions[privilege] += eng->slice - left;
	cpu->tally.branches[privilege] += cpu->spill[SPILL_R14] & BRANCH_MASK;
	eng->budget += left;
	start_slice(cpu);
}

void count_begin(struct cpu *cpu, u64 budget)
{
	cpu->engine->budget = budget;
	cpu->engine->stepping = false;
	start_slice(cpu);
}

bool count_left(struct cpu *cpu)
{
	return slice_left(cpu) || cpu->engine->budget;
}

void count_refund(struct cpu *cpu, u32 mode, bool branch, const struct weight *weight)
{
	cpu->spill[SPILL_R14] -= BIT(COUNT_SHIFT) + branch;
	weight_refund(cpu, mode, weight);
}

void count_spend(struct cpu *cpu)
{
	cpu->engine->slice--;
	cpu->spill[SPILL_R14] += BIT(COUNT_SHIFT);
}

void count_refund_block(struct cpu *cpu, const struct block *block)
{
	cpu->spill[SPILL_R14] -= place_refund(block, 0);
}

void count_renew(struct cpu *cpu, const struct block *block)
{
	count_flush(cpu, cpu_privilege(cpu));
	if (block->ninsns > slice_left(cpu))
		cpu->engine->stepping = true;
}
