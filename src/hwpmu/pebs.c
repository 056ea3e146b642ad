// SPDX-License-Identifier: MIT
/*
 * The PEBS assist (SDM 3B 20.3.4.4, 20.9): a counter that PEBS is enabled for overflows, and the
 * processor writes a record of the instruction into the debug store, loads the counter from there,
 * and interrupts only when the store fills up to its threshold.
 *
 * The record is that of the instruction that made the counter overflow, on every counter: what PDIR
 * and PDist promise for some. A store that cannot be read or written, or is full, costs the record,
 * and the reload if that cannot be read; the guest gets no fault. vCPU thread, between two
 * instructions or after a run.
 */
#include "hwpmu/pebs.h"

#include "hwpmu/hwpmu.h"
#include "hwpmu/priv.h"

static u32 format_of(const struct hwpmu *pmu)
{
	return (pmu->model->perf_capabilities & PERF_CAP_PEBS_FORMAT) >> PERF_CAP_PEBS_SHIFT;
}

static u64 reset_address(const struct hwpmu *pmu, u32 counter)
{
	u64 fixed = format_of(pmu) < 5 ? DS_FIXED_RESET : DS_FIXED_RESET5;

	if (counter >= PMU_FIXED_BASE)
		return pmu->pebs.ds_area + fixed + 8 * (counter - PMU_FIXED_BASE);
	return pmu->pebs.ds_area + DS_RESET + 8 * counter;
}

/* Little-endian, as this processor and its guest are. */
static bool read_word(const struct hwpmu *pmu, u64 address, u64 *value)
{
	return pmu->store->read(pmu->owner, address, value, sizeof(*value));
}

static u64 hidden_bits(const struct hwpmu *pmu, u32 counter)
{
	return counter >= PMU_FIXED_BASE ? pmu->pebs.fixed_hidden : pmu->pebs.general_hidden;
}

static u64 counter_mask(const struct hwpmu *pmu, u32 counter)
{
	const struct pmu_model *model = pmu->model;

	return BIT(counter >= PMU_FIXED_BASE ? model->fixed_width : model->general_width) - 1;
}

/* Whole periods among the counts beyond the overflow. */
static u64 whole_periods(const struct hwpmu *pmu, u32 counter, u64 reset)
{
	u64 period = -reset & counter_mask(pmu, counter), beyond = hwpmu_read(pmu, counter);

	return period ? beyond - beyond % period : 0;
}

/*
 * What the instruction added beyond the overflow counts in the next period: samples are multiples
 * of a period apart, and no count is lost but that of whole periods, of which one instruction has a
 * single record: a stall may last for several. Added to the reset they would carry the counter past
 * its next overflow.
 */
static void reload(struct hwpmu *pmu, u64 counters)
{
	while (counters) {
		u32 counter = __builtin_ctzll(counters);
		u64 value;

		counters &= counters - 1;
		if (!read_word(pmu, reset_address(pmu, counter), &value))
			value = 0;
		value |= hidden_bits(pmu, counter);
		hwpmu_add(pmu, counter, value - whole_periods(pmu, counter, value));
	}
}

struct buffer {
	u64 base, index, maximum, threshold;
};

static bool is_adaptive(const struct hwpmu *pmu, u32 counter)
{
	if (counter >= PMU_FIXED_BASE)
		return pmu->fixed_ctrl & FIXED_CTRL_ADAPTIVE(counter - PMU_FIXED_BASE);
	return pmu->select[counter] & EVENTSEL_ADAPTIVE;
}

/* One record serves all counters that overflowed: it has what any of them asks for. */
static u64 effective_cfg(const struct hwpmu *pmu, u64 counters)
{
	for (; counters; counters &= counters - 1)
		if (pmu->pebs.adaptive && is_adaptive(pmu, __builtin_ctzll(counters)))
			return pmu->pebs.data_cfg & PEBS_CFG_LEGAL;
	return 0;
}

static void take_branches(const struct hwpmu *pmu, struct pebs_sample *sample)
{
	u32 top = pmu->model->lbr == LBR_LEGACY ? hwpmu_read_lbr(pmu, LBR_TOP, 0) : 0;
	u32 depth = pmu->branches->mask + 1;

	sample->nbranches = depth;
	for (u32 i = 0; i < depth; i++) {
		u32 at = pmu->model->lbr == LBR_LEGACY ? top - i : i;

		sample->branch[i] = (struct pebs_branch){
			.from = hwpmu_read_lbr(pmu, LBR_FROM, at),
			.to = hwpmu_read_lbr(pmu, LBR_TO, at),
			.info = hwpmu_read_lbr(pmu, LBR_INFO, at),
		};
	}
}

