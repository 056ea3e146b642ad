// SPDX-License-Identifier: MIT
/*
 * vCPUs of a VM share the last level of cache and take lines from each other
 * (src/timing/coherence.c): what two that write to one line count of it, in turns and side by side.
 * And lines of a memory slot that moves. Run by `vpmu kvm`.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "guest/kvm_guest.h"

#define VCPUS	       2
#define ROUNDS	       200000
#define HANDOVERS      300
#define QUANTUM_IS     "5000"
#define COUNT_OS       (BIT(17) | BIT(22))
#define FORWARDS       0x04d2 /* MEM_LOAD_L3_HIT_RETIRED.XSNP_HITM, later XSNP_FWD */
#define FROM_CCX       0x0243 /* ls_dmnd_fills_from_sys: L3 or another core of the CCX */
/* Stores that miss L1. */
#define STORE_REQUESTS 0xe224 /* L2_RQSTS.ALL_RFO */
#define STORE_FILLS    0x4060 /* l2_request_g1.rd_blk_x */

/* The last one to arrive says so; others halt for good. */
#define END "9: lock incl 0xff000; cmpl $2, 0xff000; je 8f; cli; hlt; 8: out %al, $0xf4; jmp 8b\n"

/* Adds to the word at RSI R8 times: a read-modify-write, or a load and a store if RDX. */
GUEST_CODE(adding, "test %edx, %edx; jnz 2f\n"
		   "1: incq (%rsi); dec %r8; jnz 1b; jmp 9f\n"
		   "2: mov (%rsi), %rax; inc %rax; mov %rax, (%rsi); dec %r8; jnz 2b\n" END);

/* Waits until the word at RSI is odd, or even, as RDI is, and adds one; R8 times. */
GUEST_CODE(handing_over, "1: mov (%rsi), %rax; xor %rdi, %rax; test $1, %al; jz 2f; pause; jmp 1b\n"
			 "2: lock incq (%rsi); dec %r8; jnz 1b\n" END);

/* Stores to R8 lines from RSI on. */
GUEST_CODE(storing, "1: mov %rax, (%rsi); add $64, %rsi; dec %r8; jnz 1b; hlt\n");

static struct kvm_guest g;
static pthread_t threads[VCPUS];
static volatile bool done;

struct counts {
	u64 lines[VCPUS]; /* from another cache */
};

static void with_irqchip(int vm)
{
	KVM_CALL(vm, KVM_CREATE_IRQCHIP, NULL);
}

static void set_vcpu(int vcpu, u64 address, u64 rounds, u64 rdx)
{
	struct kvm_mp_state runnable = { KVM_MP_STATE_RUNNABLE };
	struct kvm_regs regs = { .rip = IMAGE_CODE,
				 .rflags = 2,
				 .rsp = IMAGE_STACK - vcpu * PAGE_SIZE,
				 .rdi = vcpu,
				 .rsi = address,
				 .rdx = rdx,
				 .r8 = rounds };

	KVM_CALL(g.vcpu[vcpu], KVM_SET_REGS, &regs);
	KVM_CALL(g.vcpu[vcpu], KVM_SET_MP_STATE, &runnable);
	kvm_guest_set_msr(&g, vcpu, kvm_guest_select(&g), (g.amd ? FROM_CCX : FORWARDS) | COUNT_OS);
}

static void *run_vcpu(void *arg)
{
	int vcpu = (int)(long)arg;

	while (!done) {
		int reason = kvm_guest_run(&g, vcpu);

		if (reason == -EINTR || reason == -EAGAIN)
			continue;
		assert_int_equal(reason, KVM_EXIT_IO);
		done = true;
	}
	return NULL;
}

static void interrupted(int signal)
{
	(void)signal;
}

/* Until one vCPU says that both are through. Disturbed: signals end KVM_RUN now and then. */
static struct counts run_all(bool disturbed)
{
	struct timespec pause = { .tv_nsec = 50000 };
	struct counts counts;

	done = false;
	for (int i = 0; i < VCPUS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run_vcpu, (void *)(long)i), 0);
	for (int i = 0; !done; i = (i + 1) % VCPUS) {
		if (disturbed)
			pthread_kill(threads[i], SIGUSR1);
		nanosleep(&pause, NULL);
	}
	for (int i = 0; i < VCPUS; i++) {
		g.run[i]->immediate_exit = 1;
		pthread_kill(threads[i], SIGUSR1);
		pthread_join(threads[i], NULL);
		counts.lines[i] = kvm_guest_get_msr(&g, i, kvm_guest_counter(&g));
	}
	kvm_guest_destroy(&g);
	return counts;
}

