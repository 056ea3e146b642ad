// SPDX-License-Identifier: MIT
/*
 * PEBS without a guest: each record format word by word, and the assist over a debug store that is
 * an array, as software and hostile software set it up.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "unit/pmu_machine.h"
#include "x86/regs.h"

/* --- records --- */

static void make_sample(struct pebs_sample *s)
{
	*s = (struct pebs_sample){ .rflags = 0x246,
				   .rip = 0x401005,
				   .eventing_rip = 0x401000,
				   .counters = 0x100000001,
				   .tsc = 0x1122334455667788,
				   .address = 0x7fff00001234,
				   .source = 0x1a,
				   .latency = 0x46,
				   .nbranches = 32 };
	for (u32 i = 0; i < 16; i++) {
		s->regs[i] = 0xa0 + i;
		s->xmm[i][0] = 0xb00 + i;
		s->xmm[i][1] = 0xc00 + i;
	}
	for (u32 i = 0; i < 32; i++)
		s->branch[i] = (struct pebs_branch){ 0xd000 + i, 0xe000 + i, 0xf000 + i };
}

static void check_record(u32 format, u64 cfg, const u64 *words, u32 n)
{
	static u8 record[PEBS_RECORD_MAX + 1];
	struct pebs_sample s;

	make_sample(&s);
	memset(record, 0x5a, sizeof(record));
	assert_int_equal(pebs_record_size(format, cfg), 8 * n);
	assert_int_equal(pebs_record_write(record, format, cfg, &s), 8 * n);
	for (u32 i = 0; i < n; i++)
		for (u32 byte = 0; byte < 8; byte++)
			if (record[8 * i + byte] != (u8)(words[i] >> 8 * byte))
				fail_msg("format %u, cfg %#lx: byte %#x is %#x, not %#x", format,
					 (unsigned long)cfg, 8 * i + byte, record[8 * i + byte],
					 (u8)(words[i] >> 8 * byte));
	assert_int_equal(record[8 * n], 0x5a);
}

/* SDM 3B table 20-57 with the TSC of table 20-60. */
static void format_3_is_200_bytes(void **state)
{
	static const u64 words[] = {
		0x246,	    0x401005,	0xa0 + RAX, 0xa0 + RBX,	 0xa0 + RCX,
		0xa0 + RDX, 0xa0 + RSI, 0xa0 + RDI, 0xa0 + RBP,	 0xa0 + RSP,
		0xa0 + R8,  0xa0 + R9,	0xa0 + R10, 0xa0 + R11,	 0xa0 + R12,
		0xa0 + R13, 0xa0 + R14, 0xa0 + R15, 0x100000001, 0x7fff00001234,
		0x1a,	    0x46,	0x401000,   0,		 0x1122334455667788,
	};

	(void)state;
	assert_int_equal(sizeof(words), 200);
	check_record(3, 0, words, ARRAY_SIZE(words));
}

struct words {
	u64 w[PEBS_RECORD_MAX / 8];
	u32 n;
};

static void add(struct words *words, u64 word)
{
	words->w[words->n++] = word;
}

/* SDM 3B 20.9.2.2: groups in the order of their bits. */
static void expect_groups(struct words *words, u32 format, u64 cfg)
{
	static const u8 gprs[] = { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI };

	words->n = 1;
	add(words, 0x401000);
	add(words, 0x100000001);
	add(words, 0x1122334455667788);
	if (cfg & PEBS_CFG_MEMORY) {
		add(words, 0x7fff00001234);
		add(words, 0x1a);
		add(words, format == 4 ? 0x46 : 0x46 | 0x46ull << 32);
		add(words, 0);
	}
	if (cfg & PEBS_CFG_GPRS) {
		add(words, 0x246);
		add(words, 0x401005);
		for (u32 i = 0; i < 8; i++)
			add(words, 0xa0 + gprs[i]);
		for (u32 i = R8; i <= R15; i++)
			add(words, 0xa0 + i);
	}
	for (u32 i = 0; i < 16 && (cfg & PEBS_CFG_XMMS); i++) {
		add(words, 0xb00 + i);
		add(words, 0xc00 + i);
	}
	for (u32 i = 0; (cfg & PEBS_CFG_LBRS) && i <= (cfg >> 24 & 0xff); i++) {
		add(words, i < 32 ? 0xd000 + i : 0);
		add(words, i < 32 ? 0xe000 + i : 0);
		add(words, i < 32 ? 0xf000 + i : 0);
	}
	words->w[0] = (u64)(8 * words->n) << 48 | (u32)cfg;
}

