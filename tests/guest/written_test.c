// SPDX-License-Identifier: MIT
/*
 * Code that the processor itself writes between two instructions: frames of exceptions, accessed
 * bits of descriptors, records of an assist. What is executed next is what was written, whether the
 * guest runs in one piece or an instruction at a time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/control.h"
#include "engine/engine.h"
#include "guest/machine.h"

#define CODE(name) name##_start, (size_t)(name##_end - name##_start)
#define RESULTS	   IMAGE_DATA
#define MOST_RUNS  1000

/* Stores BL where R14 points and goes where R15 says. */
static const u8 tail[] = {
	0x41, 0x88, 0x1e, /* mov %bl, (%r14) */
	0x49, 0xff, 0xc6, /* inc %r14 */
	0x41, 0xff, 0xe7  /* jmp *%r15 */
};

static void run_to_end(struct machine *m, u64 budget)
{
	enum exit_reason reason = EXIT_BUDGET;

	for (u32 i = 0; i < MOST_RUNS && reason == EXIT_BUDGET; i++)
		reason = machine_run(m, budget);
	assert_int_equal(reason, EXIT_IO);
}

/*
 * The #UD handler lies in its own stack frame, where the RSP of the interrupted code goes: each
 * RSP is "mov $imm, %bl; jmp TOP". TOP is the end of the frame, IST 1.
 */
#define TOP	0x140800
#define HANDLER (TOP - 16)

#define RAISE(next, imm)                \
	"lea " #next "f(%rip), %r15\n"  \
	"mov $0x0ceb" #imm "b3, %esp\n" \
	"ud2\n" #next ":\n"

GUEST_CODE(frames, "mov $0x100000, %r14d\n" RAISE(1, 11) RAISE(2, 22) RAISE(3, 33) RAISE(4, 44)
		   "out %al, $0xf4\n");

static void frames_with(struct machine *m, u64 budget)
{
	static const u8 expected[] = { 0x11, 0x22, 0x33, 0x44 };

	machine_load(m, CODE(frames));
	image_gate(m->ram, VEC_UD, HANDLER, 0);
	image_ist(m->ram, VEC_UD, TOP);
	memcpy(m->ram + TOP, tail, sizeof(tail));
	run_to_end(m, budget);
	assert_memory_equal(m->ram + RESULTS, expected, sizeof(expected));
}

static void a_handler_may_be_its_own_frame(void **state)
{
	frames_with(*state, 10000);
	frames_with(*state, 1);
}

static void what_was_written_is_counted(void **state)
{
	struct machine *m = *state;
	struct engine_cache before, after;

	engine_cache(m->cpu, &before);
	frames_with(m, 10000);
	engine_cache(m->cpu, &after);
	/* Four frames of five words, all but the first on a line with code. */
	assert_in_range(after.written - before.written, 3, 4 * 5);
	assert_true(after.dropped - before.dropped >= 3);
	assert_true(after.lookups - before.lookups >= after.blocks - before.blocks);
	assert_true(after.insns - before.insns >= after.blocks - before.blocks);
}

/*
 * A code segment's descriptor that is code as well: "mov $access, %bl; and $0, %al" from its fifth
 * byte on. First it is jumped to, then it is the handler's segment, and delivery sets its accessed
 * bit.
 */
#define SELECTOR 0x80
#define CODE_AT	 (IMAGE_GDT + SELECTOR + 4)

GUEST_CODE(descriptor, "mov $0x100000, %r14d\n"
		       "mov $0x1084, %eax\n" /* CODE_AT */
		       "lea 1f(%rip), %r15\n"
		       "jmp *%rax\n"
		       "1: lea 2f(%rip), %r15\n"
		       "ud2\n"
		       "2: out %al, $0xf4\n");

static void descriptor_with(struct machine *m, u64 budget)
{
	static const u8 bytes[] = { 0, 0, 0, 0, 0xb3, 0x9a, 0x24, 0 }, expected[] = { 0x9a, 0x9b };

	machine_load(m, CODE(descriptor));
	m->cpu->gdtr.limit = PAGE_SIZE - 1;
	memcpy(m->ram + IMAGE_GDT + SELECTOR, bytes, sizeof(bytes));
	memcpy(m->ram + IMAGE_GDT + SELECTOR + sizeof(bytes), tail, sizeof(tail));
	image_gate(m->ram, VEC_UD, CODE_AT, 0);
	m->ram[IMAGE_IDT + 16 * VEC_UD + 2] = SELECTOR;
	run_to_end(m, budget);
	assert_memory_equal(m->ram + RESULTS, expected, sizeof(expected));
}

static void a_handler_may_be_its_own_descriptor(void **state)
{
	descriptor_with(*state, 10000);
	descriptor_with(*state, 1);
}

/*
 * The record of an assist, as PEBS writes it. The loop adds a number to EBX that it contains; a
 * counter of instructions overflows in its third round, of ten, after the NOP.
 */
#define ASSIST_AFTER (1 + 2 * 4 + 1)
#define RECORD	     (IMAGE_CODE + 8) /* the immediate of ADD */

GUEST_CODE(assisted, "mov $10, %ecx\n"
		     "1: nop\n"
		     "add $1, %ebx\n"
		     "dec %ecx\n"
		     "jnz 1b\n"
		     "out %al, $0xf4\n");

/* A debug store with room for a record, which begins at the immediate; reset values are 0. */
static bool read_store(void *cpu, u64 linear, void *to, u32 size)
{
	const u64 buffer[] = { RECORD, RECORD, ~0ull, ~0ull };

	(void)cpu;
	memset(to, 0, size);
	if (linear == DS_PEBS_BASE)
		memcpy(to, buffer, size);
	return true;
}

/* Of the record its first byte, that the rest of the loop stays what it is. */
static bool write_store(void *cpu, u64 linear, const void *from, u32 size)
{
	u8 byte = 100;

	(void)from, (void)size;
	return linear != RECORD || machine_store_write(cpu, RECORD, &byte, sizeof(byte));
}

static void sample(void *cpu, u64 cfg, struct pebs_sample *sample)
{
	(void)cpu, (void)cfg;
	*sample = (struct pebs_sample){ 0 };
}

static void a_record_may_be_code(void **state)
{
	static const struct hwpmu_store store = { read_store, write_store, sample, NULL };
	struct machine *m = *state;
	struct hwpmu *pmu = &m->cpu->pmu;

	machine_load(m, CODE(assisted));
	engine_attach_pmu(m->cpu, pmu_model_of(MODEL_ICELAKE));
	hwpmu_attach_store(pmu, &store, m->cpu);
	hwpmu_write_pebs(pmu, &(struct pebs_control){ .enable = 1 });
	hwpmu_write(pmu, 0, -(u64)ASSIST_AFTER);
	hwpmu_write_select(pmu, 0, 0xc0 | EVENTSEL_OS | EVENTSEL_EN);
	run_to_end(m, 10000);
	assert_int_equal(pmu->records, 1);
	*pmu = (struct hwpmu){ 0 };
	assert_int_equal(m->cpu->regs[RBX], 2 * 1 + 8 * 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_handler_may_be_its_own_frame),
		cmocka_unit_test(what_was_written_is_counted),
		cmocka_unit_test(a_handler_may_be_its_own_descriptor),
		cmocka_unit_test(a_record_may_be_code),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
