// SPDX-License-Identifier: MIT
/*
 * The core performance counters of AMD64 (APM2 13.2): four at the addresses of K7, six with
 * PerfCtrExtCore, global registers with PerfMonV2. Registers ignore what they do not know; nothing
 * a guest writes here faults.
 */
#include "pmu/priv.h"

/* KVM: reserved bits, and GuestOnly and HostOnly, read back as 0. */
#define SELECT_IGNORED (MASK(63, 36) | EVENTSEL_ANY | EVENTSEL_PC)

#define K7_COUNTERS 4

static bool write_counter(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)host;
	pmu_counter_write(pmu, i, value);
	return true;
}

static bool write_select(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)host;
	pmu_put_select(pmu, i, value & ~SELECT_IGNORED);
	return true;
}

static bool write_status(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)i;
	if (!host)
		return true;
	if (value & ~(pmu->all | pmu_lbr_status_bits(pmu)))
		return false;
	pmu_put_status(pmu, value);
	return true;
}

static bool write_global_ctl(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)i, (void)host;
	pmu_put_global_ctrl(pmu, value & pmu->all);
	return true;
}

/* Linux writes nearly all ones. */
static bool write_status_clr(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)i;
	if (!host)
		pmu_put_status(pmu, pmu->global_status & ~value);
	return true;
}

static bool write_status_set(struct pmu *pmu, u32 i, u64 value, bool host)
{
	(void)i;
	if (!host)
		pmu_put_status(pmu, pmu->global_status | (value & pmu->all));
	return true;
}

static const struct pmu_row rows[] = {
	{ "PerfCtr", 0xc0010004, 1, K7_COUNTERS, PER_GENERAL, 1, ROW_LISTED, PASS_COUNTER,
	  pmu_read_counter, write_counter },
	{ "PERF_CTR", 0xc0010201, 2, PMU_GENERAL_AMD, PER_GENERAL, 1, ROW_LISTED | ROW_CORE_EXT,
	  PASS_COUNTER, pmu_read_counter, write_counter },
	{ "PerfEvtSel", 0xc0010000, 1, K7_COUNTERS, PER_GENERAL, 1, ROW_LISTED, PASS_SELECT,
	  pmu_read_select, write_select },
	{ "PERF_CTL", 0xc0010200, 2, PMU_GENERAL_AMD, PER_GENERAL, 1, ROW_LISTED | ROW_CORE_EXT,
	  PASS_SELECT, pmu_read_select, write_select },
	{ "PerfCntrGlobalStatus", 0xc0000300, 1, 1, PER_CPU, 2, ROW_LISTED, PASS_GLOBAL,
	  pmu_read_status, write_status },
	{ "PerfCntrGlobalCtl", 0xc0000301, 1, 1, PER_CPU, 2, ROW_LISTED, PASS_GLOBAL,
	  pmu_read_global_ctrl, write_global_ctl },
	{ "PerfCntrGlobalStatusClr", 0xc0000302, 1, 1, PER_CPU, 2, ROW_LISTED, PASS_GLOBAL, NULL,
	  write_status_clr },
	{ "PerfCntrGlobalStatusSet", 0xc0000303, 1, 1, PER_CPU, 2, ROW_LISTED, PASS_GLOBAL, NULL,
	  write_status_set },

	{ "IBS", IBS_MSR, 1, NIBS, PER_CPU, 1, ROW_LISTED | ROW_IBS, PASS_NEVER, pmu_ibs_read,
	  pmu_ibs_write },

	{ "SAMP_BR_FROM", 0xc0010300, 2, 16, PER_RECORD, 1, ROW_LISTED | ROW_AMD, PASS_RECORD,
	  pmu_lbr_read_from, pmu_lbr_write_from },
	{ "SAMP_BR_TO", 0xc0010301, 2, 16, PER_RECORD, 1, ROW_LISTED | ROW_AMD, PASS_RECORD,
	  pmu_lbr_read_to, pmu_lbr_write_to },
	{ "LBR_SELECT", 0xc000010e, 1, 1, PER_CPU, 1, ROW_LISTED | ROW_AMD, PASS_NEVER,
	  pmu_lbr_read_select, pmu_lbr_write_select_amd },
	{ "DBG_EXTN_CFG", 0xc000010f, 1, 1, PER_CPU, 1, ROW_LISTED | ROW_AMD, PASS_NEVER,
	  pmu_lbr_read_extn, pmu_lbr_write_extn },
};

static u32 counters_of(const struct pmu_guest *guest)
{
	if (guest->leaf_22_eax & LEAF_22_V2)
		return guest->leaf_22_ebx & MASK(3, 0);
	return guest->core_ext ? PMU_GENERAL_AMD : K7_COUNTERS;
}

static void derive(struct pmu *pmu)
{
	u32 counters = counters_of(&pmu->guest), most = PMU_GENERAL_AMD;

	if (pmu->model->general < most)
		most = pmu->model->general;
	pmu->version = pmu->guest.leaf_22_eax & LEAF_22_V2 ? 2 : 1;
	pmu->general = counters < most ? counters : most;
	pmu->general_mask = BIT(pmu->model->general_width) - 1;
}

static bool rdpmc_counter(const struct pmu *pmu, u32 ecx, u32 *counter)
{
	*counter = ecx;
	return ecx < pmu->general;
}

const struct pmu_vendor pmu_amd = {
	.name = "AMD",
	.rows = rows,
	.nrows = ARRAY_SIZE(rows),
	/* Linux never unmasks LVTPC on PerfMonV2: it would see a single PMI. */
	.masks_lvtpc = false,
	.derive = derive,
	.rdpmc_counter = rdpmc_counter,
};