static void adaptive_records_have_the_groups_asked_for(void **state)
{
	static const u8 branches[] = { 0, 15, 31, 255 };
	static struct words words;

	(void)state;
	for (u32 format = 4; format <= 5; format++)
		for (u64 groups = 0; groups < 16; groups++)
			for (u32 i = 0; i < ARRAY_SIZE(branches); i++) {
				u64 cfg = groups | (u64)branches[i] << 24;

				expect_groups(&words, format, cfg);
				check_record(format, cfg, words.w, words.n);
			}
}

/* --- the assist --- */

#define STORE	 0x1000 /* linear addresses 0x1000 to 0x5fff are memory */
#define SIZE	 0x5000
#define BUFFER	 0x3000
#define PERIOD	 7
#define FORMAT3	 200
#define ENABLE	 0x3f1
#define DS_AREA	 0x600
#define DATA_CFG 0x3f2

static struct pmu_machine m;
static u8 memory[SIZE];
static u64 readonly_from; /* no writes from here on */

static u8 *at(u64 linear, u32 size)
{
	if (linear < STORE || linear - STORE > SIZE || size > SIZE - (linear - STORE))
		return NULL;
	return memory + (linear - STORE);
}

static bool store_read(void *owner, u64 linear, void *to, u32 size)
{
	const u8 *from = at(linear, size);

	(void)owner;
	if (from)
		memcpy(to, from, size);
	return from;
}

static bool store_write(void *owner, u64 linear, const void *from, u32 size)
{
	u8 *to = at(linear, size);

	(void)owner;
	if (!to || linear + size > readonly_from)
		return false;
	memcpy(to, from, size);
	return true;
}

static void store_sample(void *owner, u64 cfg, struct pebs_sample *s)
{
	u64 counters = s->counters;

	(void)owner, (void)cfg;
	make_sample(s);
	s->counters = counters;
	s->nbranches = 0;
	s->tsc = m.tally.instructions[RETIRE_USR];
}

static const struct hwpmu_store store = { .read = store_read,
					  .write = store_write,
					  .sample = store_sample };

static u64 word(u64 linear)
{
	u64 value;

	assert_true(store_read(NULL, linear, &value, 8));
	return value;
}

static void set_word(u64 linear, u64 value)
{
	assert_non_null(at(linear, 8));
	memcpy(at(linear, 8), &value, 8);
}

static void create_as(enum model_set model, const struct pmu_guest *guest)
{
	pmu_machine_create_either(&m, model);
	pmu_configure(&m.pmu, guest);
	m.apart = true;
	hwpmu_attach_store(&m.hw, &store, NULL);
	memset(memory, 0, sizeof(memory));
	readonly_from = ~0ull;
	set_word(STORE + DS_PEBS_BASE, BUFFER);
	set_word(STORE + DS_PEBS_INDEX, BUFFER);
	set_word(STORE + DS_PEBS_MAXIMUM, BUFFER + 0x1000);
	set_word(STORE + DS_PEBS_LIMIT, BUFFER + 0x1000);
	set_word(STORE + DS_RESET, -(u64)PERIOD & WIDTH);
	guest_wrmsr(&m, GLOBAL_CTRL, 0);
	assert_int_equal(guest_wrmsr(&m, DS_AREA, STORE), PMU_OK);
	assert_int_equal(guest_wrmsr(&m, ENABLE, 1), PMU_OK);
	host_wrmsr(&m, PMC, -(u64)PERIOD);
	guest_wrmsr(&m, EVNTSEL, COUNTING | 0xc0);
	guest_wrmsr(&m, GLOBAL_CTRL, 1);
}

