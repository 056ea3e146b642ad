// SPDX-License-Identifier: MIT
/*
 * Accesses of the PMU that pass are exact wherever they are: a kernel that starts, stops, reads and
 * writes its counters reads the same if it runs in one piece, where blocks go on behind such an
 * access, and if each instruction is a block. Counters overflow behind the same instruction.
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
	u64 sum; /* of all that was read */
	u64 overflows, last; /* how many, and the address behind the last one */
	u64 instructions, cycles;
};

static struct hwpmu hw;
static struct intercepts intercepts;

static void configure(struct cpu *cpu)
{
	hwpmu_init(&hw, pmu_model_of(MODEL_ICELAKE), &cpu->tally);
	intercept_init(&intercepts, false);
	for (u32 i = 0; i < INTERCEPT_MSRS; i++)
		intercepts.msr[i].pass[INTERCEPT_READ] = intercepts.msr[i].pass[INTERCEPT_WRITE] = true;
	intercepts.pass_rdpmc = true;
	cpu->pmu = &hw;
	cpu->intercepts = &intercepts;
}

static struct outcome run(struct machine *m, u64 slice)
{
	struct cpu *cpu = m->cpu;
	struct outcome out = { 0 };
	enum exit_reason reason;

	machine_load(m, switching_start, (size_t)(switching_end - switching_start));
	configure(cpu);
	do {
		hwpmu_trips(&hw, &cpu->trips);
		cpu->wanted = hwpmu_wanted(&hw);
		reason = machine_run(m, slice);
		hwpmu_retire(&hw);
		if (hwpmu_take_overflows(&hw)) {
			out.overflows++;
			out.last = cpu->rip;
		}
	} while (reason == EXIT_BUDGET);
	assert_int_equal(reason, EXIT_IO);
	out.sum = cpu->regs[RBX];
	out.instructions = cpu->tally.instructions[RETIRE_OS];
	out.cycles = hwpmu_read(&hw, PMU_FIXED_BASE + 1);
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

	engine_set_heat(m->cpu, 1u << 30);
	cold = run(m, FOREVER);
	engine_set_heat(m->cpu, 2);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_read_tells_what_retired_before_it),
		cmocka_unit_test(hot_blocks_are_no_different),
		cmocka_unit_test(an_access_counts_as_one),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
