/* SPDX-License-Identifier: MIT */
/*
 * Instruction-based sampling (APM2 13.3; PPR 55898, 55901): its registers, from MSRC001_1030 on,
 * and their bits.
 */
#ifndef X86_IBS_H
#define X86_IBS_H

#include "base/types.h"

#define IBS_MSR 0xc0011030u

enum ibs_register {
	IBS_FETCH_CTL,
	IBS_FETCH_LINEAR,
	IBS_FETCH_PHYSICAL,
	IBS_OP_CTL,
	IBS_OP_RIP,
	IBS_OP_DATA,
	IBS_OP_DATA2,
	IBS_OP_DATA3,
	IBS_DC_LINEAR,
	IBS_DC_PHYSICAL,
	IBS_CTL, /* which extended LVT interrupts */
	IBS_BRANCH_TARGET,
	IBS_FETCH_EXTENDED,
	IBS_OP_DATA4,
	NIBS
};

#define IBS_FETCH_MAX	   MASK(15, 0) /* in 16 fetches */
#define IBS_FETCH_CNT	   MASK(31, 16)
#define IBS_FETCH_CNT_AT   16
#define IBS_FETCH_EN	   BIT(48)
#define IBS_FETCH_VAL	   BIT(49)
#define IBS_FETCH_COMPLETE BIT(50)
#define IBS_FETCH_RAND	   BIT(57)
#define IBS_FETCH_L3_MISS  BIT(59) /* genoa: only what misses L3 */

#define IBS_OP_MAX	  MASK(15, 0) /* in 16 cycles or ops */
#define IBS_OP_L3_MISS	  BIT(16)     /* genoa: only what misses L3 */
#define IBS_OP_EN	  BIT(17)
#define IBS_OP_VAL	  BIT(18)
#define IBS_OP_COUNTS_OPS BIT(19) /* else cycles */
#define IBS_OP_MAX_HIGH	  MASK(26, 20)
#define IBS_OP_CNT	  MASK(58, 32)
#define IBS_OP_CNT_AT	  32
#define IBS_RANDOM	  MASK(6, 0) /* of the count, after a sample */

/* What may be counted to at least: of ops, more than the random bits are. */
#define IBS_FETCH_LEAST 0x10
#define IBS_OP_LEAST	0x90

#define IBS_DATA_TAG_TO_RETIRE_AT 16
#define IBS_DATA_RETURN		  BIT(34)
#define IBS_DATA_TAKEN		  BIT(35)
#define IBS_DATA_MISPREDICTED	  BIT(36)
#define IBS_DATA_BRANCH		  BIT(37)

#define IBS_DATA3_LOAD	      BIT(0)
#define IBS_DATA3_STORE	      BIT(1)
#define IBS_DATA3_L1TLB_MISS  BIT(2)
#define IBS_DATA3_L2TLB_MISS  BIT(3)
#define IBS_DATA3_DC_MISS     BIT(7)
#define IBS_DATA3_LINEAR      BIT(17) /* is valid */
#define IBS_DATA3_PHYSICAL    BIT(18)
#define IBS_DATA3_L2_MISS     BIT(20)
#define IBS_DATA3_WIDTH_AT    22
#define IBS_DATA3_MISS_LAT_AT 32

/* IBS_OP_DATA2, of loads that missed L2. */
enum ibs_source {
	IBS_SOURCE_L3_ZEN3 = 2,
	IBS_SOURCE_L3_ZEN4 = 1,
	IBS_SOURCE_MEMORY = 3,
	IBS_SOURCE_NOT_MODIFIED =
		BIT(5), /* CacheHitSt of genoa: the line was owned, not modified */
};

#define IBS_CTL_VALID BIT(8)
#define IBS_LVT	      1 /* the extended LVT, as firmware would choose it */

#endif
