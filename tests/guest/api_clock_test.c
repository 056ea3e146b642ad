// SPDX-License-Identifier: MIT
/*
 * Time between two vCPUs: what one has read from RDTSC or kvmclock and published, the other does
 * not read less of afterwards. And which vCPUs count for a stable clock. Run by `vpmu kvm`.
 *
 * usage: api_clock_test [--reads N]     of each vCPU a test
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>
#include <asm/kvm_para.h>
#include <cmocka.h>

#include "guest/kvm_guest.h"

#define TIME_PAGE(vcpu) (IMAGE_DATA + 0x1000u * (1 + (vcpu)))
#define TIME_FLAGS	29 /* offset in the page (pvclock-abi.h) */
#define EXIT_SKIP	4  /* of tests/run */
#define PLUGGED		200
#define PATIENCE	10 /* seconds */

/*
 * ECX: MSR of the time page, 0 to compare RDTSC itself; RDI: time page; R8: how often. Leaves in
 * R10 how often the time was less than one published before, in R11 the most that it was.
 *
 * At 0x100100 a barrier, at 0x100140 the latest time.
 */
GUEST_CODE(clock_reader,
	"mov %ecx, %r9d\n"
	"test %ecx, %ecx; jz 1f\n"
	"lea 1(%rdi), %rax; xor %edx, %edx; wrmsr\n"
	"1: mov $0x100100, %ebx\n"
	"lock incl (%rbx)\n"
	"2: pause; cmpl $2, (%rbx); jb 2b\n"
	"mov $0x100140, %ebx\n"
	"next_read:\n"
	"mov (%rbx), %rsi\n"
	"test %r9d, %r9d; jnz 3f\n"
	"rdtsc; shl $32, %rdx; or %rdx, %rax\n"
	"jmp compare\n"
	"3: mov (%rdi), %r12d; test $1, %r12d; jnz 3b\n"
	"rdtsc; shl $32, %rdx; or %rdx, %rax\n"
	"sub 8(%rdi), %rax\n"
	"mov 28(%rdi), %cl; test %cl, %cl; js 4f\n"
	"shl %cl, %rax; jmp 5f\n"
	"4: neg %cl; shr %cl, %rax\n"
	"5: mov 24(%rdi), %edx; mul %rdx; shrd $32, %rdx, %rax\n"
	"add 16(%rdi), %rax\n"
	"cmp (%rdi), %r12d; jne 3b\n"
	"compare:\n"
	"mov %rsi, %rdx; sub %rax, %rdx; jbe publish\n"
	"inc %r10\n"
	"cmp %r11, %rdx; cmova %rdx, %r11\n"
	"jmp done_read\n"
	"publish: xchg %rax, %rsi\n"
	"lock cmpxchg %rsi, (%rbx)\n"
	"done_read: dec %r8; jnz next_read\n"
	"hlt\n");

static u64 reads = 1000000;
static bool skipped; /* all of them */

struct runner {
	struct kvm_guest *g;
	int vcpu, reason;
};

static void *run_vcpu(void *arg)
{
	struct runner *r = arg;

	do
		r->reason = kvm_guest_run(r->g, r->vcpu);
	while (r->reason == -EINTR);
	return NULL;
}

static void start(struct kvm_guest *g, int vcpu, u32 msr)
{
	struct kvm_regs regs = {
		.rip = IMAGE_CODE, .rflags = 2, .rcx = msr, .rdi = TIME_PAGE(vcpu), .r8 = reads
	};

	KVM_CALL(g->vcpu[vcpu], KVM_SET_REGS, &regs);
}

/* Runs both vCPUs; the time never went back. */
static void never_goes_back(struct kvm_guest *g, u32 msr)
{
	struct runner runner[2] = { { g, 0, 0 }, { g, 1, 0 } };
	pthread_t thread[2];

	memset(g->ram + IMAGE_DATA, 0, 0x1000);
	for (int i = 0; i < 2; i++) {
		start(g, i, msr);
		assert_int_equal(pthread_create(&thread[i], NULL, run_vcpu, &runner[i]), 0);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < 2; i++) {
		struct kvm_regs regs;

		assert_int_equal(runner[i].reason, KVM_EXIT_HLT);
		KVM_CALL(g->vcpu[i], KVM_GET_REGS, &regs);
		assert_int_equal(regs.r8, 0); /* it has read so often, and not met an exception */
		if (regs.r10)
			print_error("vCPU %d: %llu times of %lu, by up to %llu\n", i, regs.r10,
				    reads, regs.r11);
		assert_int_equal(regs.r10, 0);
	}
}

/* Where the host's own TSCs are not in step nothing is promised of the guest's. */
static void create(struct kvm_guest *g)
{
	struct kvm_clock_data clock = { 0 };

	kvm_guest_create(g, clock_reader_start, clock_reader_end - clock_reader_start, 2);
	KVM_CALL(g->vm, KVM_GET_CLOCK, &clock);
	if (clock.flags & KVM_CLOCK_TSC_STABLE)
		return;
	kvm_guest_destroy(g);
	skipped = true;
	skip();
}

static bool page_is_stable(const struct kvm_guest *g, int vcpu)
{
	return g->ram[TIME_PAGE(vcpu) + TIME_FLAGS] & 1;
}

static void rdtsc_never_goes_back(void **state)
{
	struct kvm_guest g;

	(void)state;
	create(&g);
	never_goes_back(&g, 0);
	kvm_guest_destroy(&g);
}

static void kvmclock_never_goes_back(void **state)
{
	struct kvm_guest g;

	(void)state;
	create(&g);
	never_goes_back(&g, MSR_KVM_SYSTEM_TIME_NEW);
	assert_true(page_is_stable(&g, 0) && page_is_stable(&g, 1));
	kvm_guest_destroy(&g);
}

