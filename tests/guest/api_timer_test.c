// SPDX-License-Identifier: MIT
/*
 * How late the interrupt of the local APIC's timer comes, whatever the guest executes until then.
 * Late is counted in instructions, not in time: a guest that the host holds up executes none.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "guest/kvm_guest.h"

#define TIMER	     0x50
#define MSR_TSC	     0x10
#define TICKS	     "10000000" /* of the TSC until the timer expires: a few milliseconds */
#define MANY	     "300000000"
#define BUDGET_TIMED (1 << 19) /* as in vm/run.c: the clock is looked at after so many at most */

/* In x2APIC mode, by the TSC. */
#define TIMER_ENABLED                                                 \
	"mov $0x1b, %ecx; rdmsr; or $0x400, %eax; wrmsr\n"            \
	"mov $0x80f, %ecx; mov $0x1ff, %eax; xor %edx, %edx; wrmsr\n" \
	"mov $0x832, %ecx; mov $0x40050, %eax; wrmsr\n"
#define START "fninit; fld1; mov $0x100000, %edi\n" TIMER_ENABLED
#define TIME  "rdtsc; shl $32, %rdx; or %rdx, %rax\n"
/* R8: when it expires; R9: a hundredth of the way there. */
#define TIMER_STARTS(ticks)                                                           \
	TIME "lea " ticks " / 100(%rax), %r9; lea " ticks "(%rax), %r8\n"             \
	     "mov %r8, %rax; mov %r8, %rdx; shr $32, %rdx; mov $0x6e0, %ecx; wrmsr\n" \
	     "xor %ebx, %ebx; sti\n"

/* RBX counts the turns after that. */
#define LOOP(text)   "1: " text "\n" TIME "cmp %r8, %rax; jb 1b; inc %rbx; jmp 1b\n"
#define TURN(ninsns) ((ninsns) + 7)

#define SINES "fsin; fsin; fsin; fsin; fsin; fsin; fsin; fsin"

GUEST_CODE(saves, START TIMER_STARTS(TICKS) LOOP("fxsave (%rdi)"));
GUEST_CODE(slower, START TIMER_STARTS(MANY) "2: mov $100, %esi; 3: dec %esi; jnz 3b\n" TIME
					    "cmp %r9, %rax; jb 2b\n" LOOP(SINES));

static struct kvm_guest g;

static void offer_deadline_timer(struct kvm_cpuid_entry2 *entry)
{
	if (entry->function == 1)
		entry->ecx |= BIT(24);
}

static void with_irqchip(int vm)
{
	KVM_CALL(vm, KVM_CREATE_IRQCHIP, NULL);
}

/* Instructions between the timer's expiry and its interrupt. */
static u64 late(const u8 *code, size_t size, u32 turn)
{
	static const u8 handler[] = { 0xe6, IMAGE_DONE_PORT }; /* OUT */
	struct kvm_regs regs;

	kvm_guest_create_with(&g, code, size, 1, with_irqchip);
	kvm_guest_set_cpuid(&g, 0, offer_deadline_timer);
	memcpy(g.ram + IMAGE_STUBS + TIMER * IMAGE_STUB_SIZE, handler, sizeof(handler));
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_IO);
	KVM_CALL(g.vcpu[0], KVM_GET_REGS, &regs);
	assert_true(kvm_guest_get_msr(&g, 0, MSR_TSC) >= regs.r8); /* and it did not come early */
	kvm_guest_destroy(&g);
	return regs.rbx * turn;
}

#define LATE(name, ninsns) late(name##_start, name##_end - name##_start, TURN(ninsns))

static void what_c_executes_does_not_hold_the_timer_off(void **state)
{
	(void)state;
	assert_in_range(LATE(saves, 1), 0, BUDGET_TIMED / 8);
}

static void code_that_becomes_slow_does_not_hold_the_timer_off_for_long(void **state)
{
	(void)state;
	assert_in_range(LATE(slower, 8), 0, BUDGET_TIMED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_c_executes_does_not_hold_the_timer_off),
		cmocka_unit_test(code_that_becomes_slow_does_not_hold_the_timer_off_for_long),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
