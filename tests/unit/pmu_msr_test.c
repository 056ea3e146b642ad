// SPDX-License-Identifier: MIT
/*
 * Registers of the virtual PMU, sections 1 and 2 of the specification: which exist, what they
 * accept, what they read as. Tables drive every row for both vendors, without a guest.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "unit/pmu_machine.h"

static struct pmu_machine m;

enum who { GUEST, HOST };

/* A write, and what the register reads as afterwards. */
struct access {
	u32 index;
	enum who who;
	u64 value;
	enum pmu_result result;
	u64 then;
};

static void check(enum model_set model, const struct access *rows, u32 n)
{
	for (u32 i = 0; i < n; i++) {
		const struct access *row = &rows[i];
		enum pmu_result result;

		pmu_machine_create(&m, model);
		m.apart = true;
		result = row->who == HOST ? host_wrmsr(&m, row->index, row->value)
					  : guest_wrmsr(&m, row->index, row->value);
		if (result != row->result || host_rdmsr(&m, row->index) != row->then)
			fail_msg("row %u: WRMSR %#x := %#lx: result %d, then reads %#lx", i,
				 row->index, (unsigned long)row->value, result,
				 (unsigned long)host_rdmsr(&m, row->index));
	}
}

static void intel_registers_take_what_they_should(void **state)
{
	static const struct access rows[] = {
		/* Legacy counter writes: 32 bits with sign; the program's are whole. */
		{ PMC, GUEST, 0x23456789, PMU_OK, 0x23456789 },
		{ PMC, GUEST, 0xffffff0123456789, PMU_OK, 0x23456789 },
		{ PMC, GUEST, 0x80000000, PMU_OK, 0xffff80000000 },
		{ PMC + 7, GUEST, ~0ull, PMU_OK, WIDTH },
		{ PMC, HOST, 0x80000000, PMU_OK, 0x80000000 },
		{ PMC, HOST, ~0ull, PMU_OK, WIDTH },
		/* Full-width ones. */
		{ A_PMC, GUEST, 0xff0123456789 & WIDTH, PMU_OK, 0xff0123456789 & WIDTH },
		{ A_PMC, GUEST, WIDTH, PMU_OK, WIDTH },
		{ A_PMC, GUEST, BIT(48), PMU_FAULT, 0 },
		{ A_PMC, HOST, BIT(63), PMU_FAULT, 0 },
		/* Fixed counters drop what is too wide. */
		{ FIXED_CTR, GUEST, ~0ull, PMU_OK, WIDTH },
		{ FIXED_CTR + 3, HOST, 5, PMU_OK, 5 },
		/* Metrics have no reserved bits. */
		{ 0x329, GUEST, ~0ull, PMU_OK, ~0ull },
		{ 0x329, HOST, 0x4080203f, PMU_OK, 0x4080203f },
		/* Event selects. */
		{ EVNTSEL, GUEST, 0xffdfffff, PMU_OK, 0xffdfffff },
		{ EVNTSEL, GUEST, EVENTSEL_ANY, PMU_FAULT, 0 },
		{ EVNTSEL, HOST, EVENTSEL_ANY, PMU_FAULT, 0 },
		{ EVNTSEL, GUEST, EVENTSEL_IN_TX, PMU_FAULT, 0 },
		{ EVNTSEL + 2, GUEST, EVENTSEL_IN_TXCP, PMU_FAULT, 0 },
		{ EVNTSEL, GUEST, EVENTSEL_ADAPTIVE, PMU_OK, EVENTSEL_ADAPTIVE },
		{ EVNTSEL, GUEST, BIT(35), PMU_FAULT, 0 },
		{ EVNTSEL, GUEST, BIT(63), PMU_FAULT, 0 },
		{ FIXED_CTRL, GUEST, 0xbbbb, PMU_OK, 0xbbbb },
		{ FIXED_CTRL, GUEST, 0x004, PMU_FAULT, 0 },
		{ FIXED_CTRL, GUEST, 0x10000, PMU_FAULT, 0 },
		{ FIXED_CTRL, HOST, 0x1111ull << 32, PMU_OK, 0x1111ull << 32 },
		{ FIXED_CTRL, HOST, BIT(33), PMU_FAULT, 0 },
		{ FIXED_CTRL, HOST, BIT(48), PMU_FAULT, 0 },
		/* Off-core responses: any that some model has. */
		{ 0x1a6, GUEST, MASK(37, 0), PMU_OK, MASK(37, 0) },
		{ 0x1a7, HOST, 0x10001, PMU_OK, 0x10001 },
		{ 0x1a7, GUEST, BIT(38), PMU_FAULT, 0 },
		/* PEBS: also the bits by which Linux asks for latencies. */
		{ 0x3f1, GUEST, 0xf000000ff, PMU_OK, 0xf000000ff },
		{ 0x3f1, GUEST, BIT(8), PMU_FAULT, 0 },
		{ 0x3f1, HOST, BIT(63), PMU_FAULT, 0 },
		{ 0x3f2, GUEST, 0xff00000f, PMU_OK, 0xff00000f },
		{ 0x3f2, GUEST, BIT(4), PMU_FAULT, 0 },
		{ 0x3f2, HOST, BIT(32), PMU_FAULT, 0 },
		{ 0x3f6, GUEST, 0xffff, PMU_OK, 0xffff },
		{ 0x3f6, GUEST, BIT(16), PMU_FAULT, 0 },
		{ 0x600, GUEST, 0xffff800000000000, PMU_OK, 0xffff800000000000 },
		{ 0x600, GUEST, 0x0000800000000000, PMU_FAULT, 0 },
		{ 0x600, HOST, 0x0000800000000000, PMU_FAULT, 0 },
		/* Global registers. */
		{ GLOBAL_CTRL, GUEST, 0xf000000ff, PMU_OK, 0xf000000ff },
		{ GLOBAL_CTRL, GUEST, BIT(8), PMU_FAULT, 0xff },
		{ GLOBAL_CTRL, GUEST, BIT(36), PMU_FAULT, 0xff },
		{ GLOBAL_CTRL, GUEST, BIT(48) | BIT(35), PMU_OK, BIT(48) | BIT(35) },
		{ GLOBAL_CTRL, HOST, BIT(49), PMU_FAULT, 0xff },
		{ STATUS, GUEST, 0, PMU_FAULT, 0 },
		{ STATUS, HOST, 1 | BIT(32) | BIT(62) | BIT(63), PMU_OK,
		  1 | BIT(32) | BIT(62) | BIT(63) },
		{ STATUS, HOST, BIT(48), PMU_OK, BIT(48) },
		{ STATUS, HOST, BIT(8), PMU_FAULT, 0 },
		{ STATUS, HOST, BIT(55), PMU_FAULT, 0 },
		{ STATUS, HOST, BIT(59), PMU_FAULT, 0 },
		/* PERF_CAPABILITIES is the program's. */
		{ PERF_CAPS, HOST, 0, PMU_OK, 0 },
		{ PERF_CAPS, HOST, PERF_CAP_FULL_WIDTH, PMU_OK, PERF_CAP_FULL_WIDTH },
	};

	(void)state;
	check(MODEL_ICELAKE, rows, ARRAY_SIZE(rows));
	check(MODEL_SAPPHIRERAPIDS, rows, ARRAY_SIZE(rows));
}

