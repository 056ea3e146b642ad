// SPDX-License-Identifier: MIT
/*
 * Debug stores and branch record registers as hostile software sets them up, on a real processor
 * and real page tables: addresses in devices, in read-only, missing and shared pages, at the ends
 * of pages and of the address space, absurd sizes and thresholds, any value in any register. The
 * guest computes what it computes without them, nothing but the buffer and its index is written,
 * and no device hears of it.
 *
 * usage: precise_test [SEED [CONFIGURATIONS]]
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/mmu/mmu.h"
#include "cpu/mode.h"
#include "diff/diff.h"
#include "guest/machine.h"
#include "unit/pmu_machine.h"
#include "hostperf/hostperf.h"

#define FOREVER (~0ull >> 1)
#define ARENA	0x120000ull /* pages that stores may lie in */
#define PAGES	8
#define HOLE	(ARENA + 3 * PAGE_SIZE) /* not mapped */
#define SEALED	(ARENA + 5 * PAGE_SIZE) /* read-only */

GUEST_CODE(work, "mov $12, %ecx\n"
		 "1: add %rcx, %rbx\n"
		 "call 2f\n"
		 "lea 3f(%rip), %rax\n"
		 "jmp *%rax\n"
		 "3: push %rbx\n"
		 "pop %rdx\n"
		 "loop 1b\n"
		 "out %al, $0xf4\n"
		 "2: inc %rbx\n"
		 "ret\n");

static u64 seed = 1;
static u32 configurations = 100000;

static struct fuzz {
	struct machine machine;
	struct hwpmu hw;
	struct pmu pmu;
	struct rng r;
	u64 records, drops;
	u8 before[PAGES * PAGE_SIZE];
} t;

/* --- the store, as engine/runtime/pmu.c has it --- */

static void store_sample(void *owner, u64 cfg, struct pebs_sample *s)
{
	const struct cpu *cpu = owner;
	u64 counters = s->counters;

	(void)cfg;
	memset(s, 0x77, sizeof(*s));
	s->counters = counters;
	s->nbranches = 0;
	s->eventing_rip = cpu->port.last_rip;
}

static void store_ibs(void *owner, struct ibs_sample *s)
{
	const struct cpu *cpu = owner;

	s->rip = cpu->port.last_rip;
	s->access = cpu_priv(cpu)->timing.seen.access;
}

static const struct hwpmu_store store = { machine_store_read, machine_store_write, store_sample,
					  store_ibs };

/* --- configurations --- */

static enum model_set any_model(void)
{
	static const enum model_set models[] = { MODEL_SKYLAKE, MODEL_ICELAKE, MODEL_SAPPHIRERAPIDS,
						 MODEL_MILAN, MODEL_GENOA };

	return models[rng_below(&t.r, ARRAY_SIZE(models))];
}

/* Software may have records written over its own code and tables, and then has what it asked for:
 * not here. */
static u64 harmless(u64 address)
{
	bool own = address < IMAGE_RAM || address > ~0x10000ull;

	return own && address - ARENA >= PAGES * PAGE_SIZE ? HOLE : address;
}

static u64 any_address(void)
{
	u64 page = ARENA + rng_below(&t.r, PAGES) * PAGE_SIZE;

	switch (rng_below(&t.r, 8)) {
	case 0:
		return harmless(rng_value(&t.r));
	case 1:
		return IMAGE_MMIO + rng_below(&t.r, 0x3000);
	case 2:
		return HOLE + rng_below(&t.r, PAGE_SIZE);
	case 3:
		return page + PAGE_SIZE - rng_below(&t.r, 64);
	default:
		return page + 8 * rng_below(&t.r, PAGE_SIZE / 8);
	}
}

static u64 near_to(u64 base)
{
	switch (rng_below(&t.r, 6)) {
	case 0:
		return any_address();
	case 1:
		return base - rng_below(&t.r, 300);
	case 2:
		return rng_value(&t.r);
	default:
		return base + rng_below(&t.r, 4000);
	}
}

static void write_memory(u64 linear, u64 value)
{
	if (linear >= ARENA && linear - ARENA <= PAGES * PAGE_SIZE - 8)
		memcpy(t.machine.ram + linear, &value, 8);
}

