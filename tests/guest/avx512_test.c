// SPDX-License-Identifier: MIT
/*
 * AVX-512 where the differential test cannot look: which CPUID features and control bits its
 * instructions need, devices, pages with translated code, dirty bits. What executes one is skipped
 * on hosts without it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/control.h"
#include "cpu/fpu.h"
#include "cpu/mmu/mmu.h"
#include "cpu/private.h"
#include "engine/engine.h"
#include "guest/machine.h"
#include "x86/paging.h"

#define ALL    (~0ull >> 1)
#define DATA   IMAGE_DATA
#define BEYOND (-1) /* of no feature that there is: always #UD */

static const struct gate {
	const char *code;
	u32 size;
	int feature;
	bool also_vl;
} gates[] = {
#define INSN(bytes) bytes, sizeof(bytes) - 1
	{ INSN("\x62\xf1\x7c\x48\x58\xc0"), FEAT_AVX512F, false },	   /* vaddps zmm */
	{ INSN("\x62\xf1\x7c\x28\x58\xc0"), FEAT_AVX512F, true },	   /* ymm */
	{ INSN("\x62\xf1\x7c\x08\x58\xc0"), FEAT_AVX512F, true },	   /* xmm */
	{ INSN("\x62\xf1\x7e\x08\x58\xc0"), FEAT_AVX512F, false },	   /* vaddss */
	{ INSN("\x62\xf1\x7d\x48\xfc\xc0"), FEAT_AVX512BW, false },	   /* vpaddb */
	{ INSN("\x62\xf2\xfd\x28\x40\xc0"), FEAT_AVX512DQ, true },	   /* vpmullq ymm */
	{ INSN("\x62\xf2\x7d\x48\x44\xc0"), FEAT_AVX512CD, false },	   /* vplzcntd */
	{ INSN("\x62\xf2\xfd\x48\xb4\xc0"), FEAT_AVX512IFMA, false },	   /* vpmadd52luq */
	{ INSN("\x62\xf2\x7d\x48\x8d\xc0"), FEAT_AVX512VBMI, false },	   /* vpermb */
	{ INSN("\x62\xf2\x7d\x48\x63\xc0"), FEAT_AVX512VBMI2, false },	   /* vpcompressb */
	{ INSN("\x62\xf2\x7d\x48\x50\xc0"), FEAT_AVX512VNNI, false },	   /* vpdpbusd */
	{ INSN("\x62\xf2\x7d\x48\x54\xc0"), FEAT_AVX512BITALG, false },	   /* vpopcntb */
	{ INSN("\x62\xf2\x7d\x48\x55\xc0"), FEAT_AVX512VPOPCNTDQ, false }, /* vpopcntd */
	{ INSN("\x62\xf2\x7d\x48\xdc\xc0"), FEAT_VAES, false },		   /* vaesenc zmm */
	{ INSN("\x62\xf2\x7d\x48\xcf\xc0"), FEAT_GFNI, false },		   /* vgf2p8mulb zmm */
	{ INSN("\x62\xf3\x7d\x48\x44\xc0\x00"), FEAT_VPCLMUL, false },	   /* vpclmulqdq zmm */
	{ INSN("\xc5\xf8\x90\xc1"), FEAT_AVX512F, false },		   /* kmovw */
	{ INSN("\xc5\xf9\x90\xc1"), FEAT_AVX512DQ, false },		   /* kmovb */
	{ INSN("\xc4\xe1\xf8\x90\xc1"), FEAT_AVX512BW, false },		   /* kmovq */
	{ INSN("\x62\xf5\x7c\x48\x58\xc0"), BEYOND, false },		   /* vaddph */
	{ INSN("\x62\xf2\x7f\x48\x72\xc0"), BEYOND, false },		   /* vcvtne2ps2bf16 */
	{ INSN("\x62\xf2\x7f\x48\x68\xc0"), BEYOND, false },		   /* vp2intersectd */
};

static void set_feature(struct cpu *cpu, u32 feature, bool value)
{
	cpu->features[feature / 64] &= ~BIT(feature % 64);
	cpu->features[feature / 64] |= (u64)value << feature % 64;
}

static void enable(struct cpu *cpu)
{
	cpu->xcr0_allowed = cpu->xcr0 = XCR0_X87 | XCR0_SSE | XCR0_AVX | XCR0_AVX512;
	cpu_state_changed(cpu);
}

static bool host_has_avx512(const struct machine *m)
{
	return (~cpu_priv(m->cpu)->host_fpu.features & XCR0_AVX512) == 0 &&
	       cpu_has(m->cpu, FEAT_AVX512F) && cpu_has(m->cpu, FEAT_AVX512BW) &&
	       cpu_has(m->cpu, FEAT_AVX512VL);
}

