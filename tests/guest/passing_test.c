// SPDX-License-Identifier: MIT
/*
 * Accesses of the PMU that pass are exact wherever they are: a kernel that starts, stops, reads and
 * writes its counters reads the same if it runs in one piece, where blocks continue after such an
 * access, and if each instruction is a block. Counters overflow after the same instruction.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu/intercept.h"
#include "engine/engine.h"
#include "guest/machine.h"
#include "hwpmu/hwpmu.h"

#define FOREVER (~0ull >> 1)
#define MIX	"imul $31, %rbx\nshl $32, %rdx\nadd %rdx, %rbx\nadd %rax, %rbx\n"
#define WRMSR(index, low, high) \
	"mov $" #index ", %ecx\nmov $" #low ", %eax\nmov $" #high ", %edx\nwrmsr\n"
#define RDMSR(index) "mov $" #index ", %ecx\nrdmsr\n" MIX
#define RDPMC(index) "mov $" #index ", %ecx\nrdpmc\n" MIX

/* Instructions and cycles in fixed counters, branches and loads in the others. Each round stops and
 * starts them, some set them to overflow soon, some look which did. */
GUEST_CODE(switching, WRMSR(0x38d, 0x033, 0) WRMSR(0x186, 0x4300c4, 0) WRMSR(0x187, 0x4381d0, 0)
		      "mov $1500, %esi\n"
		      "1:\n" WRMSR(0x38f, 0, 0)
		      "test $15, %sil\n"
		      "jnz 2f\n"
		      WRMSR(0x309, -97, 0xffff) WRMSR(0x4c1, -5, 0xffff) WRMSR(0x30a, -300, 0xffff)
		      "2:\n" WRMSR(0x38f, 3, 3)
		      "call 5f\n"
		      RDPMC(0x40000000) RDPMC(0x40000001) RDPMC(0) RDPMC(1)
		      "mov %rbx, -64(%rsp)\n"
		      "testb $1, -64(%rsp)\n"
		      "jz 3f\n"
		      "imul %rax, %rax\n"
		      "3: test $7, %sil\n"
		      "jnz 4f\n"
		      RDMSR(0x38e) WRMSR(0x390, 3, 3)
		      "4: dec %esi\n"
		      "jnz 1b\n"
		      "out %al, $0xf4\n"
		      "5: nop\n"
		      "ret\n");

/* What a run leaves behind. */
struct outcome {
	u64 sum;	     /* of all that was read */
	u64 overflows, last; /* how many, and the address after the last one */
	u64 instructions, cycles;
};

static struct intercepts intercepts;

static void configure(struct cpu *cpu)
{
	engine_attach_pmu(cpu, pmu_model_of(MODEL_ICELAKE));
	intercept_init(&intercepts, false);
	for (u32 i = 0; i < INTERCEPT_MSRS; i++)
		intercepts.msr[i].pass[INTERCEPT_READ] = intercepts.msr[i].pass[INTERCEPT_WRITE] =
			true;
	intercepts.pass_rdpmc = true;
	cpu->port.intercepts = &intercepts;
}

static struct outcome run(struct machine *m, u64 slice)
{
	struct cpu *cpu = m->cpu;
	struct outcome out = { 0 };
	enum exit_reason reason;

	machine_load(m, switching_start, (size_t)(switching_end - switching_start));
	configure(cpu);
	do {
		reason = machine_run(m, slice);
		hwpmu_retire(&cpu->pmu);
		if (hwpmu_take_overflows(&cpu->pmu)) {
			out.overflows++;
			out.last = cpu->rip;
		}
	} while (reason == EXIT_BUDGET || reason == EXIT_PMI);
	assert_int_equal(reason, EXIT_IO);
	out.sum = cpu->regs[RBX];
	out.instructions = cpu->port.tally.instructions[RETIRE_OS];
	out.cycles = hwpmu_read(&cpu->pmu, PMU_FIXED_BASE + 1);
	return out;
}

static void assert_same(const struct outcome *a, const struct outcome *b)
{
	assert_int_equal(a->sum, b->sum);
	assert_int_equal(a->overflows, b->overflows);
	assert_int_equal(a->last, b->last);
	assert_int_equal(a->instructions, b->instructions);
	assert_int_equal(a->cycles, b->cycles);
}

static void a_read_tells_what_retired_before_it(void **state)
{
	struct outcome whole = run(*state, FOREVER);

	assert_true(whole.overflows > 200);
	for (u64 slice = 1; slice < 16; slice += 1 + slice / 2) {
		struct outcome cut = run(*state, slice);

		assert_same(&whole, &cut);
	}
}

static void hot_blocks_are_no_different(void **state)
{
	struct machine *m = *state;
	struct outcome cold, hot;

	engine_set_hot_after(m->cpu, 1u << 30);
	cold = run(m, FOREVER);
	engine_set_hot_after(m->cpu, 2);
	hot = run(m, FOREVER);
	assert_same(&cold, &hot);
}

/* What the block does itself would be counted twice or not at all if this were not so. */
static void an_access_counts_as_one(void **state)
{
	run(*state, FOREVER);
	assert_int_equal(intercepts.rdpmc.passed[INTERCEPT_READ], 4 * 1500);
	assert_int_equal(intercept_counted(&intercepts, 0x38f)->passed[INTERCEPT_WRITE], 2 * 1500);
}

/* Nothing but NOPs. */
GUEST_CODE(nops, ".rept 200\nnop\n.endr\nout %al, $0xf4\n");

/* Ends with the reason `expected` after so many instructions, with fixed counter 0 so set
 * that it overflows with the 100th. */
static void count_to_100(struct machine *m, u64 budget, enum exit_reason expected, u64 retired)
{
	struct hwpmu *pmu = &m->cpu->pmu;

	machine_load(m, nops_start, (size_t)(nops_end - nops_start));
	m->cpu->port.intercepts = NULL;
	engine_attach_pmu(m->cpu, pmu_model_of(MODEL_ICELAKE));
	hwpmu_write(pmu, PMU_FIXED_BASE, -100ull);
	hwpmu_write_fixed_ctrl(pmu, FIXED_CTRL_OS | FIXED_CTRL_PMI);
	assert_int_equal(machine_run(m, budget), expected);
	assert_int_equal((hwpmu_read(pmu, PMU_FIXED_BASE) + 100) & MASK(47, 0), retired);
	assert_int_equal(!!hwpmu_take_overflows(pmu), expected == EXIT_PMI);
}

static void an_overflow_is_an_exit_of_its_own(void **state)
{
	count_to_100(*state, FOREVER, EXIT_PMI, 100);
	count_to_100(*state, 101, EXIT_PMI, 100);
	count_to_100(*state, 100, EXIT_PMI, 100); /* both */
	count_to_100(*state, 99, EXIT_BUDGET, 99);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_read_tells_what_retired_before_it),
		cmocka_unit_test(hot_blocks_are_no_different),
		cmocka_unit_test(an_access_counts_as_one),
		cmocka_unit_test(an_overflow_is_an_exit_of_its_own),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