static void amd_registers_ignore_what_they_do_not_know(void **state)
{
	static const struct access rows[] = {
		{ K7_PMC, GUEST, 0x80000000, PMU_OK, 0x80000000 },
		{ K7_PMC + 3, GUEST, ~0ull, PMU_OK, WIDTH },
		{ PERF_CTR, GUEST, ~0ull, PMU_OK, WIDTH },
		{ PERF_CTR + 10, HOST, 7, PMU_OK, 7 },
		{ K7_EVNTSEL, GUEST, ~0ull, PMU_OK, 0xfffd7ffff },
		{ PERF_CTL, GUEST, ~0ull, PMU_OK, ~0xfffffff000280000 },
		{ PERF_CTL + 10, HOST, BIT(40) | BIT(41) | 0xc0, PMU_OK, 0xc0 },
		{ AMD_CTL, GUEST, ~0ull, PMU_OK, 0x3f },
		{ AMD_CTL, HOST, BIT(6) | 1, PMU_OK, 1 },
		{ AMD_STATUS, GUEST, 0x3f, PMU_OK, 0 },
		{ AMD_STATUS, HOST, 0x3f, PMU_OK, 0x3f },
		{ AMD_STATUS, HOST, BIT(6), PMU_FAULT, 0 },
		{ AMD_CLR, GUEST, ~0ull, PMU_OK, 0 },
		{ AMD_SET, GUEST, ~0ull, PMU_OK, 0 },
	};

	(void)state;
	check(MODEL_GENOA, rows, ARRAY_SIZE(rows));
}

