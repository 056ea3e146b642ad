// SPDX-License-Identifier: MIT
/*
 * Hardware task switches (SDM 3A 7): JMP, CALL, IRET and events, 32- and 16-bit TSSs, what is saved
 * and loaded, busy bits and links, and the faults before and after the switch.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/event.h"
#include "cpu/mode.h"
#include "cpu/transfer/segment.h"
#include "unit/guest_tables.h"

#define VECTOR	  0x50
#define OTHER	  0x204000 /* the other task's TSS, and the 16-bit one */
#define OTHER16	  0x205000
#define SEL_OTHER SEL_TSS_FAR
#define SEL_GATE3 SEL_GATE	  /* a task gate of DPL 3 to SEL_OTHER */
#define SEL_TSS16 SEL_GATE_KERNEL /* available, DPL 0 */
#define TASK_IP	  0x290000
#define TASK_SP	  0x3f0000
#define NEXT	  (CODE + 7)

/* Offsets in a 32-bit TSS (SDM 3A figure 7-2). */
enum {
	LINK = 0,
	CR3 = 0x1c,
	EIP = 0x20,
	EFLAGS = 0x24,
	GPRS = 0x28,
	SELS = 0x48,
	LDT_SEL = 0x60,
	TRAP = 0x64
};

static u32 get32(const struct paged_cpu *p, u32 at)
{
	return (u32)tables_word(p, at);
}

static u16 get16(const struct paged_cpu *p, u32 at)
{
	return (u16)tables_word(p, at);
}

static void put32(struct paged_cpu *p, u32 at, u32 value)
{
	memcpy(p->ram + at, &value, 4);
}

static void put16(struct paged_cpu *p, u32 at, u16 value)
{
	memcpy(p->ram + at, &value, 2);
}

static bool busy(const struct paged_cpu *p, u16 sel)
{
	return descriptor_attr(tables_word(p, GDT + sel)) & TSS_BUSY;
}

static void fill_other(struct paged_cpu *p)
{
	static const u16 sels[] = { SEL_KDATA, SEL_KCODE32, SEL_KDATA, SEL_KDATA, 0, SEL_IN_LDT };

	put32(p, OTHER + EIP, TASK_IP);
	put32(p, OTHER + EFLAGS, FL_FIX1 | FL_CF | FL_ID);
	for (u32 i = 0; i < 8; i++)
		put32(p, OTHER + GPRS + 4 * i, i == RSP ? TASK_SP : 0x11110000 + i);
	for (u32 i = 0; i < ARRAY_SIZE(sels); i++)
		put32(p, OTHER + SELS + 4 * i, sels[i]);
	put32(p, OTHER + LDT_SEL, SEL_LDT);
}

static void fill_other16(struct paged_cpu *p)
{
	static const u16 words[] = { 0x9000,	FL_FIX1 | FL_ZF, 1,	    2,	       3,
				     4,		0x8000,		 5,	    6,	       7,
				     SEL_KDATA, SEL_KCODE32,	 SEL_KDATA, SEL_KDATA, 0 };

	for (u32 i = 0; i < ARRAY_SIZE(words); i++)
		put16(p, OTHER16 + 0x0e + 2 * i, words[i]);
}

static void gate(struct paged_cpu *p, u64 at, u16 sel)
{
	tables_set_word(p, at, (u64)sel << 16 | (u64)(TYPE_TASK_GATE | SEG_P | SEG_DPL) << 40);
}

/* Protected mode without paging, the current task in TSS. */
static int setup(void **state)
{
	static struct paged_cpu p;
	struct cpu *cpu;

	tables_init(&p);
	cpu = p.cpu;
	cpu->efer = 0;
	cpu->cr0 = CR0_PE | CR0_ET;
	cpu->idtr.limit = 256 * 8 - 1;
	tables_descriptor(&p, SEL_TSS, TSS, 0x67, TYPE_TSS_BUSY | SEG_P);
	tables_descriptor(&p, SEL_OTHER, OTHER, 0x67, TYPE_TSS | SEG_P);
	tables_descriptor(&p, SEL_TSS16, OTHER16, 0x2b, TYPE_TSS16 | SEG_P);
	cpu->tr = (struct segment){ TSS, 0x67, TYPE_TSS_BUSY | SEG_P, SEL_TSS };
	fill_other(&p);
	fill_other16(&p);
	gate(&p, GDT + SEL_GATE3, SEL_OTHER);
	gate(&p, IDT + VECTOR * 8, SEL_OTHER);
	gate(&p, IDT + VEC_GP * 8, SEL_OTHER);
	tables_enter(&p, KERNEL32);
	for (u32 i = 0; i < 8; i++)
		if (i != RSP)
			cpu->regs[i] = 0x22220000 + i;
	*state = &p;
	return 0;
}

