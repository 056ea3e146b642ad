// SPDX-License-Identifier: MIT
/*
 * The rows of pmu_msrs_intel.def and pmu_msrs_amd.def, and what they say about a write. Runs while
 * guest vector state is live: general registers only.
 */
#include "x86/pmu_msrs.h"

#include "x86/ibs.h"
#include "x86/pebs.h"

/* Counters take their bits out of it; whether LBR_FRZ exists depends on the PMU. */
#define STATUS_RESERVED (~(GLOBAL_STATUS_DS | GLOBAL_STATUS_CHANGED | GLOBAL_STATUS_LBR_FRZ))
#define LBR_CTL_LEGAL	(LBR_CTL_EN | LBR_CTL_OS | LBR_CTL_USR | LBR_CTL_CALL_STACK | LBR_CTL_KINDS)

#define PER(what)      .per = PER_##what
#define SINCE(version) .since = version
#define PASSES(what)   .pass = PASS_##what
#define LBR(what)      .lbr = LBR_##what
#define QUIET(n)       .quiet = n
#define PAIRED	       .shift = 1
#define RESERVED(bits) .reserved = bits

#define PMU_ROW(first_, most_, name_, kind_, flags_, ...) \
	{ .first = first_,                                \
	  .most = most_,                                  \
	  .name = #name_,                                 \
	  .kind = PMU_REG_##kind_,                        \
	  .flags = flags_,                                \
	  ##__VA_ARGS__ },

const struct pmu_row pmu_rows[] = {
#define PMU_REGS(...) PMU_ROW(__VA_ARGS__, .is_amd = false)
#include "x86/pmu_msrs_intel.def"
#undef PMU_REGS
#define PMU_REGS(...) PMU_ROW(__VA_ARGS__, .is_amd = true)
#include "x86/pmu_msrs_amd.def"
#undef PMU_REGS
};

const u32 pmu_nrows = ARRAY_SIZE(pmu_rows);

struct pmu_reg pmu_reg_find(u32 index)
{
	for (u32 r = 0; r < ARRAY_SIZE(pmu_rows); r++) {
		const struct pmu_row *row = &pmu_rows[r];
		u32 offset = index - row->first, i = offset >> row->shift;

		if (i < row->most && offset == i << row->shift)
			return (struct pmu_reg){ row, i };
	}
	return (struct pmu_reg){ 0 };
}

/* Bits of event select i that features bring. */
static u64 select_bits(u32 i, const struct pmu_features *has)
{
	u64 bits = has->adaptive ? EVENTSEL_ADAPTIVE : 0;

	if (has->tsx)
		bits |= EVENTSEL_IN_TX | (i == 2 ? EVENTSEL_IN_TXCP : 0);
	return bits;
}

static u64 fixed_ctrl_bits(const struct pmu_features *has)
{
	const u64 field = FIXED_CTRL_OS | FIXED_CTRL_USR | FIXED_CTRL_PMI;
	u64 bits = 0;

	for (u32 i = 0; has->counters >> (PMU_FIXED_BASE + i); i++)
		if (has->counters >> (PMU_FIXED_BASE + i) & 1)
			bits |= field << FIXED_CTRL_BITS * i |
				(has->adaptive ? FIXED_CTRL_ADAPTIVE(i) : 0);
	return bits;
}

static u64 pebs_enable_bits(const struct pmu_features *has)
{
	return PEBS_ENABLE_LATENCY |
	       (has->adaptive ? has->counters : has->counters & MASK(PMU_FIXED_BASE - 1, 0));
}

static u64 metrics_bit(const struct pmu_features *has)
{
	return has->metrics ? GLOBAL_METRICS : 0;
}

u64 pmu_reserved(struct pmu_reg reg, const struct pmu_features *has)
{
	u64 reserved = reg.row->reserved;

	switch (reg.row->kind) {
	case PMU_REG_COUNTER_FULL:
		return ~has->general_mask;
	case PMU_REG_SELECT:
		return reg.row->is_amd ? reserved : reserved & ~select_bits(reg.i, has);
	case PMU_REG_FIXED_CTRL:
		return ~fixed_ctrl_bits(has);
	case PMU_REG_GLOBAL_CTRL:
		return ~(has->counters | metrics_bit(has));
	case PMU_REG_STATUS:
	case PMU_REG_STATUS_SET:
	case PMU_REG_STATUS_CLEAR:
		if (reserved && !has->lbr_freezes)
			reserved |= GLOBAL_STATUS_LBR_FRZ;
		return reserved & ~(has->counters | metrics_bit(has));
	case PMU_REG_PEBS_ENABLE:
		return ~pebs_enable_bits(has);
	default:
		return reserved;
	}
}

enum pmu_write pmu_check_write(struct pmu_reg reg, const struct pmu_features *has, bool host,
			       u64 *value)
{
	u32 flags = reg.row->flags;
	u64 reserved;

	if ((flags & ROW_READ_ONLY) || (!host && (flags & ROW_GUEST_READS)))
		return PMU_WRITE_FAULTS;
	if (!host && (flags & ROW_GUEST_DROPS))
		return PMU_WRITE_DROPPED;
	reserved = pmu_reserved(reg, has);
	if ((*value & reserved) && !(flags & ROW_IGNORES))
		return PMU_WRITE_FAULTS;
	*value &= ~reserved;
	return PMU_WRITE_OK;
}