static void need_avx512(const struct machine *m)
{
	if (host_has_avx512(m))
		return;
	print_message("the host has no AVX-512\n");
	skip();
}

static void load(struct machine *m, const void *start, const void *end)
{
	machine_load(m, start, (const u8 *)end - (const u8 *)start);
	need_avx512(m);
	enable(m->cpu);
}

#define LOAD(m, name) load(m, name##_start, name##_end)

/* One instruction before HLT; the vector that it raises, or -1. */
static int outcome(struct machine *m, const struct gate *gate, void (*change)(struct cpu *, u32),
		   u32 how)
{
	u8 code[16];

	memcpy(code, gate->code, gate->size);
	code[gate->size] = 0xf4; /* HLT */
	machine_load(m, code, gate->size + 1);
	for (u32 i = 0; i < NFEATURES; i++)
		if (feature_rows[i].leaf == 7)
			set_feature(m->cpu, i, true);
	enable(m->cpu);
	change(m->cpu, how);
	cpu_state_changed(m->cpu);
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	if (m->cpu->rip == IMAGE_CODE + gate->size + 1)
		return -1;
	return (int)(m->cpu->rip - IMAGE_STUBS) / IMAGE_STUB_SIZE;
}

static void without_feature(struct cpu *cpu, u32 feature)
{
	set_feature(cpu, feature, false);
}

static void without_component(struct cpu *cpu, u32 bit)
{
	cpu->xcr0 &= ~BIT(bit);
}

static void with_task_switched(struct cpu *cpu, u32 unused)
{
	(void)unused;
	cpu->cr0 |= CR0_TS;
}

static void as_it_is(struct cpu *cpu, u32 unused)
{
	(void)cpu, (void)unused;
}

static void instructions_need_their_features(void **state)
{
	for (u32 i = 0; i < ARRAY_SIZE(gates); i++) {
		const struct gate *gate = &gates[i];

		if (gate->feature == BEYOND) {
			assert_int_equal(outcome(*state, gate, as_it_is, 0), VEC_UD);
			continue;
		}
		assert_int_equal(outcome(*state, gate, without_feature, gate->feature), VEC_UD);
		assert_int_equal(outcome(*state, gate, without_feature, FEAT_AVX512F), VEC_UD);
		if (gate->also_vl)
			assert_int_equal(outcome(*state, gate, without_feature, FEAT_AVX512VL),
					 VEC_UD);
	}
}

static void instructions_need_three_bits_of_xcr0(void **state)
{
	for (u32 i = 0; i < ARRAY_SIZE(gates); i++)
		for (u32 bit = 5; bit <= 7; bit++)
			assert_int_equal(outcome(*state, &gates[i], without_component, bit),
					 VEC_UD);
}

static void a_switched_task_comes_after_what_is_undefined(void **state)
{
	for (u32 i = 0; i < ARRAY_SIZE(gates); i++)
		assert_int_equal(outcome(*state, &gates[i], with_task_switched, 0),
				 gates[i].feature == BEYOND ? VEC_UD : VEC_NM);
}

static void what_the_host_has_is_executed(void **state)
{
	struct machine *m = *state;
	u64 host[FEATURE_WORDS];

	machine_load(m, "\xf4", 1);
	need_avx512(m);
	memcpy(host, m->cpu->features, sizeof(host));
	for (u32 i = 0; i < ARRAY_SIZE(gates); i++) {
		int feature = gates[i].feature;

		if (feature != BEYOND && (host[feature / 64] & BIT(feature % 64)))
			assert_int_equal(outcome(m, &gates[i], as_it_is, 0), -1);
	}
}

GUEST_CODE(device_load, "mov $0x400000, %esi\n"
			"mov $0x8005, %eax\n"
			"kmovw %eax, %k1\n"
			"vmovdqu32 (%rsi), %zmm3{%k1}{z}\n"
			"mov $0x100000, %edi\n"
			"vmovdqu32 %zmm3, (%rdi)\n"
			"hlt\n");

static void a_masked_load_reads_selected_elements_of_a_device(void **state)
{
	struct machine *m = *state;
	const u32 *result = (const u32 *)(m->ram + DATA);

	LOAD(m, device_load);
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	assert_int_equal(m->mmio_reads, 3);
	for (u32 i = 0; i < 16; i++)
		assert_int_equal(result[i], 0x8005 >> i & 1 ? 0x5a5a5a5a : 0);
}

GUEST_CODE(device_store, "mov $0x400000, %esi\n"
			 "mov $0x0f00f0, %eax\n"
			 "kmovd %eax, %k1\n"
			 "vmovdqu8 %ymm3, (%rsi){%k1}\n"
			 "kxorq %k1, %k1, %k1\n"
			 "vmovdqu8 %ymm3, (%rsi){%k1}\n"
			 "hlt\n");

