// SPDX-License-Identifier: MIT
/*
 * Instruction-based sampling (APM2 13.3). Ops are instructions, and so are fetches: the model has
 * no smaller ones. A sample is of the very instruction with which the count ended; of a fetch it
 * says where, and not how it went. As far as is known none misses L3, and software that asks for
 * those gets none.
 *
 * After a sample the low bits of the count are random, as on hardware, so that a period does not
 * resonate with a loop's length; periods in cycles also start with random bits. The same numbers
 * come in every run. vCPU thread, between two instructions or after a run.
 */
#include "hwpmu/ibs.h"

#include "hwpmu/hwpmu.h"
#include "hwpmu/priv.h"

enum unit { FETCH, OP };

static bool runs(const struct hwpmu *pmu, enum unit unit)
{
	return unit == OP ? ibs_op_runs(&pmu->ibs) : ibs_fetch_runs(&pmu->ibs);
}

/*
 * Where a count ends. The manual does not define periods below the minimum, 0 included; here they
 * work. Linux before 6.15 uses them while it adjusts a sampling frequency, and waits for samples.
 */
static u64 most(const struct hwpmu *pmu, enum unit unit)
{
	u64 ctl = pmu->ibs.reg[unit == OP ? IBS_OP_CTL : IBS_FETCH_CTL];
	u64 least = unit == OP ? IBS_OP_LEAST : IBS_FETCH_LEAST;
	u64 end = (ctl & IBS_OP_MAX) << 4 | (ctl & IBS_OP_MAX_HIGH);

	if (unit == FETCH)
		end = (ctl & IBS_FETCH_MAX) << 4;
	return end > least ? end : least;
}

static enum retire_class class_of(const struct hwpmu *pmu, enum unit unit)
{
	bool cycles = unit == OP && !(pmu->ibs.reg[IBS_OP_CTL] & IBS_OP_COUNTS_OPS);

	return cycles ? RETIRE_CYCLES : RETIRE_INSTRUCTIONS;
}

static u64 occurrences(const struct hwpmu *pmu, enum unit unit)
{
	enum retire_class class = class_of(pmu, unit);

	return retire_count(pmu->tally, class, RETIRE_OS) +
	       retire_count(pmu->tally, class, RETIRE_USR);
}

/* Occurrences that add one to the count. */
static u32 per_count(const struct hwpmu *pmu, enum unit unit)
{
	return class_of(pmu, unit) == RETIRE_CYCLES ? TICKS_PER_CYCLE : 1;
}

static u64 since(const struct hwpmu *pmu, enum unit unit)
{
	return occurrences(pmu, unit) - pmu->ibs.mark[unit];
}

static u64 count(const struct hwpmu *pmu, enum unit unit)
{
	u64 more = runs(pmu, unit) ? since(pmu, unit) / per_count(pmu, unit) : 0;

	return pmu->ibs.count[unit] + more;
}

static void start(struct hwpmu *pmu, enum unit unit, u64 from)
{
	pmu->ibs.count[unit] = from;
	pmu->ibs.mark[unit] = occurrences(pmu, unit);
}

static u32 random_bits(struct hwpmu *pmu)
{
	pmu->ibs.random = pmu->ibs.random * 1103515245 + 12345;
	return pmu->ibs.random >> 16 & IBS_RANDOM;
}

/* --- registers --- */

u64 hwpmu_read_ibs(const struct hwpmu *pmu, enum ibs_register reg)
{
	u64 value = pmu->ibs.reg[reg];

	switch (reg) {
	case IBS_FETCH_CTL:
		return value | (count(pmu, FETCH) >> 4 << IBS_FETCH_CNT_AT & IBS_FETCH_CNT);
	case IBS_OP_CTL:
		return value | (count(pmu, OP) << IBS_OP_CNT_AT & IBS_OP_CNT);
	case IBS_CTL:
		return IBS_CTL_VALID | IBS_LVT;
	default:
		return value;
	}
}

static u64 first_count(struct hwpmu *pmu, u64 ctl)
{
	u64 from = (ctl & IBS_OP_CNT) >> IBS_OP_CNT_AT;
	bool cycles = !(ctl & IBS_OP_COUNTS_OPS);

	return cycles && !from && most(pmu, OP) > 2 * IBS_RANDOM ? random_bits(pmu) : from;
}