static void create(enum model_set model)
{
	struct pmu_guest guest = pmu_machine_guest(model);

	create_as(model, &guest);
}

static u64 records(u32 size)
{
	u64 used = word(STORE + DS_PEBS_INDEX) - BUFFER;

	assert_int_equal(used % size, 0);
	return used / size;
}

static void each_overflow_is_a_record_and_none_a_pmi(void **state)
{
	(void)state;
	create(MODEL_SKYLAKE);
	assert_int_equal(pmu_machine_run(&m, 10 * PERIOD + 3), 0);
	assert_int_equal(records(FORMAT3), 10);
	assert_int_equal(host_rdmsr(&m, STATUS), 0);
	/* Loaded from the store each time: 3 on the way to the next. */
	assert_int_equal(host_rdmsr(&m, PMC), (-(u64)PERIOD + 3) & WIDTH);
	for (u32 i = 0; i < 10; i++) {
		assert_int_equal(word(BUFFER + i * FORMAT3 + 0x90), 1); /* counters */
		assert_int_equal(word(BUFFER + i * FORMAT3 + 0xb0), 0x401000);
		assert_int_equal(word(BUFFER + i * FORMAT3 + 0xc0), (i + 1) * PERIOD);
	}
}

static void an_instruction_of_several_periods_is_one_record(void **state)
{
	(void)state;
	create(MODEL_SKYLAKE);
	guest_wrmsr(&m, EVNTSEL, COUNTING | 0x3c);
	m.tally.cycles[RETIRE_USR] += (3 * PERIOD + 2) * TICKS_PER_CYCLE;
	assert_false(hwpmu_retire(&m.hw));
	assert_int_equal(records(FORMAT3), 1);
	assert_int_equal(host_rdmsr(&m, PMC), (-(u64)PERIOD + 2) & WIDTH);
	m.tally.cycles[RETIRE_USR] += (PERIOD - 2) * TICKS_PER_CYCLE;
	hwpmu_retire(&m.hw);
	assert_int_equal(records(FORMAT3), 2);
}

static void the_threshold_interrupts_once(void **state)
{
	(void)state;
	create(MODEL_SKYLAKE);
	set_word(STORE + DS_PEBS_LIMIT, BUFFER + 3 * FORMAT3);
	assert_int_equal(pmu_machine_run(&m, 3 * PERIOD - 1), 0);
	assert_int_equal(pmu_machine_run(&m, 1), 1);
	assert_int_equal(host_rdmsr(&m, STATUS), GLOBAL_STATUS_DS);
	assert_int_equal(pmu_machine_run(&m, 2 * PERIOD), 0);
	assert_int_equal(records(FORMAT3), 5);
	guest_wrmsr(&m, OVF_CTRL, GLOBAL_STATUS_DS);
	assert_int_equal(host_rdmsr(&m, STATUS), 0);
	assert_int_equal(pmu_machine_run(&m, PERIOD), 1);
}

static void a_full_buffer_drops_records_and_counts_on(void **state)
{
	(void)state;
	create(MODEL_SKYLAKE);
	set_word(STORE + DS_PEBS_MAXIMUM, BUFFER + 2 * FORMAT3 + FORMAT3 - 1);
	pmu_machine_run(&m, 9 * PERIOD + 2);
	assert_int_equal(records(FORMAT3), 2);
	assert_int_equal(word(BUFFER + 2 * FORMAT3), 0);
	assert_int_equal(host_rdmsr(&m, PMC), (-(u64)PERIOD + 2) & WIDTH);
}