static int teardown(void **state)
{
	paged_cpu_free(*state);
	return 0;
}

static void assert_in_other(const struct paged_cpu *p, u64 flags)
{
	const struct cpu *cpu = p->cpu;

	assert_int_equal(cpu->tr.sel, SEL_OTHER);
	assert_int_equal(cpu->tr.base, OTHER);
	assert_int_equal(cpu->rip, TASK_IP);
	assert_int_equal(cpu->rflags, flags);
	assert_int_equal(cpu->regs[RSP], TASK_SP);
	assert_int_equal(cpu->regs[RAX], 0x11110000);
	assert_int_equal(cpu->regs[RDI], 0x11110007);
	assert_int_equal(cpu->seg[CS].sel, SEL_KCODE32);
	assert_int_equal(cpu->seg[GS].sel, SEL_IN_LDT);
	assert_int_equal(cpu->seg[GS].base, 0x12345000);
	assert_true(cpu->seg[FS].attr & SEG_UNUSABLE);
	assert_int_equal(cpu->ldtr.sel, SEL_LDT);
	assert_true(cpu->cr0 & CR0_TS);
	assert_true(busy(p, SEL_OTHER));
}

static void assert_saved(const struct paged_cpu *p, u32 rip, u32 flags)
{
	assert_int_equal(get32(p, TSS + EIP), rip);
	assert_int_equal(get32(p, TSS + EFLAGS), flags);
	assert_int_equal(get32(p, TSS + GPRS + 4 * RBX), 0x22220003);
	assert_int_equal(get32(p, TSS + GPRS + 4 * RSP), KERNEL_STACK);
	assert_int_equal(get32(p, TSS + SELS + 4 * CS), SEL_KCODE32);
	assert_int_equal(get32(p, TSS + SELS + 4 * GS), SEL_KDATA);
}

static void a_jump_leaves_its_task_for_good(void **state)
{
	struct paged_cpu *p = *state;

	put16(p, OTHER + LINK, 0x1234);
	assert_int_equal(cpu_far_jump(p->cpu, SEL_OTHER, 0xf4f4f4f4, 4, NEXT), FAULT_NONE);
	assert_in_other(p, FL_FIX1 | FL_CF | FL_ID);
	assert_saved(p, NEXT, FL_FIX1 | FL_IF);
	assert_false(busy(p, SEL_TSS));
	assert_int_equal(get16(p, OTHER + LINK), 0x1234);
}

static void a_call_nests_and_iret_returns(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	assert_int_equal(cpu_far_call(cpu, SEL_OTHER, 0, 4, NEXT), FAULT_NONE);
	assert_in_other(p, FL_FIX1 | FL_CF | FL_ID | FL_NT);
	assert_true(busy(p, SEL_TSS));
	assert_int_equal(get16(p, OTHER + LINK), SEL_TSS);
	assert_int_equal(cpu_iret(cpu, 4, TASK_IP + 1), FAULT_NONE);
	assert_int_equal(cpu->rip, NEXT);
	assert_int_equal(cpu->tr.sel, SEL_TSS);
	assert_int_equal(cpu->regs[RBX], 0x22220003);
	assert_int_equal(cpu->regs[RSP], KERNEL_STACK);
	assert_int_equal(cpu->rflags, FL_FIX1 | FL_IF);
	assert_true(busy(p, SEL_TSS));
	assert_false(busy(p, SEL_OTHER));
	/* Where it goes on when called again. */
	assert_int_equal(get32(p, OTHER + EIP), TASK_IP + 1);
	assert_int_equal(get32(p, OTHER + EFLAGS), FL_FIX1 | FL_CF | FL_ID);
}

