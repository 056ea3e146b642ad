// SPDX-License-Identifier: MIT
/*
 * Events in long mode: gates, stacks, frames, flags, combinations of faults, what guest debugging
 * takes, and what happens when an instruction completes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/event.h"
#include "cpu/mode.h"
#include "unit/guest_tables.h"

#define GATE	   (TYPE_INT_GATE | SEG_P)
#define GATE_USER  (GATE | SEG_DPL)
#define GATE_ERROR (VECTOR * 8 | ERROR_IDT)
#define VECTOR	   0x50

static void queue(struct cpu *cpu, enum event_kind kind, u8 vector)
{
	cpu->port.event = (struct cpu_event){ .kind = kind, .vector = vector };
}

/* The frame on the handler's stack: element 0 is at RSP. */
static u64 frame(const struct paged_cpu *p, u32 i)
{
	return tables_word(p, p->cpu->regs[RSP] + i * 8);
}

static void assert_frame(const struct paged_cpu *p, u32 at, u64 rip, u64 cs, u64 flags, u64 rsp,
			 u64 ss)
{
	assert_int_equal(frame(p, at + 0), rip);
	assert_int_equal(frame(p, at + 1), cs);
	assert_int_equal(frame(p, at + 2), flags);
	assert_int_equal(frame(p, at + 3), rsp);
	assert_int_equal(frame(p, at + 4), ss);
}

static void an_interrupt_of_user_code_switches_to_rsp0(void **state)
{
	static const enum where from[] = { USER64, USER32 };
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	for (u32 i = 0; i < ARRAY_SIZE(from); i++) {
		u16 cs;

		tables_enter(p, from[i]);
		cs = cpu->seg[CS].sel;
		cpu->rflags |= FL_TF | FL_NT | FL_AC | FL_CF;
		queue(cpu, EVENT_INTR, 0x40);
		assert_int_equal(cpu_deliver(cpu), FAULT_NONE);
		assert_int_equal(cpu->port.event.kind, EVENT_NONE);
		assert_in_kernel(cpu, HANDLER(0x40));
		assert_true(cpu->seg[SS].attr & SEG_UNUSABLE);
		assert_true(cpu_priv(cpu)->mode & MODE_CODE64);
		assert_int_equal(cpu->rflags, FL_FIX1 | FL_AC | FL_CF);
		assert_int_equal(cpu->regs[RSP], RSP0 - 40);
		assert_frame(p, 0, CODE, cs, FL_FIX1 | FL_IF | FL_TF | FL_NT | FL_AC | FL_CF,
			     USER_STACK, SEL_UDATA | 3);
	}
}

static void an_event_in_the_kernel_stays_on_its_stack_aligned(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	for (u64 odd = 0; odd < 16; odd++) {
		tables_enter(p, KERNEL64);
		cpu->regs[RSP] = KERNEL_STACK + odd;
		queue(cpu, EVENT_INTR, 0x40);
		assert_int_equal(cpu_deliver(cpu), FAULT_NONE);
		assert_int_equal(cpu->regs[RSP], KERNEL_STACK - 40);
		assert_int_equal(cpu->seg[SS].sel, SEL_KDATA);
		assert_frame(p, 0, CODE, SEL_KCODE64, FL_FIX1 | FL_IF, KERNEL_STACK + odd,
			     SEL_KDATA);
	}
}

static void set_user_bit(struct paged_cpu *p, gva_t gva, bool user)
{
	u64 *entry = (u64 *)paged_cpu_entry(p, gva, 2);

	*entry = user ? *entry | PTE_U : *entry & ~(u64)PTE_U;
	tlb_flush(p->cpu);
}

/* Tables are read by the processor itself, but a frame is pushed as the interrupted code pushes:
 * SDM 3A 4.6.1. */
static void smap_allows_a_frame_on_a_user_page_while_ac_is_set(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	set_user_bit(p, IDT, false); /* and the page of the stack IST1 */
	tables_gate(p, VEC_PF, HANDLER(VEC_PF), SEL_KCODE64, GATE, 1);
	cpu->cr4 |= CR4_SMAP;
	for (u32 ac = 0; ac < 2; ac++) {
		tables_enter(p, KERNEL64);
		cpu->rflags |= ac ? FL_AC : 0;
		cpu_update_mode(cpu);
		cpu->regs[RSP] = 0x500000;
		queue(cpu, EVENT_INTR, 0x40);
		assert_int_equal(cpu_deliver(cpu), FAULT_NONE);
		assert_int_equal(cpu->rip, HANDLER(ac ? 0x40 : VEC_PF));
		assert_int_equal(cpu->regs[RSP], ac ? 0x500000 - 40 : (IST1 & ~15) - 48);
	}
	cpu->cr4 &= ~(u64)CR4_SMAP;
	set_user_bit(p, IDT, true);
}

