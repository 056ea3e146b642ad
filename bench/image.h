/* SPDX-License-Identifier: MIT */
/*
 * The flat image that vpmu and QEMU load at IMAGE_ADDRESS: a multiboot header (Multiboot
 * 0.6.96, 3.1, with the address fields), page tables that map the first gigabyte one to one, and
 * the blob of loops.h. And the clock.
 */
#ifndef BENCH_IMAGE_H
#define BENCH_IMAGE_H

#include <string.h>
#include <time.h>

#include "loops.h"

#define IMAGE_SIZE	0x6000
#define IMAGE_PML4	(IMAGE_ADDRESS + 0x1000)
#define MULTIBOOT_MAGIC 0x1badb002u
#define MULTIBOOT_FLAGS 0x00010000u /* the address fields are valid */
#define PAGE_PRESENT_RW 3ull
#define PAGE_LARGE	0x80ull

static inline void image_build(u8 image[IMAGE_SIZE], u32 divisor)
{
	const u32 entry = BLOB_ADDRESS + (u32)(blob_boot - blob_start);
	const u32 header[] = { MULTIBOOT_MAGIC,
			       MULTIBOOT_FLAGS,
			       0u - MULTIBOOT_MAGIC - MULTIBOOT_FLAGS,
			       IMAGE_ADDRESS,
			       IMAGE_ADDRESS,
			       IMAGE_ADDRESS + IMAGE_SIZE,
			       IMAGE_ADDRESS + IMAGE_SIZE,
			       entry };
	u64 *pml4 = (u64 *)(image + 0x1000), *pdpt = (u64 *)(image + 0x2000),
	    *pd = (u64 *)(image + 0x3000);
	u64 *plan = (u64 *)(image + BLOB_OFFSET + (blob_plan - blob_start));

	memset(image, 0, IMAGE_SIZE);
	memcpy(image, header, sizeof(header));
	pml4[0] = (IMAGE_ADDRESS + 0x2000) | PAGE_PRESENT_RW;
	pdpt[0] = (IMAGE_ADDRESS + 0x3000) | PAGE_PRESENT_RW;
	for (u64 i = 0; i < 512; i++)
		pd[i] = i << 21 | PAGE_LARGE | PAGE_PRESENT_RW;
	memcpy(image + BLOB_OFFSET, blob_start, blob_end - blob_start);
	for (u32 i = 0; i < NLOOPS; i++)
		plan[i] = loops[i].iterations / divisor;
}

static inline double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* Million instructions a second. */
static inline double mips(u32 loop, u32 divisor, double took)
{
	return (double)loops[loop].instructions * (double)(loops[loop].iterations / divisor) /
	       took * 1e-6;
}

#endif