/* KVM: with the old MSR pages do not say that they are stable. They are nevertheless. */
static void kvmclock_of_the_old_msr_never_goes_back(void **state)
{
	struct kvm_guest g;

	(void)state;
	create(&g);
	never_goes_back(&g, MSR_KVM_SYSTEM_TIME);
	assert_false(page_is_stable(&g, 0) || page_is_stable(&g, 1));
	kvm_guest_destroy(&g);
}

/* TSCs that differ are no reason for clocks that do. */
static void kvmclock_of_different_tscs_never_goes_back(void **state)
{
	struct kvm_guest g;

	(void)state;
	create(&g);
	kvm_guest_set_msr(&g, 0, 0x10, 1ull << 40);
	kvm_guest_set_msr(&g, 1, 0x10, 1ull << 50);
	never_goes_back(&g, MSR_KVM_SYSTEM_TIME_NEW);
	assert_false(page_is_stable(&g, 0) || page_is_stable(&g, 1));
	kvm_guest_destroy(&g);
}

/* TSCs at two thirds of the host's frequency, where it can be told apart from the host's. */
static void kvmclock_of_scaled_tscs_never_goes_back(void **state)
{
	struct kvm_guest g;
	int khz;

	(void)state;
	create(&g);
	khz = KVM_CALL(g.vcpu[0], KVM_GET_TSC_KHZ, NULL) / 3 * 2;
	for (int i = 0; i < 2; i++)
		KVM_CALL(g.vcpu[i], KVM_SET_TSC_KHZ, (void *)(long)khz);
	never_goes_back(&g, MSR_KVM_SYSTEM_TIME_NEW);
	kvm_guest_destroy(&g);
}

/* Closer to the host's frequency than is scaled to. */
static void kvmclock_of_tscs_said_to_be_faster_never_goes_back(void **state)
{
	struct kvm_guest g;
	int khz;

	(void)state;
	create(&g);
	khz = KVM_CALL(g.vcpu[0], KVM_GET_TSC_KHZ, NULL);
	for (int i = 0; i < 2; i++)
		KVM_CALL(g.vcpu[i], KVM_SET_TSC_KHZ, (void *)(long)(khz + khz / 5000));
	never_goes_back(&g, MSR_KVM_SYSTEM_TIME);
	kvm_guest_destroy(&g);
}

static void a_vcpu_that_is_refused_does_not_count(void **state)
{
	struct kvm_guest g;
	struct kvm_clock_data clock = { 0 };

	(void)state;
	create(&g);
	assert_int_equal(ioctl(g.vm, KVM_CREATE_VCPU, 0), -1);
	assert_int_equal(errno, EEXIST);
	KVM_CALL(g.vm, KVM_GET_CLOCK, &clock);
	assert_true(clock.flags & KVM_CLOCK_TSC_STABLE);
	kvm_guest_destroy(&g);
}

/* Enables its time page and runs until the byte at IMAGE_DATA is set. */
GUEST_CODE(clock_runner, "mov $0x4b564d01, %ecx; mov $0x101001, %eax; xor %edx, %edx; wrmsr\n"
			 "1: cmpb $0, 0x100000; je 1b\n"
			 "hlt\n");

static bool becomes_stable(const struct kvm_guest *g)
{
	time_t end = time(NULL) + PATIENCE;

	while (!__atomic_load_n(&g->ram[TIME_PAGE(0) + TIME_FLAGS], __ATOMIC_RELAXED))
		if (time(NULL) > end)
			return false;
	return true;
}

/* Another vCPU is matched a little before it counts. */
static void kvmclock_is_stable_after_a_vcpu_was_plugged_in(void **state)
{
	struct kvm_guest g;
	struct runner runner = { &g, 0, 0 };
	int plugged[PLUGGED], n = 0;
	pthread_t thread;
	bool stable;

	(void)state;
	create(&g); /* or skip */
	kvm_guest_destroy(&g);
	kvm_guest_create(&g, clock_runner_start, clock_runner_end - clock_runner_start, 1);
	assert_int_equal(pthread_create(&thread, NULL, run_vcpu, &runner), 0);
	stable = becomes_stable(&g);
	while (stable && n < PLUGGED) {
		plugged[n] = KVM_CALL(g.vm, KVM_CREATE_VCPU, (void *)(long)(n + 1));
		n++;
		stable = becomes_stable(&g);
	}
	__atomic_store_n(&g.ram[IMAGE_DATA], 1, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	assert_true(stable);
	assert_int_equal(runner.reason, KVM_EXIT_HLT);
	assert_true(page_is_stable(&g, 0));
	while (n)
		close(plugged[--n]);
	kvm_guest_destroy(&g);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rdtsc_never_goes_back),
		cmocka_unit_test(kvmclock_never_goes_back),
		cmocka_unit_test(kvmclock_of_the_old_msr_never_goes_back),
		cmocka_unit_test(kvmclock_of_different_tscs_never_goes_back),
		cmocka_unit_test(kvmclock_of_scaled_tscs_never_goes_back),
		cmocka_unit_test(kvmclock_of_tscs_said_to_be_faster_never_goes_back),
		cmocka_unit_test(a_vcpu_that_is_refused_does_not_count),
		cmocka_unit_test(kvmclock_is_stable_after_a_vcpu_was_plugged_in),
	};
	int failed;

	if (argc == 3 && !strcmp(argv[1], "--reads"))
		reads = strtoull(argv[2], NULL, 10);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	if (failed || !skipped)
		return failed;
	puts("SKIP: the host's TSC is not its clock source");
	return EXIT_SKIP;
}
