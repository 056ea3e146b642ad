// SPDX-License-Identifier: MIT
/*
 * Traps of instructions that C executes: between the iterations of repeated strings, after port
 * accesses, and those that a debugger takes; and the order in which debug registers fault.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "cpu/control.h"
#include "unit/sys_cpu.h"

#define PORT 0x80

static void assert_trap(u64 dr6_bits)
{
	assert_int_equal(cpu->port.event.kind, EVENT_EXCEPTION);
	assert_int_equal(cpu->port.event.vector, VEC_DB);
	assert_int_equal(cpu->port.event.payload, dr6_bits);
	assert_int_equal(cpu->rip, RIP);
}

static void what_comes_between_iterations_pushes_rf(void **state)
{
	(void)state;
	cpu_call_attention(cpu, ATTENTION_OWNER);
	set_string(AT(0, 0), AT(1, 0), 2 * PAGE_SIZE);
	assert_int_equal(EXECUTE(REP_MOVSB), SYS_AGAIN);
	assert_int_equal(cpu->regs[RCX], PAGE_SIZE);
	assert_true(cpu->rflags & FL_RF);
}

static void the_last_iteration_pushes_no_rf(void **state)
{
	(void)state;
	cpu_call_attention(cpu, ATTENTION_OWNER);
	set_string(AT(0, 0), AT(1, 0), 5);
	assert_int_equal(EXECUTE(REP_MOVSB), SYS_NEXT);
	assert_false(cpu->rflags & FL_RF);
}

static void a_trap_between_iterations_keeps_what_was_written(void **state)
{
	(void)state;
	cpu->rflags |= FL_TF;
	set_string(0, AT(DEVICE, 0), 3);
	assert_int_equal(EXECUTE(REP_STOSD), SYS_AGAIN);
	assert_trap(DR6_BS);
	assert_int_equal(cpu->port.mmio.nwrites, 1);
	assert_int_equal(cpu->regs[RCX], 2);
}

static void data_breakpoints_stop_a_repetition_behind_the_element(void **state)
{
	(void)state;
	assert_int_equal(cpu_write_dr(cpu, 1, AT(1, 2)), FAULT_NONE);
	assert_int_equal(cpu_write_dr(cpu, 7, BIT(2) | 1u << 20),
			 FAULT_NONE); /* one byte written */
	set_string(AT(0, 0), AT(1, 0), 8);
	assert_int_equal(EXECUTE(REP_MOVSB), SYS_AGAIN);
	assert_trap(2);
	assert_int_equal(cpu->regs[RCX], 5);
}

/* DR0: two bytes at PORT, input and output */
static void set_port_breakpoint(void)
{
	cpu->cr4 |= CR4_DE;
	assert_int_equal(cpu_write_dr(cpu, 0, PORT), FAULT_NONE);
	assert_int_equal(cpu_write_dr(cpu, 7, BIT(0) | 2u << 16 | 1u << 18), FAULT_NONE);
	cpu->regs[RDX] = PORT + 1;
}

static void port_breakpoints_trap_behind_the_access(void **state)
{
	(void)state;
	set_port_breakpoint();
	assert_int_equal(EXECUTE(0xec), SYS_EXIT); /* in al, dx */
	assert_int_equal(cpu->pending_db, 0);
	cpu->port.io.state = IO_DONE;
	assert_int_equal(EXECUTE(0xec), SYS_NEXT);
	assert_int_equal(cpu->pending_db, 1);
	cpu->pending_db = 0;
	assert_int_equal(EXECUTE(0xe6, PORT + 2), SYS_EXIT); /* out, beside it */
	cpu->port.io.state = IO_DONE;
	assert_int_equal(EXECUTE(0xe6, PORT + 2), SYS_NEXT);
	assert_int_equal(cpu->pending_db, 0);
}

static void port_breakpoints_stop_string_input_at_each_element(void **state)
{
	(void)state;
	set_port_breakpoint();
	set_string(0, AT(0, 0), 2);
	assert_int_equal(EXECUTE(REP_INSB), SYS_EXIT);
	assert_int_equal(cpu->port.io.count, 1);
	cpu->port.io.state = IO_DONE;
	assert_int_equal(EXECUTE(REP_INSB), SYS_AGAIN);
	assert_trap(1);
	assert_int_equal(EXECUTE(REP_INSB), SYS_EXIT);
	cpu->port.io.state = IO_DONE;
	assert_int_equal(EXECUTE(REP_INSB), SYS_NEXT);
	assert_int_equal(cpu->pending_db, 1);
}

static void stepping_goes_through_string_output_by_element(void **state)
{
	(void)state;
	cpu->port.debug.single_step = true;
	set_string(AT(0, 0), 0, 2);
	assert_int_equal(EXECUTE(REP_OUTSW), SYS_EXIT);
	assert_int_equal(cpu->port.io.count, 1);
	cpu->port.io.state = IO_DONE;
	assert_int_equal(EXECUTE(REP_OUTSW), SYS_AGAIN);
	assert_trap(DR6_BS);
}

static void string_ports_need_permission_even_for_nothing(void **state)
{
	(void)state;
	cpu->tr.attr = SEG_UNUSABLE; /* no map of ports */
	to_user_mode();
	set_string(AT(0, 0), AT(0, 0), 0);
	assert_raised(EXECUTE(REP_INSB), VEC_GP);
	assert_raised(EXECUTE(REP_OUTSW), VEC_GP);
	cpu->rflags |= FL_IOPL;
	assert_int_equal(EXECUTE(REP_INSB), SYS_NEXT);
}

static void a_debugger_takes_int1_where_it_stands(void **state)
{
	(void)state;
	cpu->port.debug.hardware_bp = true;
	assert_int_equal(EXECUTE(0xf1), SYS_EXIT);
	assert_int_equal(cpu->port.exit.reason, EXIT_DEBUG);
	assert_int_equal(cpu->port.exit.debug.exception, VEC_DB);
	assert_int_equal(cpu->port.exit.debug.pc, RIP);
	assert_int_equal(cpu->port.exit.debug.dr6, DR6_FIXED1);
}

/* mov rax, drN */
#define MOV_FROM_DR(n) 0x0f, 0x21, 0xc0 | (n) << 3

static void debug_registers_check_privilege_before_their_names(void **state)
{
	(void)state;
	cpu->cr4 |= CR4_DE;
	cpu->dr7 |= DR7_GD;
	assert_int_equal(EXECUTE(MOV_FROM_DR(4)), SYS_UNKNOWN);
	assert_raised(EXECUTE(MOV_FROM_DR(6)), VEC_DB);
	to_user_mode();
	assert_raised(EXECUTE(MOV_FROM_DR(4)), VEC_GP);
}

#define T(name) cmocka_unit_test_setup_teardown(name, sys_cpu_setup, sys_cpu_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_comes_between_iterations_pushes_rf),
		T(the_last_iteration_pushes_no_rf),
		T(a_trap_between_iterations_keeps_what_was_written),
		T(data_breakpoints_stop_a_repetition_behind_the_element),
		T(port_breakpoints_trap_behind_the_access),
		T(port_breakpoints_stop_string_input_at_each_element),
		T(stepping_goes_through_string_output_by_element),
		T(string_ports_need_permission_even_for_nothing),
		T(a_debugger_takes_int1_where_it_stands),
		T(debug_registers_check_privilege_before_their_names),
	};

	paged_cpu_catch_faults();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
