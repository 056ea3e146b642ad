// SPDX-License-Identifier: MIT
/*
 * Events and returns outside long mode: 32- and 16-bit gates of protected mode, virtual-8086 mode,
 * and the vector table of real-address mode.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/event.h"
#include "cpu/mode.h"
#include "cpu/transfer/segment.h"
#include "unit/guest_tables.h"

#define VECTOR 0x50

/* Protected mode without paging, with the same GDT; SEL_KCODE32 and SEL_UCODE32 are its code. */
static int setup(void **state)
{
	static struct paged_cpu p;
	struct cpu *cpu;

	tables_init(&p);
	cpu = p.cpu;
	cpu->efer = 0;
	cpu->cr0 = CR0_PE | CR0_ET;
	cpu->idtr.limit = 256 * 8 - 1;
	cpu->tr = (struct segment){ TSS, 0x67, TYPE_TSS_BUSY | SEG_P, SEL_TSS };
	tables_set_word(&p, TSS + TSS32_ESP(0), RSP0 | (u64)SEL_KDATA << 32);
	tables_enter(&p, KERNEL32);
	*state = &p;
	return 0;
}

static int teardown(void **state)
{
	paged_cpu_free(*state);
	return 0;
}

static void gate(struct paged_cpu *p, u8 vector, u16 sel, u32 type, u32 offset)
{
	tables_set_word(p, IDT + vector * 8,
			(offset & 0xffff) | (u64)sel << 16 | (u64)(type | SEG_P | SEG_DPL) << 40 |
				(u64)(offset >> 16) << 48);
}

static u32 word32(const struct paged_cpu *p, u32 i)
{
	return (u32)tables_word(p, p->cpu->regs[RSP] + i * 4);
}

static void a_gate_at_the_same_level_pushes_three(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	gate(p, VECTOR, SEL_KCODE32, TYPE_TRAP_GATE, 0x412345);
	assert_int_equal(cpu_int(cpu, EVENT_SOFT_INT, VECTOR, 2), FAULT_NONE);
	assert_int_equal(cpu->rip, 0x412345);
	assert_int_equal(cpu->regs[RSP], KERNEL_STACK - 12);
	assert_int_equal(word32(p, 0), CODE + 2);
	assert_int_equal(word32(p, 1), SEL_KCODE32);
	assert_int_equal(word32(p, 2), FL_FIX1 | FL_IF);
	assert_int_equal(cpu_iret(cpu, 4, 0), FAULT_NONE);
	assert_int_equal(cpu->rip, CODE + 2);
	assert_int_equal(cpu->regs[RSP], KERNEL_STACK);
}

static void a_gate_to_an_inner_level_switches_stacks(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	gate(p, VEC_GP, SEL_KCODE32, TYPE_INT_GATE, 0x412345);
	tables_enter(p, USER32);
	cpu_raise_error(cpu, VEC_GP, 0x77);
	assert_int_equal(cpu_deliver(cpu), FAULT_NONE);
	assert_int_equal(cpu->cpl, 0);
	assert_int_equal(cpu->seg[SS].sel, SEL_KDATA);
	assert_int_equal(cpu->regs[RSP], RSP0 - 24);
	assert_int_equal(word32(p, 0), 0x77);
	assert_int_equal(word32(p, 1), CODE);
	assert_int_equal(word32(p, 2), SEL_UCODE32 | 3);
	assert_int_equal(word32(p, 3), FL_FIX1 | FL_IF | FL_RF);
	assert_int_equal(word32(p, 4), USER_STACK);
	assert_int_equal(word32(p, 5), SEL_UDATA | 3);
	cpu->regs[RSP] += 4;
	assert_int_equal(cpu_iret(cpu, 4, 0), FAULT_NONE);
	assert_int_equal(cpu->cpl, 3);
	assert_int_equal(cpu->regs[RSP], USER_STACK);
	assert_int_equal(cpu->seg[SS].sel, SEL_UDATA | 3);
}

static void a_16_bit_gate_pushes_words(void **state)
{
	struct paged_cpu *p = *state;

	gate(p, VECTOR, SEL_KCODE32, TYPE_INT_GATE16, 0x2345);
	p->cpu->rip = 0x1000;
	assert_int_equal(cpu_int(p->cpu, EVENT_SOFT_INT, VECTOR, 2), FAULT_NONE);
	assert_int_equal(p->cpu->rip, 0x2345);
	assert_int_equal(p->cpu->regs[RSP], KERNEL_STACK - 6);
	assert_int_equal(tables_word(p, KERNEL_STACK - 6) & 0xffffffffffff,
			 0x1002 | SEL_KCODE32 << 16 | (FL_FIX1 | FL_IF) << 32);
}

struct bad_stack {
	u16 ss;
	struct outcome outcome;
};

