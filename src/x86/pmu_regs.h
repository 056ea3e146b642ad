/* SPDX-License-Identifier: MIT */
/*
 * Bits of the performance monitoring registers (SDM 3B 20.2; APM2 13.2). Where both vendors have a
 * field it has one name.
 */
#ifndef X86_PMU_REGS_H
#define X86_PMU_REGS_H

#include "base/types.h"

/* Counters are numbered as the bits of GLOBAL_CTRL: general ones from 0, fixed ones from 32. */
#define PMU_FIXED_BASE 32

/* Event selects: IA32_PERFEVTSELx, PERF_CTLx. */
#define EVENTSEL_EVENT	    MASK(7, 0)
#define EVENTSEL_UMASK	    MASK(15, 8)
#define EVENTSEL_USR	    BIT(16)
#define EVENTSEL_OS	    BIT(17)
#define EVENTSEL_EDGE	    BIT(18)
#define EVENTSEL_PC	    BIT(19)
#define EVENTSEL_INT	    BIT(20)
#define EVENTSEL_ANY	    BIT(21)
#define EVENTSEL_EN	    BIT(22)
#define EVENTSEL_INV	    BIT(23)
#define EVENTSEL_CMASK	    MASK(31, 24)
#define EVENTSEL_IN_TX	    BIT(32) /* Intel */
#define EVENTSEL_IN_TXCP    BIT(33)
#define EVENTSEL_ADAPTIVE   BIT(34)
#define EVENTSEL_EVENT_HIGH MASK(35, 32) /* AMD: bits 11:8 of the event */

/* The four bits that a fixed counter has in IA32_FIXED_CTR_CTRL. */
#define FIXED_CTRL_OS	       BIT(0)
#define FIXED_CTRL_USR	       BIT(1)
#define FIXED_CTRL_ANY	       BIT(2)
#define FIXED_CTRL_PMI	       BIT(3)
#define FIXED_CTRL_BITS	       4
#define FIXED_CTRL_ADAPTIVE(i) BIT(32 + FIXED_CTRL_BITS * (i)) /* of counter i */

/* PERF_METRICS, in IA32_PERF_GLOBAL_CTRL and in the status. */
#define PMU_METRICS_BIT 48
#define GLOBAL_METRICS	BIT(PMU_METRICS_BIT)
#define RDPMC_METRICS	0x20000000u /* ECX */

/* IA32_PERF_GLOBAL_STATUS, PerfCntrGlobalStatus. */
#define GLOBAL_STATUS_LBR_FRZ BIT(58)
#define GLOBAL_STATUS_CTR_FRZ BIT(59)
#define GLOBAL_STATUS_DS      BIT(62)
#define GLOBAL_STATUS_CHANGED BIT(63)

/* IA32_PERF_CAPABILITIES. */
#define PERF_CAP_LBR_FORMAT  MASK(5, 0)
#define PERF_CAP_PEBS_TRAP   BIT(6) /* records come after the instruction */
#define PERF_CAP_PEBS_REGS   BIT(7)
#define PERF_CAP_PEBS_FORMAT MASK(11, 8)
#define PERF_CAP_PEBS_SHIFT  8
#define PERF_CAP_BASELINE    BIT(14) /* adaptive records, on all counters */
#define PERF_CAP_PEBS \
	(PERF_CAP_PEBS_TRAP | PERF_CAP_PEBS_REGS | PERF_CAP_PEBS_FORMAT | PERF_CAP_BASELINE)
#define PERF_CAP_METRICS    BIT(15)
#define LBR_FORMAT_INFO	    5 /* FROM and TO are addresses; flags and cycles in INFO */
#define PERF_CAP_FULL_WIDTH BIT(13)

/* IA32_DEBUGCTL. */
#define DEBUGCTL_LBR	     BIT(0)
#define DEBUGCTL_BTF	     BIT(1)
#define DEBUGCTL_FREEZE_LBRS BIT(11) /* on PMI */

/*
 * MSR_LBR_SELECT (SDM 3B 17.5.2), and LBR_SELECT of AMD without the last: all but that one suppress
 * branches.
 */
#define LBR_SELECT_OS	      BIT(0) /* that end at CPL 0 */
#define LBR_SELECT_USR	      BIT(1) /* that end above */
#define LBR_SELECT_KINDS      2	     /* from this bit on in the order of enum branch_kind */
#define LBR_SELECT_CALL_STACK BIT(9)

/* IA32_LBR_CTL (SDM 3B 18.1.1): bits that enable. */
#define LBR_CTL_EN	   BIT(0)
#define LBR_CTL_OS	   BIT(1)
#define LBR_CTL_USR	   BIT(2)
#define LBR_CTL_CALL_STACK BIT(3)
#define LBR_CTL_KINDS	   MASK(22, 16)

/* MSR_LBR_INFO_x, IA32_LBR_x_INFO. */
#define LBR_INFO_CYCLES	      MASK(15, 0)
#define LBR_INFO_TYPE_SHIFT   56 /* of Arch LBR, as bit 60 is */
#define LBR_INFO_CYCLES_VALID BIT(60)
#define LBR_INFO_MISPREDICTED BIT(63)

/* Entries of AMD's stack. */
#define LBR_AMD_IP		  MASK(57, 0)
#define LBR_AMD_FROM_MISPREDICTED BIT(63)
#define LBR_AMD_TO_VALID	  BIT(63)
#define DBG_EXTN_CFG_LBR	  BIT(6)

/* The event and its unit mask, as one number: event in 11:0, unit mask in 19:12. */
static inline u32 eventsel_code(u64 select, bool is_amd)
{
	u32 event = select & EVENTSEL_EVENT;

	if (is_amd)
		event |= (select & EVENTSEL_EVENT_HIGH) >> 32 << 8;
	return event | (select & EVENTSEL_UMASK) >> 8 << 12;
}

static inline u32 eventsel_cmask(u64 select)
{
	return (select & EVENTSEL_CMASK) >> 24;
}

/* The field of fixed counter i. */
static inline u64 fixed_ctrl_field(u64 fixed_ctrl, u32 i)
{
	return fixed_ctrl >> FIXED_CTRL_BITS * i & MASK(FIXED_CTRL_BITS - 1, 0);
}

#endif