static void the_interrupt_stack_table_wins(void **state)
{
	static const enum where from[] = { KERNEL64, USER64 };
	struct paged_cpu *p = *state;

	tables_gate(p, 0x40, HANDLER(0x40), SEL_KCODE64, GATE, 1);
	for (u32 i = 0; i < ARRAY_SIZE(from); i++) {
		tables_enter(p, from[i]);
		queue(p->cpu, EVENT_INTR, 0x40);
		assert_int_equal(cpu_deliver(p->cpu), FAULT_NONE);
		assert_int_equal(p->cpu->regs[RSP], (IST1 & ~15) - 40);
		assert_int_equal(p->cpu->seg[SS].sel, from[i] == USER64 ? 0 : SEL_KDATA);
	}
}

static void handlers_may_run_at_level_1_or_at_the_level_of_a_conforming_caller(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	tables_enter(p, USER64);
	tables_gate(p, 0x40, HANDLER(0x40), SEL_CODE_RING1, GATE, 0);
	queue(cpu, EVENT_INTR, 0x40);
	assert_int_equal(cpu_deliver(cpu), FAULT_NONE);
	assert_int_equal(cpu->cpl, 1);
	assert_int_equal(cpu->seg[CS].sel, SEL_CODE_RING1 | 1);
	assert_int_equal(cpu->seg[SS].sel, 1);
	assert_int_equal(cpu->regs[RSP], RSP0 - 0x1000 - 40);

	tables_enter(p, USER64);
	tables_gate(p, 0x40, HANDLER(0x40), SEL_CONFORMING, GATE, 0);
	queue(cpu, EVENT_INTR, 0x40);
	assert_int_equal(cpu_deliver(cpu), FAULT_NONE);
	assert_int_equal(cpu->cpl, 3);
	assert_int_equal(cpu->seg[CS].sel, SEL_CONFORMING | 3);
	assert_int_equal(cpu->seg[SS].sel, SEL_UDATA | 3);
	assert_int_equal(cpu->regs[RSP], USER_STACK - 40);
}

static void only_interrupt_gates_clear_if(void **state)
{
	struct paged_cpu *p = *state;

	tables_gate(p, 0x40, HANDLER(0x40), SEL_KCODE64, TYPE_TRAP_GATE | SEG_P, 0);
	queue(p->cpu, EVENT_INTR, 0x40);
	assert_int_equal(cpu_deliver(p->cpu), FAULT_NONE);
	assert_int_equal(p->cpu->rflags, FL_FIX1 | FL_IF);
}

static void faults_push_rf_and_their_error_code(void **state)
{
	struct paged_cpu *p = *state;

	cpu_raise_error(p->cpu, VEC_GP, 0x1234);
	assert_int_equal(cpu_deliver(p->cpu), FAULT_NONE);
	assert_int_equal(frame(p, 0), 0x1234);
	assert_frame(p, 1, CODE, SEL_KCODE64, FL_FIX1 | FL_IF | FL_RF, KERNEL_STACK, SEL_KDATA);
	assert_int_equal(p->cpu->regs[RSP], KERNEL_STACK - 48);
	assert_false(p->cpu->rflags & FL_RF);
}

static void an_int_instruction_pushes_what_follows_it(void **state)
{
	struct paged_cpu *p = *state;

	tables_enter(p, USER64);
	assert_int_equal(cpu_int(p->cpu, EVENT_SOFT_INT, 0x80, 2), FAULT_NONE);
	assert_int_equal(p->cpu->rip, HANDLER(0x80));
	assert_frame(p, 0, CODE + 2, SEL_UCODE64 | 3, FL_FIX1 | FL_IF, USER_STACK, SEL_UDATA | 3);
}

/* Gates that do not work, and the exception that says so, without EXT. */
struct bad_gate {
	const char *name;
	u16 sel;
	u32 attr, ist;
	u64 offset;
	struct outcome outcome;
};