static void a_masked_store_writes_selected_elements_of_a_device(void **state)
{
	struct machine *m = *state;

	LOAD(m, device_store);
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	assert_int_equal(m->mmio_writes, 2);
	assert_int_equal(m->mmio_reads, 0);
}

GUEST_CODE(device_gather, "vpxord %zmm2, %zmm2, %zmm2\n"
			  "vpternlogd $0xff, %zmm4, %zmm4, %zmm4\n"
			  "mov $0x400000, %esi\n"
			  "mov $0x9, %eax\n"
			  "kmovw %eax, %k1\n"
			  "vpgatherdd (%rsi,%zmm2,4), %zmm4{%k1}\n"
			  "kmovw %k1, %eax\n"
			  "mov $0x100000, %edi\n"
			  "vmovdqu32 %zmm4, (%rdi)\n"
			  "hlt\n");

static void a_gather_from_a_device_completes(void **state)
{
	struct machine *m = *state;
	const u32 *result = (const u32 *)(m->ram + DATA);

	LOAD(m, device_gather);
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	assert_int_equal(m->cpu->regs[RAX], 0);
	assert_int_equal(m->mmio_reads, 2);
	for (u32 i = 0; i < 16; i++)
		assert_int_equal(result[i], 0x9 >> i & 1 ? 0x5a5a5a5a : 0xffffffff);
}

/* Element i of a scatter goes to [RSI + index[i]]; the indices are at IMAGE_DATA. */
GUEST_CODE(device_scatter, "mov $0x100000, %edi\n"
			   "vmovdqu32 (%rdi), %zmm2\n"
			   "mov $0x400000, %esi\n"
			   "mov $0xffff, %eax\n"
			   "kmovw %eax, %k1\n"
			   "vpscatterdd %zmm2, (%rsi,%zmm2,1){%k1}\n"
			   "hlt\n");

static u32 opmask(const struct machine *m)
{
	return *(const u32 *)(m->cpu->xsave + XSAVE_OPMASK + 8);
}

/* 1 to a page that is not there, the others to a device. */
static void a_scatter_that_faults_has_written_to_the_device_before(void **state)
{
	struct machine *m = *state;
	s32 *index = (s32 *)(m->ram + DATA);

	LOAD(m, device_scatter);
	for (s32 i = 0; i < 16; i++)
		index[i] = i == 3 ? IMAGE_HOLE - IMAGE_MMIO : 4 * i;
	*image_pte(m->ram, IMAGE_HOLE) = 0;
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	assert_int_equal(m->cpu->rip, IMAGE_STUBS + VEC_PF * IMAGE_STUB_SIZE + 1);
	assert_int_equal(m->mmio_writes, 3);
	assert_int_equal(opmask(m), 0xfff8);
	assert_int_equal(m->cpu->port.tally.instructions[RETIRE_OS], 5 + 1);
}

/* Each element is two accesses of the device, which has room for 16 of them at once. */
static void a_scatter_writes_to_a_device_whatever_it_has_to(void **state)
{
	struct machine *m = *state;
	s32 *index = (s32 *)(m->ram + DATA);

	LOAD(m, device_scatter);
	for (s32 i = 0; i < 16; i++)
		index[i] = 8 * i + 6;
	index[7] = DATA + 0x1000 - IMAGE_MMIO;
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	assert_int_equal(m->cpu->rip, IMAGE_CODE + (device_scatter_end - device_scatter_start));
	assert_int_equal(m->mmio_writes, 30);
	assert_int_equal(*(s32 *)(m->ram + DATA + 0x1000), index[7]);
	assert_int_equal(opmask(m), 0);
	assert_int_equal(m->cpu->rflags & FL_RF, 0);
	assert_int_equal(m->cpu->port.tally.instructions[RETIRE_OS], 7);
}

/* Bytes of an instruction ahead are stored, one of them selected. */
GUEST_CODE(code_store, "mov $2, %ecx\n"
		       "mov $0x2, %eax\n"
		       "kmovq %rax, %k1\n"
		       "vpternlogd $0xff, %zmm4, %zmm4, %zmm4\n"
		       "1: lea 2f(%rip), %rdi\n"
		       "2: mov $0x11, %ebx\n"
		       "vmovdqu8 %zmm4, (%rdi){%k1}\n"
		       "loop 1b\n"
		       "hlt\n");

static void a_masked_store_changes_code(void **state)
{
	struct machine *m = *state;

	LOAD(m, code_store);
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	assert_int_equal(m->cpu->regs[RBX], 0xff);
}