static void a_task_gate_leads_to_a_tss_of_any_privilege(void **state)
{
	struct paged_cpu *p = *state;

	tables_enter(p, USER32);
	assert_int_equal(cpu_far_call(p->cpu, SEL_OTHER | 3, 0, 4, NEXT), FAULT_RAISED);
	assert_int_equal(p->cpu->port.event.vector, VEC_GP);
	p->cpu->port.event.kind = EVENT_NONE;
	assert_int_equal(cpu_far_call(p->cpu, SEL_GATE3 | 3, 0, 4, NEXT), FAULT_NONE);
	assert_int_equal(p->cpu->cpl, 0);
	assert_int_equal(get32(p, TSS + SELS + 4 * SS), SEL_UDATA | 3);
}

static void an_int_instruction_saves_what_follows_it(void **state)
{
	struct paged_cpu *p = *state;

	assert_int_equal(cpu_int(p->cpu, EVENT_SOFT_INT, VECTOR, 2), FAULT_NONE);
	assert_in_other(p, FL_FIX1 | FL_CF | FL_ID | FL_NT);
	assert_saved(p, CODE + 2, FL_FIX1 | FL_IF);
}

static void a_fault_saves_rf_and_pushes_its_error_code(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	cpu_raise_error(cpu, VEC_GP, 0x1234);
	assert_int_equal(cpu_deliver(cpu), FAULT_NONE);
	assert_int_equal(cpu->port.event.kind, EVENT_NONE);
	assert_int_equal(cpu->rip, TASK_IP);
	assert_int_equal(cpu->regs[RSP], TASK_SP - 4);
	assert_int_equal(get32(p, TASK_SP - 4), 0x1234);
	assert_saved(p, CODE, FL_FIX1 | FL_IF | FL_RF);
}

static void a_16_bit_tss_holds_words(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	assert_int_equal(cpu_far_call(cpu, SEL_TSS16, 0, 4, NEXT), FAULT_NONE);
	assert_int_equal(cpu->rip, 0x9000);
	assert_int_equal(cpu->regs[RAX], 1);
	assert_int_equal(cpu->regs[RSP], 0x8000);
	assert_int_equal(cpu->seg[DS].sel, SEL_KDATA);
	assert_true(cpu->seg[FS].attr & cpu->seg[GS].attr & SEG_UNUSABLE);
	assert_int_equal(cpu->rflags, FL_FIX1 | FL_ZF | FL_NT);
	cpu->regs[RBX] = 0xabcd1234;
	assert_int_equal(cpu_iret(cpu, 4, 0x9001), FAULT_NONE);
	assert_int_equal(cpu->rip, NEXT);
	assert_int_equal(get16(p, OTHER16 + 0x0e), 0x9001);
	assert_int_equal(get16(p, OTHER16 + 0x18), 0x1234);
	assert_int_equal(get16(p, OTHER16 + 0x2a), 0); /* LDT: not saved */
}

static void a_task_may_be_virtual_8086_code(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	put32(p, OTHER + EFLAGS, FL_FIX1 | FL_VM);
	put32(p, OTHER + SELS + 4 * CS, 0x4200);
	put32(p, OTHER + SELS + 4 * DS, 0x1234);
	assert_int_equal(cpu_far_jump(cpu, SEL_OTHER, 0, 4, NEXT), FAULT_NONE);
	assert_int_equal(cpu->cpl, 3);
	assert_int_equal(cpu->seg[CS].base, 0x42000);
	assert_int_equal(cpu->seg[DS].base, 0x12340);
	assert_int_equal(cpu->seg[DS].limit, 0xffff);
	gate(p, IDT + VEC_UD * 8, SEL_TSS);
	cpu_raise(cpu, VEC_UD);
	assert_int_equal(cpu_deliver(cpu), FAULT_NONE);
	assert_int_equal(cpu->tr.sel, SEL_TSS);
	assert_int_equal(cpu->rip, NEXT);
	assert_int_equal(get32(p, OTHER + EFLAGS), FL_FIX1 | FL_VM | FL_RF);
}