static const struct bad_gate bad_gates[] = {
	{ "type", SEL_KCODE64, TYPE_CALL_GATE | SEG_P, 0, 0, { VEC_GP, GATE_ERROR } },
	{ "16 bits", SEL_KCODE64, TYPE_INT_GATE16 | SEG_P, 0, 0, { VEC_GP, GATE_ERROR } },
	{ "task gate", SEL_KCODE64, TYPE_TASK_GATE | SEG_P, 0, 0, { VEC_GP, GATE_ERROR } },
	{ "S set", SEL_KCODE64, GATE | SEG_S, 0, 0, { VEC_GP, GATE_ERROR } },
	{ "absent", SEL_KCODE64, TYPE_INT_GATE, 0, 0, { VEC_NP, GATE_ERROR } },
	{ "null CS", 0, GATE, 0, 0, { VEC_GP, 0 } },
	{ "null CS, RPL 3", 3, GATE, 0, 0, { VEC_GP, 0 } },
	{ "CS beyond", SEL_BEYOND, GATE, 0, 0, { VEC_GP, SEL_BEYOND } },
	{ "CS beyond the LDT", 0x10 | SEL_TI, GATE, 0, 0, { VEC_GP, 0x10 | SEL_TI } },
	{ "CS is data", SEL_KDATA, GATE, 0, 0, { VEC_GP, SEL_KDATA } },
	{ "CS of user", SEL_UCODE64 | 3, GATE, 0, 0, { VEC_GP, SEL_UCODE64 } },
	{ "CS absent", SEL_ABSENT_CODE, GATE, 0, 0, { VEC_NP, SEL_ABSENT_CODE } },
	{ "CS 32-bit", SEL_KCODE32, GATE, 0, 0, { VEC_GP, SEL_KCODE32 } },
	{ "CS mixed", SEL_CODE_MIXED, GATE, 0, 0, { VEC_GP, SEL_CODE_MIXED } },
	{ "RIP", SEL_KCODE64, GATE, 0, NONCANONICAL, { VEC_GP, 0 } },
	{ "IST beyond TSS", SEL_KCODE64, GATE, 7, 0, { VEC_TS, SEL_TSS } },
	{ "IST not canonical", SEL_KCODE64, GATE, 3, 0, { VEC_SS, 0 } },
	{ "IST before RIP", SEL_KCODE64, GATE, 3, NONCANONICAL, { VEC_SS, 0 } },
	{ "IST unmapped", SEL_KCODE64, GATE, 2, 0, { VEC_PF, PF_WRITE } },
};

static void bad_gates_raise_what_the_manual_says(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	cpu->tr.limit = TSS64_IST(7) + 6;
	for (u32 i = 0; i < ARRAY_SIZE(bad_gates); i++) {
		const struct bad_gate *row = &bad_gates[i];
		struct outcome got;

		print_message("gate: %s\n", row->name);
		tables_enter(p, KERNEL64);
		tables_gate(p, VECTOR, row->offset, row->sel, row->attr, row->ist);
		got = outcome_of(cpu, cpu_int(cpu, EVENT_SOFT_INT, VECTOR, 2));
		assert_int_equal(got.vector, row->outcome.vector);
		assert_int_equal(got.error, row->outcome.error);
		assert_int_equal(cpu->rip, CODE);
		assert_int_equal(cpu->regs[RSP], KERNEL_STACK);
		assert_int_equal(cpu->seg[CS].sel, SEL_KCODE64);
	}
}

/* The interrupt is lost; the exception met on the way says EXT, except for page faults. */
static void bad_gates_of_interrupts_report_ext(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	cpu->tr.limit = TSS64_IST(7) + 6;
	for (u32 i = 0; i < ARRAY_SIZE(bad_gates); i++) {
		const struct bad_gate *row = &bad_gates[i];
		u32 ext = row->outcome.vector == VEC_PF ? 0 : ERROR_EXT;

		print_message("gate: %s\n", row->name);
		tables_enter(p, KERNEL64);
		tables_gate(p, VECTOR, row->offset, row->sel, row->attr, row->ist);
		queue(cpu, EVENT_INTR, VECTOR);
		assert_int_equal(cpu_deliver(cpu), FAULT_NONE);
		assert_int_equal(cpu->rip, HANDLER(row->outcome.vector));
		assert_int_equal(frame(p, 0), row->outcome.error | ext);
		assert_int_equal(frame(p, 1), CODE);
	}
}

