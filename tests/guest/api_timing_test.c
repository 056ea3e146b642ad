// SPDX-License-Identifier: MIT
/*
 * Timing of a VM (VPMU_TIMING) through the KVM API: with full timing misses take cycles, with a
 * virtual clock they take time, too; it cannot change while the VM exists, and state that was saved
 * with one timing is refused by the other. Run by `vpmu kvm`.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <cmocka.h>

#include "guest/control_client.h"
#include "guest/kvm_state.h"

#define COUNT_OS     (BIT(17) | BIT(22))
#define CYCLES_INTEL 0x3c
#define CYCLES_AMD   0x76
#define MSR_MODEL    0x56504d00 /* src/vm/msr/priv.h: HIDDEN_MODEL */
#define ROUNDS	     20000

/* Loads from lines all over memory. The TSC's difference is left in RBX. */
GUEST_CODE(loads, "rdtsc; mov %eax, %ebx\n"
		  "mov $20000, %ecx; mov $1, %esi\n"
		  "1: imul $1103515245, %esi, %esi; add $12345, %esi\n"
		  "mov %esi, %edi; and $0x1fffc0, %edi; mov 0x100000(%rdi), %rax\n"
		  "dec %ecx; jnz 1b\n"
		  "rdtsc; sub %ebx, %eax; mov %eax, %ebx\n"
		  "out %al, $0xf4\n");

struct counts {
	u64 cycles, tsc;
};

static struct kvm_guest g;

static void create(const char *timing, const char *clock)
{
	setenv("VPMU_TIMING", timing, 1); /* the library reads these when a VM is made */
	setenv("VPMU_CLOCK", clock, 1);
	kvm_guest_create(&g, loads_start, (size_t)(loads_end - loads_start), 1);
}

static struct counts run(const char *timing, const char *clock, bool counted)
{
	struct kvm_regs regs;
	struct counts counts = { 0 };

	create(timing, clock);
	if (counted)
		kvm_guest_set_msr(&g, 0, kvm_guest_select(&g),
				  (g.amd ? CYCLES_AMD : CYCLES_INTEL) | COUNT_OS);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_IO);
	if (counted)
		counts.cycles = kvm_guest_get_msr(&g, 0, kvm_guest_counter(&g));
	KVM_CALL(g.vcpu[0], KVM_GET_REGS, &regs);
	counts.tsc = (u32)regs.rbx;
	kvm_guest_destroy(&g);
	return counts;
}

static void misses_take_cycles_with_full_timing(void **state)
{
	u64 fixed = run("static", "host", true).cycles, full = run("full", "host", true).cycles;

	(void)state;
	assert_true(fixed > ROUNDS && fixed < 10 * ROUNDS);
	assert_true(full > 3 * fixed / 2);
	assert_int_equal(run("full", "host", true).cycles, full);
}

/* Virtual time is made of these cycles, whether the guest counts them or not. */
static void virtual_time_passes_with_them(void **state)
{
	struct counts full = run("full", "virtual", true);

	(void)state;
	assert_true(full.tsc > 3 * run("static", "virtual", false).tsc / 2);
	assert_int_equal(run("full", "virtual", false).tsc, full.tsc);
}

static void timing_is_fixed_when_a_vm_is_made(void **state)
{
	int fd;

	(void)state;
	create("full", "host");
	fd = control_dial();
	control_ask(fd, "0 set timing=full\n", "ok");
	control_ask(fd, "0 set timing=static\n", "error: timing is fixed when a VM is made");
	control_ask(fd, "0 set timing=half\n", "error: timing can be static or full");
	close(fd);
	kvm_guest_destroy(&g);
}

static int set_model(u64 value)
{
	struct kvm_state_msrs msrs = { .nmsrs = 1,
				       .entry[0] = { .index = MSR_MODEL, .data = value } };

	return ioctl(g.vcpu[0], KVM_SET_MSRS, &msrs);
}

static void state_of_the_other_timing_is_refused(void **state)
{
	u64 fixed;

	(void)state;
	create("static", "host");
	fixed = kvm_guest_get_msr(&g, 0, MSR_MODEL);
	assert_int_equal(set_model(fixed), 1);
	kvm_guest_destroy(&g);
	create("full", "host");
	assert_int_not_equal(kvm_guest_get_msr(&g, 0, MSR_MODEL), fixed);
	assert_int_equal(set_model(kvm_guest_get_msr(&g, 0, MSR_MODEL)), 1);
	assert_int_not_equal(set_model(fixed), 1);
	kvm_guest_destroy(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(misses_take_cycles_with_full_timing),
		cmocka_unit_test(virtual_time_passes_with_them),
		cmocka_unit_test(timing_is_fixed_when_a_vm_is_made),
		cmocka_unit_test(state_of_the_other_timing_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