static bool room(const struct buffer *b, u32 size)
{
	return b->index <= b->maximum && b->maximum - b->index >= size;
}

/* True: a record was written, up to or over the threshold. */
static bool write_record(struct hwpmu *pmu, u64 counters)
{
	u64 cfg = effective_cfg(pmu, counters), index_at = pmu->pebs.ds_area + DS_PEBS_INDEX;
	u32 size = pebs_record_size(format_of(pmu), cfg);
	struct pebs_sample sample;
	u8 record[PEBS_RECORD_MAX];
	struct buffer b;

	if (!pmu->store->read(pmu->owner, pmu->pebs.ds_area + DS_PEBS_BASE, &b, sizeof(b)) ||
	    !room(&b, size))
		return false;
	sample.nbranches = 0;
	sample.counters = counters;
	pmu->store->sample(pmu->owner, cfg, &sample);
	if (cfg & PEBS_CFG_LBRS && pmu->branches)
		take_branches(pmu, &sample);
	pebs_record_write(record, format_of(pmu), cfg, &sample);
	if (!pmu->store->write(pmu->owner, b.index, record, size))
		return false;
	b.index += size;
	return pmu->store->write(pmu->owner, index_at, &b.index, sizeof(b.index)) &&
	       b.index >= b.threshold;
}

u64 hwpmu_pebs_counters(const struct hwpmu *pmu)
{
	u64 enable = pmu->store ? pmu->pebs.enable : 0;

	/* Fixed counters have PEBS where records are adaptive (SDM 3B 20.9.2). Elsewhere bits 32+i
	 * are those of latency, whatever counter i counts. */
	if (!pmu->pebs.adaptive)
		enable &= MASK(PMU_FIXED_BASE - 1, 0);
	/* Bit 32+i of a counter i that samples by latency (SDM 3B 20.3.4.4.2). */
	for (u32 i = 0; pmu->pebs.has_latency_bits && i < 4; i++)
		if ((enable & BIT(i)) &&
		    (pmu->select[i] & (EVENTSEL_EVENT | EVENTSEL_UMASK)) == PEBS_LOAD_LATENCY)
			enable &= ~BIT(PMU_FIXED_BASE + i);
	return enable & hwpmu_all(pmu);
}

void hwpmu_pebs_assist(struct hwpmu *pmu)
{
	u64 counters = pmu->pebs_pending;

	pmu->pebs_pending = 0;
	pmu->records++;
	if (write_record(pmu, counters) && !(pmu->global_status & GLOBAL_STATUS_DS)) {
		pmu->global_status |= GLOBAL_STATUS_DS;
		pmu->overflowed |= GLOBAL_STATUS_DS;
		pmu->pmi = true;
	}
	reload(pmu, counters);
}

void hwpmu_attach_store(struct hwpmu *pmu, const struct hwpmu_store *store, void *owner)
{
	pmu->store = store;
	pmu->owner = owner;
}

void hwpmu_write_pebs(struct hwpmu *pmu, const struct pebs_control *control)
{
	bool latency = control->latency != pmu->pebs.latency;

	pmu->pebs = *control;
	for (u32 i = 0; latency && i < pmu->model->general; i++)
		hwpmu_write_select(pmu, i, pmu->select[i]);
}

/* Events whose records have the address of the data also in format 3 (SDM 3B 20.3.6.2). */
static bool has_address(u64 select)
{
	switch (select & EVENTSEL_EVENT) {
	case 0xcd: /* MEM_TRANS_RETIRED */
	case 0xd0: /* MEM_INST_RETIRED */
	case 0xd1: /* MEM_LOAD_RETIRED */
	case 0xd2: /* MEM_LOAD_L3_HIT_RETIRED */
	case 0xd3: /* MEM_LOAD_L3_MISS_RETIRED */
		return true;
	default:
		return false;
	}
}

bool hwpmu_pebs_samples_stores(const struct hwpmu *pmu, u64 counters)
{
	for (u64 left = counters & MASK(PMU_FIXED_BASE - 1, 0); left; left &= left - 1) {
		u64 select = pmu->select[__builtin_ctzll(left)];

		if ((select & (EVENTSEL_EVENT | EVENTSEL_UMASK)) == PEBS_ALL_STORES)
			return true;
	}
	return false;
}

bool hwpmu_pebs_wants_access(const struct hwpmu *pmu)
{
	for (u64 left = hwpmu_pebs_counters(pmu); left; left &= left - 1) {
		u32 counter = __builtin_ctzll(left);

		if (effective_cfg(pmu, BIT(counter)) & PEBS_CFG_MEMORY)
			return true;
		if (format_of(pmu) < 4 && counter < PMU_FIXED_BASE &&
		    has_address(pmu->select[counter]))
			return true;
	}
	return false;
}
