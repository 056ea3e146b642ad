// SPDX-License-Identifier: MIT
/*
 * Task switches of 32-bit code with paging: by CALL, INT n and an exception, back by IRET, into
 * another address space and out of it, in one run and one instruction at a time. The rules of each
 * switch are in tests/unit/task_test.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/control.h"
#include "guest/machine.h"
#include "x86/descriptor.h"

#define ALL 1000000

#define CODE32	 0x00cf9b000000ffffull
#define DATA32	 0x00cf93000000ffffull
#define SEL_CODE 0x08
#define SEL_DATA 0x10
#define SEL_MAIN 0x18
#define SEL_WORK 0x20
#define SEL_TRAP 0x28

#define MAIN_TSS 0x20000
#define WORK_TSS 0x21000
#define TRAP_TSS 0x22000
#define WORK_DIR 0x23000
#define DATA	 0x24000  /* calls, returns, error code, selector saved in ES */
#define ALIAS	 0x800000 /* all of memory again, in the space of WORK_TSS alone */

/* The task at 0x10100 goes on after its IRET when it is called again. */
GUEST_CODE(main_task, ".code32\n"
		      "mov $0x1234, %ecx\n"
		      "lcall $0x20, $0xf4f4f4f4\n"
		      "add $1, %ecx\n"
		      "lcall $0x20, $0\n"
		      "int $0x50\n"
		      "mov $0x7777, %eax\n"
		      "mov %eax, %es\n" /* #GP */
		      "add $1, %ecx\n"
		      "out %al, $0xf4\n"
		      ".org main_task_start + 0x100\n"
		      "1: incl 0x824000\n"
		      "mov $0x99, %ecx\n"
		      "iret\n"
		      "incl 0x824004\n"
		      "jmp 1b\n"
		      ".org main_task_start + 0x140\n"
		      "pop %eax\n"
		      "mov %eax, 0x24008\n"
		      "addl $2, 0x20020\n" /* EIP of the main task: MOV to ES has 2 bytes */
		      "iret\n"
		      ".code64\n");

static void put32(struct machine *m, u32 at, u32 value)
{
	memcpy(m->ram + at, &value, 4);
}

static u32 get32(const struct machine *m, u32 at)
{
	u32 value;

	memcpy(&value, m->ram + at, 4);
	return value;
}

static void put_descriptor(struct machine *m, u32 at, u64 value)
{
	memcpy(m->ram + at, &value, 8);
}

static void put_tss(struct machine *m, u16 sel, u32 base, u32 type, u32 eip, u32 cr3)
{
	static const u16 sels[] = { SEL_DATA, SEL_CODE, SEL_DATA, SEL_DATA, SEL_DATA, SEL_DATA };

	put_descriptor(m, IMAGE_GDT + sel, (u64)base << 16 | (u64)(type | SEG_P) << 40 | 0x67);
	put32(m, base + 0x1c, cr3);
	put32(m, base + 0x20, eip);
	put32(m, base + 0x24, FL_FIX1);
	put32(m, base + 0x38, IMAGE_STACK + sel * 0x1000);
	for (u32 i = 0; i < ARRAY_SIZE(sels); i++)
		put32(m, base + 0x48 + 4 * i, sels[i]);
}

static void put_task_gate(struct machine *m, u32 vector, u16 sel)
{
	put_descriptor(m, IMAGE_IDT + 8 * vector,
		       (u64)sel << 16 | (u64)(TYPE_TASK_GATE | SEG_P) << 40);
}

static void put_tables(struct machine *m)
{
	const u32 large = 0x83; /* present, writable, 4 MB */

	put_descriptor(m, IMAGE_GDT + SEL_CODE, CODE32);
	put_descriptor(m, IMAGE_GDT + SEL_DATA, DATA32);
	put_tss(m, SEL_MAIN, MAIN_TSS, TYPE_TSS_BUSY, 0, IMAGE_PML4);
	put_tss(m, SEL_WORK, WORK_TSS, TYPE_TSS, IMAGE_CODE + 0x100, WORK_DIR);
	put_tss(m, SEL_TRAP, TRAP_TSS, TYPE_TSS, IMAGE_CODE + 0x140, IMAGE_PML4);
	put_task_gate(m, 0x50, SEL_WORK);
	put_task_gate(m, VEC_GP, SEL_TRAP);
	put32(m, IMAGE_PML4, large);
	put32(m, IMAGE_PML4 + 4, 0);
	put32(m, WORK_DIR, large);
	put32(m, WORK_DIR + 4 * (ALIAS >> 22), large);
}

static void start(struct machine *m)
{
	struct cpu *cpu = m->cpu;

	machine_load(m, main_task_start, main_task_end - main_task_start);
	put_tables(m);
	for (u32 i = 0; i < NSEGS; i++)
		cpu->seg[i] = (struct segment){ .sel = SEL_DATA,
						.limit = 0xffffffff,
						.attr = descriptor_attr(DATA32) };
	cpu->seg[CS].sel = SEL_CODE;
	cpu->seg[CS].attr = descriptor_attr(CODE32);
	cpu->tr = (struct segment){ MAIN_TSS, 0x67, TYPE_TSS_BUSY | SEG_P, SEL_MAIN };
	cpu->idtr.limit = 256 * 8 - 1;
	cpu->cr4 = CR4_PSE;
	cpu->efer = cpu->xcr0 = 0;
	cpu_state_changed(cpu);
}

static void run(struct machine *m, u64 budget)
{
	enum exit_reason reason = EXIT_BUDGET;

	start(m);
	for (u32 i = 0; reason == EXIT_BUDGET && i < ALL; i++)
		reason = machine_run(m, budget);
	assert_int_equal(reason, EXIT_IO);
	assert_int_equal(m->cpu->regs[RCX], 0x1236);
	assert_int_equal(get32(m, DATA), 3);
	assert_int_equal(get32(m, DATA + 4), 2);
	assert_int_equal(get32(m, DATA + 8), 0x7774);
	assert_int_equal(m->cpu->seg[ES].sel, SEL_DATA);
	assert_int_equal(m->cpu->tr.sel, SEL_MAIN);
	assert_int_equal(m->cpu->cr3, IMAGE_PML4);
	assert_false(m->cpu->rflags & FL_NT);
	assert_int_equal(machine_retired(m), 24);
}

static void tasks_call_each_other_across_address_spaces(void **state)
{
	run(*state, ALL);
	run(*state, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tasks_call_each_other_across_address_spaces),
	};

	return cmocka_run_group_tests(tests, machine_set_up, machine_tear_down);
}