static void write_msr(u32 index, u64 value)
{
	pmu_wrmsr(&t.pmu, index, rng_one_in(&t.r, 4), value);
}

/* Every other one is as it should be, but for one thing or another. */
static void set_store(void)
{
	bool tame = rng_one_in(&t.r, 2);
	u64 area = tame ? ARENA + 8 * rng_below(&t.r, 100) : any_address();
	u64 base = tame && !rng_one_in(&t.r, 8) ? ARENA + 6 * PAGE_SIZE : any_address();
	bool proper = tame && !rng_one_in(&t.r, 8);

	write_memory(area + DS_PEBS_BASE, base);
	write_memory(area + DS_PEBS_INDEX, harmless(proper ? base : near_to(base)));
	write_memory(area + DS_PEBS_MAXIMUM, proper ? base + PAGE_SIZE : near_to(base + 2000));
	write_memory(area + DS_PEBS_LIMIT, proper ? base + 200 : near_to(base + 200));
	for (u32 i = 0; i < 48; i++)
		write_memory(area + DS_RESET + 8 * i,
			     rng_one_in(&t.r, 4) ? rng_value(&t.r) : -(u64)rng_below(&t.r, 40));
	write_msr(0x600, area);
}

static void set_registers(void)
{
	static const u32 events[] = { 0xc0, 0xc4, 0x3c, 0x20c4, 0x81d0, 0x82d0, 0x1cd };
	bool amd = t.pmu.model->is_amd;

	for (u32 i = 0; i < t.pmu.general; i++) {
		u64 select = events[rng_below(&t.r, ARRAY_SIZE(events))] | EVENTSEL_EN |
			     EVENTSEL_OS | (rng_next(&t.r) & (EVENTSEL_INT | EVENTSEL_ADAPTIVE));

		write_msr(amd ? 0xc0010201 + 2 * i : 0x4c1 + i,
			  -(u64)rng_below(&t.r, 50) & MASK(47, 0));
		write_msr(amd ? 0xc0010200 + 2 * i : 0x186 + i,
			  amd ? select & ~EVENTSEL_ADAPTIVE : select);
	}
	for (u32 i = 0; i < 3; i++)
		write_msr(0x309 + i, -(u64)rng_below(&t.r, 60));
	write_msr(0x38d, rng_next(&t.r) & 0x11100000bbbull);
	write_msr(0x38f, rng_next(&t.r) & t.pmu.all);
	write_msr(0x3f1, rng_value(&t.r));
	write_msr(0x3f1, rng_next(&t.r) & t.pmu.all & (rng_one_in(&t.r, 2) ? MASK(3, 0) : ~0ull));
	write_msr(0x3f2, rng_next(&t.r) & (rng_one_in(&t.r, 2) ? 0xff00000full : 0x1f00000full));
	write_msr(0x3f6, rng_value(&t.r));
	write_msr(IBS_MSR + IBS_OP_CTL, rng_value(&t.r) | IBS_OP_EN);
	write_msr(IBS_MSR + IBS_FETCH_CTL, rng_value(&t.r) | IBS_FETCH_EN);
}

static void set_branches(void)
{
	static const u32 stacks[] = { 0x680, 0x6c0, 0xdc0, 0x1200, 0x1500, 0x1600, 0xc0010300 };

	write_msr(0x14cf, rng_one_in(&t.r, 2) ? 8u << rng_below(&t.r, 3) : rng_value(&t.r));
	for (u32 i = 0; i < 8; i++)
		write_msr(stacks[rng_below(&t.r, ARRAY_SIZE(stacks))] + rng_below(&t.r, 40),
			  rng_value(&t.r));
	write_msr(0x1c9, rng_value(&t.r));
	write_msr(0x1c8, rng_value(&t.r));
	write_msr(0x14ce, rng_next(&t.r) & 0x7f000f);
	write_msr(0xc000010e, rng_value(&t.r));
	write_msr(0xc000010f, rng_value(&t.r));
	pmu_set_debugctl(&t.pmu, rng_next(&t.r) & pmu_debugctl_legal(&t.pmu));
}

