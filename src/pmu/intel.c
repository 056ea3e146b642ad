// SPDX-License-Identifier: MIT
/*
 * Architectural performance monitoring (SDM 3B 20.2), version 1 and 2: registers that fault when a
 * reserved bit is written. KVM: later versions are accepted and behave as 2.
 */
#include "pmu/priv.h"

/* --- IA32_PERF_CAPABILITIES: part of the CPU model, the program's to choose --- */

static u64 read_capabilities(const struct pmu *pmu, u32 i)
{
	(void)i;
	return pmu->perf_capabilities;
}

/* A format is the model's, or none. */
static bool capabilities_legal(const struct pmu *pmu, u64 value)
{
	u64 supported = pmu_supported_capabilities(pmu->model);
	u64 lbr = value & PERF_CAP_LBR_FORMAT, pebs = value & PERF_CAP_PEBS;

	if ((value & ~supported) || (lbr && lbr != (supported & PERF_CAP_LBR_FORMAT)))
		return false;
	if (!(value & PERF_CAP_PEBS_FORMAT))
		return true;
	return pebs == (supported & PERF_CAP_PEBS) && pmu->guest.ds;
}

static bool write_capabilities(struct pmu *pmu, u32 i, u64 value, bool host)
{
	struct pmu_guest guest = pmu->guest;

	(void)i;
	if (!host || !capabilities_legal(pmu, value))
		return false;
	if (value == pmu->perf_capabilities)
		return true;
	if (pmu->ran || (value && !pmu->version))
		return false;
	pmu->perf_capabilities = value;
	pmu_configure(pmu, &guest);
	return true;
}

/* --- counters --- */

/* SDM 3B 20.2, "Full-Width Writes": 32 bits with sign. The program restores what it has read. */
static bool write_counter(struct pmu *pmu, u32 i, u64 value, bool host)
{
	pmu_counter_write(pmu, i, host ? value : (u64)(s64)(s32)value);
	return true;
}

static bool write_full_counter(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)host;
	if (value & ~pmu->general_mask)
		return false;
	pmu_counter_write(pmu, i, value);
	return true;
}

static u64 read_fixed_counter(const struct pmu *pmu, u32 i)
{
	return pmu_counter_read(pmu, PMU_FIXED_BASE + i);
}

/* KVM: high bits are dropped; the manual has them fault. */
static bool write_fixed_counter(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)host;
	pmu_counter_write(pmu, PMU_FIXED_BASE + i, value);
	return true;
}

/* --- controls --- */

static u64 select_reserved(const struct pmu *pmu, u32 i)
{
	u64 reserved = MASK(63, 32) | EVENTSEL_ANY;

	if (pmu->guest.tsx)
		reserved &= ~(EVENTSEL_IN_TX | (i == 2 ? EVENTSEL_IN_TXCP : 0));
	if (pmu_pebs_adaptive(pmu))
		reserved &= ~EVENTSEL_ADAPTIVE;
	return reserved;
}

static bool write_select(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)host;
	if (value & select_reserved(pmu, i))
		return false;
	pmu_put_select(pmu, i, value);
	return true;
}

static u64 read_fixed_ctrl(const struct pmu *pmu, u32 i)
{
	(void)i;
	return pmu->fixed_ctrl;
}

static bool write_fixed_ctrl(struct pmu *pmu, u32 i, u64 value, bool host)
{
	const u64 field = FIXED_CTRL_OS | FIXED_CTRL_USR | FIXED_CTRL_PMI;
	u64 legal = 0;

	(void)host;
	for (i = 0; i < pmu->fixed; i++)
		if (pmu->fixed_set >> i & 1)
			legal |= field << FIXED_CTRL_BITS * i |
				 (pmu_pebs_adaptive(pmu) ? FIXED_CTRL_ADAPTIVE(i) : 0);
	if (value & ~legal)
		return false;
	for (i = 0; i < pmu->fixed; i++)
		if (fixed_ctrl_field(value ^ pmu->fixed_ctrl, i) ||
		    ((value ^ pmu->fixed_ctrl) & FIXED_CTRL_ADAPTIVE(i)))
			pmu->dirty |= BIT(PMU_FIXED_BASE + i);
	pmu->fixed_ctrl = value;
	return true;
}

/* SDM 3B, "Off-core Response Performance Monitoring"; KVM has none. Whatever counts such an event
 * counts something else from now on. */
#define OFFCORE_RSP_BITS MASK(37, 0)

static u64 read_offcore(const struct pmu *pmu, u32 i)
{
	return pmu->offcore[i];
}

static bool write_offcore(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)host;
	if (value & ~OFFCORE_RSP_BITS)
		return false;
	if (value != pmu->offcore[i])
		pmu->dirty |= pmu->all & MASK(PMU_FIXED_BASE - 1, 0);
	pmu->offcore[i] = value;
	return true;
}

/* --- the global registers --- */