static const struct bad_stack bad_stacks[] = {
	{ 0, { VEC_TS, 0 } },
	{ SEL_BEYOND, { VEC_TS, SEL_BEYOND } },
	{ SEL_KDATA | 3, { VEC_TS, SEL_KDATA } },
	{ SEL_UDATA, { VEC_TS, SEL_UDATA } },
	{ SEL_READONLY, { VEC_TS, SEL_READONLY } },
	{ SEL_KCODE32, { VEC_TS, SEL_KCODE32 } },
	{ SEL_ABSENT_DATA, { VEC_SS, SEL_ABSENT_DATA } },
};

static void bad_inner_stacks_raise_ts(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	gate(p, VECTOR, SEL_KCODE32, TYPE_INT_GATE, 0x412345);
	for (u32 i = 0; i < ARRAY_SIZE(bad_stacks); i++) {
		struct outcome got;

		print_message("row %u\n", i);
		tables_enter(p, USER32);
		tables_set_word(p, TSS + TSS32_ESP(0), RSP0 | (u64)bad_stacks[i].ss << 32);
		got = outcome_of(cpu, cpu_int(cpu, EVENT_SOFT_INT, VECTOR, 2));
		assert_int_equal(got.vector, bad_stacks[i].outcome.vector);
		assert_int_equal(got.error, bad_stacks[i].outcome.error);
		assert_int_equal(cpu->rip, CODE);
	}
}

static void stack_limits_are_checked_with_the_selector_as_error_code(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;
	struct outcome got;

	gate(p, VECTOR, SEL_KCODE32, TYPE_INT_GATE, 0x412345);
	tables_descriptor(p, SEL_KDATA, 0, 0xffff, 2 | SEG_S | SEG_P | SEG_DB);
	tables_enter(p, USER32);
	got = outcome_of(cpu, cpu_int(cpu, EVENT_SOFT_INT, VECTOR, 2));
	assert_int_equal(got.vector, VEC_SS);
	assert_int_equal(got.error, SEL_KDATA);
	tables_enter(p, KERNEL32); /* no switch: error code 0 */
	got = outcome_of(cpu, cpu_int(cpu, EVENT_SOFT_INT, VECTOR, 2));
	assert_int_equal(got.vector, VEC_SS);
	assert_int_equal(got.error, 0);
}

static void virtual_8086_mode_is_left_and_entered_again(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;
	static const enum seg segs[] = { ES, CS, SS, DS, FS, GS };

	gate(p, VECTOR, SEL_KCODE32, TYPE_INT_GATE, 0x412345);
	cpu->rflags |= FL_VM;
	cpu->cpl = 3;
	cpu->rip = 0x100;
	cpu->regs[RSP] = 0x800;
	for (u32 i = 0; i < ARRAY_SIZE(segs); i++)
		cpu->seg[segs[i]] = (struct segment){ 0x10000 + i * 16, 0xffff, 0xf3, 0x1000 + i };
	cpu_update_mode(cpu);
	cpu->port.event = (struct cpu_event){ .kind = EVENT_INTR, .vector = VECTOR };
	assert_int_equal(cpu_deliver(cpu), FAULT_NONE);
	assert_int_equal(cpu->regs[RSP], RSP0 - 36);
	assert_false(cpu->rflags & FL_VM);
	assert_int_equal(cpu->cpl, 0);
	assert_true(cpu->seg[DS].attr & SEG_UNUSABLE);
	assert_int_equal(word32(p, 0), 0x100);
	assert_int_equal(word32(p, 1), 0x1001);
	assert_true(word32(p, 2) & FL_VM);
	assert_int_equal(word32(p, 8), 0x1005);

	assert_int_equal(cpu_iret(cpu, 4, 0), FAULT_NONE);
	assert_true(cpu->rflags & FL_VM);
	assert_int_equal(cpu->cpl, 3);
	assert_int_equal(cpu->rip, 0x100);
	assert_int_equal(cpu->regs[RSP], 0x800);
	for (u32 i = 0; i < ARRAY_SIZE(segs); i++)
		assert_int_equal(cpu->seg[segs[i]].sel, 0x1000 + i);
	assert_int_equal(cpu->seg[GS].base, 0x10050);
	/* INT n is sensitive to IOPL. */
	assert_int_equal(cpu_int(cpu, EVENT_SOFT_INT, VECTOR, 2), FAULT_RAISED);
	assert_int_equal(cpu->port.event.vector, VEC_GP);
}

static void real_mode(struct paged_cpu *p)
{
	struct cpu *cpu = p->cpu;

	cpu->cr0 = CR0_ET;
	cpu->idtr = (struct descriptor_table){ 0, 0x3ff };
	cpu->seg[CS] = (struct segment){ 0x280000, 0xffff, 0x9b, 0 };
	cpu->seg[SS] = (struct segment){ 0x300000, 0xffff, 0x93, 0 };
	cpu->rip = 0x1000;
	cpu->regs[RSP] = 0x800;
	cpu_update_mode(cpu);
	tables_set_word(p, VECTOR * 4, 0x5678 | 0x1234 << 16);
}