static void status_bits_are_cleared_and_set_by_their_registers(void **state)
{
	(void)state;
	pmu_machine_create(&m, MODEL_ICELAKE);
	host_wrmsr(&m, STATUS, 0x0f | BIT(32));
	assert_int_equal(guest_wrmsr(&m, OVF_CTRL, BIT(8)), PMU_FAULT);
	assert_int_equal(guest_wrmsr(&m, OVF_CTRL, 0x3 | BIT(32)), PMU_OK);
	assert_int_equal(host_rdmsr(&m, STATUS), 0x0c);
	assert_int_equal(host_wrmsr(&m, OVF_CTRL, 0x0c), PMU_OK);
	assert_int_equal(host_rdmsr(&m, STATUS), 0x0c);
	assert_int_equal(host_rdmsr(&m, OVF_CTRL), 0);

	pmu_machine_create(&m, MODEL_GENOA);
	assert_int_equal(guest_wrmsr(&m, AMD_SET, ~0ull), PMU_OK);
	assert_int_equal(host_rdmsr(&m, AMD_STATUS), 0x3f);
	assert_int_equal(guest_wrmsr(&m, AMD_CLR, ~0x3cull), PMU_OK);
	assert_int_equal(host_rdmsr(&m, AMD_STATUS), 0x3c);
	host_wrmsr(&m, AMD_CLR, ~0ull);
	host_wrmsr(&m, AMD_SET, ~0ull);
	assert_int_equal(host_rdmsr(&m, AMD_STATUS), 0x3c);
	assert_int_equal(m.pmu.pmi, false);
}

static void both_addresses_of_a_counter_are_one(void **state)
{
	(void)state;
	pmu_machine_create(&m, MODEL_ICELAKE);
	guest_wrmsr(&m, A_PMC + 3, 0x123456789abc);
	assert_int_equal(host_rdmsr(&m, PMC + 3), 0x123456789abc);
	guest_wrmsr(&m, PMC + 3, 5);
	assert_int_equal(host_rdmsr(&m, A_PMC + 3), 5);

	pmu_machine_create(&m, MODEL_MILAN);
	guest_wrmsr(&m, K7_PMC + 2, 6);
	guest_wrmsr(&m, K7_EVNTSEL + 2, 0xc0);
	assert_int_equal(host_rdmsr(&m, PERF_CTR + 4), 6);
	assert_int_equal(host_rdmsr(&m, PERF_CTL + 4), 0xc0);
}

static void transactions_make_two_bits_legal(void **state)
{
	struct pmu_guest guest = pmu_machine_guest(MODEL_ICELAKE);

	(void)state;
	pmu_machine_create(&m, MODEL_ICELAKE);
	guest.tsx = true;
	pmu_configure(&m.pmu, &guest);
	assert_int_equal(guest_wrmsr(&m, EVNTSEL, EVENTSEL_IN_TX), PMU_OK);
	assert_int_equal(guest_wrmsr(&m, EVNTSEL, EVENTSEL_IN_TXCP), PMU_FAULT);
	assert_int_equal(guest_wrmsr(&m, EVNTSEL + 2, EVENTSEL_IN_TXCP), PMU_OK);
}

/* --- what exists --- */

static enum pmu_result guest_reads(u32 index)
{
	u64 value;
	enum pmu_result result = pmu_rdmsr(&m.pmu, index, false, &value);

	assert_true(result == PMU_OK || value == 0);
	return result;
}

/* Gives the guest a leaf 0AH of its own. */
static void with_leaf_a(u32 version, u32 general, u32 fixed)
{
	struct pmu_guest guest = pmu_machine_guest(MODEL_ICELAKE);

	guest.leaf_a_eax = version | general << 8 | 48 << 16 | 7u << 24;
	guest.leaf_a_ecx = 0;
	guest.leaf_a_edx = fixed | 48 << 5;
	pmu_configure(&m.pmu, &guest);
}