static u64 status_legal(const struct pmu *pmu)
{
	return pmu->all | GLOBAL_STATUS_DS | GLOBAL_STATUS_CHANGED | pmu_lbr_status_bits(pmu);
}

static bool write_status(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)i;
	if (!host || (value & ~status_legal(pmu)))
		return false;
	pmu_put_status(pmu, value);
	return true;
}

static bool write_global_ctrl(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)i, (void)host;
	if (value & ~pmu->all)
		return false;
	pmu_put_global_ctrl(pmu, value);
	return true;
}

/* KVM: status is restored by writing it, so that nothing happens here on the program's behalf. */
static bool write_ovf_ctrl(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)i;
	if (value & ~status_legal(pmu))
		return false;
	if (!host)
		pmu_put_status(pmu, pmu->global_status & ~value);
	return true;
}

/* Version 4. */
static bool write_status_set(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)i;
	if (value & ~status_legal(pmu))
		return false;
	if (!host)
		pmu_put_status(pmu, pmu->global_status | value);
	return true;
}

/* SDM 3B 20.2.4.3: who uses what. Bit 63 is the interrupt. */
static u64 read_inuse(const struct pmu *pmu, u32 i)
{
	u64 inuse = 0;

	for (i = 0; i < pmu->general; i++) {
		inuse |= pmu->select[i] & EVENTSEL_EVENT ? BIT(i) : 0;
		inuse |= pmu->select[i] & EVENTSEL_INT ? BIT(63) : 0;
	}
	for (i = 0; i < pmu->fixed; i++) {
		u64 control = fixed_ctrl_field(pmu->fixed_ctrl, i);

		inuse |= control & (FIXED_CTRL_OS | FIXED_CTRL_USR) ? BIT(PMU_FIXED_BASE + i) : 0;
		inuse |= control & FIXED_CTRL_PMI ? BIT(63) : 0;
	}
	return pmu->pebs_enable ? inuse | BIT(63) : inuse;
}

static bool write_never(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)pmu, (void)i, (void)value, (void)host;
	return false;
}

/* --- the rows --- */

#define LBR_REG(name)  pmu_lbr_read_##name, pmu_lbr_write_##name
#define PEBS_REG(name) pmu_pebs_read_##name, pmu_pebs_write_##name