void hwpmu_write_ibs(struct hwpmu *pmu, enum ibs_register reg, u64 value)
{
	switch (reg) {
	case IBS_FETCH_CTL:
		pmu->ibs.reg[reg] = value & ~IBS_FETCH_CNT;
		start(pmu, FETCH, (value & IBS_FETCH_CNT) >> IBS_FETCH_CNT_AT << 4);
		break;
	case IBS_OP_CTL:
		pmu->ibs.reg[reg] = value & ~IBS_OP_CNT;
		start(pmu, OP, first_count(pmu, value));
		break;
	case IBS_CTL:
		return;
	default:
		pmu->ibs.reg[reg] = value;
		return;
	}
	hwpmu_update_wanted(pmu);
}

#define HIDDEN_FETCH	 MASK(3, 0)
#define HIDDEN_OP_AT	 4
#define HIDDEN_OP	 MASK(26, 0)
#define HIDDEN_RANDOM_AT 32

u64 hwpmu_ibs_hidden(const struct hwpmu *pmu)
{
	return (count(pmu, FETCH) & HIDDEN_FETCH) | (count(pmu, OP) & HIDDEN_OP) << HIDDEN_OP_AT |
	       (u64)pmu->ibs.random << HIDDEN_RANDOM_AT;
}

void hwpmu_set_ibs_hidden(struct hwpmu *pmu, u64 value)
{
	start(pmu, FETCH, (count(pmu, FETCH) & ~HIDDEN_FETCH) | (value & HIDDEN_FETCH));
	start(pmu, OP, value >> HIDDEN_OP_AT & HIDDEN_OP);
	pmu->ibs.random = value >> HIDDEN_RANDOM_AT;
}

u32 hwpmu_ibs_part(const struct hwpmu *pmu)
{
	return runs(pmu, OP) ? since(pmu, OP) % per_count(pmu, OP) : 0;
}

void hwpmu_set_ibs_part(struct hwpmu *pmu, u64 part)
{
	if (part < per_count(pmu, OP))
		pmu->ibs.mark[OP] = occurrences(pmu, OP) - part;
}

/* --- samples --- */

static u64 branch_data(const struct ibs_sample *s)
{
	if (!s->branch)
		return 0;
	return IBS_DATA_BRANCH | (s->taken ? IBS_DATA_TAKEN : 0) |
	       (s->is_return ? IBS_DATA_RETURN : 0) | (s->mispredicted ? IBS_DATA_MISPREDICTED : 0);
}

/* A read-modify-write is a store; one that reads what another processor wrote is a load, too. */
static bool loads(const struct observed_access *access)
{
	return !access->store || (access->modify && access->snoop == OBSERVED_SNOOP_MODIFIED);
}

/* Other cores' caches of the CCX count as its L3. On genoa the state of the line is known. */
static u64 source(const struct hwpmu *pmu, const struct observed_access *access)
{
	if (!access->valid || !loads(access) || access->level < OBSERVED_LLC)
		return 0;
	if (access->level == OBSERVED_MEMORY)
		return IBS_SOURCE_MEMORY;
	if (pmu->model->set == MODEL_MILAN)
		return IBS_SOURCE_L3_ZEN3;
	return IBS_SOURCE_L3_ZEN4 |
	       (access->snoop == OBSERVED_SNOOP_MODIFIED ? 0 : IBS_SOURCE_NOT_MODIFIED);
}

/* Its logarithm plus one. */
static u64 width(u32 size)
{
	u64 log = 0;

	while (size >> log > 1)
		log++;
	return log + 1;
}

static u64 access_data(const struct observed_access *access)
{
	u64 data = IBS_DATA3_LINEAR | IBS_DATA3_PHYSICAL;

	if (!access->valid)
		return 0;
	data |= (access->store ? IBS_DATA3_STORE : 0) | (loads(access) ? IBS_DATA3_LOAD : 0);
	data |= width(access->size) << IBS_DATA3_WIDTH_AT;
	if (access->tlb >= OBSERVED_TLB_L2)
		data |= IBS_DATA3_L1TLB_MISS;
	if (access->tlb == OBSERVED_TLB_WALK)
		data |= IBS_DATA3_L2TLB_MISS;
	if (access->level >= OBSERVED_LLC)
		data |= IBS_DATA3_L2_MISS;
	if (access->level > OBSERVED_L1)
		data |= IBS_DATA3_DC_MISS | (u64)access->latency << IBS_DATA3_MISS_LAT_AT;
	return data;
}