GUEST_CODE(dirty_store, "mov $0x100000, %edi\n"
			"kxorq %k1, %k1, %k1\n"
			"vmovdqu8 %zmm4, (%rdi){%k1}\n"
			"vpcompressd %zmm4, (%rdi){%k1}\n"
			"hlt\n");

static void a_store_of_nothing_leaves_no_dirty_page(void **state)
{
	struct machine *m = *state;
	u64 *pte;

	LOAD(m, dirty_store);
	pte = image_pte(m->ram, DATA);
	*pte &= ~(u64)(PTE_A | PTE_D);
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	assert_int_equal(*pte & (PTE_A | PTE_D), 0);
	*pte = 0; /* nor does it need one */
	machine_start(m);
	enable(m->cpu);
	tlb_flush(m->cpu);
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	assert_int_equal(m->cpu->rip, IMAGE_CODE + (dirty_store_end - dirty_store_start));
}

GUEST_CODE(watched_store, "mov $0x100000, %edi\n"
			  "kmovw %eax, %k1\n"
			  "vmovdqu32 %zmm4, (%rdi){%k1}\n"
			  "hlt\n");

/* Of four bytes, for writes. */
#define DR7_WRITE 0xd0001u

static u64 watched(struct machine *m, u32 mask)
{
	LOAD(m, watched_store);
	m->cpu->regs[RAX] = mask;
	m->cpu->dr[0] = DATA + 8;
	m->cpu->dr7 = DR7_WRITE;
	m->cpu->dr6 = 0;
	cpu_watch_update(m->cpu);
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	m->cpu->dr7 = 0;
	cpu_watch_update(m->cpu);
	return m->cpu->dr6 & 1;
}

static void a_data_breakpoint_is_met_by_selected_elements(void **state)
{
	assert_int_equal(watched(*state, 0x5), 1);
	assert_int_equal(watched(*state, 0xb), 0);
	assert_int_equal(watched(*state, 0), 0);
}

/* Where it pauses for the device, not at its end: the rest comes after the handler. */
static void a_data_breakpoint_is_met_by_elements_that_a_scatter_has_done(void **state)
{
	struct machine *m = *state;
	s32 *index = (s32 *)(m->ram + DATA);

	LOAD(m, device_scatter);
	for (s32 i = 0; i < 16; i++)
		index[i] = i ? 4 * i : DATA + 0x1000 - IMAGE_MMIO;
	m->cpu->dr[0] = DATA + 0x1000;
	m->cpu->dr7 = DR7_WRITE;
	m->cpu->dr6 = 0;
	cpu_watch_update(m->cpu);
	assert_int_equal(machine_run(m, ALL), EXIT_HLT);
	m->cpu->dr7 = 0;
	cpu_watch_update(m->cpu);
	assert_int_equal(m->cpu->rip, IMAGE_STUBS + VEC_DB * IMAGE_STUB_SIZE + 1);
	assert_int_equal(m->cpu->dr6 & 1, 1);
	assert_int_equal(m->mmio_writes, 1);
	assert_int_equal(opmask(m), 0xfffc);
}

static void a_scatter_to_a_device_is_one_step(void **state)
{
	struct machine *m = *state;
	u32 steps = 0;

	LOAD(m, device_scatter);
	m->cpu->port.debug.single_step = true;
	cpu_watch_update(m->cpu);
	while (machine_run(m, ALL) == EXIT_DEBUG && steps < 100)
		steps++;
	m->cpu->port.debug.single_step = false;
	cpu_watch_update(m->cpu);
	assert_int_equal(steps, 6);
	assert_int_equal(m->mmio_writes, 16);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(instructions_need_their_features),
		cmocka_unit_test(instructions_need_three_bits_of_xcr0),
		cmocka_unit_test(a_switched_task_comes_after_what_is_undefined),
		cmocka_unit_test(what_the_host_has_is_executed),
		cmocka_unit_test(a_masked_load_reads_selected_elements_of_a_device),
		cmocka_unit_test(a_masked_store_writes_selected_elements_of_a_device),
		cmocka_unit_test(a_gather_from_a_device_completes),
		cmocka_unit_test(a_scatter_that_faults_has_written_to_the_device_before),
		cmocka_unit_test(a_scatter_writes_to_a_device_whatever_it_has_to),
		cmocka_unit_test(a_masked_store_changes_code),
		cmocka_unit_test(a_store_of_nothing_leaves_no_dirty_page),
		cmocka_unit_test(a_data_breakpoint_is_met_by_selected_elements),
		cmocka_unit_test(a_data_breakpoint_is_met_by_elements_that_a_scatter_has_done),
		cmocka_unit_test(a_scatter_to_a_device_is_one_step),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