static void counters_exist_as_cpuid_says(void **state)
{
	(void)state;
	pmu_machine_create(&m, MODEL_ICELAKE);
	for (u32 version = 0; version <= 5; version++)
		for (u32 n = 0; n <= 9; n++) {
			u32 has = version && n < 8 ? n : version ? 8 : 0;

			with_leaf_a(version, n, 3);
			for (u32 i = 0; i < 8; i++) {
				enum pmu_result want = i < has ? PMU_OK : PMU_UNKNOWN;

				assert_int_equal(guest_reads(A_PMC + i), want);
				assert_int_equal(guest_reads(PMC + i), i < 2 ? PMU_OK : want);
				assert_int_equal(guest_reads(EVNTSEL + i), i < 2 ? PMU_OK : want);
			}
			assert_int_equal(host_rdmsr(&m, GLOBAL_CTRL),
					 version > 1 ? BIT(has) - 1 : 0);
		}
}

static void fixed_counters_and_globals_need_version_2(void **state)
{
	static const u32 globals[] = { FIXED_CTRL, STATUS, GLOBAL_CTRL, OVF_CTRL };

	(void)state;
	pmu_machine_create(&m, MODEL_ICELAKE);
	for (u32 version = 0; version <= 5; version++)
		for (u32 fixed = 0; fixed <= 4; fixed++) {
			with_leaf_a(version, 4, fixed);
			for (u32 i = 0; i < 4; i++) {
				bool has = version > 1 && i < fixed && i < PMU_FIXED;

				assert_int_equal(guest_reads(FIXED_CTR + i),
						 has ? PMU_OK : PMU_UNKNOWN);
				assert_int_equal(guest_wrmsr(&m, FIXED_CTRL, 1ull << 4 * i),
						 has	       ? PMU_OK
						 : version > 1 ? PMU_FAULT
							       : PMU_UNKNOWN);
			}
			for (u32 i = 0; i < ARRAY_SIZE(globals); i++)
				assert_int_equal(guest_reads(globals[i]),
						 version > 1 ? PMU_OK : PMU_UNKNOWN);
		}
	with_leaf_a(3, 4, 3);
	assert_int_equal(guest_reads(0x391), PMU_UNKNOWN);
	assert_int_equal(guest_reads(0x392), PMU_UNKNOWN);
}

static void fixed_counters_of_version_5_are_a_set(void **state)
{
	struct pmu_guest guest = pmu_machine_guest(MODEL_ICELAKE);

	(void)state;
	pmu_machine_create(&m, MODEL_ICELAKE);
	for (u32 set = 0; set < 16; set++) {
		guest.leaf_a_ecx = set;
		guest.leaf_a_edx = 1 | 48 << 5; /* the first one besides */
		pmu_configure(&m.pmu, &guest);
		for (u32 i = 0; i < 4; i++) {
			bool has = i < PMU_FIXED && ((set | 1) >> i & 1);

			assert_int_equal(guest_reads(FIXED_CTR + i), has ? PMU_OK : PMU_UNKNOWN);
			assert_int_equal(guest_wrmsr(&m, FIXED_CTRL, 1ull << 4 * i),
					 has ? PMU_OK : PMU_FAULT);
			assert_int_equal(guest_wrmsr(&m, GLOBAL_CTRL, BIT(32 + i)),
					 has ? PMU_OK : PMU_FAULT);
		}
	}
}

static void version_4_sets_status_and_says_who_uses_what(void **state)
{
	(void)state;
	pmu_machine_create(&m, MODEL_ICELAKE);
	assert_int_equal(guest_wrmsr(&m, 0x391, BIT(58) | 5), PMU_OK);
	assert_int_equal(host_rdmsr(&m, STATUS), BIT(58) | 5);
	assert_int_equal(guest_wrmsr(&m, 0x391, BIT(57)), PMU_FAULT);
	guest_wrmsr(&m, EVNTSEL + 2, 0xc0);
	guest_wrmsr(&m, FIXED_CTRL, 0x10);
	assert_int_equal(host_rdmsr(&m, 0x392), BIT(2) | BIT(33));
	guest_wrmsr(&m, FIXED_CTRL, 0x80);
	assert_int_equal(host_rdmsr(&m, 0x392), BIT(2) | BIT(63));
	assert_int_equal(guest_wrmsr(&m, 0x392, 0), PMU_FAULT);
}