static void describe_op(struct hwpmu *pmu, const struct ibs_sample *s)
{
	u64 *reg = pmu->ibs.reg;
	u64 latency = s->access.valid ? s->access.latency : 1;

	reg[IBS_OP_RIP] = s->rip;
	reg[IBS_OP_DATA] = latency << IBS_DATA_TAG_TO_RETIRE_AT | branch_data(s);
	reg[IBS_OP_DATA2] = source(pmu, &s->access);
	reg[IBS_OP_DATA3] = access_data(&s->access);
	reg[IBS_DC_LINEAR] = s->access.valid ? s->access.linear : 0;
	reg[IBS_DC_PHYSICAL] = s->access.valid ? s->access.physical : 0;
	reg[IBS_BRANCH_TARGET] = s->branch && s->taken ? s->target : 0;
}

/* 8000001BH:EAX[11]: IBS_OP_L3_MISS and IBS_FETCH_L3_MISS; reserved and ignored elsewhere. */
static bool obeys_l3_miss(const struct hwpmu *pmu)
{
	return pmu->model->set != MODEL_MILAN;
}

static bool wanted(const struct hwpmu *pmu, const struct ibs_sample *s)
{
	if (!(pmu->ibs.reg[IBS_OP_CTL] & IBS_OP_L3_MISS) || !obeys_l3_miss(pmu))
		return true;
	return s->access.valid && s->access.level == OBSERVED_MEMORY;
}

/* Without a core that tells of it, nothing is known of the instruction. */
static struct ibs_sample last_instruction(const struct hwpmu *pmu)
{
	struct ibs_sample s = { 0 };

	if (pmu->store && pmu->store->ibs)
		pmu->store->ibs(pmu->owner, &s);
	return s;
}

static void end_op(struct hwpmu *pmu)
{
	struct ibs_sample s = last_instruction(pmu);

	if (!wanted(pmu, &s)) {
		start(pmu, OP, random_bits(pmu));
		return;
	}
	describe_op(pmu, &s);
	pmu->ibs.reg[IBS_OP_CTL] |= IBS_OP_VAL;
	pmu->ibs.count[OP] = random_bits(pmu);
	pmu->ibs.interrupt = true;
}

static void end_fetch(struct hwpmu *pmu)
{
	if ((pmu->ibs.reg[IBS_FETCH_CTL] & IBS_FETCH_L3_MISS) && obeys_l3_miss(pmu)) {
		start(pmu, FETCH, 0);
		return;
	}
	pmu->ibs.reg[IBS_FETCH_LINEAR] = last_instruction(pmu).rip;
	pmu->ibs.reg[IBS_FETCH_CTL] |= IBS_FETCH_VAL | IBS_FETCH_COMPLETE;
	pmu->ibs.count[FETCH] = most(pmu, FETCH);
	pmu->ibs.interrupt = true;
}

void hwpmu_ibs_retire(struct hwpmu *pmu)
{
	if (runs(pmu, FETCH) && count(pmu, FETCH) >= most(pmu, FETCH))
		end_fetch(pmu);
	if (runs(pmu, OP) && count(pmu, OP) >= most(pmu, OP))
		end_op(pmu);
	hwpmu_update_wanted(pmu);
}

bool hwpmu_take_ibs(struct hwpmu *pmu)
{
	bool interrupt = pmu->ibs.interrupt;

	pmu->ibs.interrupt = false;
	return interrupt;
}

retire_wanted hwpmu_ibs_wanted(const struct hwpmu *pmu)
{
	return runs(pmu, OP) ? RETIRE_BIT(class_of(pmu, OP)) : 0;
}

static void arm(const struct hwpmu *pmu, enum unit unit, struct retire_trips *trips)
{
	u64 now = count(pmu, unit), end = most(pmu, unit);
	u64 left = (end - pmu->ibs.count[unit]) * per_count(pmu, unit);
	u64 at = now < end ? pmu->ibs.mark[unit] + left : occurrences(pmu, unit);

	if (runs(pmu, unit))
		hwpmu_arm_class(trips, class_of(pmu, unit), RETIRE_IN_BOTH, at);
}

void hwpmu_ibs_arm(const struct hwpmu *pmu, struct retire_trips *trips)
{
	arm(pmu, FETCH, trips);
	arm(pmu, OP, trips);
}