static void clocked(const char *clock, const char *timing)
{
	setenv("VPMU_CLOCK", clock, 1); /* the library reads these when a VM is made */
	setenv("VPMU_TIMING", timing, 1);
}

static struct counts add(u64 distance, bool apart, bool disturbed)
{
	kvm_guest_create_with(&g, adding_start, adding_end - adding_start, VCPUS, with_irqchip);
	for (int i = 0; i < VCPUS; i++)
		set_vcpu(i, IMAGE_DATA + i * distance, ROUNDS, apart);
	return run_all(disturbed);
}

/* In each turn the line comes from the other's cache, once; with a load and a store, one of both
 * asks for it first, and only a load counts on Intel's models. */
static void writers_of_a_line_take_it_from_each_other(void **state)
{
	(void)state;
	clocked("virtual", "full");
	for (u32 apart = 0; apart < 2; apart++) {
		struct counts counts = add(8, apart, false);

		for (u32 i = 0; i < VCPUS; i++) {
			assert_true(counts.lines[i] > (apart ? 5 : 30));
			assert_true(counts.lines[i] < ROUNDS / 100);
		}
	}
}

static void writers_of_lines_apart_do_not(void **state)
{
	struct counts counts;

	(void)state;
	clocked("virtual", "full");
	counts = add(256, false, false);
	assert_true(counts.lines[0] + counts.lines[1] <= 2); /* at END */
}

static void lines_move_at_the_same_instructions_in_every_run(void **state)
{
	static const char *const timings[] = { "static", "full" };

	(void)state;
	for (u32 i = 0; i < ARRAY_SIZE(timings); i++) {
		struct counts quiet, disturbed;

		clocked("virtual", timings[i]);
		quiet = add(8, i, false);
		disturbed = add(8, i, true);
		assert_true(quiet.lines[0] && quiet.lines[1]);
		assert_memory_equal(&quiet, &disturbed, sizeof(quiet));
	}
}

/* Without virtual time, too: a line that was handed over has moved. */
static void a_line_that_is_handed_over_moves(void **state)
{
	struct counts counts;

	(void)state;
	clocked("host", "full");
	kvm_guest_create_with(&g, handing_over_start, handing_over_end - handing_over_start, VCPUS,
			      with_irqchip);
	for (int i = 0; i < VCPUS; i++)
		set_vcpu(i, IMAGE_DATA, HANDOVERS, 0);
	counts = run_all(false);
	for (u32 i = 0; i < VCPUS; i++)
		assert_true(counts.lines[i] >= HANDOVERS - 1);
}

#define PAGE_LINES 64

/* Stores to each line of a page, which a slot shows at this address: how many missed L1? */
static u64 misses_at(u64 gpa)
{
	struct kvm_userspace_memory_region region = { .slot = 1,
						      .guest_phys_addr = gpa,
						      .memory_size = PAGE_SIZE,
						      .userspace_addr = (u64)g.ram + 0x120000 };

	KVM_CALL(g.vm, KVM_SET_USER_MEMORY_REGION, &region);
	set_vcpu(0, gpa, PAGE_LINES, 0);
	kvm_guest_set_msr(&g, 0, kvm_guest_select(&g),
			  (g.amd ? STORE_FILLS : STORE_REQUESTS) | COUNT_OS);
	kvm_guest_set_msr(&g, 0, kvm_guest_counter(&g), 0);
	assert_int_equal(kvm_guest_run(&g, 0), KVM_EXIT_HLT);
	region.memory_size = 0;
	KVM_CALL(g.vm, KVM_SET_USER_MEMORY_REGION, &region);
	return kvm_guest_get_msr(&g, 0, kvm_guest_counter(&g));
}

/* Caches know lines by their physical addresses, whatever host memory they are. */
static void a_slot_that_moves_has_other_lines(void **state)
{
	(void)state;
	clocked("host", "static");
	kvm_guest_create(&g, storing_start, (size_t)(storing_end - storing_start), 1);
	assert_int_equal(misses_at(IMAGE_MMIO), PAGE_LINES);
	assert_int_equal(misses_at(IMAGE_MMIO), 0);
	assert_int_equal(misses_at(IMAGE_MMIO + 0x10000), PAGE_LINES);
	kvm_guest_destroy(&g);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(writers_of_a_line_take_it_from_each_other),
		cmocka_unit_test(writers_of_lines_apart_do_not),
		cmocka_unit_test(lines_move_at_the_same_instructions_in_every_run),
		cmocka_unit_test(a_line_that_is_handed_over_moves),
		cmocka_unit_test(a_slot_that_moves_has_other_lines),
	};
	struct sigaction action = { .sa_handler = interrupted };

	sigaction(SIGUSR1, &action, NULL);
	setenv("VPMU_QUANTUM", QUANTUM_IS, 1);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