static const struct pmu_row rows[] = {
	{ "IA32_PERF_CAPABILITIES", 0x345, 1, 1, PER_CPU, 0, ROW_LISTED | ROW_PDCM, PASS_NEVER,
	  read_capabilities, write_capabilities },
	{ "IA32_PMC", 0xc1, 1, PMU_GENERAL, PER_GENERAL, 1, ROW_LISTED, PASS_COUNTER,
	  pmu_read_counter, write_counter },
	{ "IA32_A_PMC", 0x4c1, 1, PMU_GENERAL, PER_GENERAL, 1, ROW_FULL_WIDTH, PASS_COUNTER,
	  pmu_read_counter, write_full_counter },
	{ "IA32_FIXED_CTR", 0x309, 1, PMU_FIXED, PER_FIXED, 2, ROW_LISTED, PASS_COUNTER,
	  read_fixed_counter, write_fixed_counter },
	{ "IA32_PERFEVTSEL", 0x186, 1, PMU_GENERAL, PER_GENERAL, 1, ROW_LISTED, PASS_SELECT,
	  pmu_read_select, write_select },
	{ "MSR_OFFCORE_RSP", 0x1a6, 1, 2, PER_CPU, 1, ROW_LISTED, PASS_NEVER, read_offcore,
	  write_offcore },
	{ "IA32_FIXED_CTR_CTRL", 0x38d, 1, 1, PER_CPU, 2, ROW_LISTED, PASS_FIXED_CTRL,
	  read_fixed_ctrl, write_fixed_ctrl },
	{ "IA32_PERF_GLOBAL_STATUS", 0x38e, 1, 1, PER_CPU, 2, ROW_LISTED, PASS_GLOBAL,
	  pmu_read_status, write_status },
	{ "IA32_PERF_GLOBAL_CTRL", 0x38f, 1, 1, PER_CPU, 2, ROW_LISTED, PASS_GLOBAL,
	  pmu_read_global_ctrl, write_global_ctrl },
	{ "IA32_PERF_GLOBAL_OVF_CTRL", 0x390, 1, 1, PER_CPU, 2, 0, PASS_GLOBAL, NULL,
	  write_ovf_ctrl },

	{ "IA32_PERF_GLOBAL_STATUS_SET", 0x391, 1, 1, PER_CPU, 4, 0, PASS_NEVER, NULL,
	  write_status_set },
	{ "IA32_PERF_GLOBAL_INUSE", 0x392, 1, 1, PER_CPU, 4, 0, PASS_NEVER, read_inuse,
	  write_never },

	{ "IA32_DS_AREA", 0x600, 1, 1, PER_CPU, 0, ROW_LISTED | ROW_DS, PASS_NEVER,
	  PEBS_REG(ds_area) },
	{ "MSR_PEBS_DATA_CFG", 0x3f2, 1, 1, PER_CPU, 2, ROW_LISTED | ROW_BASELINE, PASS_NEVER,
	  PEBS_REG(data_cfg) },
	{ "MSR_PEBS_LD_LAT_THRESHOLD", 0x3f6, 1, 1, PER_CPU, 2, ROW_LISTED | ROW_PEBS, PASS_NEVER,
	  PEBS_REG(ld_lat) },
	{ "IA32_PEBS_ENABLE", 0x3f1, 1, 1, PER_CPU, 2, ROW_LISTED | ROW_PEBS, PASS_NEVER,
	  PEBS_REG(enable) },

	{ "MSR_LASTBRANCH_TOS", 0x1c9, 1, 1, PER_CPU, 1, ROW_LISTED | ROW_LEGACY, PASS_RECORD,
	  LBR_REG(top) },
	{ "MSR_LASTBRANCH_FROM", 0x680, 1, 32, PER_RECORD, 1, ROW_LISTED | ROW_LEGACY, PASS_RECORD,
	  LBR_REG(from) },
	{ "MSR_LASTBRANCH_TO", 0x6c0, 1, 32, PER_RECORD, 1, ROW_LISTED | ROW_LEGACY, PASS_RECORD,
	  LBR_REG(to) },
	{ "MSR_LBR_INFO", 0xdc0, 1, 32, PER_RECORD, 1, ROW_LISTED | ROW_LEGACY, PASS_RECORD,
	  LBR_REG(info) },
	{ "MSR_LBR_SELECT", 0x1c8, 1, 1, PER_CPU, 1, ROW_LISTED | ROW_LEGACY, PASS_NEVER,
	  LBR_REG(select) },

	{ "IA32_LBR_DEPTH", 0x14cf, 1, 1, PER_CPU, 1, ROW_LISTED | ROW_ARCH, PASS_NEVER,
	  LBR_REG(depth) },
	{ "IA32_LBR_FROM", 0x1500, 1, 32, PER_RECORD, 1, ROW_LISTED | ROW_ARCH, PASS_RECORD,
	  LBR_REG(from) },
	{ "IA32_LBR_TO", 0x1600, 1, 32, PER_RECORD, 1, ROW_LISTED | ROW_ARCH, PASS_RECORD,
	  LBR_REG(to) },
	{ "IA32_LBR_INFO", 0x1200, 1, 32, PER_RECORD, 1, ROW_LISTED | ROW_ARCH, PASS_RECORD,
	  LBR_REG(info) },
	{ "IA32_LBR_CTL", 0x14ce, 1, 1, PER_CPU, 1, ROW_LISTED | ROW_ARCH, PASS_NEVER,
	  pmu_lbr_read_select, pmu_lbr_write_ctl },
};

/* --- what CPUID.0AH gives --- */

static u32 field(u32 reg, u32 high, u32 low)
{
	return (reg & MASK(high, low)) >> low;
}

static u32 least(u32 a, u32 b)
{
	return a < b ? a : b;
}

static void derive(struct pmu *pmu)
{
	const struct pmu_model *model = pmu->model;
	u32 eax = pmu->guest.leaf_a_eax, edx = pmu->guest.leaf_a_edx;
	u32 most = least(model->fixed, PMU_FIXED);

	pmu->version = field(eax, 7, 0);
	if (!pmu->version)
		return;
	pmu->general = least(field(eax, 15, 8), least(model->general, PMU_GENERAL));
	pmu->general_mask = BIT(least(field(eax, 23, 16), model->general_width)) - 1;
	if (pmu->version < 2)
		return;
	pmu->fixed_set = BIT(least(field(edx, 4, 0), most)) - 1;
	/* KVM: a version above the one that is offered behaves as that one. */
	if (pmu->version >= 5 && (model->perf_capabilities & PERF_CAP_BASELINE))
		pmu->fixed_set |= pmu->guest.leaf_a_ecx & (BIT(most) - 1);
	while (pmu->fixed_set >> pmu->fixed)
		pmu->fixed++;
	pmu->fixed_mask = BIT(least(field(edx, 12, 5), model->fixed_width)) - 1;
}

/* The type is in 31:16 (4000H: fixed), the number in 15:0. The "fast" bit 31 is a type we lack. */
static bool rdpmc_counter(const struct pmu *pmu, u32 ecx, u32 *counter)
{
	u32 type = ecx >> 16, i = ecx & 0xffff;

	*counter = type ? PMU_FIXED_BASE + i : i;
	return type == 0x4000 ? i < pmu->fixed && (pmu->fixed_set >> i & 1)
			      : !type && i < pmu->general;
}

const struct pmu_vendor pmu_intel = {
	.name = "Intel",
	.rows = rows,
	.nrows = ARRAY_SIZE(rows),
	.masks_lvtpc = true, /* SDM 3A 10.5.1 */
	.derive = derive,
	.rdpmc_counter = rdpmc_counter,
};
