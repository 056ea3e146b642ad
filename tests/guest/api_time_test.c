// SPDX-License-Identifier: MIT
/*
 * Virtual time (docs/clock.md): it is made of the guest's cycles and of nothing else, timers expire
 * at the exact instruction, and a halted vCPU skips it. Run by `vpmu kvm`.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "guest/kvm_state.h"

#define TIMER	 0x50 /* vectors */
#define MSI	 0x51
#define PIC_BASE 0x30
#define MSR_TSC	 0x10
#define LAPIC	 0xfee00000u

#define X2APIC                                             \
	"mov $0x1b, %ecx; rdmsr; or $0x400, %eax; wrmsr\n" \
	"mov $0x80f, %ecx; mov $0x1ff, %eax; xor %edx, %edx; wrmsr\n"

/* RAX: the TSC. */
#define READ_TSC "rdtsc; shl $32, %rdx; or %rdx, %rax\n"

/* By themselves in their lines: what is around them does not change their price. */
#define ALONE(instructions) "jmp 1f; .balign 64; 1: " instructions "; jmp 1f; .balign 64; 1:\n"

/* R10 and R11: the TSC before and after R8 turns of a loop that take three cycles each on every
 * model, by the latency of IMUL. */
GUEST_CODE(counting, READ_TSC "mov %rax, %r10\n"
		     ALONE("2: imul %rcx, %rcx; dec %r8d; jnz 2b") READ_TSC "mov %rax, %r11\n"
			      "out %al, $0xf4\n");

/* Tells the TSC again and again. */
GUEST_CODE(telling, "1: " READ_TSC "out %al, $0xf4; jmp 1b\n");

/* Arms the TSC deadline R8 ahead, which it leaves in R12, and counts in RBX or, if RSI, halts. The
 * handler leaves the TSC in R10 and what RDTSC takes in R11. */
GUEST_CODE(waiting, X2APIC "mov $0x832, %ecx; mov $0x40050, %eax; wrmsr\n"
		    READ_TSC "add %r8, %rax; mov %rax, %r12\n"
			     "mov %rax, %rdx; shr $32, %rdx; mov $0x6e0, %ecx; wrmsr\n"
			     "sti\n"
			     "test %esi, %esi; jz 2f\n"
			     "1: hlt; jmp 1b\n"
			     "2: inc %rbx; jmp 2b\n"
			     "deadline_handler:\n"
			     "rdtsc; mov %eax, %r10d; shl $32, %rdx; or %rdx, %r10\n"
			     "rdtsc; mov %eax, %r11d\n"
			     "rdtsc; sub %r11d, %eax; mov %rax, %r11\n"
			     "out %al, $0xf4\n");

/* Starts the local APIC's timer for a second, and stops. Once it has halted, the handler leaves the
 * TSC in RAX. */
GUEST_CODE(arming, X2APIC "mov $0x83e, %ecx; mov $0xb, %eax; wrmsr\n"
			    "mov $0x832, %ecx; mov $0x51, %eax; wrmsr\n"
			    "mov $0x838, %ecx; mov $1000000000, %eax; wrmsr\n"
			    "out %al, $0xf4\n"
			    "armed: hlt; jmp armed\n"
			    "armed_handler: " READ_TSC "out %al, $0xf4\n");

/* The 8254 runs once through its 65536 ticks, R10 and R11 are the TSC before and after. */
GUEST_CODE(ticking, "mov $0x11, %al; out %al, $0x20; mov $0x30, %al; out %al, $0x21\n"
		    "mov $0x04, %al; out %al, $0x21; mov $0x01, %al; out %al, $0x21\n"
		    "mov $0xfe, %al; out %al, $0x21\n"
		    READ_TSC "mov %rax, %r10\n"
			     "mov $0x30, %al; out %al, $0x43\n"
			     "xor %eax, %eax; out %al, $0x40; out %al, $0x40\n"
			     "sti\n"
			     "1: hlt; jmp 1b\n"
			     "tick_handler: " READ_TSC "mov %rax, %r11\n"
			     "out %al, $0xf4\n");

/* Waits for an interrupt of the program. */
GUEST_CODE(idle, X2APIC "sti\n"
			"1: hlt; jmp 1b\n"
			"msi_handler: " READ_TSC "out %al, $0xf4\n");

extern const u8 deadline_handler[], tick_handler[], msi_handler[], armed[], armed_handler[];

static struct kvm_guest g;

static void with_irqchip(int vm)
{
	KVM_CALL(vm, KVM_CREATE_IRQCHIP, NULL);
}

static void with_pit(int vm)
{
	struct kvm_pit_config config = { 0 };

	with_irqchip(vm);
	KVM_CALL(vm, KVM_CREATE_PIT2, &config);
}