static void disabled_pebs_is_a_normal_overflow(void **state)
{
	(void)state;
	create(MODEL_SKYLAKE);
	guest_wrmsr(&m, ENABLE, 0);
	pmu_machine_run(&m, PERIOD);
	assert_int_equal(records(FORMAT3), 0);
	assert_int_equal(host_rdmsr(&m, STATUS), 1);
}

static void adaptive_records_need_the_counters_bit(void **state)
{
	static const enum model_set models[] = { MODEL_ICELAKE, MODEL_SAPPHIRERAPIDS };

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(models); i++) {
		create(models[i]);
		guest_wrmsr(&m, DATA_CFG, PEBS_CFG_MEMORY | PEBS_CFG_GPRS);
		pmu_machine_run(&m, PERIOD);
		assert_int_equal(records(32), 1);
		assert_int_equal(word(BUFFER), 32ull << 48);
		guest_wrmsr(&m, EVNTSEL, COUNTING | EVENTSEL_ADAPTIVE | 0xc0);
		pmu_machine_run(&m, PERIOD);
		assert_int_equal(word(BUFFER + 32), 208ull << 48 | 3);
		assert_int_equal(word(STORE + DS_PEBS_INDEX), BUFFER + 32 + 208);
	}
}

static void fixed_counters_have_their_own_resets(void **state)
{
	static const struct {
		enum model_set model;
		u64 reset;
	} rows[] = { { MODEL_ICELAKE, 0x80 }, { MODEL_SAPPHIRERAPIDS, 0x140 } };

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(rows); i++) {
		create(rows[i].model);
		guest_wrmsr(&m, EVNTSEL, 0);
		set_word(STORE + rows[i].reset, -5ull & WIDTH);
		guest_wrmsr(&m, ENABLE, BIT(32));
		guest_wrmsr(&m, 0x309, -5ull);
		guest_wrmsr(&m, 0x38d, 0x3);
		guest_wrmsr(&m, GLOBAL_CTRL, BIT(32));
		pmu_machine_run(&m, 21);
		assert_int_equal(records(32), 4);
		assert_int_equal(word(BUFFER + 0x10), BIT(32));
		assert_int_equal(host_rdmsr(&m, 0x309), (-5ull + 1) & WIDTH);
	}
}

static void branches_are_in_the_record_youngest_first(void **state)
{
	static const enum model_set models[] = { MODEL_ICELAKE, MODEL_SAPPHIRERAPIDS };

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(models); i++) {
		create(models[i]);
		guest_wrmsr(&m, DATA_CFG, PEBS_CFG_LBRS | 31ull << PEBS_CFG_LBR_SHIFT);
		guest_wrmsr(&m, EVNTSEL, COUNTING | EVENTSEL_ADAPTIVE | 0xc0);
		guest_wrmsr(&m, 0x14ce, LBR_CTL_EN | LBR_CTL_USR | LBR_CTL_KINDS);
		pmu_set_debugctl(&m.pmu, pmu_debugctl_legal(&m.pmu) & DEBUGCTL_LBR);
		pmu_enter(&m.pmu);
		for (u32 j = 0; j < 3; j++) {
			struct branch branch = { .kind = BRANCH_JCC,
						 .from = 0x10 + j,
						 .to = 0x20 + j,
						 .before = RETIRE_USR,
						 .after = RETIRE_USR };

			branch_record(&m.branches, &m.tally, &branch);
		}
		pmu_machine_run(&m, PERIOD);
		assert_int_equal(records(32 + 24 * 32), 1);
		assert_int_equal(word(BUFFER + 32), 0x12);
		assert_int_equal(word(BUFFER + 40), 0x22);
		assert_int_equal(word(BUFFER + 32 + 24), 0x11);
		assert_int_equal(word(BUFFER + 32 + 3 * 24), 0);
	}
}

