// SPDX-License-Identifier: MIT
/*
 * A debugger's steps (KVM_SET_GUEST_DEBUG) over instructions that the hypervisor or the program
 * finishes: each ends with KVM_EXIT_DEBUG, and none becomes an exception of the guest, whatever the
 * program reads and writes in between. Run by `vpmu kvm`.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

#include "guest/kvm_guest.h"

#define CODE(name) name##_start, (size_t)(name##_end - name##_start)
#define DR6_RESET  0xffff0ff0u
#define DR6_STEP   BIT(14)

static void set_debug(struct kvm_guest *g, u32 control)
{
	struct kvm_guest_debug debug = { .control = control };

	KVM_CALL(g->vcpu[0], KVM_SET_GUEST_DEBUG, &debug);
}

static void step(struct kvm_guest *g)
{
	set_debug(g, KVM_GUESTDBG_ENABLE | KVM_GUESTDBG_SINGLESTEP);
}

static void expect_step(struct kvm_guest *g, u64 offset)
{
	assert_int_equal(kvm_guest_run(g, 0), KVM_EXIT_DEBUG);
	assert_int_equal(g->run[0]->debug.arch.exception, 1);
	assert_int_equal(g->run[0]->debug.arch.pc, IMAGE_CODE + offset);
	assert_int_equal(g->run[0]->debug.arch.dr6, DR6_RESET | DR6_STEP);
}

/* As QEMU does wherever a device or its monitor asks for registers. */
static void save_and_restore(struct kvm_guest *g)
{
	struct kvm_vcpu_events events;
	struct kvm_debugregs regs;

	KVM_CALL(g->vcpu[0], KVM_GET_VCPU_EVENTS, &events);
	KVM_CALL(g->vcpu[0], KVM_GET_DEBUGREGS, &regs);
	assert_int_equal(events.exception.injected | events.exception.pending, 0);
	assert_int_equal(regs.dr6, DR6_RESET);
	KVM_CALL(g->vcpu[0], KVM_SET_VCPU_EVENTS, &events);
	KVM_CALL(g->vcpu[0], KVM_SET_DEBUGREGS, &regs);
}

static u64 rip(struct kvm_guest *g)
{
	struct kvm_regs regs;

	KVM_CALL(g->vcpu[0], KVM_GET_REGS, &regs);
	return regs.rip;
}

#define UNKNOWN_MSR 0x12345678

GUEST_CODE(unknown_msr, "mov $0x12345678, %ecx\n"
			"rdmsr\n"
			"nop\n"
			"hlt\n");

static void ask_for_msrs(int vm)
{
	struct kvm_enable_cap cap = { .cap = KVM_CAP_X86_USER_SPACE_MSR,
				      .args = { KVM_MSR_EXIT_REASON_UNKNOWN } };

	KVM_CALL(vm, KVM_ENABLE_CAP, &cap);
}

static void a_step_over_what_the_program_answers_ends_before_its_interruption(void **state)
{
	struct kvm_guest g;

	(void)state;
	kvm_guest_create_with(&g, CODE(unknown_msr), 1, ask_for_msrs);
	step(&g);
	expect_step(&g, 5);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_X86_RDMSR);
	assert_int_equal(g.run[0]->msr.index, UNKNOWN_MSR);
	g.run[0]->immediate_exit = 1;
	expect_step(&g, 7);
	g.run[0]->immediate_exit = 0;
	save_and_restore(&g);
	expect_step(&g, 8);
	kvm_guest_destroy(&g);
}

/* The store is 7 bytes long. */
GUEST_CODE(store, "mov %eax, 0x400020\n"
		  "nop\n"
		  "hlt\n");

static void a_step_over_a_store_to_a_device_is_not_the_guests(void **state)
{
	struct kvm_guest g;

	(void)state;
	for (int immediate = 0; immediate < 2; immediate++) {
		kvm_guest_create(&g, CODE(store), 1);
		step(&g);
		assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_MMIO);
		save_and_restore(&g);
		g.run[0]->immediate_exit = immediate;
		expect_step(&g, 7);
		g.run[0]->immediate_exit = 0;
		save_and_restore(&g);
		expect_step(&g, 8);
		kvm_guest_destroy(&g);
	}
}

static void a_debugger_that_leaves_takes_its_step_along(void **state)
{
	struct kvm_guest g;

	(void)state;
	kvm_guest_create(&g, CODE(store), 1);
	step(&g);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_MMIO);
	set_debug(&g, 0);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_HLT);
	assert_int_equal(rip(&g), IMAGE_CODE + 9);
	kvm_guest_destroy(&g);
}

/* The guest steps itself. */
GUEST_CODE(own_step, "pushfq\n"
		     "orl $0x100, (%rsp)\n"
		     "popfq\n"
		     "mov %eax, 0x400020\n"
		     "hlt\n");

static void a_debugger_that_comes_does_not_take_the_guests_step(void **state)
{
	struct kvm_guest g;

	(void)state;
	kvm_guest_create(&g, CODE(own_step), 1);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_MMIO);
	step(&g);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_HLT);
	assert_int_equal(rip(&g), IMAGE_STUBS + IMAGE_STUB_SIZE + 1);
	kvm_guest_destroy(&g);
}

GUEST_CODE(halt, "hlt\n"
		 "hlt\n");

static void create_irqchip(int vm)
{
	KVM_CALL(vm, KVM_CREATE_IRQCHIP, NULL);
}

static void a_step_over_hlt_leaves_the_vcpu_halted(void **state)
{
	struct kvm_mp_state mp;
	struct kvm_guest g;

	(void)state;
	kvm_guest_create_with(&g, CODE(halt), 1, create_irqchip);
	step(&g);
	expect_step(&g, 1);
	KVM_CALL(g.vcpu[0], KVM_GET_MP_STATE, &mp);
	assert_int_equal(mp.mp_state, KVM_MP_STATE_HALTED);
	kvm_guest_destroy(&g);
}

static void a_step_over_hlt_is_told_after_the_exit(void **state)
{
	struct kvm_guest g;

	(void)state;
	kvm_guest_create(&g, CODE(halt), 1);
	step(&g);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_HLT);
	save_and_restore(&g);
	expect_step(&g, 1);
	kvm_guest_destroy(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_over_what_the_program_answers_ends_before_its_interruption),
		cmocka_unit_test(a_step_over_a_store_to_a_device_is_not_the_guests),
		cmocka_unit_test(a_debugger_that_leaves_takes_its_step_along),
		cmocka_unit_test(a_debugger_that_comes_does_not_take_the_guests_step),
		cmocka_unit_test(a_step_over_hlt_leaves_the_vcpu_halted),
		cmocka_unit_test(a_step_over_hlt_is_told_after_the_exit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