#define START(name, prepare) \
	kvm_guest_create_with(&g, name##_start, name##_end - name##_start, 1, prepare)

static void handle(u32 vector, const u8 *handler, const u8 *code)
{
	image_gate(g.ram, vector, IMAGE_CODE + (handler - code), 0);
}

static u32 interruptions; /* of KVM_RUN, by signals */

static struct kvm_regs run_to_end(void)
{
	struct kvm_regs regs;
	int reason;

	do {
		reason = kvm_guest_run(&g, 0);
		interruptions += reason == -EINTR;
	} while (reason == -EINTR || (reason == KVM_EXIT_IO && g.run[0]->io.port != 0xf4));
	assert_int_equal(reason, KVM_EXIT_IO);
	KVM_CALL(g.vcpu[0], KVM_GET_REGS, &regs);
	return regs;
}

static u64 clock_ns(void)
{
	struct kvm_clock_data clock = { 0 };

	KVM_CALL(g.vm, KVM_GET_CLOCK, &clock);
	return clock.clock;
}

static u64 khz(void)
{
	return KVM_CALL(g.vcpu[0], KVM_GET_TSC_KHZ, NULL);
}

static u64 cycles_of_turns(u32 turns)
{
	struct kvm_regs regs;

	START(counting, NULL);
	KVM_CALL(g.vcpu[0], KVM_GET_REGS, &regs);
	regs.r8 = turns;
	KVM_CALL(g.vcpu[0], KVM_SET_REGS, &regs);
	regs = run_to_end();
	kvm_guest_destroy(&g);
	return regs.r11 - regs.r10;
}

static void the_tsc_counts_the_cycles_of_the_guest(void **state)
{
	(void)state;
	assert_int_equal(cycles_of_turns(300), cycles_of_turns(100) + 600);
}

static void no_clock_goes_back_and_all_agree(void **state)
{
	u64 tsc = 0, ns = 0, started;

	(void)state;
	START(telling, NULL);
	started = clock_ns();
	for (u32 i = 0; i < 2000; i++) {
		u64 seen = run_to_end().rax, now = kvm_guest_get_msr(&g, 0, MSR_TSC);
		u64 clock = clock_ns() - started;

		assert_true(seen > tsc && now >= seen && clock >= ns);
		assert_in_range(clock * khz() / 1000000, now - 2 * khz() / 1000000 - 2, now + 2);
		tsc = now;
		ns = clock;
	}
	kvm_guest_destroy(&g);
}

/* KVM: a program that has the local APIC in the kernel adds it to CPUID itself. */
static void add_deadline_timer(void)
{
	struct { /* kvm_cpuid2 with room */
		u32 nent, padding;
		struct kvm_cpuid_entry2 entry[256];
	} list = { .nent = 256 };

	KVM_CALL(g.vcpu[0], KVM_GET_CPUID2, &list);
	for (u32 i = 0; i < list.nent; i++)
		if (list.entry[i].function == 1)
			list.entry[i].ecx |= BIT(24);
	KVM_CALL(g.vcpu[0], KVM_SET_CPUID2, &list);
}

static void start_waiting(u64 ahead, bool halts)
{
	struct kvm_regs regs = {
		.rip = IMAGE_CODE, .rflags = 2, .rsp = IMAGE_STACK, .r8 = ahead, .rsi = halts
	};

	START(waiting, with_irqchip);
	add_deadline_timer();
	handle(TIMER, deadline_handler, waiting_start);
	KVM_CALL(g.vcpu[0], KVM_SET_REGS, &regs);
}

static void a_timer_expires_at_the_exact_instruction(void **state)
{
	(void)state;
	for (u64 ahead = 100000; ahead < 100005; ahead++) {
		struct kvm_regs regs;

		start_waiting(ahead, false);
		regs = run_to_end();
		assert_in_range(regs.r10, regs.r12 + regs.r11 - 1, regs.r12 + regs.r11 + 1);
		kvm_guest_destroy(&g);
	}
}

static void interrupted(int signal)
{
	(void)signal;
}

static volatile bool enough;

static void *disturb(void *arg)
{
	while (!enough)
		pthread_kill(*(pthread_t *)arg, SIGUSR1);
	return NULL;
}

static u64 count_to_deadline(bool disturbed)
{
	pthread_t self = pthread_self(), thread;
	struct kvm_regs regs;

	start_waiting(50000000, false);
	enough = false;
	if (disturbed)
		assert_int_equal(pthread_create(&thread, NULL, disturb, &self), 0);
	regs = run_to_end();
	enough = true;
	if (disturbed)
		pthread_join(thread, NULL);
	assert_in_range(regs.r10, regs.r12 + regs.r11 - 1, regs.r12 + regs.r11 + 1);
	kvm_guest_destroy(&g);
	return regs.rbx;
}

/* Leaving KVM_RUN at any instruction moves no timer. On a busy machine a run may be over before the
 * first signal comes. */
static void signals_do_not_move_a_timer(void **state)
{
	u64 count = count_to_deadline(false);

	(void)state;
	assert_true(count > 20000000);
	interruptions = 0;
	for (u32 i = 0; i < 20 && !interruptions; i++)
		assert_int_equal(count_to_deadline(true), count);
	assert_true(interruptions > 0);
}

static void a_halted_vcpu_skips_to_its_timer(void **state)
{
	u64 hour, ns;
	struct kvm_regs regs;

	(void)state;
	start_waiting(0, true);
	hour = khz() * 1000 * 3600;
	kvm_guest_destroy(&g);
	start_waiting(hour, true);
	ns = clock_ns();
	regs = run_to_end();
	assert_in_range(regs.r10, regs.r12 + regs.r11 - 1, regs.r12 + regs.r11 + 1);
	assert_in_range(clock_ns() - ns, 3599999000000ull, 3600001000000ull);
	kvm_guest_destroy(&g);
}

/* As a program moves it that has stopped it: nobody has had a turn in the new VM. */
static void a_halted_vcpu_that_was_moved_skips_to_its_timer(void **state)
{
	struct kvm_regs regs = { .rip = IMAGE_CODE, .rflags = 2, .rsp = IMAGE_STACK };
	struct kvm_mp_state halted = { KVM_MP_STATE_HALTED };

	(void)state;
	START(arming, with_irqchip);
	handle(MSI, armed_handler, arming_start);
	run_to_end();
	g.run[0]->immediate_exit = 1;
	assert_int_equal(kvm_guest_run(&g, 0), -EINTR);
	regs.rip = IMAGE_CODE + (armed - arming_start);
	regs.rflags |= 0x200;
	KVM_CALL(g.vcpu[0], KVM_SET_REGS, &regs);
	KVM_CALL(g.vcpu[0], KVM_SET_MP_STATE, &halted);
	kvm_state_move(&g, with_irqchip);
	assert_in_range(run_to_end().rax, khz() * 1000, khz() * 1001);
	kvm_guest_destroy(&g);
}

static u64 tick(void)
{
	struct kvm_regs regs;

	START(ticking, with_pit);
	handle(PIC_BASE, tick_handler, ticking_start);
	regs = run_to_end();
	assert_in_range((regs.r11 - regs.r10) * 1000 / khz(), 54925, 54930); /* us */
	kvm_guest_destroy(&g);
	return regs.r11 - regs.r10;
}

static void the_8254_ticks_on_virtual_time(void **state)
{
	(void)state;
	assert_int_equal(tick(), tick());
}

static void *interrupt_later(void *arg)
{
	struct kvm_msi msi = { .address_lo = LAPIC, .data = MSI };
	struct timespec pause = { .tv_nsec = 50000000 }; /* of the host's time */

	(void)arg;
	for (u32 i = 0; i < 600; i++) {
		nanosleep(&pause, NULL);
		if (KVM_CALL(g.vm, KVM_SIGNAL_MSI, &msi) > 0)
			break; /* else the guest has not enabled its APIC yet */
	}
	return NULL;
}

/* Without a timer a halted vCPU waits for the outside, and its time stands still. */
static void the_time_of_the_host_does_not_pass(void **state)
{
	pthread_t thread;
	u64 tsc;

	(void)state;
	START(idle, with_irqchip);
	handle(MSI, msi_handler, idle_start);
	assert_int_equal(pthread_create(&thread, NULL, interrupt_later, NULL), 0);
	tsc = run_to_end().rax;
	pthread_join(thread, NULL);
	assert_in_range(tsc, 1, 1000);
	kvm_guest_destroy(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_tsc_counts_the_cycles_of_the_guest),
		cmocka_unit_test(no_clock_goes_back_and_all_agree),
		cmocka_unit_test(a_timer_expires_at_the_exact_instruction),
		cmocka_unit_test(signals_do_not_move_a_timer),
		cmocka_unit_test(a_halted_vcpu_skips_to_its_timer),
		cmocka_unit_test(a_halted_vcpu_that_was_moved_skips_to_its_timer),
		cmocka_unit_test(the_8254_ticks_on_virtual_time),
		cmocka_unit_test(the_time_of_the_host_does_not_pass),
	};
	struct sigaction action = { .sa_handler = interrupted };

	sigaction(SIGUSR1, &action, NULL);
	setenv("VPMU_CLOCK", "virtual", 1); /* the library reads it when a VM is made */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