static void two_counters_may_share_a_record(void **state)
{
	(void)state;
	create(MODEL_ICELAKE);
	set_word(STORE + DS_RESET + 8, -(u64)PERIOD & WIDTH);
	host_wrmsr(&m, PMC + 1, -(u64)PERIOD);
	guest_wrmsr(&m, ENABLE, 3);
	guest_wrmsr(&m, EVNTSEL + 1, COUNTING | 0xc0);
	guest_wrmsr(&m, GLOBAL_CTRL, 3);
	pmu_machine_run(&m, PERIOD);
	assert_int_equal(records(32), 1);
	assert_int_equal(word(BUFFER + 0x10), 3);
}

static void a_denied_event_makes_no_records(void **state)
{
	const u64 events[] = { 0xc0 };
	struct pmu_filter_args args = { .action = PMU_FILTER_DENY, .nevents = 1, .events = events };
	struct pmu_filter filter;

	(void)state;
	create(MODEL_ICELAKE);
	assert_int_equal(pmu_filter_make(&filter, &args, false), PMU_FILTER_OK);
	pmu_set_filter(&m.pmu, &filter);
	pmu_machine_run(&m, 10 * PERIOD);
	assert_int_equal(records(32), 0);
}

static void what_cannot_be_accessed_costs_the_record_only(void **state)
{
	static const u64 areas[] = { 0, 8, STORE + SIZE - 8, 0xffffffffffffffc0, 0x7fffffffffff };

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(areas); i++) {
		create(MODEL_ICELAKE);
		assert_int_equal(guest_wrmsr(&m, DS_AREA, areas[i]), PMU_OK);
		assert_int_equal(pmu_machine_run(&m, 3 * PERIOD), 0);
		assert_int_equal(records(32), 0);
	}
	create(MODEL_ICELAKE);
	readonly_from = BUFFER;
	pmu_machine_run(&m, 3 * PERIOD);
	assert_int_equal(records(32), 0);
	create(MODEL_ICELAKE);
	set_word(STORE + DS_PEBS_INDEX, ~0ull - 16);
	set_word(STORE + DS_PEBS_MAXIMUM, ~0ull);
	pmu_machine_run(&m, 3 * PERIOD);
	assert_int_equal(word(STORE + DS_PEBS_INDEX), ~0ull - 16);
}

/* Counter 0 samples loads by latency, which does not count here, and fixed counter 0 every 3
 * instructions, if PEBS_ENABLE bit 32 is its own. */
static void sample_latency_and_fixed(u8 version)
{
	struct pmu_guest guest = pmu_machine_guest(MODEL_ICELAKE);

	guest.leaf_a_eax = (guest.leaf_a_eax & ~MASK(7, 0)) | version;
	create_as(MODEL_ICELAKE, &guest);
	set_word(STORE + DS_FIXED_RESET, -3ull & WIDTH);
	guest_wrmsr(&m, EVNTSEL, COUNTING | PEBS_LOAD_LATENCY);
	guest_wrmsr(&m, ENABLE, 1 | BIT(32));
	guest_wrmsr(&m, 0x309, -3ull);
	guest_wrmsr(&m, 0x38d, 0x3);
	guest_wrmsr(&m, GLOBAL_CTRL, 1 | BIT(32));
	pmu_machine_run(&m, 3);
}

static void latency_bits_are_not_fixed_counters(void **state)
{
	(void)state;
	sample_latency_and_fixed(4);
	assert_int_equal(records(32), 0);
	assert_int_equal(host_rdmsr(&m, STATUS), BIT(32));
}

static void version_5_has_no_latency_bits(void **state)
{
	(void)state;
	sample_latency_and_fixed(5);
	assert_int_equal(records(32), 1);
	assert_int_equal(word(BUFFER + 0x10), BIT(32));
	assert_int_equal(host_rdmsr(&m, STATUS), 0);
}