static void the_idt_limit_and_the_dpl_of_gates_are_checked(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;
	struct outcome got;

	cpu->idtr.limit = 0xff * 16 + 14;
	got = outcome_of(cpu, cpu_int(cpu, EVENT_SOFT_INT, 0xff, 2));
	assert_int_equal(got.vector, VEC_GP);
	assert_int_equal(got.error, 0xff * 8 | ERROR_IDT);

	tables_enter(p, USER64);
	tables_gate(p, VECTOR, 0, SEL_KCODE64, GATE, 0);
	got = outcome_of(cpu, cpu_int(cpu, EVENT_SOFT_INT, VECTOR, 2));
	assert_int_equal(got.vector, VEC_GP);
	assert_int_equal(got.error, GATE_ERROR);
	tables_gate(p, VECTOR, 0, SEL_KCODE64, TYPE_INT_GATE, 0); /* DPL comes before P */
	got = outcome_of(cpu, cpu_int(cpu, EVENT_SOFT_INT, VECTOR, 2));
	assert_int_equal(got.vector, VEC_GP);
	tables_gate(p, VECTOR, HANDLER(VECTOR), SEL_KCODE64, GATE, 0);
	queue(cpu, EVENT_INTR, VECTOR); /* which DPL does not concern */
	assert_int_equal(cpu_deliver(cpu), FAULT_NONE);
	assert_int_equal(cpu->rip, HANDLER(VECTOR));
}

/* First event, how its delivery fails, what is delivered in the end. */
struct pair {
	enum event_kind kind;
	u8 first;
	enum vector second; /* VEC_NP or VEC_PF */
	enum vector final;
};

static const struct pair pairs[] = {
	{ EVENT_EXCEPTION, VEC_UD, VEC_NP, VEC_NP }, { EVENT_EXCEPTION, VEC_UD, VEC_PF, VEC_PF },
	{ EVENT_EXCEPTION, VEC_DB, VEC_NP, VEC_NP }, { EVENT_NMI, VEC_NMI, VEC_PF, VEC_PF },
	{ EVENT_INTR, VEC_GP, VEC_NP, VEC_NP },	     { EVENT_EXCEPTION, VEC_DE, VEC_NP, VEC_DF },
	{ EVENT_EXCEPTION, VEC_TS, VEC_NP, VEC_DF }, { EVENT_EXCEPTION, VEC_SS, VEC_NP, VEC_DF },
	{ EVENT_EXCEPTION, VEC_GP, VEC_NP, VEC_DF }, { EVENT_EXCEPTION, VEC_GP, VEC_PF, VEC_PF },
	{ EVENT_EXCEPTION, VEC_PF, VEC_NP, VEC_DF }, { EVENT_EXCEPTION, VEC_AC, VEC_NP, VEC_NP },
};

static void spoil(struct paged_cpu *p, u8 vector, enum vector second)
{
	if (second == VEC_NP)
		tables_gate(p, vector, 0, SEL_KCODE64, TYPE_INT_GATE, 0);
	else
		tables_gate(p, vector, 0, SEL_KCODE64, GATE, 2);
}

static void faults_combine_as_in_table_6_5(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	for (u32 i = 0; i < ARRAY_SIZE(pairs); i++) {
		const struct pair *row = &pairs[i];

		print_message("%u, then %u\n", row->first, row->second);
		tables_enter(p, KERNEL64);
		spoil(p, row->first, row->second);
		queue(cpu, row->kind, row->first);
		assert_int_equal(cpu_deliver(cpu), FAULT_NONE);
		assert_int_equal(cpu->rip, HANDLER(row->final));
		if (row->final == VEC_DF)
			assert_int_equal(frame(p, 0), 0);
		tables_gate(p, row->first, HANDLER(row->first), SEL_KCODE64, GATE_USER, 0);
	}
}

static void a_page_fault_in_delivery_of_a_page_fault_is_double(void **state)
{
	struct paged_cpu *p = *state;

	spoil(p, VEC_PF, VEC_PF);
	cpu_raise_pf(p->cpu, 0x1234, 0);
	assert_int_equal(cpu_deliver(p->cpu), FAULT_NONE);
	assert_int_equal(p->cpu->rip, HANDLER(VEC_DF));
	assert_int_equal(p->cpu->cr2, UNMAPPED - 8); /* the second one's: SDM 3A 6.15 */
}