#define SUPPORTED pmu_supported_capabilities(m.pmu.model)

static void full_width_needs_the_capability_and_pdcm(void **state)
{
	struct pmu_guest guest = pmu_machine_guest(MODEL_SKYLAKE);

	(void)state;
	pmu_machine_create(&m, MODEL_SKYLAKE);
	assert_int_equal(guest_reads(A_PMC), PMU_OK);
	assert_int_equal(host_wrmsr(&m, PERF_CAPS, 0), PMU_OK);
	assert_int_equal(guest_reads(A_PMC), PMU_UNKNOWN);
	assert_int_equal(host_wrmsr(&m, PERF_CAPS, PERF_CAP_FULL_WIDTH), PMU_OK);
	assert_int_equal(guest_reads(A_PMC), PMU_OK);
	guest.pdcm = false;
	pmu_machine_create(&m, MODEL_SKYLAKE);
	pmu_configure(&m.pmu, &guest);
	assert_int_equal(guest_reads(A_PMC), PMU_UNKNOWN);
	assert_int_equal(guest_reads(PERF_CAPS), PMU_FAULT);
	assert_int_equal(host_rdmsr(&m, PERF_CAPS), SUPPORTED);
}

static void capabilities_are_final_after_the_first_run(void **state)
{
	(void)state;
	pmu_machine_create(&m, MODEL_ICELAKE);
	assert_int_equal(guest_wrmsr(&m, PERF_CAPS, SUPPORTED), PMU_FAULT);
	assert_int_equal(guest_wrmsr(&m, PERF_CAPS, 0), PMU_FAULT);
	pmu_machine_create(&m, MODEL_ICELAKE);
	for (u32 bit = 0; bit < 64; bit++)
		if (!(BIT(bit) & (PERF_CAP_FULL_WIDTH | PERF_CAP_PEBS | PERF_CAP_METRICS)))
			assert_int_equal(host_wrmsr(&m, PERF_CAPS, BIT(bit)), PMU_FAULT);
	pmu_enter(&m.pmu);
	assert_int_equal(host_wrmsr(&m, PERF_CAPS, SUPPORTED), PMU_OK);
	assert_int_equal(host_wrmsr(&m, PERF_CAPS, 0), PMU_FAULT);
	/* Without a PMU they keep their value, and only 0 can be written. */
	pmu_machine_create(&m, MODEL_ICELAKE);
	with_leaf_a(0, 0, 0);
	assert_int_equal(host_rdmsr(&m, PERF_CAPS), SUPPORTED);
	assert_int_equal(host_wrmsr(&m, PERF_CAPS, 0), PMU_OK);
	assert_int_equal(host_wrmsr(&m, PERF_CAPS, PERF_CAP_FULL_WIDTH), PMU_FAULT);
}

static void a_disabled_pmu_has_only_what_never_faults(void **state)
{
	struct pmu_guest guest = pmu_machine_guest(MODEL_GENOA);
	u64 value;

	(void)state;
	pmu_machine_create(&m, MODEL_GENOA);
	guest.disabled = true;
	pmu_configure(&m.pmu, &guest);
	for (u32 i = 0; i < 8; i++) {
		assert_int_equal(guest_wrmsr(&m, K7_EVNTSEL + i, 5), PMU_OK);
		assert_int_equal(guest_reads(K7_EVNTSEL + i), PMU_OK);
		assert_int_equal(host_rdmsr(&m, K7_EVNTSEL + i), 0);
	}
	assert_int_equal(guest_reads(PERF_CTL), PMU_UNKNOWN);
	assert_int_equal(guest_reads(AMD_CTL), PMU_UNKNOWN);
	assert_int_equal(guest_reads(PMC), PMU_OK);
	assert_int_equal(guest_reads(PMC + 2), PMU_UNKNOWN);
	assert_int_equal(pmu_rdpmc(&m.pmu, 0, true, &value), PMU_FAULT);
}

