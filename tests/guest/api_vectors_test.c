// SPDX-License-Identifier: MIT
/*
 * Opmask and ZMM registers through the KVM API: a guest that holds a pattern in all of them goes on
 * in another VM, and KVM_GET_XSAVE2 and the guest's own XSAVE have it where CPUID leaf 0DH says.
 * Run by `vpmu kvm`.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "guest/kvm_state.h"
#include "x86/regs.h"

#define TABLE	  0x110000 /* what the registers hold: ZMM0 to ZMM31, K0 to K7 */
#define STORED	  0x120000 /* what they held in the end */
#define AREA	  0x130000 /* of XSAVE */
#define COMPACTED 0x132000 /* of XSAVEC */

#define ZMM_BYTES   (32 * 64)
#define TABLE_BYTES (ZMM_BYTES + 8 * 8)
#define ALL	    (XCR0_X87 | XCR0_SSE | XCR0_AVX | XCR0_AVX512)
#define EXIT_SKIP   4 /* of tests/run */

#define EACH_ZMM                                                                            \
	".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27," \
	"28,29,30,31\n"
#define EACH_K ".irp n,0,1,2,3,4,5,6,7\n"

GUEST_CODE(holder,
	   "mov %cr4, %rax\n"
	   "or $0x40000, %eax\n" /* OSXSAVE */
	   "mov %rax, %cr4\n"
	   "xor %ecx, %ecx\n"
	   "xor %edx, %edx\n"
	   "mov $0xe7, %eax\n"
	   "xsetbv\n"
	   "mov $0x110000, %esi\n" EACH_ZMM "vmovdqu64 64*\\n(%rsi), %zmm\\n\n.endr\n" EACH_K
	   "kmovq 2048+8*\\n(%rsi), %k\\n\n.endr\n"
	   "out %al, $0xf4\n"
	   "mov $0x120000, %edi\n" EACH_ZMM "vmovdqu64 %zmm\\n, 64*\\n(%rdi)\n.endr\n" EACH_K
	   "kmovq %k\\n, 2048+8*\\n(%rdi)\n.endr\n"
	   "xor %edx, %edx\n"
	   "mov $0xe7, %eax\n"
	   "mov $0x130000, %edi\n"
	   "xsave64 (%rdi)\n"
	   "mov $0x132000, %edi\n"
	   "xsavec64 (%rdi)\n"
	   "out %al, $0xf4\n");

static bool skipped;

static void make_irqchip(int vm)
{
	KVM_CALL(vm, KVM_CREATE_IRQCHIP, NULL);
}

/* EAX and EBX of a subleaf of 0DH; 0 for those that are not listed. */
static void state_leaf(struct kvm_guest *g, u32 subleaf, u32 *eax, u32 *ebx)
{
	static struct { /* kvm_cpuid2 with room */
		u32 nent, padding;
		struct kvm_cpuid_entry2 entries[256];
	} list;

	*eax = *ebx = 0;
	list.nent = 256;
	KVM_CALL(g->vcpu[0], KVM_GET_CPUID2, &list);
	for (u32 i = 0; i < list.nent; i++)
		if (list.entries[i].function == 0xd && list.entries[i].index == subleaf) {
			*eax = list.entries[i].eax;
			*ebx = list.entries[i].ebx;
		}
}

static void fill_table(u8 *table)
{
	for (u32 i = 0; i < TABLE_BYTES; i++)
		table[i] = i * 37 + (i >> 6);
}

/* An area in the standard format, by the offsets of leaf 0DH. */
static void assert_area(struct kvm_guest *g, const u8 *area)
{
	const u8 *table = g->ram + TABLE;
	u32 size, at[8];

	assert_int_equal(*(const u64 *)(area + 512) & XCR0_AVX512, XCR0_AVX512);
	for (u32 i = 2; i < 8; i++)
		state_leaf(g, i, &size, &at[i]);
	for (u32 i = 0; i < 16; i++) {
		assert_memory_equal(area + 160 + 16 * i, table + 64 * i, 16);
		assert_memory_equal(area + at[2] + 16 * i, table + 64 * i + 16, 16);
		assert_memory_equal(area + at[6] + 32 * i, table + 64 * i + 32, 32);
	}
	assert_memory_equal(area + at[7], table + 16 * 64, 16 * 64);
	assert_memory_equal(area + at[5], table + ZMM_BYTES, 64);
}

/* Without gaps: as the packed layout of AMD. */
static void assert_compacted(const u8 *area, const u8 *table)
{
	assert_int_equal(*(const u64 *)(area + 520), BIT(63) | ALL);
	assert_memory_equal(area + 832, table + ZMM_BYTES, 64);
	assert_memory_equal(area + 896 + 32, table + 64 + 32, 32);
	assert_memory_equal(area + 1408, table + 16 * 64, 16 * 64);
}

/* KVM: an access to a port is complete when KVM_RUN is entered again. */
static void run_to_port(struct kvm_guest *g)
{
	assert_int_equal(kvm_guest_run(g, 0), KVM_EXIT_IO);
	g->run[0]->immediate_exit = 1;
	assert_int_equal(kvm_guest_run(g, 0), -EINTR);
	g->run[0]->immediate_exit = 0;
}

static void every_register_moves_with_the_guest(void **state)
{
	static struct kvm_state saved;
	struct kvm_guest g;
	u32 xcr0, size;

	(void)state;
	kvm_guest_create_with(&g, holder_start, holder_end - holder_start, 1, make_irqchip);
	state_leaf(&g, 0, &xcr0, &size);
	if ((xcr0 & XCR0_AVX512) != XCR0_AVX512) {
		kvm_guest_destroy(&g);
		skipped = true;
		skip();
	}
	fill_table(g.ram + TABLE);
	run_to_port(&g);
	kvm_state_save(&g, &saved);
	assert_int_equal(saved.xcrs.xcrs[0].value, ALL);
	assert_area(&g, saved.xsave);
	kvm_state_move(&g, make_irqchip);
	run_to_port(&g);
	assert_memory_equal(g.ram + STORED, g.ram + TABLE, TABLE_BYTES);
	assert_area(&g, g.ram + AREA);
	assert_compacted(g.ram + COMPACTED, g.ram + TABLE);
	kvm_guest_destroy(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_register_moves_with_the_guest),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	if (failed || !skipped)
		return failed;
	puts("SKIP: the model or the host has no AVX-512");
	return EXIT_SKIP;
}