static void a_fault_in_delivery_of_a_double_fault_is_triple(void **state)
{
	static const enum vector second[] = { VEC_NP, VEC_PF };
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	for (u32 i = 0; i < ARRAY_SIZE(second); i++) {
		tables_enter(p, KERNEL64);
		spoil(p, VEC_GP, VEC_NP);
		spoil(p, VEC_DF, second[i]);
		cpu_raise_error(cpu, VEC_GP, 0);
		assert_int_equal(cpu_deliver(cpu), FAULT_EXIT);
		assert_int_equal(cpu->port.exit.reason, EXIT_TRIPLE_FAULT);
		assert_int_equal(cpu->port.event.kind, EVENT_NONE);
		assert_int_equal(cpu->rip, CODE);
		assert_int_equal(cpu->cr2, second[i] == VEC_PF ? UNMAPPED - 8 : 0);
	}
	cpu->idtr.limit = 0;
	cpu_raise(cpu, VEC_UD);
	assert_int_equal(cpu_deliver(cpu), FAULT_EXIT);
	assert_int_equal(cpu->port.exit.reason, EXIT_TRIPLE_FAULT);
}

static void an_nmi_masks_nmis_and_ends_a_shadow(void **state)
{
	struct paged_cpu *p = *state;

	p->cpu->shadow = SHADOW_STI;
	queue(p->cpu, EVENT_NMI, VEC_NMI);
	assert_int_equal(cpu_deliver(p->cpu), FAULT_NONE);
	assert_true(p->cpu->nmi_masked);
	assert_int_equal(p->cpu->shadow, 0);
	assert_int_equal(p->cpu->rip, HANDLER(VEC_NMI));
}

static void cr2_and_dr6_change_at_delivery(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	cpu_raise_pf(cpu, 0xdead000, PF_WRITE);
	assert_int_equal(cpu->cr2, 0);
	assert_int_equal(cpu_deliver(cpu), FAULT_NONE);
	assert_int_equal(cpu->cr2, 0xdead000);
	assert_int_equal(frame(p, 0), PF_WRITE);

	cpu->dr6 = DR6_FIXED1 | DR6_BD | 0xf;
	cpu->dr7 |= DR7_GD;
	cpu_raise_db(cpu, DR6_BS | 1);
	assert_int_equal(cpu_deliver(cpu), FAULT_NONE);
	assert_int_equal(cpu->dr6, DR6_FIXED1 | DR6_BD | DR6_BS | 1);
	assert_int_equal(cpu->dr7, DR7_FIXED1);
	assert_false(frame(p, 2) & FL_RF);
}

static void a_debugger_takes_db_unless_it_injected_it(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	cpu->port.debug.single_step = true;
	cpu_raise_db(cpu, DR6_BS);
	assert_int_equal(cpu_deliver(cpu), FAULT_EXIT);
	assert_int_equal(cpu->port.exit.reason, EXIT_DEBUG);
	assert_int_equal(cpu->port.exit.debug.exception, VEC_DB);
	assert_int_equal(cpu->port.exit.debug.pc, CODE);
	assert_int_equal(cpu->port.exit.debug.dr6, DR6_FIXED1 | DR6_BS);
	assert_int_equal(cpu->port.event.kind, EVENT_NONE);
	assert_int_equal(cpu->dr6, DR6_FIXED1);

	queue(cpu, EVENT_EXCEPTION, VEC_DB);
	cpu->port.event.injected = true;
	assert_int_equal(cpu_deliver(cpu), FAULT_NONE);
	assert_int_equal(cpu->rip, HANDLER(VEC_DB));
}

static void a_debugger_takes_int3_where_it_stands(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	cpu->port.debug.software_bp = true;
	assert_int_equal(cpu_int(cpu, EVENT_SOFT_EXC, VEC_BP, 1), FAULT_EXIT);
	assert_int_equal(cpu->port.exit.reason, EXIT_DEBUG);
	assert_int_equal(cpu->port.exit.debug.exception, VEC_BP);
	assert_int_equal(cpu->port.exit.debug.pc, CODE);
	assert_int_equal(cpu->rip, CODE);
	assert_int_equal(cpu_int(cpu, EVENT_SOFT_INT, VEC_BP, 2), FAULT_NONE); /* INT 3 */
	assert_int_equal(cpu->rip, HANDLER(VEC_BP));
}