static void configure(enum model_set model)
{
	struct pmu_guest guest = pmu_machine_guest(model);

	hwpmu_init(&t.hw, pmu_model_of(model), &t.machine.cpu->port.tally);
	hwpmu_attach_branches(&t.hw, &t.machine.cpu->branches);
	hwpmu_attach_store(&t.hw, &store, t.machine.cpu);
	pmu_init(&t.pmu, pmu_model_of(model), &hostperf_mediated, &t.hw);
	pmu_configure(&t.pmu, &guest);
	set_store();
	set_registers();
	set_branches();
}

/* --- one of them --- */

static void arm(struct cpu *cpu)
{
	hwpmu_trips(&t.hw, &cpu->port.trips);
	cpu->port.wanted = hwpmu_wanted(&t.hw);
	cpu->port.precise = true;
	cpu->port.observe = MODE_OBSERVE_MEMORY | MODE_OBSERVE_BRANCHES;
	cpu_priv(cpu)->timing.slow_cycles = t.hw.pebs.latency;
}

static void run(struct cpu *cpu)
{
	enum exit_reason reason;

	do {
		pmu_enter(&t.pmu);
		arm(cpu);
		reason = machine_run(&t.machine, FOREVER);
		pmu_leave(&t.pmu);
		pmu_take_requests(&t.pmu);
		hwpmu_take_ibs(&t.hw);
	} while (reason == EXIT_BUDGET);
	assert_int_equal(reason, EXIT_IO);
}

/* Only what a record may be written to has changed: in the arena, and not in what is sealed. */
static void check(struct cpu *cpu, const u8 *code)
{
	u64 n = 12;

	assert_int_equal(cpu->regs[RBX], n * (n + 1) / 2 + n);
	assert_int_equal(cpu->regs[RCX], 0);
	assert_int_equal(t.machine.mmio_reads + t.machine.mmio_writes, 0);
	assert_int_equal(cpu->port.event.kind, EVENT_NONE);
	assert_memory_equal(t.machine.ram + IMAGE_CODE, code, (size_t)(work_end - work_start));
	assert_memory_equal(t.machine.ram + SEALED, t.before + (SEALED - ARENA), PAGE_SIZE);
	assert_memory_equal(t.machine.ram + HOLE, t.before + (HOLE - ARENA), PAGE_SIZE);
}

static void read_all(void)
{
	u32 list[PMU_MSRS], n = pmu_msr_list(t.pmu.model, list, PMU_MSRS);
	u64 value;

	for (u32 i = 0; i < n; i++)
		assert_int_equal(pmu_rdmsr(&t.pmu, list[i], true, &value), PMU_OK);
}

static void restart(struct cpu *cpu)
{
	memset(cpu->regs, 0, sizeof(cpu->regs));
	cpu->regs[RSP] = IMAGE_STACK;
	cpu->rip = IMAGE_CODE;
	cpu->port.io.state = IO_IDLE;
}

static void one(void)
{
	struct cpu *cpu = t.machine.cpu;
	u64 records;

	restart(cpu);
	configure(any_model());
	memcpy(t.before, t.machine.ram + ARENA, sizeof(t.before));
	run(cpu);
	records = memcmp(t.before, t.machine.ram + ARENA, sizeof(t.before)) != 0;
	t.records += records;
	t.drops += t.hw.records && !records;
	check(cpu, work_start);
	read_all();
}

static void nothing_that_software_sets_up_harms(void **state)
{
	(void)state;
	machine_create(&t.machine);
	machine_load(&t.machine, work_start, (size_t)(work_end - work_start));
	*image_pte(t.machine.ram, HOLE) = 0;
	*image_pte(t.machine.ram, SEALED) &= ~2ull;
	for (u32 i = 0; i < configurations; i++) {
		t.r = rng_for(seed, i);
		one();
	}
	print_message("seed %lu: records in %lu of %u configurations, dropped in %lu\n",
		      (unsigned long)seed, (unsigned long)t.records, configurations,
		      (unsigned long)t.drops);
	assert_true(t.records > configurations / 20);
	assert_true(t.drops > configurations / 20);
	machine_destroy(&t.machine);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_that_software_sets_up_harms),
	};

	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	if (argc > 2)
		configurations = strtoul(argv[2], NULL, 0);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