static void amd_counters_exist_as_cpuid_says(void **state)
{
	struct pmu_guest guest = { 0 };

	(void)state;
	pmu_machine_create(&m, MODEL_GENOA);
	pmu_configure(&m.pmu, &guest);
	assert_int_equal(m.pmu.general, 4);
	assert_int_equal(guest_reads(PERF_CTL), PMU_UNKNOWN);
	guest.core_ext = true;
	pmu_configure(&m.pmu, &guest);
	assert_int_equal(m.pmu.general, 6);
	assert_int_equal(guest_reads(PERF_CTL + 11), PMU_OK);
	assert_int_equal(guest_reads(PERF_CTL + 12), PMU_UNKNOWN);
	assert_int_equal(guest_reads(AMD_STATUS), PMU_UNKNOWN);
	guest.leaf_22_eax = 1;
	guest.leaf_22_ebx = 5;
	pmu_configure(&m.pmu, &guest);
	assert_int_equal(m.pmu.version, 2);
	assert_int_equal(host_rdmsr(&m, AMD_CTL), 0x1f);
	assert_int_equal(guest_reads(PERF_CTR + 10), PMU_UNKNOWN);
}

/* The program may read a listed register that this guest lacks, and write 0 to it. */
static void listed_registers_excuse_the_program(void **state)
{
	(void)state;
	pmu_machine_create(&m, MODEL_ICELAKE);
	with_leaf_a(0, 0, 0);
	assert_int_equal(host_rdmsr(&m, GLOBAL_CTRL), 0);
	assert_int_equal(host_wrmsr(&m, GLOBAL_CTRL, 0), PMU_OK);
	assert_int_equal(host_wrmsr(&m, GLOBAL_CTRL, 1), PMU_UNKNOWN);
	assert_int_equal(host_wrmsr(&m, A_PMC, 0), PMU_UNKNOWN);
	assert_int_equal(host_wrmsr(&m, OVF_CTRL, 0), PMU_UNKNOWN);
}

static void cpuid_offers_what_kvm_would(void **state)
{
	u32 regs[4];

	(void)state;
	pmu_cpuid(pmu_model_of(MODEL_SKYLAKE), 0xa, regs);
	assert_int_equal(regs[0], 0x07300402);
	assert_int_equal(regs[1] | regs[2], 0);
	assert_int_equal(regs[3], 0x8603);
	pmu_cpuid(pmu_model_of(MODEL_SAPPHIRERAPIDS), 0xa, regs);
	assert_int_equal(regs[0], 0x08300805); /* KVM: 2; see PMU_VERSION_ADAPTIVE */
	assert_int_equal(regs[2], 0xf);
	assert_int_equal(regs[3], 0x8604); /* KVM: 3; see PMU_FIXED */
	pmu_cpuid(pmu_model_of(MODEL_SAPPHIRERAPIDS), 0x80000022, regs);
	assert_int_equal(regs[0] | regs[1], 0);
	pmu_cpuid(pmu_model_of(MODEL_MILAN), 0x80000022, regs);
	assert_int_equal(regs[0] | regs[1], 0);
	pmu_cpuid(pmu_model_of(MODEL_GENOA), 0x80000022, regs);
	assert_int_equal(regs[0], 7);
	assert_int_equal(regs[1], 16 << 4 | 6);
	pmu_cpuid(pmu_model_of(MODEL_GENOA), 0xa, regs);
	assert_int_equal(regs[0], 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(intel_registers_take_what_they_should),
		cmocka_unit_test(amd_registers_ignore_what_they_do_not_know),
		cmocka_unit_test(status_bits_are_cleared_and_set_by_their_registers),
		cmocka_unit_test(both_addresses_of_a_counter_are_one),
		cmocka_unit_test(transactions_make_two_bits_legal),
		cmocka_unit_test(counters_exist_as_cpuid_says),
		cmocka_unit_test(fixed_counters_and_globals_need_version_2),
		cmocka_unit_test(fixed_counters_of_version_5_are_a_set),
		cmocka_unit_test(version_4_sets_status_and_says_who_uses_what),
		cmocka_unit_test(full_width_needs_the_capability_and_pdcm),
		cmocka_unit_test(capabilities_are_final_after_the_first_run),
		cmocka_unit_test(a_disabled_pmu_has_only_what_never_faults),
		cmocka_unit_test(amd_counters_exist_as_cpuid_says),
		cmocka_unit_test(listed_registers_excuse_the_program),
		cmocka_unit_test(cpuid_offers_what_kvm_would),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