static void completing_counts_and_traps(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	tables_enter(p, USER64);
	cpu->rflags |= FL_RF;
	cpu->shadow = SHADOW_STI;
	cpu->port.exit.insn_len = 2;
	cpu_complete(cpu);
	assert_int_equal(cpu->rip, CODE + 2);
	assert_int_equal(cpu->port.tally.instructions[RETIRE_USR], 1);
	assert_int_equal(cpu->port.tally.branches[RETIRE_USR], 0);
	assert_int_equal(cpu->rflags, FL_FIX1 | FL_IF);
	assert_int_equal(cpu->shadow, 0);
	assert_int_equal(cpu->port.event.kind, EVENT_NONE);

	cpu->rflags |= FL_TF;
	cpu->pending_db = 2;
	cpu_complete(cpu);
	assert_int_equal(cpu->port.event.vector, VEC_DB);
	assert_int_equal(cpu->port.event.payload, DR6_BS | 2);
	assert_int_equal(cpu->pending_db, 0);
}

static void behind_mov_ss_traps_wait_for_the_next_instruction(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	cpu_begin_shadow(cpu, SHADOW_SS);
	cpu->pending_db = 1;
	cpu_finish_instruction(cpu, true);
	assert_int_equal(cpu->port.event.kind, EVENT_NONE);
	assert_int_equal(cpu->shadow, SHADOW_SS);
	cpu_finish_instruction(cpu, true);
	assert_int_equal(cpu->shadow, 0);
	assert_int_equal(cpu->port.event.payload, DR6_BS | 1);
}

static void a_shadow_lasts_one_instruction(void **state)
{
	struct paged_cpu *p = *state;

	cpu_begin_shadow(p->cpu, SHADOW_STI);
	cpu_finish_instruction(p->cpu, false);
	assert_int_equal(p->cpu->shadow, SHADOW_STI);
	cpu_finish_instruction(p->cpu, false);
	assert_int_equal(p->cpu->shadow, 0);
}

static void int_n_is_not_stepped_into(void **state)
{
	struct paged_cpu *p = *state;
	struct cpu *cpu = p->cpu;

	cpu->rflags |= FL_TF;
	assert_int_equal(cpu_int(cpu, EVENT_SOFT_INT, 0x80, 2), FAULT_NONE);
	cpu_finish_instruction(cpu, true);
	assert_int_equal(cpu->port.event.kind, EVENT_NONE);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, tables_setup, tables_teardown)
	const struct CMUnitTest tests[] = {
		TEST(an_interrupt_of_user_code_switches_to_rsp0),
		TEST(an_event_in_the_kernel_stays_on_its_stack_aligned),
		TEST(smap_allows_a_frame_on_a_user_page_while_ac_is_set),
		TEST(the_interrupt_stack_table_wins),
		TEST(handlers_may_run_at_level_1_or_at_the_level_of_a_conforming_caller),
		TEST(only_interrupt_gates_clear_if),
		TEST(faults_push_rf_and_their_error_code),
		TEST(an_int_instruction_pushes_what_follows_it),
		TEST(bad_gates_raise_what_the_manual_says),
		TEST(bad_gates_of_interrupts_report_ext),
		TEST(the_idt_limit_and_the_dpl_of_gates_are_checked),
		TEST(faults_combine_as_in_table_6_5),
		TEST(a_page_fault_in_delivery_of_a_page_fault_is_double),
		TEST(a_fault_in_delivery_of_a_double_fault_is_triple),
		TEST(an_nmi_masks_nmis_and_ends_a_shadow),
		TEST(cr2_and_dr6_change_at_delivery),
		TEST(a_debugger_takes_db_unless_it_injected_it),
		TEST(a_debugger_takes_int3_where_it_stands),
		TEST(completing_counts_and_traps),
		TEST(behind_mov_ss_traps_wait_for_the_next_instruction),
		TEST(a_shadow_lasts_one_instruction),
		TEST(int_n_is_not_stepped_into),
	};

	paged_cpu_catch_faults();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
