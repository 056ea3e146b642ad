// SPDX-License-Identifier: MIT
/*
 * The memory of a small 64-bit guest: see image.h. Layouts from SDM 3A 3.4.5 (descriptors), 4.5
 * (paging), 6.14.1 (64-bit gates), 7.7 (64-bit TSS).
 */
#include "guest/image.h"

#include <string.h>

#define PTE_PWU 7ull /* present, writable, user */
#define PTE_PS	BIT(7)

#define DESC_CODE64 0x00af9b000000ffffull
#define DESC_CODE32 0x00cffb000000ffffull
#define DESC_DATA   0x00cf93000000ffffull
#define DESC_DPL3   (BIT(46) | BIT(45))

static u64 *at(u8 *ram, u64 address)
{
	return (u64 *)(ram + address);
}

void image_ist(u8 *ram, u32 vector, u64 top)
{
	ram[IMAGE_IDT + 16 * vector + 4] = 1;
	memcpy(ram + IMAGE_TSS + 0x24, &top, sizeof(top));
}

u64 *image_pte(u8 *ram, u64 address)
{
	return at(ram, IMAGE_PT) + (address >> PAGE_SHIFT);
}

static void build_paging(u8 *ram)
{
	at(ram, IMAGE_PML4)[0] = IMAGE_PDPT | PTE_PWU;
	at(ram, IMAGE_PDPT)[0] = IMAGE_PD | PTE_PWU;
	at(ram, IMAGE_PD)[0] = IMAGE_PT | PTE_PWU;
	at(ram, IMAGE_PD)[1] = 0x200000 | PTE_PWU | PTE_PS;
	at(ram, IMAGE_PD)[2] = IMAGE_MMIO | PTE_PWU | PTE_PS;
	for (u64 page = PAGE_SIZE; page < 0x200000; page += PAGE_SIZE)
		*image_pte(ram, page) = page | PTE_PWU;
}

static void build_gdt(u8 *ram)
{
	const u64 gdt[IMAGE_NGDT] = {
		[1] = DESC_CODE64,
		[2] = DESC_DATA,
		[3] = DESC_CODE32,
		[4] = DESC_DATA | DESC_DPL3,
		[5] = DESC_CODE64 | DESC_DPL3,
		[6] = (u64)IMAGE_TSS << 16 | 0x8b0000000067ull, /* busy 64-bit TSS, upper half 0 */
	};
	const u64 rsp0 = IMAGE_INT_STACK;

	memcpy(ram + IMAGE_GDT, gdt, sizeof(gdt));
	memcpy(ram + IMAGE_TSS + 4, &rsp0, sizeof(rsp0));
	*(u16 *)(ram + IMAGE_TSS + 102) = 0x68; /* no I/O bitmap */
}

void image_gate(u8 *ram, u32 vector, u64 handler, u32 dpl)
{
	u64 *gate = at(ram, IMAGE_IDT) + vector * 2;

	gate[0] = (handler & 0xffff) | (u64)IMAGE_CS << 16 | (0x8e00ull | dpl << 13) << 32 |
		  (handler >> 16 & 0xffff) << 48;
	gate[1] = handler >> 32;
}

void image_build(u8 *ram, const void *code, size_t size)
{
	static const u8 stub[] = { 0xf4, 0xeb, 0xfd }; /* 1: hlt; jmp 1b */

	build_paging(ram);
	build_gdt(ram);
	for (u32 i = 0; i < IMAGE_NGATES; i++) {
		u64 handler = IMAGE_STUBS + i * IMAGE_STUB_SIZE;

		memcpy(ram + handler, stub, sizeof(stub));
		image_gate(ram, i, handler, 0);
	}
	memcpy(ram + IMAGE_CODE, code, size);
}
