/* SPDX-License-Identifier: MIT */
/*
 * Processor event-based sampling (SDM 3B 20.3.4, 20.9): bits of its registers, the debug store in
 * memory, and what software asks for. Offsets are those of 64-bit mode (DTES64).
 */
#ifndef X86_PEBS_H
#define X86_PEBS_H

#include "base/types.h"

/* IA32_PEBS_ENABLE: besides a bit of each counter, up to version 4 bits 32+i of those that sample
 * loads by their latency (SDM 3B 20.3.4.4.2); Linux sets them where it sees version 4 or less. */
#define PEBS_ENABLE_LATENCY MASK(35, 32)

/* MSR_PEBS_DATA_CFG: groups of an adaptive record, and how many branch records minus one. */
#define PEBS_CFG_MEMORY	   BIT(0)
#define PEBS_CFG_GPRS	   BIT(1)
#define PEBS_CFG_XMMS	   BIT(2)
#define PEBS_CFG_LBRS	   BIT(3)
#define PEBS_CFG_GROUPS	   MASK(3, 0)
#define PEBS_CFG_LBR_SHIFT 24
#define PEBS_CFG_LEGAL	   (PEBS_CFG_GROUPS | MASK(31, PEBS_CFG_LBR_SHIFT))

/* The debug store: DS_AREA points at it. */
#define DS_PEBS_BASE	0x20
#define DS_PEBS_INDEX	0x28
#define DS_PEBS_MAXIMUM 0x30
#define DS_PEBS_LIMIT	0x38  /* the interrupt threshold */
#define DS_RESET	0x40  /* of general counter 0, then 8 bytes each */
#define DS_FIXED_RESET	0x80  /* of fixed counter 0, up to format 4 */
#define DS_FIXED_RESET5 0x140 /* and from format 5 on */

/* The load latency event, which alone obeys MSR_PEBS_LD_LAT (SDM 3B 20.3.4.4.2). */
#define PEBS_LOAD_LATENCY  0x01cd
#define PEBS_ALL_STORES	   0x82d0 /* MEM_INST_RETIRED.ALL_STORES */
#define PEBS_LATENCY_LEAST 3	  /* what software may ask for */

/* Where a load found its data (SDM 3B table 20-58). Of stores bit 0: the first level had it. */
enum pebs_source {
	PEBS_SOURCE_UNKNOWN = 0x0,
	PEBS_SOURCE_L1 = 0x1,
	PEBS_SOURCE_L2 = 0x3,
	PEBS_SOURCE_L3 = 0x4,
	PEBS_SOURCE_FORWARD = 0x6, /* another core's cache on this socket; its line is clean */
	PEBS_SOURCE_HITM = 0x7,	   /* it had modified it */
	PEBS_SOURCE_MEMORY = 0xa,
	PEBS_SOURCE_STORE_L1 = 0x1,
	PEBS_SOURCE_STLB_MISS = 0x10,
};

struct pebs_control {
	u64 enable;   /* IA32_PEBS_ENABLE: counters */
	u64 ds_area;  /* linear address */
	u64 data_cfg; /* MSR_PEBS_DATA_CFG */
	u64 latency;  /* MSR_PEBS_LD_LAT: loads that take less are not sampled */
	/* Bits of counters above the width that the guest sees. They are set, so that the counter
	 * overflows when the guest's does. */
	u64 general_hidden, fixed_hidden;
	bool adaptive;	       /* records obey data_cfg where the counter's control says so */
	bool has_latency_bits; /* version 4 or less: PEBS_ENABLE_LATENCY */
};

#endif