static void local_breakpoints_end_and_t_traps(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	cpu->dr7 = DR7_FIXED1 | 0x3ff;
	put32(p, OTHER + TRAP, 1);
	assert_int_equal(cpu_far_jump(cpu, SEL_OTHER, 0, 4, NEXT), FAULT_NONE);
	assert_int_equal(cpu->dr7, DR7_FIXED1 | 0x2aa);
	cpu_finish_instruction(cpu, false);
	assert_int_equal(cpu->port.event.vector, VEC_DB);
	assert_int_equal(cpu->port.event.payload, DR6_BT);
	assert_int_equal(cpu->rip, TASK_IP);
}

static void an_event_that_switches_traps_too(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	put32(p, OTHER + TRAP, 1);
	tables_set_word(p, IDT + VEC_DB * 8,
			0x1234 | SEL_KCODE32 << 16 | (u64)(TYPE_INT_GATE | SEG_P) << 40);
	cpu->port.event = (struct cpu_event){ .kind = EVENT_INTR, .vector = VECTOR };
	assert_int_equal(cpu_deliver(cpu), FAULT_NONE);
	assert_int_equal(cpu->rip, 0x1234);
	assert_int_equal(get32(p, TASK_SP - 12), TASK_IP);
	assert_true(cpu->dr6 & DR6_BT);
	assert_int_equal(cpu->pending_db, 0);
}

static void rf_of_a_task_that_an_event_enters_ends_with_its_first_instruction(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	put32(p, OTHER + EFLAGS, FL_FIX1 | FL_RF);
	cpu->port.event = (struct cpu_event){ .kind = EVENT_INTR, .vector = VECTOR };
	assert_int_equal(cpu_deliver(cpu), FAULT_NONE);
	assert_in_other(p, FL_FIX1 | FL_RF | FL_NT);
	cpu_finish_instruction(cpu, false);
	assert_false(cpu->rflags & FL_RF);
}

/* What is wrong with the other task, and how a JMP to it ends. */
struct bad {
	const char *name;
	u32 at, value; /* 4 bytes in memory */
	struct outcome outcome;
	bool switched; /* the fault belongs to the new task */
};

#define OTHER_ATTR (GDT + SEL_OTHER + 4)
#define ATTR32(a)  ((u32)(a) << 8 | (OTHER >> 16 & 0xff))
#define SEL_AT(s)  (OTHER + SELS + 4 * (s))

static const struct bad bads[] = {
	{ "busy", OTHER_ATTR, ATTR32(TYPE_TSS_BUSY | SEG_P), { VEC_GP, SEL_OTHER }, false },
	{ "absent", OTHER_ATTR, ATTR32(TYPE_TSS), { VEC_NP, SEL_OTHER }, false },
	{ "short", GDT + SEL_OTHER, (u32)OTHER << 16 | 0x66, { VEC_TS, SEL_OTHER }, false },
	{ "LDT is a TSS", OTHER + LDT_SEL, SEL_TSS, { VEC_TS, SEL_TSS }, true },
	{ "LDT in LDT", OTHER + LDT_SEL, SEL_LDT | SEL_TI, { VEC_TS, SEL_LDT | SEL_TI }, true },
	{ "LDT absent", OTHER + LDT_SEL, SEL_LDT_ABSENT, { VEC_TS, SEL_LDT_ABSENT }, true },
	{ "CS null", SEL_AT(CS), 0, { VEC_TS, 0 }, true },
	{ "CS is data", SEL_AT(CS), SEL_KDATA, { VEC_TS, SEL_KDATA }, true },
	{ "CS RPL", SEL_AT(CS), SEL_KCODE32 | 3, { VEC_TS, SEL_KCODE32 }, true },
	{ "CS absent", SEL_AT(CS), SEL_ABSENT_CODE, { VEC_NP, SEL_ABSENT_CODE }, true },
	{ "SS null", SEL_AT(SS), 0, { VEC_TS, 0 }, true },
	{ "SS of user", SEL_AT(SS), SEL_UDATA | 3, { VEC_TS, SEL_UDATA }, true },
	{ "SS absent", SEL_AT(SS), SEL_ABSENT_DATA, { VEC_SS, SEL_ABSENT_DATA }, true },
	{ "DS beyond", SEL_AT(DS), SEL_BEYOND, { VEC_TS, SEL_BEYOND }, true },
	{ "DS execute-only", SEL_AT(DS), SEL_EXECONLY, { VEC_TS, SEL_EXECONLY }, true },
	{ "ES absent", SEL_AT(ES), SEL_ABSENT_DATA, { VEC_NP, SEL_ABSENT_DATA }, true },
	{ "FS of another RPL", SEL_AT(FS), SEL_KDATA | 3, { VEC_TS, SEL_KDATA }, true },
};