static void real_mode_uses_the_vector_table(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	real_mode(p);
	assert_int_equal(cpu_int(cpu, EVENT_SOFT_INT, VECTOR, 2), FAULT_NONE);
	assert_int_equal(cpu->seg[CS].sel, 0x1234);
	assert_int_equal(cpu->seg[CS].base, 0x12340);
	assert_int_equal(cpu->rip, 0x5678);
	assert_int_equal(cpu->regs[RSP], 0x800 - 6);
	assert_int_equal(cpu->rflags, FL_FIX1);
	assert_int_equal(tables_word(p, 0x300000 + 0x800 - 6) & 0xffffffffffff,
			 0x1002 | (FL_FIX1 | FL_IF) << 32);
	assert_int_equal(cpu_iret(cpu, 2, 0), FAULT_NONE);
	assert_int_equal(cpu->rip, 0x1002);
	assert_int_equal(cpu->regs[RSP], 0x800);
	assert_int_equal(cpu->rflags, FL_FIX1 | FL_IF);
}

static void a_16_bit_stack_pointer_wraps(void **state)
{
	struct paged_cpu *p = *state;

	real_mode(p);
	p->cpu->regs[RSP] = 0xaa0002;
	assert_int_equal(cpu_int(p->cpu, EVENT_SOFT_INT, VECTOR, 2), FAULT_NONE);
	assert_int_equal(p->cpu->regs[RSP], 0xaafffc);
	assert_int_equal(tables_word(p, 0x300000) & 0xffff, FL_FIX1 | FL_IF);
	assert_int_equal(tables_word(p, 0x30fffc) & 0xffff, 0x1002);
	assert_int_equal(cpu_iret(p->cpu, 2, 0), FAULT_NONE);
	assert_int_equal(p->cpu->regs[RSP], 0xaa0002);
}

static void a_vector_beyond_the_table_ends_in_a_triple_fault(void **state)
{
	struct paged_cpu *p = *state;

	real_mode(p);
	p->cpu->idtr.limit = 0;
	cpu_raise(p->cpu, VEC_UD);
	assert_int_equal(cpu_deliver(p->cpu), FAULT_EXIT);
	assert_int_equal(p->cpu->port.exit.reason, EXIT_TRIPLE_FAULT);
}

static void real_mode_far_transfers_load_the_base(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	real_mode(p);
	assert_int_equal(cpu_far_call(cpu, 0xf000, 0x1234, 2, 0x1005), FAULT_NONE);
	assert_int_equal(cpu->seg[CS].base, 0xf0000);
	assert_int_equal(cpu->rip, 0x1234);
	assert_int_equal(cpu_far_return(cpu, 2, 4), FAULT_NONE);
	assert_int_equal(cpu->rip, 0x1005);
	assert_int_equal(cpu->regs[RSP], 0x804);
	assert_int_equal(cpu_far_jump(cpu, 0xf000, 0x10000, 4, 0), FAULT_RAISED);
}

/* The frame of the handler of #AC is misaligned as well, for ever: the owner gets its turn. */
static void an_event_that_can_never_be_delivered_ends_the_run(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	gate(p, VEC_AC, SEL_UCODE32 | 3, TYPE_INT_GATE, 0x412345);
	tables_enter(p, USER32);
	cpu->cr0 |= CR0_AM;
	cpu->rflags |= FL_AC;
	cpu->regs[RSP] = USER_STACK + 1;
	cpu_update_mode(cpu);
	cpu_raise_error(cpu, VEC_AC, 0);
	for (u32 i = 0; i < 3; i++) {
		cpu->port.exit.reason = EXIT_NONE;
		assert_int_equal(cpu_deliver(cpu), FAULT_EXIT);
		assert_int_equal(cpu->port.exit.reason, EXIT_BUDGET);
		assert_int_equal(cpu->port.event.vector, VEC_AC);
	}
	cpu->regs[RSP] = USER_STACK;
	assert_int_equal(cpu_deliver(cpu), FAULT_NONE);
	assert_int_equal(cpu->rip, 0x412345);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_gate_at_the_same_level_pushes_three),
		TEST(a_gate_to_an_inner_level_switches_stacks),
		TEST(a_16_bit_gate_pushes_words),
		TEST(bad_inner_stacks_raise_ts),
		TEST(stack_limits_are_checked_with_the_selector_as_error_code),
		TEST(virtual_8086_mode_is_left_and_entered_again),
		TEST(real_mode_uses_the_vector_table),
		TEST(a_16_bit_stack_pointer_wraps),
		TEST(a_vector_beyond_the_table_ends_in_a_triple_fault),
		TEST(real_mode_far_transfers_load_the_base),
		TEST(an_event_that_can_never_be_delivered_ends_the_run),
	};

	paged_cpu_catch_faults();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
