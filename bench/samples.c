// SPDX-License-Identifier: MIT
/*
 * What samples cost, on the bare engine: a PEBS record, and branch records, beside the same loop
 * without. Processor time of this thread; the best of several turns each, taken in turns.
 *
 * usage: precise [ROUNDS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/must.h"
#include "cpu/fpu.h"
#include "cpu/mmu/mmu.h"
#include "engine/engine.h"
#include "guest/machine.h"
#include "hostperf/hostperf.h"

#define FOREVER (~0ull >> 1)
#define PERIOD	1009
#define STORE	0x110000ull
#define BUFFER	0x111000ull
#define ROOM	(64 * 1024)

/* A block of some twenty instructions with a call: what a profiler meets. */
GUEST_CODE(loop, "mov $2000000, %ecx\n"
		 "1: mov (%rsp), %rax\n"
		 "add %rcx, %rax\n"
		 "mov %rax, -64(%rsp)\n"
		 "lea 3(%rax), %rdx\n"
		 "xor %rdx, %rbx\n"
		 "call 2f\n"
		 "add $1, %rsi\n"
		 "test $1, %cl\n"
		 "jz 3f\n"
		 "add $7, %rdi\n"
		 "3: mov -64(%rsp), %r8\n"
		 "add %r8, %rdi\n"
		 "shr $3, %rdi\n"
		 "dec %ecx\n"
		 "jnz 1b\n"
		 "out %al, $0xf4\n"
		 "2: imul %rdx, %rdx\n"
		 "add %rdx, %rbx\n"
		 "ret\n");

static struct machine machine;
static struct pmu pmu;
static u64 interrupts;

static void set_word(u64 linear, u64 value)
{
	memcpy(machine.ram + linear, &value, sizeof(value));
}

static void configure(void)
{
	const struct pmu_model *model = pmu_model_of(MODEL_ICELAKE);
	struct pmu_guest guest = { .pdcm = true, .ds = true };
	u32 a[4];

	pmu_cpuid(model, 0xa, a);
	guest.leaf_a_eax = a[0];
	guest.leaf_a_ecx = a[2];
	guest.leaf_a_edx = a[3];
	engine_attach_pmu(machine.cpu, model);
	pmu_init(&pmu, model, &hostperf_mediated, &machine.cpu->pmu);
	pmu_configure(&pmu, &guest);
}

static void write_msr(u32 index, u64 value)
{
	must(pmu_wrmsr(&pmu, index, false, value) == PMU_OK);
}

static void plain(void)
{
}

static void records(void)
{
	set_word(STORE + DS_PEBS_BASE, BUFFER);
	set_word(STORE + DS_PEBS_INDEX, BUFFER);
	set_word(STORE + DS_PEBS_MAXIMUM, BUFFER + ROOM);
	set_word(STORE + DS_PEBS_LIMIT, BUFFER + ROOM - 1024);
	set_word(STORE + DS_FIXED_RESET, -(u64)PERIOD & MASK(47, 0));
	write_msr(0x600, STORE);
	write_msr(0x3f2, PEBS_CFG_GPRS);
	write_msr(0x3f1, BIT(32));
	write_msr(0x309, -(u64)PERIOD);
	write_msr(0x38d, 3 | FIXED_CTRL_ADAPTIVE(0));
	write_msr(0x38f, BIT(32));
}

static void branches(void)
{
	pmu_set_debugctl(&pmu, DEBUGCTL_LBR);
}

/* As vm/run.c and vm/pmu/pmu.c. */
static void run(void)
{
	struct cpu *cpu = machine.cpu;
	enum exit_reason reason;

	pmu_enter(&pmu);
	do {
		cpu->port.memory_unchanged = true;
		reason = engine_run(cpu,
				    FOREVER); /* nothing here needs the signals of machine_run() */
		pmu_leave(&pmu);
		if (pmu_take_requests(&pmu)) { /* what a handler does */
			interrupts++;
			set_word(STORE + DS_PEBS_INDEX, BUFFER);
			write_msr(0x390, GLOBAL_STATUS_DS | BIT(32));
			pmu_enter(&pmu);
		}
	} while (reason == EXIT_PMI);
	must(reason == EXIT_IO);
}

static double seconds(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return ts.tv_sec + ts.tv_nsec * 1e-9;
}

static double one(void (*set_up)(void))
{
	double begun;

	machine_start(&machine);
	configure();
	set_up();
	begun = seconds();
	run();
	return seconds() - begun;
}

static double least(double a, double b)
{
	return a < b ? a : b;
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 7;
	double bare = 1e9, sampled = 1e9, recorded = 1e9;
	u64 nrecords = 0;

	machine_create(&machine);
	machine_load(&machine, loop_start, (size_t)(loop_end - loop_start));
	for (int i = 0; i < rounds; i++) {
		bare = least(bare, one(plain));
		interrupts = 0;
		sampled = least(sampled, one(records));
		nrecords = machine.cpu->pmu.records;
		recorded = least(recorded, one(branches));
	}
	printf("%lu instructions, 5 taken branches in 17: %.1f ms; with a PEBS record every %d of "
	       "them %.1f ms, with branch "
	       "records %.1f ms\n",
	       (unsigned long)machine_retired(&machine), 1e3 * bare, PERIOD, 1e3 * sampled,
	       1e3 * recorded);
	printf("a PEBS record costs %.0f ns; %.1f interrupts per 1000 records; branch records make "
	       "the loop %.2f times as "
	       "long\n",
	       1e9 * (sampled - bare) / nrecords, 1e3 * interrupts / nrecords, recorded / bare);
	machine_destroy(&machine);
	return 0;
}
