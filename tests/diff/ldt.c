// SPDX-License-Identifier: MIT
/*
 * The local descriptor table, the same on both sides: segments with bases, limits and rights, and
 * code of 16 bits. Linux lets programs make these (modify_ldt(2)).
 */
#include "diff.h"

#include <asm/ldt.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/cpu.h"
#include "x86/descriptor.h"

#define WRITE_LDT 0x11 /* of modify_ldt() */

/* Values of user_desc.contents. */
enum { DATA, DATA_DOWN, CODE };

#define DATA_LIMIT (DATA_SIZE - 1)
#define DOWN_LIMIT (3 * PAGE_SIZE - 1) /* what is above is valid */

/* Data have one base, so that an offset means the same in all segments. */
static const struct user_desc rows[NLDT] = {
	[LDT_DATA] = { .base_addr = DATA_BASE, .limit = DATA_LIMIT, .seg_32bit = 1 },
	[LDT_DATA16] = { .base_addr = DATA_BASE, .limit = DATA_LIMIT },
	[LDT_SHORT] = { .base_addr = DATA_BASE, .limit = 0x2345, .seg_32bit = 1, .useable = 1 },
	[LDT_DOWN] = { .base_addr = DATA_BASE,
		       .limit = DOWN_LIMIT,
		       .seg_32bit = 1,
		       .contents = DATA_DOWN },
	[LDT_DOWN16] = { .base_addr = DATA_BASE, .limit = DOWN_LIMIT, .contents = DATA_DOWN },
	[LDT_PAGES] = { .base_addr = DATA_BASE,
			.limit = DATA_PAGES - 2,
			.limit_in_pages = 1,
			.seg_32bit = 1 },
	[LDT_READONLY] = { .base_addr = DATA_BASE,
			   .limit = DATA_LIMIT,
			   .read_exec_only = 1,
			   .seg_32bit = 1 },
	[LDT_ABSENT] = { .base_addr = DATA_BASE,
			 .limit = DATA_LIMIT,
			 .seg_not_present = 1,
			 .seg_32bit = 1 },
	[LDT_CODE32] = { .base_addr = LDT_CODE_BASE,
			 .limit = CODE_LIMIT,
			 .contents = CODE,
			 .seg_32bit = 1 },
	[LDT_CODE16] = { .base_addr = LDT_CODE_BASE, .limit = CODE_LIMIT, .contents = CODE },
	[LDT_UNREADABLE] = { .base_addr = LDT_CODE_BASE,
			     .limit = CODE_LIMIT,
			     .contents = CODE,
			     .read_exec_only = 1,
			     .seg_32bit = 1 },
};

bool ldt_install(void)
{
	for (u32 i = 0; i < NLDT; i++) {
		struct user_desc row = rows[i];

		row.entry_number = i;
		if (syscall(SYS_modify_ldt, WRITE_LDT, &row, sizeof(row)))
			return false;
	}
	return true;
}

/* As Linux makes them: accessed, and of ring 3. */
u64 ldt_descriptor(enum ldt_entry entry)
{
	const struct user_desc *row = &rows[entry];
	u64 base = row->base_addr, limit = row->limit;
	u64 type = TYPE_ACCESSED | !row->read_exec_only << 1 | row->contents << 2;
	u64 attr = type | SEG_S | 3 << SEG_DPL_SHIFT | (row->seg_not_present ? 0 : SEG_P);

	return (limit & 0xffff) | (base & 0xffffff) << 16 | attr << 40 | (limit >> 16) << 48 |
	       (u64)row->useable << 52 | (u64)row->seg_32bit << 54 |
	       (u64)row->limit_in_pages << 55 | base >> 24 << 56;
}

u16 ldt_pick_data(struct rng *r)
{
	static const u8 entries[] = { LDT_DATA,	  LDT_DATA16, LDT_SHORT,    LDT_DOWN,
				      LDT_DOWN16, LDT_PAGES,  LDT_READONLY, LDT_CODE32 };

	return SEL_LDT(rng_one_in(r, 2) ? LDT_DATA : entries[rng_below(r, ARRAY_SIZE(entries))]);
}

u16 ldt_pick_stack(struct rng *r)
{
	static const u8 entries[] = { LDT_DATA16, LDT_DATA16, LDT_DATA16, LDT_SHORT,
				      LDT_DOWN,	  LDT_DOWN16, LDT_PAGES };

	return SEL_LDT(rng_one_in(r, 2) ? LDT_DATA : entries[rng_below(r, ARRAY_SIZE(entries))]);
}

bool ldt_is_stack16(u16 sel)
{
	return (sel & 4) && sel >> 3 < NLDT && !rows[sel >> 3].seg_32bit;
}
