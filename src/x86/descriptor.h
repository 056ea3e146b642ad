/* SPDX-License-Identifier: MIT */
/*
 * Segment descriptors, gates and task state segments as they lie in memory (SDM 3A 3.4.5, 3.5, 5.8,
 * 6.11, 7.2; APM2 4.7, 4.8), and the fields of selectors and of their error codes.
 */
#ifndef X86_DESCRIPTOR_H
#define X86_DESCRIPTOR_H

#include "base/types.h"

/* Type field of code and data segments. */
#define TYPE_ACCESSED	 1u
#define TYPE_WRITABLE	 2u /* data; readable for code */
#define TYPE_EXPAND_DOWN 4u /* data */
#define TYPE_CONFORMING	 4u /* code */
#define TYPE_CODE	 8u

/* Type field of system segments and gates. */
enum system_type {
	TYPE_TSS16 = 1,
	TYPE_LDT = 2,
	TYPE_TSS16_BUSY = 3,
	TYPE_CALL_GATE16 = 4,
	TYPE_TASK_GATE = 5,
	TYPE_INT_GATE16 = 6,
	TYPE_TRAP_GATE16 = 7,
	TYPE_TSS = 9, /* 32-bit, or 64-bit in long mode; so the gates below */
	TYPE_TSS_BUSY = 11,
	TYPE_CALL_GATE = 12,
	TYPE_INT_GATE = 14,
	TYPE_TRAP_GATE = 15,
};

#define TSS_BUSY 2u /* in the type field */

#define SEL_RPL	  3u
#define SEL_TI	  4u
#define SEL_INDEX 0xfff8u

/* Error codes that name a selector or a gate (SDM 3A 6.13). */
#define ERROR_EXT   1u
#define ERROR_IDT   2u
#define ERROR_INDEX 0xfffcu /* selector without RPL: index and TI */

static inline bool selector_null(u16 sel)
{
	return !(sel & ~SEL_RPL);
}

/* Attributes in the layout of struct segment: what the two middle bytes hold. */
static inline u32 descriptor_attr(u64 lo)
{
	return lo >> 40 & 0xf0ff;
}

static inline u64 descriptor_base(u64 lo)
{
	return (lo >> 16 & 0xffffff) | (lo >> 32 & 0xff000000);
}

static inline u64 descriptor_base64(u64 lo, u64 hi)
{
	return descriptor_base(lo) | hi << 32;
}

/* In bytes, granularity applied. */
static inline u32 descriptor_limit(u64 lo)
{
	u32 limit = (lo & 0xffff) | (lo >> 32 & 0xf0000);

	return lo & BIT(55) ? limit << 12 | 0xfff : limit;
}

/* The upper half of a 16-byte system descriptor has a type field too, which must be 0. */
static inline u32 descriptor_upper_type(u64 hi)
{
	return hi >> 40 & 0x1f;
}

static inline u16 gate_selector(u64 lo)
{
	return lo >> 16;
}

static inline u32 gate_offset(u64 lo)
{
	return (lo & 0xffff) | (lo >> 32 & 0xffff0000);
}

static inline u64 gate_offset64(u64 lo, u64 hi)
{
	return gate_offset(lo) | hi << 32;
}

static inline u32 gate_params(u64 lo) /* of a call gate */
{
	return lo >> 32 & 0x1f;
}

static inline u32 gate_ist(u64 lo) /* of a 64-bit interrupt or trap gate */
{
	return lo >> 32 & 7;
}

/* Stack pointers in task state segments. */
#define TSS64_RSP(cpl) (4 + 8 * (u32)(cpl))
#define TSS64_IST(ist) (0x24 + 8 * ((u32)(ist) - 1)) /* 1 to 7 */
#define TSS32_ESP(cpl) (4 + 8 * (u32)(cpl))	     /* ESP, then SS */
#define TSS16_SP(cpl)  (2 + 4 * (u32)(cpl))	     /* SP, then SS */

#endif