static void bad_tasks_fault_before_or_after_the_switch(void **state)
{
	for (u32 i = 0; i < ARRAY_SIZE(bads); i++) {
		const struct bad *row = &bads[i];
		struct paged_cpu *p;
		struct outcome got;

		print_message("task: %s\n", row->name);
		teardown(state);
		setup(state);
		p = *state;
		put32(p, row->at, row->value);
		got = outcome_of(p->cpu, cpu_far_jump(p->cpu, SEL_OTHER, 0, 4, NEXT));
		assert_int_equal(got.vector, row->outcome.vector);
		assert_int_equal(got.error, row->outcome.error);
		assert_int_equal(p->cpu->rip, row->switched ? TASK_IP : CODE);
		assert_int_equal(p->cpu->tr.sel, row->switched ? SEL_OTHER : SEL_TSS);
		assert_int_equal(busy(p, SEL_TSS), !row->switched);
	}
}

/* INT n restores RIP after a fault in the current task, and not after one in the new task. */
static void an_int_instruction_faults_in_the_task_that_has_the_fault(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	put32(p, SEL_AT(DS), SEL_BEYOND);
	assert_int_equal(cpu_int(cpu, EVENT_SOFT_INT, VECTOR, 2), FAULT_RAISED);
	assert_int_equal(cpu->port.event.vector, VEC_TS);
	assert_int_equal(cpu->port.event.error, SEL_BEYOND);
	assert_int_equal(cpu->rip, TASK_IP);
	tables_enter(p, KERNEL32);
	cpu->tr = (struct segment){ TSS, 0x67, TYPE_TSS_BUSY | SEG_P, SEL_TSS };
	assert_int_equal(cpu_int(cpu, EVENT_SOFT_INT, VECTOR, 2), FAULT_RAISED); /* busy by now */
	assert_int_equal(cpu->port.event.vector, VEC_GP);
	assert_int_equal(cpu->port.event.error, SEL_OTHER);
	assert_int_equal(cpu->rip, CODE);
}

static void iret_wants_a_busy_task(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	cpu->rflags |= FL_NT;
	put16(p, TSS + LINK, SEL_OTHER); /* available */
	cpu->nmi_masked = true;
	assert_int_equal(cpu_iret(cpu, 4, NEXT), FAULT_RAISED);
	assert_int_equal(cpu->port.event.vector, VEC_TS);
	assert_int_equal(cpu->port.event.error, SEL_OTHER);
	assert_false(cpu->nmi_masked);
	assert_int_equal(cpu->rip, CODE);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(a_jump_leaves_its_task_for_good),
		TEST(a_call_nests_and_iret_returns),
		TEST(a_task_gate_leads_to_a_tss_of_any_privilege),
		TEST(an_int_instruction_saves_what_follows_it),
		TEST(a_fault_saves_rf_and_pushes_its_error_code),
		TEST(a_16_bit_tss_holds_words),
		TEST(a_task_may_be_virtual_8086_code),
		TEST(local_breakpoints_end_and_t_traps),
		TEST(an_event_that_switches_traps_too),
		TEST(rf_of_a_task_that_an_event_enters_ends_with_its_first_instruction),
		TEST(bad_tasks_fault_before_or_after_the_switch),
		TEST(an_int_instruction_faults_in_the_task_that_has_the_fault),
		TEST(iret_wants_a_busy_task),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