/* Records of format 3 know no fixed counters: there bit 32 is that of latency, whatever counter 0
 * counts. */
static void skylake_samples_no_fixed_counters(void **state)
{
	(void)state;
	for (u32 sampled = 0; sampled < 2; sampled++) {
		create(MODEL_SKYLAKE);
		assert_int_equal(guest_wrmsr(&m, ENABLE, sampled | BIT(32)), PMU_OK);
		guest_wrmsr(&m, 0x309, -3ull);
		guest_wrmsr(&m, 0x38d, 0x3);
		guest_wrmsr(&m, GLOBAL_CTRL, BIT(32));
		pmu_machine_run(&m, 3);
		assert_int_equal(records(FORMAT3), 0);
		assert_int_equal(host_rdmsr(&m, STATUS), BIT(32));
	}
}

/* Software writes as many bits into the store as CPUID says that there are. */
static void narrow_counters_are_reloaded_too(void **state)
{
	struct pmu_guest guest = pmu_machine_guest(MODEL_ICELAKE);

	(void)state;
	guest.leaf_a_eax = (guest.leaf_a_eax & ~MASK(23, 16)) | 40 << 16;
	guest.leaf_a_edx = (guest.leaf_a_edx & ~MASK(12, 5)) | 40 << 5;
	create_as(MODEL_ICELAKE, &guest);
	set_word(STORE + DS_RESET, -(u64)PERIOD & MASK(39, 0));
	set_word(STORE + DS_FIXED_RESET, -10ull & MASK(39, 0));
	guest_wrmsr(&m, ENABLE, 1 | BIT(32));
	host_wrmsr(&m, 0x309, -10ull & MASK(39, 0));
	guest_wrmsr(&m, 0x38d, 0x3);
	guest_wrmsr(&m, GLOBAL_CTRL, 1 | BIT(32));
	pmu_machine_run(&m, 3 * PERIOD);
	assert_int_equal(records(32), 3 + 2);
	assert_int_equal(host_rdmsr(&m, PMC), -(u64)PERIOD & MASK(39, 0));
	assert_int_equal(host_rdmsr(&m, 0x309), (-10ull + 1) & MASK(39, 0));
	/* Nothing to load: the counter goes on from 0, and overflows at its own width. */
	guest_wrmsr(&m, GLOBAL_CTRL, 1);
	guest_wrmsr(&m, DS_AREA, 0);
	pmu_machine_run(&m, PERIOD);
	assert_int_equal(m.hw.records, 6);
	pmu_machine_run(&m, BIT(40));
	assert_int_equal(m.hw.records, 7);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(format_3_is_200_bytes),
		cmocka_unit_test(adaptive_records_have_the_groups_asked_for),
		cmocka_unit_test(each_overflow_is_a_record_and_none_a_pmi),
		cmocka_unit_test(an_instruction_of_several_periods_is_one_record),
		cmocka_unit_test(the_threshold_interrupts_once),
		cmocka_unit_test(a_full_buffer_drops_records_and_counts_on),
		cmocka_unit_test(disabled_pebs_is_a_normal_overflow),
		cmocka_unit_test(adaptive_records_need_the_counters_bit),
		cmocka_unit_test(fixed_counters_have_their_own_resets),
		cmocka_unit_test(branches_are_in_the_record_youngest_first),
		cmocka_unit_test(two_counters_may_share_a_record),
		cmocka_unit_test(a_denied_event_makes_no_records),
		cmocka_unit_test(what_cannot_be_accessed_costs_the_record_only),
		cmocka_unit_test(latency_bits_are_not_fixed_counters),
		cmocka_unit_test(version_5_has_no_latency_bits),
		cmocka_unit_test(skylake_samples_no_fixed_counters),
		cmocka_unit_test(narrow_counters_are_reloaded_too),
	};

	return pmu_machine_test_both(tests);
}
