// SPDX-License-Identifier: MIT
/*
 * The stack of branch records (SDM 3B 17.4, 17.5, 18; APM2 13.1.1.9): filters as their registers
 * say them, entries as they are read. The legacy stack shows the ring as it is, with its top in
 * TOS; the others show it from the youngest entry on. vCPU thread.
 */
#include "hwpmu/hwpmu.h"

#include "base/must.h"
#include "hwpmu/priv.h"

void hwpmu_attach_branches(struct hwpmu *pmu, struct branch_ring *branches)
{
	pmu->branches = branches;
	*branches = (struct branch_ring){ .mask = BRANCH_DEPTH - 1 };
}

static void filter_legacy(struct branch_ring *ring, u64 select)
{
	u8 kinds = ~select >> LBR_SELECT_KINDS & (BIT(NBRANCHES) - 1);

	ring->kinds[RETIRE_OS] = select & LBR_SELECT_OS ? 0 : kinds;
	ring->kinds[RETIRE_USR] = select & LBR_SELECT_USR ? 0 : kinds;
}

/* The bit of IA32_LBR_CTL that enables a kind, and the kind as IA32_LBR_x_INFO has it (SDM 3B table
 * 18-2). */
static const struct {
	u8 enable, type;
} arch_kinds[NBRANCHES] = {
	[BRANCH_JCC] = { 16, 0 },      [BRANCH_REL_JMP] = { 17, 2 },  [BRANCH_IND_JMP] = { 18, 1 },
	[BRANCH_REL_CALL] = { 19, 4 }, [BRANCH_IND_CALL] = { 20, 3 }, [BRANCH_RET] = { 21, 5 },
	[BRANCH_FAR] = { 22, 8 },
};

static void filter_arch(struct branch_ring *ring, u64 ctl)
{
	u8 kinds = 0;

	for (u32 kind = 0; kind < NBRANCHES; kind++)
		kinds |= (ctl >> arch_kinds[kind].enable & 1) << kind;
	ring->kinds[RETIRE_OS] = ctl & LBR_CTL_OS ? kinds : 0;
	ring->kinds[RETIRE_USR] = ctl & LBR_CTL_USR ? kinds : 0;
}

/* The processor records what the control says, unless a PMI has frozen the stack. */
void hwpmu_update_lbr(struct hwpmu *pmu)
{
	const struct lbr_control *control = &pmu->lbr;
	struct branch_ring *ring = pmu->branches;
	bool arch = pmu->model->lbr == LBR_ARCH;
	bool frozen = pmu->global_status & GLOBAL_STATUS_LBR_FRZ;

	if (!ring)
		return;
	ring->kinds[RETIRE_OS] = ring->kinds[RETIRE_USR] = 0;
	ring->hides_from = arch; /* SDM 3B 18.1.2.1 */
	ring->call_stack =
		arch ? !!(control->select & LBR_CTL_CALL_STACK)
		     : pmu->model->lbr == LBR_LEGACY && (control->select & LBR_SELECT_CALL_STACK);
	if (control->enabled && !frozen) {
		if (arch)
			filter_arch(ring, control->select);
		else
			filter_legacy(ring, control->select);
	}
	hwpmu_update_wanted(pmu);
}

void hwpmu_write_lbr(struct hwpmu *pmu, const struct lbr_control *control)
{
	struct branch_ring *ring = pmu->branches;

	must(ring && control->depth && control->depth <= BRANCH_DEPTH);
	must(!(control->depth & (control->depth - 1)));
	pmu->lbr = *control;
	ring->mask = control->depth - 1;
	ring->top &= ring->mask;
	hwpmu_update_lbr(pmu);
}

static struct branch_entry *entry_at(const struct hwpmu *pmu, u32 i)
{
	struct branch_ring *ring = pmu->branches;
	u32 at = pmu->model->lbr == LBR_LEGACY ? i : ring->top - i;

	return &ring->entry[at & ring->mask];
}

static u64 info(const struct hwpmu *pmu, const struct branch_entry *e)
{
	u64 cycles = (e->ticks - e->since) / TICKS_PER_CYCLE, value;

	if (!e->kind)
		return e->written;
	value = cycles < LBR_INFO_CYCLES ? cycles : LBR_INFO_CYCLES;
	if (e->missed)
		value |= LBR_INFO_MISPREDICTED;
	if (pmu->model->lbr == LBR_ARCH)
		value |= LBR_INFO_CYCLES_VALID | (u64)arch_kinds[e->kind - 1].type
							 << LBR_INFO_TYPE_SHIFT;
	return value;
}

static u64 amd_from(const struct branch_entry *e)
{
	if (!e->kind)
		return e->from;
	return (e->from & LBR_AMD_IP) | (e->missed ? LBR_AMD_FROM_MISPREDICTED : 0);
}

static u64 amd_to(const struct branch_entry *e)
{
	return e->kind ? (e->to & LBR_AMD_IP) | LBR_AMD_TO_VALID : e->to;
}

u64 hwpmu_read_lbr(const struct hwpmu *pmu, enum lbr_field field, u32 i)
{
	const struct branch_entry *e = entry_at(pmu, i);
	bool amd = pmu->model->is_amd;

	switch (field) {
	case LBR_FROM:
		return amd ? amd_from(e) : e->from;
	case LBR_TO:
		return amd ? amd_to(e) : e->to;
	case LBR_INFO:
		return info(pmu, e);
	case LBR_TOP:
		return pmu->branches->top;
	}
	return 0;
}

/* Software writes a field of an entry: the others keep the values that reads show now. */
void hwpmu_write_lbr_entry(struct hwpmu *pmu, enum lbr_field field, u32 i, u64 value)
{
	struct branch_entry *e = entry_at(pmu, i);
	struct branch_entry now = { .from = hwpmu_read_lbr(pmu, LBR_FROM, i),
				    .to = hwpmu_read_lbr(pmu, LBR_TO, i),
				    .written = hwpmu_read_lbr(pmu, LBR_INFO, i) };

	switch (field) {
	case LBR_FROM:
		now.from = value;
		break;
	case LBR_TO:
		now.to = value;
		break;
	case LBR_INFO:
		now.written = value;
		break;
	case LBR_TOP:
		pmu->branches->top = value & pmu->branches->mask;
		return;
	}
	*e = now;
}

void hwpmu_clear_lbr(struct hwpmu *pmu)
{
	for (u32 i = 0; i < BRANCH_DEPTH; i++)
		pmu->branches->entry[i] = (struct branch_entry){ 0 };
	pmu->branches->top = 0;
}

static u64 ticks_now(const struct hwpmu *pmu)
{
	return pmu->tally->cycles[RETIRE_OS] + pmu->tally->cycles[RETIRE_USR];
}

u64 hwpmu_branch_ticks(const struct hwpmu *pmu)
{
	return ticks_now(pmu) - pmu->branches->ticks;
}

void hwpmu_set_branch_ticks(struct hwpmu *pmu, u64 ticks)
{
	pmu->branches->ticks = ticks_now(pmu) - ticks;
}
